"""Systems two by two on the same questions of one run, and what second searches changed."""

from collections.abc import Sequence

import pandas as pd

from covrag_lite import metrics
from covrag_lite.runs.frame import outcome_table
from covrag_lite.systems import names
from covrag_lite.tables.labels import SMALL_SAMPLE, format_interval, format_p, format_points

# Systems that are compared question by question, the one expected to be worse first.
PAIRS = (
    (names.CLOSED_BOOK, names.RAG),
    (names.RAG, names.START_REVISE),
    (names.RAG, names.RAG_TRAINED),
    (names.RAG_TRAINED, names.COV_RAG_S),
    (names.RAG_TRAINED, names.COV_RAG),
    (names.COV_RAG_S, names.COV_RAG),
    (names.RAG_TRAINED, names.COV_RAG_LIKELIER),
    (names.COV_RAG_S, names.COV_RAG_LIKELIER),
    (names.COV_RAG_S, names.START_REVISE_TRAINED),
    (names.START_REVISE_TRAINED, names.COV_RAG),
    (names.NO_CHAIN, names.COV_RAG),
    (names.COV_RAG_SHUFFLED, names.COV_RAG),
)
COLUMNS = [
    "comparison",
    "metric",
    "n",
    "difference",
    "95 % interval",
    "gained",
    "lost",
    "McNemar p",
]


def compare_pairs(frame: pd.DataFrame, pairs: Sequence[tuple[str, str]] = PAIRS) -> pd.DataFrame:
    """Compare systems two by two: difference with its interval, gained, lost, McNemar's exact p."""
    rows = []
    for metric in metrics.METRICS:
        outcomes = outcome_table(frame, metric)
        for before, after in pairs:
            if before in outcomes and after in outcomes:
                both = outcomes[[before, after]].dropna()  # the questions that both answered
                baseline = both[before].astype(bool).tolist()
                system = both[after].astype(bool).tolist()
                difference, interval = format_difference(baseline, system)
                gained, lost, p = metrics.mcnemar(baseline, system)
                about = (f"{before} → {after}", metric, len(both))
                rows.append((*about, difference, interval, gained, lost, format_p(p)))
    return pd.DataFrame(rows, columns=COLUMNS)


def describe_pair(before: Sequence[bool], after: Sequence[bool]) -> dict[str, object]:
    """Return the difference of two outcomes per question, with its test, as people read it."""
    value, low, high = metrics.paired_interval(before, after)
    gained, lost, p = metrics.mcnemar(before, after)
    effect = metrics.detectable_effect(gained, lost, len(before))
    return {
        "difference": format_points(value),
        "95 % interval": format_interval(low, high),
        "gained": gained,
        "lost": lost,
        "n": f"{len(before):,}",
        "p": format_p(p),
        "detectable": f"{effect:.1f}",
    }


def with_detectable_effects(comparisons: pd.DataFrame) -> pd.DataFrame:
    """Return comparisons with the minimum detectable effect, in points, at 80 % power."""
    cells = []
    for row in comparisons.itertuples():
        effect = metrics.detectable_effect(row.gained, row.lost, row.n)
        cells.append("–" if pd.isna(effect) else f"{effect:.1f}")
    return comparisons.assign(detectable=cells)


def format_difference(before: Sequence[bool], after: Sequence[bool]) -> tuple[str, str]:
    """Return the paired difference in points and its interval; a count for a small sample."""
    if len(before) < SMALL_SAMPLE:
        return f"{sum(after) - sum(before):+d} of {len(before)}", "–"
    value, low, high = metrics.paired_interval(before, after)
    return format_points(value), format_interval(low, high)


def count_changes(rows: pd.DataFrame) -> tuple[int, int, int]:
    """Count one system's revised questions that can be scored: all, those helped, those hurt."""
    revised = rows[rows.revised & rows.normalised.notna()]
    helped, hurt, _ = metrics.mcnemar(revised.first_normalised, revised.normalised)
    return len(revised), helped, hurt
