"""Accuracy in % (the paper's Tables 2 and 4): long and wide tables, notes and facts.

Everything is built from the frame of `frame.to_frame`.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import pandas as pd

import covrag_lite.tables.paper as paper
from covrag_lite import metrics
from covrag_lite.prompts import JUDGMENTS
from covrag_lite.runs.recorded import Recorded
from covrag_lite.systems import all_systems, palette
from covrag_lite.tables.accuracy_picture import build_title, by_set_or_metric, plot_accuracy
from covrag_lite.tables.facts import facts_of_rows
from covrag_lite.tables.intervals import share
from covrag_lite.tables.labels import SMALL_SAMPLE, label_of, label_of_set, with_labels
from covrag_lite.tables.paired import compare_pairs, count_changes, with_detectable_effects
from covrag_lite.tables.table import Table

COLUMNS = ["table", "dataset", "system", "backbone", "metric", "n", "value", "low", "high", "paper"]
COMPARISON_FORMS = {  # how a comparison's facts end -> what they contain
    "points": "{difference}",
    "interval": "{95 % interval}",
    "p": "{McNemar p}",
}


def build_accuracy(
    name: str, frame: pd.DataFrame, run: Recorded, further_facts: Mapping[str, str]
) -> Table:
    """Build an accuracy table with its paired comparisons and picture."""
    long = accuracy_table(frame, name)
    comparisons = compare_pairs(frame)
    parts = {}
    for metric in metrics.METRICS:
        heading = f"Accuracy in %, {metric}: {legend(long)}"
        parts[heading] = with_labels(wide(long, metric)).reset_index()
    parts["Paired comparisons on the same questions"] = with_labels(comparisons)
    facts = facts_of_accuracy(frame, long, comparisons)
    facts |= facts_on_paper_sets(frame)
    facts |= further_facts
    plot = partial(plot_accuracy, long, build_title(name, run.config, long))
    return Table(name, long, parts, notes(frame), facts, {"png": plot})


def accuracy_table(frame: pd.DataFrame, table: str) -> pd.DataFrame:
    """Return an accuracy table in long form.

    One row per metric, system and set, with n, interval and the paper's value; the average of a
    system's sets comes last.
    """
    rows = []
    for metric in metrics.METRICS:
        scored = frame[frame[metric].notna()]
        for system in in_order(scored.system.unique()):
            of_system = scored[scored.system == system]
            of_paper = paper.find_values(table, system, of_system.dataset.unique())
            cells = {}
            counts = []
            for dataset, of_set in of_system.groupby("dataset", sort=False):
                right = of_set[metric].tolist()
                counts.append((sum(right), len(right)))
                cells[dataset] = (len(right), *share(right))
            average = [100 * value for value in metrics.mean_interval(counts)]
            cells["average"] = (len(of_system), *average)
            backbone = of_system.backbone.iloc[0]
            for dataset, cell in cells.items():
                about = (table, dataset, system, backbone, metric)
                rows.append((*about, *cell, of_paper.get(dataset)))
    return pd.DataFrame(rows, columns=COLUMNS)


def in_order(systems: Sequence[str]) -> list[str]:
    """Return systems in the order of a table's rows."""
    order = [*palette(), *all_systems()]
    return sorted(systems, key=order.index)


def wide(
    long: pd.DataFrame, metric: str | None = "normalised", digits: tuple[int, int] = (1, 0)
) -> pd.DataFrame:
    """Return the table as people read it: one row per system, one column per set.

    If `metric` is None there is one column per metric. A cell is `ours [low–high] (paper)`, or a
    count such as `1 of 2` for a small sample. `digits` are those of values and of intervals.
    """
    rows = by_set_or_metric(long, metric)
    value_form, end_form = (f"{{:.{places}f}}" for places in digits)
    cells = []
    for row in rows.itertuples():
        if metric and row.n < SMALL_SAMPLE:
            cells.append(f"{round(row.value * row.n / 100)} of {row.n}")
            continue
        cell = value_form.format(row.value)
        if not pd.isna(row.low):
            cell += f" [{end_form}–{end_form}]".format(row.low, row.high)
        if not pd.isna(row.paper):
            cell += f" ({value_form})".format(row.paper)
        cells.append(cell)
    rows = rows.assign(cell=cells, dataset=rows.dataset.map(label_of_set))
    return rows.set_index(["system", "dataset"]).cell.unstack(sort=False).fillna("–")


def next_to_paper(long: pd.DataFrame, metric: str = "normalised") -> pd.DataFrame:
    """Return the sets whose questions are the paper's own: per set the paper's value and ours."""
    rows = long[(long.metric == metric) & long.dataset.isin(paper.PUBLISHED)]
    columns = {}
    systems = []
    for dataset, of_set in rows.groupby("dataset", sort=False):
        systems = of_set.system
        heading = f"{label_of_set(dataset)}, n = {of_set.n.max()}"
        paper_cells = []
        our_cells = []
        for row in of_set.itertuples():
            paper_cells.append("–" if pd.isna(row.paper) else f"{row.paper:.1f}")
            our_cells.append(f"{row.value:.1f} [{row.low:.0f}–{row.high:.0f}]")
        columns[heading, "paper"] = paper_cells
        columns[heading, "ours"] = our_cells
    return pd.DataFrame(columns, index=pd.Index(systems, name="system"))


def legend(long: pd.DataFrame) -> str:
    """Return what a cell contains."""
    return "ours [95 % interval]" + (" (the paper)" if long.paper.notna().any() else "")


def notes(frame: pd.DataFrame) -> list[str]:
    """Return the notes under an accuracy table.

    They say what did not parse, what cannot be scored, and what the second search changed.
    """
    any_system = frame[frame.system == frame.system.iloc[0]]
    n_defective = int(any_system.normalised.isna().sum())
    lines = [
        f"{n_defective} of {len(any_system)} questions have gold answers that normalise to nothing;"
        " only the raw accuracy counts them."
    ]
    for system, rows in frame.groupby("system", sort=False):
        if rows.verdicts.sum():
            lines += [f"{label_of(system)}: {line}" for line in notes_on_verdicts(rows)]
        if rows.found_first.notna().any() and rows.searched.any():
            lines.append(f"{label_of(system)}: {note_on_search(rows)}")
    return lines


def notes_on_verdicts(rows: pd.DataFrame) -> list[str]:
    """Return how many of one system's verdicts parsed, and what its second searches changed."""
    counts = [f"{judgment} {(rows.judgment == judgment).sum()}" for judgment in JUDGMENTS]
    unparsed = f"{rows.unparsed.sum()} of {rows.verdicts.sum()} verdicts did not parse"
    revised, helped, hurt = count_changes(rows)
    unchanged = revised - helped - hurt
    return [
        f"{unparsed}; judgments: {', '.join(counts)}.",
        f"{int(rows.revised.sum())} questions were searched again; that helped {helped},"
        f" hurt {hurt} and changed nothing for {unchanged}.",
    ]


def note_on_search(rows: pd.DataFrame) -> str:
    """Return for how many questions one system's last search finds an answer and gold passages."""
    text = f"{100 * rows.found_last.dropna().mean():.0f} % of the questions"
    if rows.gold_last.notna().any():
        text += f", a gold passage for {100 * rows.gold_last.dropna().mean():.0f} %"
    return f"the last search finds an answer for {text}."


def facts_of_accuracy(
    frame: pd.DataFrame, long: pd.DataFrame, comparisons: pd.DataFrame
) -> dict[str, str]:
    """Return accuracies by set and on average, gold passages found, and comparisons as facts."""
    forms = {"": "{value:.1f}", "interval": "[{low:.0f}–{high:.0f}]", "n": "{n:,}"}
    facts = facts_of_rows(long[long.metric == "normalised"], "{system} {dataset}", forms)
    for system, gold in frame.dropna(subset="gold_last").groupby("system").gold_last:
        facts[f"{system} gold"] = f"{100 * gold.mean():.1f}"
    rows = with_detectable_effects(comparisons[comparisons.metric == "normalised"])
    forms = COMPARISON_FORMS | {"gained": "{gained}", "lost": "{lost}", "visible": "{detectable}"}
    return facts | facts_of_rows(rows, "{comparison}", forms)


def facts_on_paper_sets(frame: pd.DataFrame) -> dict[str, str]:
    """Return comparisons on each set whose questions are the paper's own as facts."""
    facts = {}
    for dataset in sorted(paper.PUBLISHED & set(frame.dataset)):
        rows = compare_pairs(frame[frame.dataset == dataset])
        of_metric = rows[rows.metric == "normalised"]
        facts |= facts_of_rows(of_metric, f"{{comparison}} {dataset}", COMPARISON_FORMS)
    return facts
