"""Accuracy, intervals and tests against values known from elsewhere."""

import itertools

import numpy as np
import pytest
from scipy.stats import binomtest

from covrag_lite import metrics


def test_raw_is_case_sensitive_and_normalised_is_not():
    assert metrics.score("It was Edith Marrow.", ["Edith Marrow"], "raw")
    assert not metrics.score("It was edith marrow.", ["Edith Marrow"], "raw")
    assert metrics.score("It was EDITH-MARROW!", ["Edith Marrow"], "normalised")


def test_a_reference_mark_is_not_an_answer():
    assert metrics.score("Several bridges [3].", ["3"], "raw")  # WebGLM's rule keeps the marks
    assert not metrics.score("Several bridges [3].", ["3"], "normalised")


def test_gold_that_normalises_to_nothing_gives_no_score():
    assert metrics.is_defective(["---", ")"])
    assert metrics.score("anything", ["---"], "normalised") is None
    assert metrics.score("a --- b", ["---"], "raw") is True
    assert metrics.score("b", ["---", "b"], "normalised") is True  # one good answer is enough


def test_an_unknown_metric_is_named():
    with pytest.raises(ValueError, match="'exact' is not known"):
        metrics.score("a", ["a"], "exact")


def test_wilson_knows_the_textbook_values():
    assert metrics.wilson(200, 400) == pytest.approx((0.4512, 0.5488), abs=1e-4)  # the ±4.9 points of n = 400
    low, high = metrics.wilson(0, 10)
    assert low == 0 and high == pytest.approx(0.2775, abs=1e-4)
    assert np.isnan(metrics.wilson(0, 0)).all()


def test_the_average_of_one_set_is_that_set_and_four_sets_are_surer():
    assert metrics.mean_interval([(30, 100)]) == pytest.approx((0.3, *metrics.wilson(30, 100)))
    mean, low, high = metrics.mean_interval([(30, 100)] * 4)
    one = metrics.wilson(30, 100)
    assert mean == pytest.approx(0.3) and high - low == pytest.approx((one[1] - one[0]) / 2)


def test_mcnemar_counts_only_where_the_systems_differ():
    a = [True] * 50 + [False] * 10
    b = [True] * 50 + [True] * 9 + [False]
    assert metrics.mcnemar(a, b) == (9, 0, pytest.approx(2 * 0.5**9))
    assert metrics.mcnemar(a, a) == (0, 0, 1.0)


def test_the_paired_bootstrap_agrees_with_resampling_questions_one_by_one():
    rng = np.random.default_rng(1)
    a = rng.random(80) < 0.4
    b = rng.random(80) < 0.6
    difference, low, high = metrics.paired_bootstrap(a, b)
    gains = b.astype(float) - a
    slow = [np.mean(gains[rng.integers(0, 80, 80)]) for _ in range(4000)]
    assert difference == pytest.approx(b.mean() - a.mean())
    assert (low, high) == pytest.approx(tuple(np.percentile(slow, [2.5, 97.5])), abs=0.02)


def test_the_bootstraps_interval_is_that_of_all_resamples_there_are():
    for gains in ([1, 0, -1, 0, 1], [1 / 3, 0, -2 / 3, 1, 1 / 3]):
        every = sorted(np.mean(drawn) for drawn in itertools.product(gains, repeat=5))
        ends = [every[int(np.ceil(share * len(every))) - 1] for share in (0.025, 0.975)]
        assert metrics.mean_bootstrap(gains)[1:] == pytest.approx(tuple(ends))
    assert metrics.mean_bootstrap([2.0] * 7) == (2.0, 2.0, 2.0)


def test_values_on_no_grid_are_resampled_at_random_and_alike_each_time():
    values = np.random.default_rng(2).random(50).tolist()
    mean, low, high = metrics.mean_bootstrap(values)
    assert low < mean < high and metrics.mean_bootstrap(values) == (mean, low, high)


@pytest.mark.parametrize("gained, lost, n", [(25, 15, 150), (190, 170, 1600)])
def test_the_smallest_visible_difference_is_seen_in_four_of_five_simulated_runs(gained, lost, n):
    points, differing = metrics.smallest_visible(gained, lost, n), (gained + lost) / n
    chances = [(differing + points / 100) / 2, (differing - points / 100) / 2, 1 - differing]
    drawn = np.random.default_rng(0).multinomial(n, chances, size=1000)
    seen = [binomtest(won, won + less).pvalue < 0.05 for won, less, _ in drawn.tolist()]
    assert 0.76 < np.mean(seen) < 0.84


def test_more_questions_show_less_and_five_that_differ_show_nothing():
    assert metrics.smallest_visible(60, 60, 400) > metrics.smallest_visible(240, 240, 1600)
    assert np.isnan(metrics.smallest_visible(5, 0, 400)) and not np.isnan(metrics.smallest_visible(6, 0, 400))


def test_auroc_counts_pairs_and_ties_half():
    scores, right = [0.9, 0.4, 0.4, 0.1], [True, True, False, False]
    area, low, high = metrics.auroc(scores, right)
    assert area == (1 + 1 + 0.5 + 1) / 4 and low < area < high <= 1
    assert (
        metrics.auroc([1, 2, 3], [False, False, True])[0] == 1
        and metrics.auroc([3, 2, 1], [False, False, True])[0] == 0
    )
    assert np.isnan(metrics.auroc([0.3, 0.4], [True, True])[0])


def test_aurocs_interval_covers_chance_where_scores_say_nothing():
    draw = np.random.default_rng(3)
    held = [metrics.auroc(draw.random(80), draw.random(80) < 0.4) for _ in range(300)]
    covered = sum(low <= 0.5 <= high for _, low, high in held)
    assert 270 <= covered <= 297  # 95 % of 300, give or take


def test_the_mean_auroc_of_a_judge_and_its_copy_is_no_surer_than_the_judge_alone():
    draw = np.random.default_rng(3)
    scores, right = draw.random(80), draw.random(80) < 0.4
    alone = metrics.auroc(scores, right)
    assert metrics.mean_auroc([scores, scores], [right, right]) == pytest.approx(alone)
    area, low, high = metrics.mean_auroc([scores, draw.random(80)], [right, right])
    assert high - low < alone[2] - alone[1]
    assert np.isnan(metrics.mean_auroc([scores, scores], [right, right | True])).all()


def test_the_mean_aurocs_interval_covers_what_trainings_of_one_judge_have_in_common():
    draw, covered = np.random.default_rng(3), 0
    for _ in range(300):
        hard, liked = draw.normal(size=(2, 100))  # what is right and what scores high, nearly alike in both trainings
        right = [hard + 0.2 * draw.normal(size=100) < 0 for _ in range(2)]
        scores = [liked + 0.2 * draw.normal(size=100) for _ in range(2)]
        _, low, high = metrics.mean_auroc(scores, right)
        covered += low <= 0.5 <= high
    assert 270 <= covered <= 297


@pytest.mark.parametrize(
    "answer, normalised, whole", [("in 1829[2]", True, False), ("2 of them", True, True), ("none", False, False)]
)
def test_a_gold_answer_inside_a_word_is_right_by_the_papers_rule_and_wrong_in_whole_words(answer, normalised, whole):
    assert metrics.score(answer, ["2"], "normalised") == normalised
    assert metrics.score(answer, ["2"], "whole") == whole
    assert metrics.score(answer, ["---"], "whole") is None
