"""Algorithm 1 line by line, σ, and the rules for the answer to return, with scripted tools."""

import inspect
from dataclasses import replace

import pytest

from covrag_lite.method import (
    Tools,
    by_fitted_thresholds,
    by_revision,
    by_thresholds,
    closed_book,
    cov_rag,
    expected_score,
    keep_combined,
    keep_last,
    keep_likelier,
    rag,
    start_revise,
)
from covrag_lite.prompts import parse_verdict, render_verdict
from covrag_lite.records import Prediction, Round

WRITER = "who wrote the copper lanterns"
BIRTHPLACE = "wher was edit marow born"
REVISED = "Where was Edith Marrow born?"
TRUE = parse_verdict(render_verdict([0.9] * 6, "true", ""))
FALSE = parse_verdict(render_verdict((0.21, 0.21, 0.81, 0.91, 0.82, 0.89), "false", REVISED))
# Just within every bound of the paper's thresholds.
DOUBTED = parse_verdict(render_verdict((0.26, 0.25, 0.5, 0.91, 0.71, 0.5), "false", REVISED))


class Script:
    """Tools of a system that log their arguments."""

    def __init__(self, passages, verdicts):
        self.passages = passages
        self.verdicts = verdicts  # by question
        self.log = []

    def search(self, queries):
        self.log.append(("search", list(queries)))
        return [[self.passages[len(query) % 3], self.passages[3]] for query in queries]

    def answer(self, x, k):
        self.log.append(("answer", list(x), [[p.id for p in passages] for passages in k]))
        return [f"answer to {question} from {passages[0].id}" for question, passages in zip(x, k)]

    def verify(self, x, k, y):
        ids = [[p.id for p in passages] for passages in k]
        self.log.append(("verify", list(x), list(y), ids))
        return [self.verdicts[question] for question in x]

    def tools(self, **settings):
        return Tools("toy", self.search, self.answer, self.verify, **settings)

    def stages(self):
        return [entry[0] for entry in self.log]


@pytest.fixture
def script(passages):
    return Script(passages, {WRITER: TRUE, BIRTHPLACE: FALSE})


# Algorithm 1.


def test_algorithm_1_line_by_line(questions, script):
    accepted, revised = cov_rag(questions[:2], script.tools())
    assert script.log[0] == ("search", [WRITER, BIRTHPLACE])  # line 2: R(x)
    assert script.log[1][:2] == ("answer", [WRITER, BIRTHPLACE])  # line 3: M(x, k)
    first_answers = [accepted.rounds[0].answer, revised.rounds[0].answer]
    assert script.log[2][:3] == ("verify", [WRITER, BIRTHPLACE], first_answers)  # line 4
    assert script.log[3] == ("search", [REVISED])  # lines 5 to 7: σ, R(x′)
    second_passages = [p.id for p in revised.rounds[1].passages]
    assert script.log[4] == ("answer", [BIRTHPLACE], [second_passages])  # line 8: M(x, k′)
    assert len(script.log) == 5  # and nothing after that


def test_the_second_answer_is_returned_after_a_revision(questions, script):
    _, revised = cov_rag(questions[:2], script.tools())
    assert revised.answer == revised.rounds[1].answer  # line 9: ŷ = ŷ′


def test_the_first_answer_is_returned_without_a_revision(questions, script):
    accepted, _ = cov_rag(questions[:2], script.tools())
    assert accepted.answer == accepted.rounds[0].answer  # line 11
    assert len(accepted.rounds) == 1


def test_predictions_are_in_the_order_of_the_questions(questions, script):
    predictions = cov_rag(questions[:2], script.tools())
    assert [prediction.question for prediction in predictions] == questions[:2]


def test_predictions_carry_the_name_of_their_system(questions, script):
    predictions = cov_rag(questions[:2], script.tools())
    assert {prediction.system for prediction in predictions} == {"toy"}


def test_algorithm_1_fits_on_one_screen():
    assert len(inspect.getsource(cov_rag).splitlines()) <= 40


def test_the_rule_for_the_kept_answer_sees_all_rounds_and_decides(questions, script):
    _, revised = cov_rag(questions[:2], script.tools(keep=lambda rounds: 2 - len(rounds)))
    assert revised.kept == 0
    assert revised.answer == revised.rounds[0].answer


def test_a_third_search_follows_a_second_revision(questions, script):
    _, revised = cov_rag(questions[:2], script.tools(max_rounds=3))
    assert script.stages() == ["search", "answer", "verify"] * 2 + ["search", "answer"]
    assert [turn.query for turn in revised.rounds] == [BIRTHPLACE, REVISED, REVISED]


def test_the_last_answer_is_verified_if_the_rule_needs_it(questions, script):
    _, revised = cov_rag(questions[:2], script.tools(verifies_last=True))
    assert script.stages() == ["search", "answer", "verify"] * 2
    assert script.log[-1][1:3] == ([BIRTHPLACE], [revised.answer])
    assert revised.rounds[1].verdict == FALSE


def test_likelihoods_are_those_of_each_round(questions, script):
    tools = script.tools(likelihoods=lambda x, k: [-len(question) for question in x])
    accepted, revised = cov_rag(questions[:2], tools)
    assert accepted.rounds[0].likelihood == -len(WRITER)
    assert [turn.likelihood for turn in revised.rounds] == [-len(BIRTHPLACE)] * 2


# Baselines.


def test_plain_retrieval_verifies_nothing(questions, script):
    predictions = rag(questions[:2], script.tools(verifies_last=True))
    assert script.stages() == ["search", "answer"]
    assert [prediction.rounds[0].verdict for prediction in predictions] == [None, None]


def test_start_revise_searches_with_the_rewritten_question(questions, script):
    def write_from_question(task, x):
        assert task == "rewrite"
        return ["", REVISED]  # nothing is written for the first question

    predictions = start_revise(questions[:2], script.tools(write_from_question=write_from_question))
    assert script.log[0] == ("search", [WRITER, REVISED])
    assert script.log[1][1] == [WRITER, BIRTHPLACE]  # the original questions are answered
    assert [prediction.rounds[0].query for prediction in predictions] == [WRITER, REVISED]


def test_closed_book_answers_without_a_search(questions, script):
    def write_from_question(task, x):
        assert task == "closed-book"
        return ["Edith Marrow", "Stonebridge"]

    predictions = closed_book(questions[:2], script.tools(write_from_question=write_from_question))
    assert script.log == []
    assert [p.rounds[0] for p in predictions] == [
        Round("", (), "Edith Marrow"),
        Round("", (), "Stonebridge"),
    ]


# σ: when to search again.


def verified(verdict, likelihood=None):
    return Round("asked", (), "answer", verdict, likelihood)


def test_sigma_decides_which_questions_are_searched_again(questions, script):
    predictions = cov_rag(questions[:2], script.tools(sigma=lambda last: False))
    assert [prediction.revised for prediction in predictions] == [False, False]
    assert script.log[3:] == [("search", []), ("answer", [], [])]


def test_by_default_a_revised_question_is_searched_for():
    assert by_revision(verified(FALSE))
    assert not by_revision(verified(TRUE))


def test_the_papers_thresholds_allow_a_search_within_all_bounds():
    assert by_thresholds(verified(DOUBTED))


@pytest.mark.parametrize(
    "field, value",
    [
        ("reference_correctness", 0.27),
        ("correctness", 0.26),
        ("bias", 0.7),
        ("truthfulness", 0.92),
        ("judgment", "unclear"),
        ("revised_question", ""),
        ("parsed", False),
    ],
)
def test_each_of_the_papers_thresholds_prevents_a_search(field, value):
    assert not by_thresholds(verified(replace(DOUBTED, **{field: value})))


def test_the_papers_thresholds_need_scores():
    without_scores = replace(DOUBTED, reference_correctness=None)
    with pytest.raises(ValueError, match="needs a verifier that writes scores"):
        by_thresholds(verified(without_scores))


EXPECTED = replace(DOUBTED, probabilities={"reference_correctness": 0.8, "correctness": 0.7})


def test_an_expected_score_replaces_the_written_one():
    assert expected_score(EXPECTED, "correctness") == 0.7
    assert expected_score(EXPECTED, "bias") == 0.71  # its expectation is not known


def test_fitted_thresholds_allow_a_search_below_all_of_them():
    assert by_fitted_thresholds(0.81, 0.71, -0.49)(verified(EXPECTED, -0.5))


@pytest.mark.parametrize("thresholds", [(0.8, 0.71, -0.49), (0.81, 0.7, -0.49), (0.81, 0.71, -0.5)])
def test_each_fitted_threshold_prevents_a_search(thresholds):
    assert not by_fitted_thresholds(*thresholds)(verified(EXPECTED, -0.5))


def test_an_unknown_likelihood_counts_as_below_the_threshold():
    assert by_fitted_thresholds(0.81, 0.71, -0.49)(verified(EXPECTED, None))


def test_fitted_thresholds_allow_every_search_by_default():
    certain = replace(EXPECTED, probabilities={"reference_correctness": 1.0, "correctness": 1.0})
    assert by_fitted_thresholds()(verified(certain, 0.0))


@pytest.mark.parametrize("sigma", [by_revision, by_thresholds, by_fitted_thresholds()])
def test_a_verdict_that_does_not_parse_causes_no_search(sigma):
    assert not sigma(verified(parse_verdict("I think the answer is fine.")))


# Which answer is returned.


def test_the_paper_keeps_the_last_answer():
    assert keep_last([verified(TRUE)] * 3) == 2


@pytest.mark.parametrize(
    "likelihoods, kept",
    [
        ((-0.5, -0.6), 0),
        ((-0.6, -0.5), 1),
        ((-0.5, -0.5), 1),  # of a tie the last
        ((-0.5, -0.5, -0.9), 1),
        ((-0.5, None), 1),  # if one is unknown, the last
        ((None, -0.9, -0.5), 2),
    ],
)
def test_the_answer_with_the_higher_likelihood_is_kept(likelihoods, kept):
    assert keep_likelier([verified(TRUE, likelihood) for likelihood in likelihoods]) == kept


def scored(correctness, likelihood):
    return verified(replace(TRUE, correctness=correctness), likelihood)


@pytest.mark.parametrize("correctness, likelihood, kept", [(0.9, -2.15, 1), (0.9, -2.25, 0)])
def test_the_combined_score_weighs_correctness_three_times(correctness, likelihood, kept):
    # The first answer has -0.1 + 3 × 0.2 = 0.5; the second -2.15 + 3 × 0.9 = 0.55, or 0.45.
    assert keep_combined([scored(0.2, -0.1), scored(correctness, likelihood)]) == kept


def test_without_a_verdict_or_likelihood_of_every_round_the_last_answer_is_kept():
    assert keep_combined([scored(0.9, -0.1), verified(None, -1.5)]) == 1
    assert keep_combined([verified(TRUE, None), scored(0.1, -1.5)]) == 1


def test_without_scores_the_verifier_score_is_the_probability_of_no_revision():
    answers = []
    for probability in (0.9, 0.2):
        verdict = replace(TRUE, correctness=None, probabilities={"empty": probability})
        answers.append(verified(verdict, -1.0))
    assert keep_combined(answers) == 0


def test_a_prediction_keeps_its_last_round_unless_another_is_named(questions):
    rounds = (verified(FALSE), verified(TRUE))
    assert Prediction(questions[0], "toy", rounds).kept == 1
    assert Prediction(questions[0], "toy", rounds, kept=0).final == rounds[0]


# Tools that a system does not have.


def test_a_tool_that_is_missing_says_so(questions, script):
    without_verifier = Tools("toy", script.search, script.answer)
    with pytest.raises(ValueError, match="no verifier"):
        cov_rag(questions[:2], without_verifier)
    with pytest.raises(ValueError, match="no model that writes"):
        closed_book(questions[:2], without_verifier)


def test_an_unverified_round_has_no_revised_question():
    with pytest.raises(ValueError, match="'answer' is not verified"):
        by_revision(verified(None))
