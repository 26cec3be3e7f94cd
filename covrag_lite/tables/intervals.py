"""Shares and other values with their intervals, and how they are written."""

from collections.abc import Sequence

import pandas as pd

from covrag_lite import metrics


def share(right: Sequence[bool]) -> metrics.Estimate:
    """Return how many of these are right, in %, with the Wilson interval; NaN if there are none."""
    n = len(right)
    n_right = int(sum(right))
    value = n_right / n if n else float("nan")
    low, high = metrics.wilson(n_right, n)
    return 100 * value, 100 * low, 100 * high


def with_interval(form: str, value: float, low: float, high: float) -> str:
    """Write a value and its interval, each in this form; a dash for what is unknown."""
    if pd.isna(value):
        return "–"
    if pd.isna(low):
        return form.format(value)
    return f"{form} [{form}, {form}]".format(value, low, high)
