"""Whether a judge agrees with the gold answers, on small hand-computed examples."""

import numpy as np
import pandas as pd
import pytest

from covrag_lite import metrics
from covrag_lite.judging.answers import Answers
from covrag_lite.records import Prediction, Round
from covrag_lite.tables.agreement import (
    agreement_facts,
    clustered_auroc,
    clustered_interval,
    compare_scores,
    format_agreement,
    measure,
)
from covrag_lite.tables.ranks import SCORE_COLUMNS

# Of a right answer with score 0.9, wrong ones with 0.6 and 0.2, and a right one with 0.2.
SCORES = np.array([0.9, 0.6, 0.2, 0.2])
RIGHT = np.array([True, False, False, True])


def judged(scores=SCORES, right=RIGHT, questions="abcd"):
    rows = {"judge": "x", "criterion": "correctness", "id": list(questions)}
    return pd.DataFrame(rows | {"score": scores, "right": right})


@pytest.fixture
def row():
    return measure(judged()).iloc[0]


def test_a_score_above_one_half_agrees_with_a_right_answer(row):
    assert row.agreement == 50  # the first and the third


def test_a_score_of_one_half_says_wrong():
    row = measure(judged(np.full(4, 0.5), np.array([True, False, False, False]))).iloc[0]
    assert row.agreement == 75


def test_the_majority_is_the_more_frequent_judgment():
    row = measure(judged(right=np.array([True, False, False, False]))).iloc[0]
    assert (row.right, row.majority) == (25, 75)


def test_ties_count_half_in_the_auroc(row):
    assert row.AUROC == (1 + 1 + 0 + 0.5) / 4


def test_equal_scores_are_chance():
    assert measure(judged(np.full(4, 0.5))).iloc[0].AUROC == 0.5


def test_without_a_wrong_answer_the_auroc_is_unknown():
    measured = measure(judged(right=np.full(4, True)))
    assert np.isnan(measured.iloc[0].AUROC)
    assert format_agreement(measured).iloc[0].AUROC == "–"


def test_with_one_answer_per_question_the_interval_is_nearly_that_of_delong():
    random = np.random.default_rng(1)
    right = random.random(400) < 0.4
    scores = random.normal(right * 0.7)
    expected = metrics.auroc(scores, right)
    assert clustered_auroc(scores, right, range(400)) == pytest.approx(expected, abs=0.002)


def test_equal_answers_to_one_question_do_not_narrow_the_interval():
    once = clustered_auroc(SCORES, RIGHT, "abcd")
    thrice = clustered_auroc(SCORES.repeat(3), RIGHT.repeat(3), list("aaabbbcccddd"))
    assert thrice == pytest.approx(once)


def test_an_interval_comes_from_the_sums_of_its_questions():
    # Two questions with sums 0.1 and −0.1: the variance is 2 / 1 * 0.02.
    value, low, high = clustered_interval(0.5, np.array([0.3, -0.2, -0.1]), "aab")
    assert (value, low, high) == pytest.approx((0.5, 0.5 - 1.96 * 0.2, 0.5 + 1.96 * 0.2))


def test_one_question_has_no_interval():
    assert np.isnan(clustered_interval(0.5, np.array([0.1, -0.1]), "aa")[1])


@pytest.fixture
def compared(questions):
    """A judge of two questions; to the first one, two systems gave the same right answer."""
    texts = {"RAG": ["Edith Marrow", "Aldermere"], "CoV-RAG": ["Edith Marrow", "Stonebridge"]}
    groups = [{}, {}]
    rows = []
    for system, answers in texts.items():
        for group, question, text in zip(groups, questions, answers):
            group[system] = Prediction(question, system, (Round(question.question, (), text),))
            rows.append(("x", "nq", question.id, system, "correctness", 0.9, True))
            rows.append(("x", "nq", question.id, system, "conciseness", 0.9, True))
    rows[-2] = (*rows[-2][:5], None, True)  # of "Stonebridge"
    scores = pd.DataFrame(rows, columns=SCORE_COLUMNS)
    return compare_scores(scores, Answers(questions[:2], groups, []))


def test_equal_answers_to_one_question_count_once_and_missing_scores_not_at_all(compared):
    assert compared.n.tolist() == [2]  # "Edith Marrow" and "Aldermere"


def test_scores_are_compared_with_the_gold_answers(compared):
    assert compared.agreement.tolist() == [50]


def test_only_criteria_that_should_follow_the_gold_answer_are_compared(compared):
    assert compared.criterion.tolist() == ["correctness"]


def test_judges_and_criteria_keep_their_order():
    first = judged().assign(judge="z", criterion="truthfulness")
    second = judged().assign(judge="z", criterion="correctness")
    measured = measure(pd.concat([first, second, judged()]))
    assert measured[["judge", "criterion"]].values.tolist() == [
        *[["z", "truthfulness"], ["z", "correctness"], ["x", "correctness"]]
    ]


def test_answers_and_their_questions_are_counted():
    row = measure(judged(questions="aabc")).iloc[0]
    assert (row.n, row.questions) == (4, 3)


def test_an_agreement_has_the_interval_of_its_questions(row):
    # Half of four: influences ±1/8, so 1.96 · √(4/3 · 4/64).
    half_width = 100 * 1.96 * (1 / 12) ** 0.5
    assert (row.low, row.high) == pytest.approx(
        (max(0, 50 - half_width), min(100, 50 + half_width))
    )


def test_an_interval_stays_within_all_shares():
    _, low, high = clustered_interval(0.9, np.array([0.5, -0.5, 0.5]), "abc")
    assert (low, high) == (0.0, 1.0)


def test_the_same_answer_to_another_question_or_of_another_judge_counts_again(questions):
    texts = [("x", 0), ("x", 1), ("y", 0)]
    groups = [
        {"RAG": Prediction(q, "RAG", (Round("", (), "Edith Marrow"),))} for q in questions[:2]
    ]
    rows = []
    for judge, number in texts:
        for criterion in ("correctness", "truthfulness"):
            rows.append((judge, "nq", questions[number].id, "RAG", criterion, 0.9, True))
    scores = pd.DataFrame(rows, columns=SCORE_COLUMNS)
    compared = compare_scores(scores, Answers(questions[:2], groups, []))
    assert compared.n.tolist() == [2, 2, 1, 1]
    assert compared.right.tolist() == [50, 50, 100, 100]


def test_an_agreement_is_written_with_its_interval_and_its_baselines():
    row = measure(judged(np.array([0.9, 0.1, 0.2, 0.3]), np.array([True, False, False, False])))
    shown = format_agreement(row).iloc[0].to_dict()
    assert shown == {
        **{"judge": "x", "score": "correctness", "n": 4, "right, %": "25.0"},
        **{"agreement, %": "100.0 [100.0, 100.0]", "majority, %": "75.0"},
        **{"AUROC": "1.00 [1.00, 1.00]"},
    }


def test_a_comparison_is_a_fact_by_judge_and_criterion():
    facts = agreement_facts(measure(judged()))
    assert facts["x correctness agreement"] == "50.0"
    assert facts["x correctness agreement interval"] == "[0.0, 100.0]"
    assert facts["x correctness majority"] == "50.0"
    assert facts["x correctness AUROC"] == "0.62"
    assert facts["x correctness answers"] == "4"


def test_the_auroc_of_one_right_answer_has_an_interval():
    value, low, high = clustered_auroc(SCORES, np.array([True, False, False, False]), "abcd")
    assert (value, low, high) == (1.0, 1.0, 1.0)


def test_an_answer_that_cannot_be_scored_is_not_compared(questions):
    *_, unscored = questions  # its gold answer normalises to nothing
    groups = []
    rows = []
    for question in (questions[0], unscored):
        groups.append({"RAG": Prediction(question, "RAG", (Round("", (), "Edith Marrow"),))})
        rows.append(("x", "nq", question.id, "RAG", "correctness", 0.9, True))
    scores = pd.DataFrame(rows, columns=SCORE_COLUMNS)
    compared = compare_scores(scores, Answers([questions[0], unscored], groups, []))
    assert compared[["n", "right"]].values.tolist() == [[1, 100]]


def test_an_answer_is_compared_by_the_round_that_is_kept(questions):
    rounds = tuple(Round("", (), text) for text in ("Aldermere", "Edith Marrow", "Aldermere"))
    kept_second = Prediction(questions[0], "CoV-RAG", rounds, kept=1)
    rows = [("x", "nq", "q1", "CoV-RAG", "correctness", 0.9, True)]
    scores = pd.DataFrame(rows, columns=SCORE_COLUMNS)
    compared = compare_scores(scores, Answers(questions[:1], [{"CoV-RAG": kept_second}], []))
    assert compared.right.tolist() == [100]


def test_without_a_right_answer_the_auroc_and_its_interval_are_unknown():
    area = clustered_auroc(SCORES, np.full(4, False), "abcd")
    assert np.isnan(area).all()
