"""How well verdicts judge first answers, and what the second search gives."""

import numpy as np
import pandas as pd
import pytest
from comparison_frames import make_frame

from covrag_lite import metrics
from covrag_lite.config import ROOT
from covrag_lite.systems import names
from covrag_lite.tables.comparisons.first_answers import (
    TRUSTED_FROM,
    judge_difference_rows,
    judge_rows,
    search_rows,
)


@pytest.fixture
def answers():
    """First answers of which the first two are right; all are trusted."""
    return make_frame({names.COV_RAG: [1, 1, 0, 0, 0]}, ["nq"] * 5)


@pytest.fixture
def partly_trusted(answers):
    """The same; the third answer is not trusted, and the passages of the last are not known."""
    answers.loc[2, "judgment"] = "false"
    return answers.assign(words_first=[True, True, True, True, None])


def judge(frame):
    (row,) = judge_rows(frame, "1")
    return row


def test_judgments_are_next_to_the_majority(answers):
    row = judge(answers)
    assert (row["right"], row["majority"]) == ("40.0", "60.0")


def test_the_verifier_score_is_next_to_the_likelihood(answers):
    row = judge(answers)
    assert row["AUROC"].startswith("1.000")
    assert row["AUROC of the likelihood"].startswith("0.500")


def test_right_judgments_are_counted(partly_trusted):
    assert judge(partly_trusted)["right"] == "60.0"


def test_trusted_answers_are_counted_by_whether_they_are_right(partly_trusted):
    row = judge(partly_trusted)
    assert (row["right ones trusted"], row["wrong ones trusted"]) == ("100.0", "66.7")


def test_of_wrong_answers_beside_an_answer_only_those_with_known_passages_count(partly_trusted):
    assert judge(partly_trusted)["wrong ones beside an answer trusted"] == "50.0"


@pytest.fixture
def scored(answers):
    """From 0.8 on one right and one wrong answer; the wrong one has a low likelihood."""
    scores = [0.8, 0.7, 0.9, 0.1, 0.1]
    return answers.assign(verifier_score=scores, first_weight=[2.4, 2.1, 2.0, 0.2, 0.2])


def test_the_verifier_score_is_also_used_with_a_threshold(scored):
    assert judge(scored)["right, trusting from 0.8"] == "60.0"


def test_the_auroc_of_the_verifier_score_does_not_use_the_likelihood(scored):
    assert judge(scored)["AUROC"].startswith("0.667")


def test_the_auroc_of_both_is_that_of_the_combined_score(scored):
    assert judge(scored)["AUROC of both, weighed"].startswith("1.000")


def test_the_threshold_is_the_best_one_on_validation_answers_of_the_same_reader():
    folder = ROOT / "results/real/qwen2.5-coder-1.5b/validation"
    rows = pd.read_csv(folder / "validation.candidates.csv.gz")
    rows = rows[(rows.layout == "shared") & (rows.kind == "near") & (rows.candidate == "rag first")]
    assert len(rows) == 3022
    correct = {}
    for threshold in (step / 20 for step in range(1, 20)):
        correct[threshold] = ((rows.correctness >= threshold) == rows.right).mean()
    assert max(correct, key=correct.get) == TRUSTED_FROM


def test_two_adapters_are_also_judged_by_set():
    frame = make_frame({names.TWO_ADAPTERS_NO_CHAIN: [1, 0, 1, 0]}, ["nq", "nq", "webq", "webq"])
    rows = pd.DataFrame(judge_rows(frame, "4"))
    assert rows.set.tolist() == ["all", "NQ", "WebQ"]
    assert set(rows["answers of"]) == {"RAG trained, w/o chain"}


def test_the_stand_in_with_the_most_verdicts_is_judged():
    """A seed without the system of the last answer has the same verdicts in two others."""
    few = make_frame({names.TWO_ADAPTERS_NO_CHAIN_COMBINED: [1, 0]}, ["nq"] * 2)
    many = make_frame({names.EXPANSION_COMBINED: [1, 0, 0]}, ["nq"] * 3)
    overall = next(judge_rows(pd.concat([few, many]), "10"))
    assert (overall["answers of"], overall["n"]) == ("RAG trained, w/o chain", 3)


def test_a_stand_in_is_not_needed_next_to_the_system_itself():
    right = {names.TWO_ADAPTERS_NO_CHAIN: [1, 0], names.EXPANSION_COMBINED: [1, 0]}
    rows = pd.DataFrame(judge_rows(make_frame(right, ["nq"] * 2), "6"))
    assert rows.set.tolist().count("all") == 1


def test_the_second_search_of_a_stand_in_is_not_shown():
    frame = make_frame({names.EXPANSION_COMBINED: [1, 0]}, ["nq"] * 2)
    assert list(search_rows(frame, "10")) == []


def test_answers_without_a_verifier_score_are_left_out(answers):
    row = judge(answers.assign(verifier_score=[0.9, None, 0.2, 0.2, 0.2]))
    assert row["n"] == 4


@pytest.fixture
def search_row():
    """Of four questions two are searched again; the first is lost and the second gained."""
    frame = make_frame({names.COV_RAG: [1, 0, 0, 0]}, ["nq"] * 4)
    frame = frame.assign(whole=[False, True, False, False], revised=[True, True, False, False])
    (row,) = search_rows(frame.assign(words_first=[True, False, False, None]), "1")
    return row


def test_second_searches_are_counted(search_row):
    assert search_row["searched again"] == "50.0"


def test_passages_with_an_answer_are_counted_where_they_are_known(search_row):
    assert search_row["an answer in the first passages"] == "33.3"
    assert search_row["in the last"] == "100.0"


def test_first_and_last_answers_are_next_to_an_oracle_choice(search_row):
    assert (search_row["first answer right"], search_row["last"]) == ("25.0", "25.0")
    assert search_row["the better of both"] == "50.0"


def test_a_system_is_named_by_whose_first_answers_it_judges():
    systems = (names.COV_RAG, names.TWO_ADAPTERS, names.RAG)
    frame = make_frame(dict.fromkeys(systems, [1, 0]), ["nq", "webq"])
    rows = pd.DataFrame(judge_rows(frame, "4"))
    assert rows[["answers of", "set", "n"]].values.tolist() == [
        *[["RAG trained", "all", 2], ["RAG trained", "NQ", 1], ["RAG trained", "WebQ", 1]],
        ["CoV-RAG-S", "all", 2],
    ]
    assert set(rows.seed) == {"4"}


def test_only_a_right_judgment_of_true_is_trust():
    frame = make_frame({names.COV_RAG: [1, 1, 0, 0]}, ["nq"] * 4)
    frame["judgment"] = ["true", "unclear", "unclear", "true"]
    row = judge(frame)
    assert row["right"] == "50.0"
    assert row["right ones trusted"] == row["wrong ones trusted"] == "50.0"


def test_what_the_second_search_finds_is_a_share_of_all_questions(search_row):
    cells = {name: search_row[name] for name in list(search_row)[3:]}
    assert cells == {
        **{"n": 4, "searched again": "50.0", "an answer in the first passages": "33.3"},
        **{"in the last": "100.0", "first answer right": "25.0", "last": "25.0"},
        "the better of both": "50.0",
    }


def test_a_question_that_cannot_be_scored_is_left_out(answers):
    answers["first_whole"] = [True, None, False, False, False]
    assert judge(answers)["n"] == 4


# Two AUROCs on the same answers.


@pytest.fixture(scope="module")
def two_scores():
    """A score, a better one that shares much of its noise, and which answers are right."""
    rng = np.random.default_rng(1)
    right = rng.random(600) < 0.3
    noise = rng.normal(size=600)
    return right + noise, 1.4 * right + noise + 0.3 * rng.normal(size=600), right


def test_the_difference_of_two_areas_is_that_of_their_estimates(two_scores):
    first, second, right = two_scores
    (difference, _, _), _ = metrics.auroc_difference(first, second, right)
    areas = [metrics.auroc(scores, right)[0] for scores in (first, second)]
    assert difference == pytest.approx(areas[1] - areas[0])


def test_the_interval_of_the_difference_agrees_with_resampling(two_scores):
    first, second, right = two_scores
    (_, low, high), _ = metrics.auroc_difference(first, second, right)
    rng = np.random.default_rng(2)
    resampled = []
    for _ in range(400):
        rows = rng.integers(0, len(right), len(right))
        drawn = (first[rows], second[rows], right[rows])
        resampled.append(metrics.auroc_difference(*drawn)[0][0])
    assert (high - low) / 3.92 == pytest.approx(np.std(resampled), rel=0.15)


def test_scores_that_share_their_noise_are_told_apart_better_than_their_intervals_suggest(
    two_scores,
):
    first, second, right = two_scores
    assert metrics.auroc(first, right)[2] > metrics.auroc(second, right)[1]  # they overlap
    assert metrics.auroc_difference(first, second, right)[1] < 0.001


def test_a_score_does_not_differ_from_itself(two_scores):
    first, _, right = two_scores
    assert metrics.auroc_difference(first, first, right) == ((0, 0, 0), 1)


def test_without_a_wrong_answer_the_difference_is_unknown():
    estimate, p = metrics.auroc_difference([1, 2], [2, 1], [True, True])
    assert np.isnan([*estimate, p]).all()


@pytest.fixture
def both_judges():
    """Two verifiers of the same four answers: the one without scores ranks them better."""
    systems = (names.TWO_ADAPTERS, names.TWO_ADAPTERS_NO_CHAIN)
    frame = make_frame(dict.fromkeys(systems, [1, 1, 0, 0]), ["nq"] * 4)
    with_scores = [0.9, 0.1, 0.5, 0.2]  # two of four pairs in order
    return frame.assign(verifier_score=[*with_scores, 0.9, 0.8, 0.2, 0.1], likelihood=-1.0)


def test_verifiers_are_compared_with_the_likelihood_and_with_each_other(both_judges):
    rows = pd.DataFrame(judge_difference_rows(both_judges, "5"))
    found = dict(zip(rows["AUROC of"], rows.difference))
    assert found == {
        "the answer's likelihood → verifier with scores": "+0.000",
        "the answer's likelihood → verifier without scores": "+0.500",
        "verifier with scores → verifier without scores": "+0.500",
    }


def test_one_verifier_is_compared_with_the_likelihood_only(both_judges):
    alone = both_judges[both_judges.system == names.TWO_ADAPTERS]
    assert len(list(judge_difference_rows(alone, "1"))) == 1


def test_judges_of_answers_that_are_all_right_are_not_compared(both_judges):
    assert not list(judge_difference_rows(both_judges.assign(first_whole=True), "1"))
