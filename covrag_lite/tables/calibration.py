"""Is the judge calibrated? The share of right answers by expected correctness, as a curve."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from covrag_lite.systems import palette
from covrag_lite.systems.names import COV_RAG, START_REVISE
from covrag_lite.tables import pictures
from covrag_lite.tables.intervals import share
from covrag_lite.tables.verifier import judged_rows

N_BINS = 5
MIDDLES = (10, 30, 50, 70, 90)  # of the bins, in %
COLUMNS = ["bin", "n", "expected", "value", "low", "high"]


def build_curve(frame: pd.DataFrame, system: str = COV_RAG) -> pd.DataFrame:
    """Return how many first answers are right, in %, one row per fifth of expected correctness."""
    rows = judged_rows(frame, system)
    edges = np.linspace(0, 1, N_BINS + 1)
    bins = pd.cut(rows.expected_correctness, edges, include_lowest=True)
    points = []
    for interval, part in rows.groupby(bins, observed=True):
        name = f"{max(interval.left, 0):.1f} to {interval.right:.1f}"
        expected = 100 * part.expected_correctness.mean()
        points.append((name, len(part), expected, *share(part.right)))
    return pd.DataFrame(points, columns=COLUMNS).round(1)


def draw_curve(curve: pd.DataFrame, guesses: Sequence[float] = ()) -> "pictures.Figure":
    """Plot the share of right answers next to a perfect judge, with the guesses of a class in %."""
    plt, _ = pictures.style(0.9, "notebook")
    colours = palette()
    axes = plt.Figure(figsize=(5.6, 4.6), layout="constrained").subplots()
    axes.plot([0, 100], [0, 100], "--", color=pictures.OTHER, label="a perfectly calibrated judge")
    label = "the recorded judge"
    axes.plot(curve.expected, curve.value, "o-", color=colours[COV_RAG], label=label)
    pictures.draw_intervals(axes, curve.expected.tolist(), curve)
    ticks = [f"{row.expected:.0f}\nn = {row.n}" for row in curve.itertuples()]
    axes.set_xticks(curve.expected, ticks)
    label = "the guess of the class"
    look = dict(color=colours[START_REVISE], label=label)
    axes.plot(MIDDLES[: len(guesses)], guesses, "s", **look)
    axes.set(xlabel="expected correctness (%)", ylabel="answers that are right (%)")
    axes.set(xlim=(0, 101), ylim=(0, 101))
    axes.legend(loc="upper left", bbox_to_anchor=(0, 1.22), frameon=False)
    return axes.figure
