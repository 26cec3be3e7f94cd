"""The picture of the comparisons: gains over RAG (trained), over all questions and by set."""

from pathlib import Path

import numpy as np
import pandas as pd

import covrag_lite.tables.pictures as pictures
from covrag_lite.systems import names
from covrag_lite.tables.comparisons.differences import list_main_seeds, select_main
from covrag_lite.tables.comparisons.pairs import (
    ALL_SETS,
    BASELINE,
    OURS,
    OURS_NO_CHAIN,
    POOLED,
    POST_HOC,
    TWO_EXPANDED_READERS,
    TWO_EXPANDED_READERS_COMBINED,
    TWO_PLAIN_READERS,
)
from covrag_lite.tables.labels import label_of_set

# The kinds of systems.
VERIFIED = "with a verifier"
UNVERIFIED = "without a verifier"
REPLACED = "verifier, but its search is replaced"
COLOURS = {VERIFIED: "#2e8b57", UNVERIFIED: "#e0893a", REPLACED: "#777777"}
ROWS = {  # a system -> its label and its kind, from top to bottom
    names.COV_RAG: ("CoV-RAG, one model, our mixture", VERIFIED),
    OURS: ("CoV-RAG, two adapters", VERIFIED),
    OURS_NO_CHAIN: ("CoV-RAG, two adapters, no scores", VERIFIED),
    names.EXPANSION_COMBINED: ("query expansion + verifier choice", VERIFIED),
    TWO_EXPANDED_READERS_COMBINED: ("query expansion, two readers + verifier choice", VERIFIED),
    names.EXPANSION: ("query expansion", UNVERIFIED),
    TWO_EXPANDED_READERS: ("query expansion, two readers", UNVERIFIED),
    TWO_PLAIN_READERS: ("two readers, one search", UNVERIFIED),
    names.TWO_ADAPTERS_NEXT: ("two adapters, next five passages", REPLACED),
    names.TWO_ADAPTERS_SHUFFLED: ("two adapters, another question's search", REPLACED),
}
BY_SET = (OURS, names.EXPANSION)  # the systems of the second panel
LEGEND = {"loc": "upper center", "frameon": False, "ncol": 1}


def label_and_kind(system: str) -> tuple[str, str]:
    """Return how the picture names a system, and its kind."""
    label, kind = ROWS[system]
    return f"{label} (post hoc)" if system in POST_HOC else label, kind


def plot(comparisons: pd.DataFrame, path: Path) -> "pictures.Figure":
    """Plot gains over RAG (trained): each system over all questions, and two of them by set."""
    plt, _ = pictures.style(0.85)
    gains = comparisons[comparisons["from"] == BASELINE]
    overall = gains[gains.set == ALL_SETS]
    size = (13.5, 1.6 + 0.6 * len(systems_of(overall)))
    columns = {"width_ratios": (4, 3), "layout": "constrained"}
    figure, (left, right) = plt.subplots(1, 2, figsize=size, **columns)
    draw_overall(left, overall)
    main_rows = select_main(gains)
    draw_by_set(right, main_rows[main_rows.set != ALL_SETS])
    left.set_title("All questions", size=14)
    right.set_title("By question set", size=14)
    title = "Points of accuracy above RAG (trained), with 95 % intervals (small dots: single seeds)"
    figure.suptitle(title, size=14)
    return pictures.save_picture(figure, path)


def systems_of(gains: pd.DataFrame) -> list[str]:
    """Return the systems of the first panel that were run, from top to bottom."""
    return [system for system in ROWS if (gains.to == system).any()]


def draw_overall(axes: "pictures.Axes", gains: pd.DataFrame) -> None:
    """Draw each system's gain over all questions, and as small dots those of single seeds."""
    systems = systems_of(gains)
    ticks = []
    for place, system in enumerate(systems):
        label, kind = label_and_kind(system)
        rows = gains[gains.to == system]
        mean = select_main(rows).iloc[-1]
        seeds = rows[rows.seed != POOLED]
        draw_gain(axes, mean, -place, COLOURS[kind])
        if len(seeds) > 1:
            below = [-place - 0.28] * len(seeds)
            axes.plot(seeds.difference, below, "o", color=COLOURS[kind], ms=4, alpha=0.6)
        n_counted = len(list_main_seeds(rows))
        n_seeds = "1 seed" if n_counted == 1 else f"{n_counted} seeds"
        ticks.append(f"{label}\n{n_seeds}, n = {mean.n:,}")
    axes.set_yticks(-np.arange(len(systems)), ticks)
    kinds = {ROWS[system][1] for system in systems}
    for kind, colour in COLOURS.items():
        if kind in kinds:
            axes.plot([], [], "D", color=colour, label=kind)
    axes.legend(bbox_to_anchor=(0.3, -0.1), **LEGEND)


def draw_by_set(axes: "pictures.Axes", gains: pd.DataFrame) -> None:
    """Draw the gains of the systems of `BY_SET`, one row per question set."""
    sets = []
    for number, system in enumerate(BY_SET):
        rows = gains[gains.to == system]
        if rows.empty:
            continue
        label, kind = label_and_kind(system)
        if not sets:
            sets = [f"{label_of_set(row.set)} ({row.n:,})" for row in rows.itertuples()]
        for place, row in enumerate(rows.itertuples()):
            draw_gain(axes, row, -place + 0.17 - 0.34 * number, COLOURS[kind], size=40)
        axes.plot([], [], "D", color=COLOURS[kind], label=label)
    axes.set_yticks(-np.arange(len(sets)), sets)
    axes.legend(bbox_to_anchor=(0.4, -0.1), **LEGEND)


def draw_gain(
    axes: "pictures.Axes", row: pd.Series, place: float, colour: str, size: int = 81
) -> None:
    """Draw one difference with its interval."""
    axes.hlines([place], row.low, row.high, colour, lw=3)
    axes.scatter([row.difference], [place], c=colour, marker="D", s=size, zorder=3)
    axes.axvline(0, color=pictures.DARK, lw=1)
