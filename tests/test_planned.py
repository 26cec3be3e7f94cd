"""What the plan calls a result, by its interval."""

import pytest

from covrag_lite.tables.planned import (
    judge_equivalence,
    judge_gain,
    judge_help,
    judge_shrinking,
)

UNKNOWN = float("nan")


@pytest.mark.parametrize(
    "low, high, verdict",
    [
        (-0.75, 0.75, "equivalent"),
        (0.1, 0.7, "equivalent"),  # a small difference, but surely a small one
        (-0.76, 0.0, "not settled"),
        (0.0, 0.76, "not settled"),
        (0.1, 0.8, "not equivalent"),
        (-1.1, -0.3, "not equivalent"),
        (UNKNOWN, UNKNOWN, "not settled"),
    ],
)
def test_systems_are_equivalent_if_the_interval_lies_within_the_margin(low, high, verdict):
    assert judge_equivalence(low, high) == verdict


@pytest.mark.parametrize(
    "low, high, verdict",
    [
        (-2.0, -0.1, "shrinks"),
        (-0.5, -0.1, "shrinks"),
        (-0.7, 0.1, "does not shrink by more than 0.75 points"),
        (-0.75, 0.1, "not settled"),
        (-2.0, 0.0, "not settled"),
        (UNKNOWN, UNKNOWN, "not settled"),
    ],
)
def test_a_gain_shrinks_if_the_interval_lies_below_zero(low, high, verdict):
    assert judge_shrinking(low, high) == verdict


@pytest.mark.parametrize(
    "difference, low, high, verdict",
    [
        (1.0, 0.1, 1.9, "gain of 1 or more"),
        (1.0, 0.0, 2.0, "not settled"),
        (0.9, 0.1, 1.0, "not settled"),
        (0.9, 0.1, 0.99, "gain below 1"),
        (-2.0, -3.0, -1.0, "gain below 1"),
        (2.0, UNKNOWN, UNKNOWN, "not settled"),
    ],
)
def test_a_gain_is_as_large_as_needed_or_smaller_or_unsettled(difference, low, high, verdict):
    assert judge_gain(difference, low, high, needed=1.0) == verdict


@pytest.mark.parametrize(
    "low, high, expected",
    [
        (0.1, 0.9, "helps"),
        (0.1, 0.7, "helps and equivalent within ±0.75 points"),
        (-0.1, 0.7, "equivalent within ±0.75 points"),
        (-0.1, 0.8, "not settled"),
        (-0.8, -0.1, "not settled"),
    ],
)
def test_a_system_that_was_expected_to_help(low, high, expected):
    assert judge_help(low, high) == expected
