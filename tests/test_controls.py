"""Control systems and query expansion, with scripted tools."""

from dataclasses import replace

import pytest
from test_method import BIRTHPLACE, FALSE, REVISED, TRUE, WRITER, Script

from covrag_lite.method import cov_rag
from covrag_lite.systems.controls import (
    read_on,
    shuffled,
    swap_answers,
    swap_references,
    verify_only,
)
from covrag_lite.systems.expansion import expand_by_answer, expand_by_guesses


@pytest.fixture
def script(passages):
    return Script(passages, {WRITER: TRUE, BIRTHPLACE: FALSE})


# Another question's search.


@pytest.fixture
def three_verdicts(questions):
    other = replace(FALSE, revised_question="How long is it?")
    return {WRITER: TRUE, BIRTHPLACE: FALSE, questions[2].question: other}


def test_the_shuffled_control_exchanges_the_revised_questions(questions, passages, three_verdicts):
    plain = Script(passages, three_verdicts)
    mixed = Script(passages, three_verdicts)
    cov_rag(questions[:3], plain.tools())
    shuffled(questions[:3], mixed.tools())
    assert plain.log[3] == ("search", [REVISED, "How long is it?"])
    assert mixed.log[3] == ("search", ["How long is it?", REVISED])


def test_the_shuffled_control_has_two_rounds_whatever_the_run_says(
    questions, passages, three_verdicts
):
    script = Script(passages, three_verdicts)
    predictions = shuffled(questions[:3], script.tools(max_rounds=3))
    assert [len(prediction.rounds) for prediction in predictions] == [1, 2, 2]


def test_a_single_revised_question_has_no_other_to_exchange_it_with(questions, passages):
    script = Script(passages, {WRITER: TRUE, BIRTHPLACE: FALSE})
    predictions = shuffled(questions[:2], script.tools())
    assert [len(prediction.rounds) for prediction in predictions] == [1, 1]


# The next passages.


def test_the_control_that_reads_on_takes_the_next_passages_of_the_same_question(questions, script):
    next_passages = script.passages[-2:]
    queries_on = []

    def search_deeper(queries):
        queries_on.append(queries)
        return [next_passages]

    accepted, again = read_on(
        questions[:2], script.tools(max_rounds=3, search_deeper=search_deeper)
    )
    assert script.stages() == ["search", "answer", "verify", "answer"]
    assert queries_on == [[BIRTHPLACE]]
    assert script.log[-1] == ("answer", [BIRTHPLACE], [[p.id for p in next_passages]])
    assert len(accepted.rounds) == 1
    assert again.rounds[1].query == BIRTHPLACE
    assert again.rounds[1].passages == tuple(next_passages)


def test_the_control_that_reads_on_follows_the_verifier_whatever_the_run_says(questions, script):
    def never(judged_round):
        return False

    tools = script.tools(sigma=never, search_deeper=lambda queries: [script.passages[-2:]])
    assert [len(p.rounds) for p in read_on(questions[:2], tools)] == [1, 2]


# Query expansion.

WRITTEN = {"guess": ["Ada wrote it.", ""], "options": ["Ada, Bea, Cyd", "Oslo"]}


@pytest.fixture
def expanding(script):
    return script.tools(write_from_question=lambda task, x: WRITTEN[task], keep=lambda rounds: 0)


def test_query_expansion_searches_a_second_time_for_every_question(questions, script, expanding):
    expand_by_guesses(questions[:2], expanding)
    assert script.stages() == ["search", "answer"] * 2
    assert script.log[3][1] == [WRITER, BIRTHPLACE]  # the original questions are answered


def test_the_expanded_query_is_the_question_with_the_guesses(questions, expanding):
    expanded, _ = expand_by_guesses(questions[:2], expanding)
    assert expanded.rounds[1].query == f"{WRITER}? Ada wrote it. Ada, Bea, Cyd"


def test_without_a_guess_the_query_is_the_question(questions, expanding):
    _, unchanged = expand_by_guesses(questions[:2], expanding)
    assert unchanged.rounds[1].query == BIRTHPLACE


def test_the_rule_decides_which_answer_query_expansion_keeps(questions, expanding):
    expanded, _ = expand_by_guesses(questions[:2], expanding)
    assert expanded.kept == 0
    last = replace(expanding, keep=lambda rounds: len(rounds) - 1)
    expanded, _ = expand_by_guesses(questions[:2], last)
    assert expanded.answer == expanded.rounds[1].answer


def test_query_expansion_verifies_both_answers_if_the_rule_needs_it(questions, script, expanding):
    predictions = expand_by_guesses(questions[:2], replace(expanding, verifies_last=True))
    assert script.stages() == ["search", "answer"] * 2 + ["verify"] * 2
    for number in (0, 1):
        answers = [prediction.rounds[number].answer for prediction in predictions]
        assert script.log[4 + number][1:3] == ([WRITER, BIRTHPLACE], answers)


def test_expansion_by_the_answer_writes_nothing_else(questions, script):
    expanded, _ = expand_by_answer(questions[:2], script.tools())
    assert expanded.rounds[1].query == f"{WRITER}? {expanded.rounds[0].answer}"


# Does the verifier read?


def test_a_system_that_only_verifies_searches_once(questions, script):
    predictions = verify_only(questions[:2], script.tools(max_rounds=3))
    assert script.stages().count("verify") == 1
    assert [len(prediction.rounds) for prediction in predictions] == [1, 1]
    assert [prediction.rounds[0].verdict for prediction in predictions] == [TRUE, FALSE]


def test_swapped_references_are_the_passages_of_the_next_question(questions, script):
    first, second = swap_references(questions[:2], script.tools())
    of_first = [p.id for p in first.rounds[0].passages]
    of_second = [p.id for p in second.rounds[0].passages]
    answers = [first.answer, second.answer]
    assert script.log[2] == ("verify", [WRITER, BIRTHPLACE], answers, [of_second, of_first])


@pytest.fixture
def swapped(questions, script):
    same_question = [replace(questions[0], dataset=name) for name in ("one", "one", "one", "two")]
    tools = replace(
        script.tools(),
        answer=lambda x, k: ["a", "a", "b", "x"][: len(x)],
        likelihoods=lambda x, k: [-1.0] * len(x),
    )
    return swap_answers(same_question, tools)


def test_a_swapped_answer_is_the_next_different_one_of_the_same_set(swapped):
    assert [prediction.answer for prediction in swapped] == ["b", "b", "a", "x"]


def test_the_verifier_is_shown_the_swapped_answers(swapped, script):
    assert script.log[1][2] == ["b", "b", "a", "x"]


def test_a_swapped_answer_has_no_likelihood(swapped):
    assert {prediction.rounds[0].likelihood for prediction in swapped} == {None}
