"""A²R line by line: assessment, feedback, the history that a refinement reads, stopping."""

from dataclasses import replace

import pytest
from toy_related import BORN, WRITER, Script, answer_in

from covrag_lite.plugins.related.a2r import ASK_FEEDBACK, REFINE, a2r
from covrag_lite.prompts import SEPARATOR, build_references


@pytest.fixture
def script(passages):
    """The first question's answer is good; the second's is supported once it is refined."""
    texts = {
        "feedback": lambda prompt, _: f"cite in {answer_in(prompt)}",
        "refine": lambda prompt, _: f"{answer_in(prompt)} again",
    }
    entailed = {("p0", "Edith"), ("p0", "Leeds again")}
    return Script(
        passages, entailed=entailed, answers={WRITER: "Edith[1]", BORN: "Leeds"}, texts=texts
    )


@pytest.fixture
def predictions(script, questions):
    return a2r(questions[:2], script.tools())


@pytest.fixture
def refined(predictions):
    return predictions[1]


def test_the_first_answers_are_read_from_the_search(script, passages, predictions):
    first, second, *_ = script.log
    assert first == ("search", [WRITER, BORN])
    assert second == ("answer", [WRITER, BORN], [passages[:3]] * 2)


def test_an_assessment_asks_for_the_entailment_of_every_statement(script, passages, predictions):
    evidence = [tuple(passages[:3])] * 2
    assert script.log[2] == ("entail", [WRITER, BORN], evidence, ["Edith", "Leeds"])


def test_gold_answers_make_no_difference(script, questions, predictions):
    without_gold = [replace(question, answers=()) for question in questions[:2]]
    again = a2r(without_gold, script.tools())
    assert [prediction.rounds for prediction in again] == [
        prediction.rounds for prediction in predictions
    ]


def test_a_good_answer_is_not_refined(predictions):
    assert [turn.answer for turn in predictions[0].rounds] == ["Edith[1]"]


def prompt_of(script, stage, t):
    """The prompt of a stage in iteration t; only the second question is refined."""
    (prompts,) = script.calls(stage)[t]
    (prompt,) = prompts
    return prompt


@pytest.fixture
def evidence(passages):
    """How every prompt begins."""
    return [build_references(passages[:3]), f"Question: {BORN}"]


def test_feedback_is_about_references_question_and_answer(script, evidence, refined):
    beginning = SEPARATOR.join([*evidence, "Answer: Leeds", ASK_FEEDBACK])
    assert prompt_of(script, "feedback", 0).startswith(beginning)


def test_an_unsatisfactory_aspect_gets_advice(script, refined):
    assert prompt_of(script, "feedback", 0).count("score 0: advise to") == 3


def test_a_satisfactory_aspect_gets_none(script, refined):
    prompt = prompt_of(script, "feedback", 1)  # the answer is supported, but cites nothing
    assert "support, score 100: say that it is satisfactory" in prompt


def test_feedback_is_about_the_last_answer_only(script, refined):
    prompt = prompt_of(script, "feedback", 1)
    assert [answer_in(prompt), prompt.count("Answer: ")] == ["Leeds again", 1]


def test_the_first_refinement_reads_the_first_answer_with_its_feedback(script, evidence, refined):
    """Equation 4 with t = 0."""
    history = ["Answer: Leeds", "Feedback: cite in Leeds"]
    assert prompt_of(script, "refine", 0) == SEPARATOR.join([*evidence, *history, REFINE])


def test_the_last_refinement_reads_the_whole_history(script, evidence, refined):
    """Equation 5: H = [p_refine; x; e; Y0; F0; Y1; F1]."""
    history = ["Answer: Leeds", "Feedback: cite in Leeds"]
    history += ["Answer: Leeds again", "Feedback: cite in Leeds again"]
    assert prompt_of(script, "refine", 1) == SEPARATOR.join([*evidence, *history, REFINE])


def test_it_refines_at_most_twice(script, refined):
    assert script.names[2:] == ["entail", "feedback", "refine"] * 2


def test_the_last_refinement_is_the_output(refined):
    assert refined.answer == "Leeds again again"


def test_a_round_notes_its_scores_with_the_feedback(refined):
    expected = "support 0, citation recall 0, citation precision 0; feedback: cite in Leeds"
    assert refined.rounds[0].note == expected
