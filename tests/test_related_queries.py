"""RRR, CoQ, UoQ and FaVe line by line: which queries are searched, and what is read from them."""

import pytest
from toy_related import BORN, WRITER, Script, ids, last_question

from covrag_lite.plugins.related import coq as coqs
from covrag_lite.plugins.related import fave as faves
from covrag_lite.plugins.related.coq import coq
from covrag_lite.plugins.related.fave import fave
from covrag_lite.plugins.related.rrr import rrr
from covrag_lite.plugins.related.search_session import (
    EXAMPLE_SUB_QUESTIONS,
    MAX_SUB_QUESTIONS,
    parse_plan,
    write_sessions,
)
from covrag_lite.plugins.related.sub_questions import cite_documents, trace_citations
from covrag_lite.plugins.related.uoq import uoq
from covrag_lite.records import Round

# RRR: rewrite, retrieve, read.


@pytest.fixture
def rewriting(passages):
    def rewrite(question, _):
        return "Who is the author?" if question == WRITER else ""

    return Script(passages, texts={"rewrite": rewrite})


@pytest.fixture
def rewritten(rewriting, questions):
    return rrr(questions[:2], rewriting.tools())


def test_rrr_searches_with_the_rewritten_question(rewriting, rewritten):
    assert rewriting.log[:2] == [
        ("rewrite", [WRITER, BORN]),
        ("search", ["Who is the author?", BORN]),  # an empty rewrite leaves the question
    ]


def test_rrr_answers_the_original_question(rewriting, passages, rewritten):
    assert rewriting.log[2:] == [("answer", [WRITER, BORN], [passages[:3]] * 2)]


def test_rrr_records_the_rewritten_question(rewritten):
    assert [prediction.rounds[0].query for prediction in rewritten] == ["Who is the author?", BORN]


# CoQ: prompt A writes a sub-question, prompt B answers it.

# Sub-questions by the number of earlier ones, for each question.
CHAINS = {WRITER: ["who is it", "what is it", "[END]"], BORN: ["", "[END] of it"]}
CHAIN_ANSWERS = {"who is it": "Edith[1]", "what is it": "a novel[3]", WRITER: "Edith[1][2]"}
CHAIN_RELEVANCE = {("who is it", "p2"): 0.9, ("what is it", "p1"): 0.7}


def write_next(prompt, _):
    """The next sub-question of the question's chain."""
    chain = prompt.rpartition("Question: ")[2]
    return CHAINS[chain.splitlines()[0]][chain.count("Output:")]


@pytest.fixture
def chain(passages):
    texts = {"follow-up": write_next}
    return Script(passages, CHAIN_RELEVANCE, answers=CHAIN_ANSWERS, texts=texts)


@pytest.fixture
def chained(chain, questions):
    return coq(questions[:2], chain.tools())


def test_coq_alternates_between_its_two_prompts(chain, chained):
    one_step = ["follow-up", "search", "score", "answer"]
    assert chain.names == [*one_step * 3, "answer"]


def test_coq_writes_a_sub_question_from_all_earlier_answers(chain, chained):
    first, second, third = [prompts for (prompts,) in chain.calls("follow-up")]
    assert first[0].endswith(f"Question: {WRITER}\nSearch:")
    steps = "Search: who is it\nOutput: Edith[1]\n"
    assert second[0].endswith(f"Question: {WRITER}\n{steps}Search:")
    steps += "Search: what is it\nOutput: a novel[3]\n"
    assert third[0].endswith(f"Question: {WRITER}\n{steps}Search:")


def test_coq_searches_for_each_sub_question_after_the_other(chain, chained):
    assert chain.calls("search") == [[["who is it", BORN]], [["what is it"]], [[]]]


def test_a_chain_that_ends_at_once_searches_for_the_question(chained):
    assert [step.query for step in chained[1].rounds] == [BORN, BORN]  # the step, the conclusion


def test_coq_answers_from_two_documents_and_all_earlier_answers(chain, chained):
    (_, first), (_, second), *_ = chain.calls("answer")
    assert ids(first[0]) == ["p2", "p0"]
    assert ids(second[0]) == ["p1", "p0", ""]
    assert second[0][2].text == "who is it Edith"


def test_coq_concludes_from_the_sub_answers(chain, chained):
    x, k = chain.calls("answer")[-1]
    assert x == [WRITER, BORN]
    assert [reference.text for reference in k[0]] == ["who is it Edith", "what is it a novel"]


def test_a_citation_of_an_earlier_answer_is_traced_to_that_answers_document(chained):
    """Sub-answer 2 cites reference 3, which is sub-answer 1; that one cites p2."""
    final = chained[0].rounds[-1]
    assert ids(final.passages) == ["p2", "p0", "p1"]
    assert final.answer == "Edith[1][1]"


def test_a_chain_has_at_most_three_sub_questions(questions, passages):
    def write_another(prompt, _):
        return f"step {prompt.rpartition('Question: ')[2].count('Output:')}"

    script = Script(passages, texts={"follow-up": write_another})
    (prediction,) = coq(questions[:1], script.tools())
    assert [step.query for step in prediction.rounds[:-1]] == ["step 0", "step 1", "step 2"]


def test_a_chain_that_repeats_itself_ends(questions, passages):
    script = Script(passages, texts={"follow-up": lambda prompt, _: "who?"})
    (prediction,) = coq(questions[:1], script.tools())
    assert [step.query for step in prediction.rounds[:-1]] == ["who?"]


@pytest.mark.parametrize(
    "text, sub_question",
    [
        (" Who was it?\nOutput: nobody", "Who was it?"),
        ("Search: Who was it?", "Who was it?"),
        ("[end]", ""),
        ("...", ""),
        (coqs.EXAMPLE_SUB_QUESTIONS[0], ""),  # a copy of the prompt's example
        ("", ""),
    ],
)
def test_the_next_sub_question_is_the_first_line(text, sub_question):
    assert coqs.parse_next(text) == sub_question


# UoQ: one session, answered apart.

UNION_ANSWERS = {"who is it": "Edith[1]", "what is it": "a novel[3]", WRITER: "Edith[1][2]"}
UNION_RELEVANCE = {("who is it", "p2"): 0.9, ("what is it", "p1"): 0.7}


@pytest.fixture
def union(passages):
    def write_plan(prompt, sample):
        assert sample is None  # greedy
        return "[1] who is it\n[2] what is it" if WRITER in prompt else "no plan"

    return Script(passages, UNION_RELEVANCE, answers=UNION_ANSWERS, texts={"plan": write_plan})


@pytest.fixture
def united(union, questions):
    return uoq(questions[:2], union.tools())


def test_uoq_has_three_stages_and_a_conclusion(union, united):
    assert union.names == ["plan", "search", "score", "answer", "answer"]


def test_uoq_plans_every_sub_question_before_any_is_answered(union, united):
    assert union.calls("search") == [[["who is it", "what is it", BORN]]]  # C1 is broken


def test_uoq_answers_a_sub_question_from_its_own_documents_only(union, united):
    sub_questions, documents = union.calls("answer")[0]
    assert sub_questions == ["who is it", "what is it", BORN]
    assert [ids(passages) for passages in documents] == [["p2", "p0"], ["p1", "p0"], ["p0", "p1"]]


def test_uoq_concludes_from_the_sub_answers(union, united):
    x, k = union.calls("answer")[1]
    assert x == [WRITER, BORN]
    assert [reference.text for reference in k[0]] == ["who is it Edith", "what is it a novel"]


def test_in_uoq_a_mark_beyond_the_documents_cites_nothing(united):
    assert united[0].answer == "Edith[1]"  # sub-answer 2 cites a third of two documents


# FaVe: several sessions, of which verification chooses one.

SESSIONS = {
    WRITER: [["off a", "off b"], ["who is it", "what is it"]],
    BORN: [["where"], ["off c"]],
}
EVERY = ["off a", "off b", "who is it", "what is it", "where", "off c"]
SESSION_RELEVANCE = {
    ("who is it", "p2"): 0.9,
    ("who is it", "p1"): 0.5,
    ("what is it", "p0"): 0.7,
    ("where", "p1"): 0.6,
}
SESSION_ANSWERS = {"who is it": "Edith[1]", "what is it": "a novel", WRITER: "Edith[1][2]"}


@pytest.fixture
def sessions(passages, monkeypatch):
    monkeypatch.setattr(faves, "SESSIONS", 2)

    def write_plan(prompt, sample):
        return "\n".join(f"- {line}" for line in SESSIONS[last_question(prompt)][sample])

    def judge(prompt, _):
        return "No" if "off" in prompt else "Yes"

    texts = {"plan": write_plan, "relevant": judge}
    return Script(passages, SESSION_RELEVANCE, answers=SESSION_ANSWERS, texts=texts)


@pytest.fixture
def verified(sessions, questions):
    return fave(questions[:2], sessions.tools())


def test_fave_samples_eight_sessions_as_in_the_paper():
    assert faves.SESSIONS == 8


def test_fave_runs_the_lines_of_its_algorithm(sessions, verified):
    lines = ["plan", "plan", "search", "score", "relevant", "answer", "answer"]
    assert sessions.names == lines


def test_fave_searches_for_every_sub_question_of_every_session_at_once(sessions, verified):
    assert sessions.calls("search") == [[EVERY]]


def test_fave_asks_whether_each_sub_question_helps_with_its_question(sessions, verified):
    ((prompts,),) = sessions.calls("relevant")
    x = [WRITER] * 4 + [BORN] * 2
    for prompt, question, sub_question in zip(prompts, x, EVERY, strict=True):
        assert prompt.endswith(f"Question: {question}\nSub-question: {sub_question}\nHelps:")


def test_fave_answers_the_sub_questions_of_the_best_session(sessions, verified):
    sub_questions, documents = sessions.calls("answer")[0]
    assert sub_questions == ["who is it", "what is it", "where"]
    assert [ids(passages) for passages in documents] == [["p2", "p1"], ["p0", "p1"], ["p1", "p0"]]


def test_fave_concludes_from_the_sub_answers(sessions, verified):
    x, k = sessions.calls("answer")[1]
    assert x == [WRITER, BORN]
    assert [reference.text for reference in k[0]] == ["who is it Edith", "what is it a novel"]


def test_the_rounds_are_the_steps_of_the_best_session_then_the_conclusion(verified):
    queries = [turn.query for turn in verified[0].rounds]
    assert queries == ["who is it", "what is it", "who is it | what is it"]


def test_the_final_answer_cites_the_documents_of_the_sub_answers(verified):
    final = verified[0].rounds[-1]
    assert ids(final.passages) == ["p2", "p1", "p0"]
    assert final.answer == "Edith[1]"  # sub-answer 1 cites p2; sub-answer 2 cites nothing


def test_the_note_names_the_session_with_its_quality(verified):
    # (2 of 3 relevant + the mean of 0.9 and 0.7) / 2
    assert verified[0].rounds[-1].note == "session 2 of 2, quality 0.73"


@pytest.mark.parametrize(
    "relevant, top_scores, quality",
    [
        ([True, False], [0.8, 0.4], (1 / 3 + 0.6) / 2),
        ([True] * 3, [0.5] * 3, (1 + 0.5) / 2),
        ([True] * 4, [0.5] * 4, (1 + 0.5) / 2),  # more than δ relevant ones count no more
    ],
)
def test_the_quality_of_a_session_follows_equations_2_to_4(relevant, top_scores, quality):
    assert faves.rate(relevant, top_scores) == pytest.approx(quality)


@pytest.mark.parametrize(
    "reply, helps", [("Yes", True), (" yes, it", True), ("No", False), ("Perhaps yes", False)]
)
def test_only_a_yes_means_that_a_sub_question_helps(reply, helps):
    author = Script([], texts={"relevant": lambda prompt, _: reply})
    assert faves.is_relevant(author, ["x?"], ["a?"]) == [helps]


# Sessions and citations.


def test_sub_questions_are_the_numbered_lines_each_once_and_three_at_most():
    text = "Sure!\n[1] Who wrote it?\n2. When was it?\n- Who wrote it?\n[3] ...\n4) Where?\n5) Why?"
    assert parse_plan(text) == ["Who wrote it?", "When was it?", "Where?"]
    assert MAX_SUB_QUESTIONS == 3


def test_a_copy_of_the_example_is_no_sub_question():
    assert parse_plan(f"[1] {EXAMPLE_SUB_QUESTIONS[0]}\n[2] Who?") == ["Who?"]


def test_a_plan_that_does_not_parse_is_the_question_itself():
    author = Script([], texts={"plan": lambda prompt, _: "I cannot say."})
    assert write_sessions(author, ["who?"]) == [["who?"]]


def test_citations_of_a_chain_are_traced_through_earlier_answers(passages):
    steps = [
        Round("a", (passages[0], passages[1]), "x[2]"),
        Round("b", (passages[2],), "y[1][2]"),  # reference 2 is the first sub-answer
    ]
    assert [ids(documents) for documents in trace_citations(steps, is_chain=True)] == [
        ["p1"],
        ["p2", "p1"],
    ]


def test_without_a_chain_only_own_documents_are_cited(passages):
    steps = [Round("a", (passages[0],), "x[1]"), Round("b", (passages[2],), "y[1][2]")]
    documents = trace_citations(steps, is_chain=False)
    assert [ids(passages) for passages in documents] == [["p0"], ["p2"]]


def test_a_citation_that_points_to_no_sub_answer_disappears(passages):
    assert cite_documents("x[1][5]", [[passages[1]]], passages[:2]) == "x[2]"
