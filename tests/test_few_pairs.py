"""Intervals of paired differences in which few questions differ."""

from itertools import product

import numpy as np
import pytest
from scipy.stats import beta

from covrag_lite import metrics

COUNTS = list(product(range(12), repeat=2))  # gained and lost


def significant(gained, lost):
    before = [False] * gained + [True] * lost
    after = [True] * gained + [False] * lost
    return metrics.mcnemar(before, after)[2] < 0.05


def test_the_interval_excludes_zero_only_if_mcnemars_test_is_significant():
    for gained, lost in COUNTS:
        low, high = metrics.few_pairs_interval(gained, lost, 300)
        assert low <= 0 <= high or significant(gained, lost)


def test_the_interval_contains_the_difference():
    for gained, lost in COUNTS:
        low, high = metrics.few_pairs_interval(gained, lost, 300)
        assert low <= (gained - lost) / 300 <= high


def test_four_losses_of_284_questions_do_not_exclude_zero():
    mean, low, high = metrics.difference_interval([-1.0] * 4 + [0.0] * 280)  # MuSiQue
    assert mean == pytest.approx(-4 / 284)
    # Clopper-Pearson for 0 gains of 4: at most 1 - 0.025 ** (1 / 4) = 0.602.
    assert high == pytest.approx((2 * (1 - 0.025**0.25) - 1) * 4 / 284)
    assert low < -4 / 284  # of other questions, more than four may be lost


def test_without_differing_questions_the_interval_depends_on_their_number():
    end = 1.96**2 / (400 + 1.96**2)
    assert metrics.few_pairs_interval(0, 0, 400) == pytest.approx((-end, end), rel=1e-3)


def test_the_interval_covers_the_truth():
    rng = np.random.default_rng(3)
    draws = rng.multinomial(400, [0.05, 0.005, 0.945], size=300)
    ends = [metrics.few_pairs_interval(gained, lost, 400) for gained, lost, _ in draws]
    assert np.mean([low <= 0.045 <= high for low, high in ends]) > 0.93


def test_with_many_differing_questions_the_interval_is_a_bootstrap():
    differences = [1.0] * 20 + [-1.0] * 5 + [0.0] * 75
    assert metrics.difference_interval(differences) == metrics.mean_bootstrap(differences)


@pytest.mark.parametrize("gained, lost", [(3, 4), (4, 3)])
def test_if_most_questions_differ_the_ends_are_clopper_and_pearsons(gained, lost):
    # The ends of the share of gains are quantiles of beta distributions.
    shares = beta.ppf([0.025, 0.975], [gained, gained + 1], [lost + 1, lost])
    ends = (2 * shares - 1) * 7 / 9
    assert metrics.few_pairs_interval(gained, lost, 9) == pytest.approx(tuple(ends))


def test_one_seed_whose_difference_is_a_half_is_a_mean_of_seeds():
    assert np.isnan(metrics.difference_interval([1.0, 0.0, -0.5])[1:]).all()


def test_a_mean_of_seeds_with_few_differing_questions_has_no_interval():
    assert np.isnan(metrics.difference_interval([0.5, 0.0, -0.5])[1:]).all()


def test_the_difference_of_no_questions_is_unknown():
    assert np.isnan(metrics.difference_interval([])).all()


def test_holms_method_multiplies_the_smallest_p_most_and_keeps_the_order():
    assert metrics.adjust_p([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])


def test_a_corrected_p_is_at_most_one():
    assert metrics.adjust_p([0.6, 0.9]) == [1.0, 1.0]
