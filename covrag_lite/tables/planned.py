"""Rules that results/real/plan.md fixed before a run: what an interval is called afterwards.

Differences, intervals and margins are in points. An unknown interval (NaN) settles nothing.
"""

MARGIN = 0.75  # two systems are equivalent if the whole interval lies within plus or minus this
NOT_SETTLED = "not settled"


def is_equivalent(low: float, high: float) -> bool:
    """Return whether an interval lies within the margin.

    >>> is_equivalent(-0.4, 0.7), is_equivalent(-0.4, 0.8)
    (True, False)
    """
    return -MARGIN <= low and high <= MARGIN


def judge_equivalence(low: float, high: float) -> str:
    """Return what an interval says about two systems that were expected to be level.

    An interval that leaves the margin and contains zero settles nothing.
    """
    if is_equivalent(low, high):
        return "equivalent"
    if low > 0 or high < 0:
        return "not equivalent"
    return NOT_SETTLED


def judge_help(low: float, high: float) -> str:
    """Return what an interval says about a system that was expected to help.

    Both can hold: a gain that is above zero and too small to matter.
    """
    verdicts = []
    if low > 0:
        verdicts.append("helps")
    if is_equivalent(low, high):
        verdicts.append(f"equivalent within ±{MARGIN} points")
    return " and ".join(verdicts) or NOT_SETTLED


def judge_shrinking(low: float, high: float) -> str:
    """Return what the interval of a difference of two gains says."""
    if high < 0:
        return "shrinks"
    if low > -MARGIN:
        return f"does not shrink by more than {MARGIN} points"
    return NOT_SETTLED


def judge_gain(difference: float, low: float, high: float, needed: float) -> str:
    """Return whether a gain is at least the one that was needed."""
    if difference >= needed and low > 0:
        return f"gain of {needed:g} or more"
    if high < needed:
        return f"gain below {needed:g}"
    return NOT_SETTLED
