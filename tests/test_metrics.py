"""Accuracy, intervals and tests against values known from elsewhere."""

import itertools

import numpy as np
import pytest

from covrag_lite import metrics


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
