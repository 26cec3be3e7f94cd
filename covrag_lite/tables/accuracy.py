"""Accuracy in % (the paper's Tables 2 and 4): long and wide tables, paired comparisons, notes and facts.

Everything is made from the tidy frame of `outcomes.to_frame`.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import pandas as pd

from covrag_lite import labels, metrics
from covrag_lite.config import Config, Model
from covrag_lite.labels import label_of, label_of_set, with_labels
from covrag_lite.runs.recorded import Recorded, name_data
from covrag_lite.systems import SYSTEMS, palette
from covrag_lite.tables import Table, paper, pictures

COLUMNS = ["table", "dataset", "system", "backbone", "metric", "n", "value", "low", "high", "paper"]
# Systems that are compared question by question, the one expected to be worse first.
PAIRS = (
    ("closed-book", "RAG"),
    ("RAG", "Start-Revise"),
    ("RAG", "RAG trained"),
    ("RAG trained", "CoV-RAG-S"),
    ("RAG trained", "CoV-RAG"),
    ("CoV-RAG-S", "CoV-RAG"),
    ("RAG trained", "CoV-RAG, likelier answer"),
    ("CoV-RAG-S", "CoV-RAG, likelier answer"),
    ("CoV-RAG-S", "Start-Revise trained"),
    ("Start-Revise trained", "CoV-RAG"),
    ("CoV-RAG w/o chain", "CoV-RAG"),
    ("CoV-RAG shuffled", "CoV-RAG"),
)

FOUND = ("CoV-RAG", "RAG trained", "Start-Revise trained", "CoV-RAG-S")  # a picture's title has the means of three
FEW, SAMPLE = 30, "A sample: too few questions to compare systems\n"  # title of a picture with fewer per set


def accuracy_table(frame: pd.DataFrame, table: str) -> pd.DataFrame:
    """The long form of an accuracy table: one row a system, set and metric, with n, interval and the paper's value."""
    rows = []
    for metric in metrics.METRICS:
        scored = frame[frame[metric].notna()]
        for system in in_order(scored.system.unique()):
            group = scored[scored.system == system]
            known = paper.find_values(table, system, group.dataset.unique())
            right = {dataset: one.tolist() for dataset, one in group.groupby("dataset", sort=False)[metric]}
            mean = metrics.mean_interval([(sum(one), len(one)) for one in right.values()])
            cells = {dataset: (len(one), *share(one)) for dataset, one in right.items()}
            cells["average"] = (len(group), *(100 * value for value in mean))
            for dataset, cell in cells.items():
                rows.append((table, dataset, system, group.backbone.iloc[0], metric, *cell, known.get(dataset)))
    return pd.DataFrame(rows, columns=COLUMNS)


def in_order(systems: Sequence[str]) -> list[str]:
    """Systems in the order of a table's rows."""
    names = [*palette(), *SYSTEMS]
    return sorted(systems, key=names.index)


def wide(long: pd.DataFrame, metric: str | None = "normalised", digits: tuple[int, int] = (1, 0)) -> pd.DataFrame:
    """The table as a person reads it: one row per system, one column per set (for None: per metric).

    A cell is `ours [low–high] (paper)`, or a count such as `1 of 2` where there are too few questions for a share.
    """
    rows = by_set_or_metric(long, metric)
    value, end = (f"{{:.{places}f}}" for places in digits)
    cells = []
    for row in rows.itertuples():
        if metric and row.n < labels.SMALL_SAMPLE:
            cells.append(f"{round(row.value * row.n / 100)} of {row.n}")
            continue
        of_paper = "" if pd.isna(row.paper) else f" ({value})".format(row.paper)
        cells.append(f"{value} [{end}–{end}]".format(row.value, row.low, row.high) + of_paper)
    rows = rows.assign(cell=cells, dataset=rows.dataset.map(label_of_set))
    return rows.set_index(["system", "dataset"]).cell.unstack(sort=False).fillna("–")


def next_to_paper(long: pd.DataFrame, metric: str = "normalised") -> pd.DataFrame:
    """The sets whose questions are the paper's own: one row per system, per set the paper's value and ours."""
    rows = long[(long.metric == metric) & long.dataset.isin(paper.PUBLISHED)]
    columns = {}
    for dataset in rows.dataset.unique():
        own = rows[rows.dataset == dataset].set_index("system")
        name = f"{label_of_set(dataset)}, n = {own.n.max()}"
        columns[name, "paper"] = ["–" if pd.isna(value) else f"{value:.1f}" for value in own.paper]
        ours = zip(own.value, own.low, own.high)
        columns[name, "ours"] = ["{:.1f} [{:.0f}–{:.0f}]".format(*cell) for cell in ours]
    return pd.DataFrame(columns, index=pd.Index(own.index if columns else [], name="system"))


def by_set_or_metric(long: pd.DataFrame, metric: str | None) -> pd.DataFrame:
    """A metric's rows; for None all rows, with the metrics in the place of the sets."""
    return long[long.metric == metric] if metric else long.assign(dataset=long.metric)


def compare(frame: pd.DataFrame, pairs: Sequence[tuple[str, str]] = PAIRS) -> pd.DataFrame:
    """Systems two by two on the same questions: difference with its interval, gained, lost, McNemar's exact p."""
    rows = []
    for metric in metrics.METRICS:
        right = frame[frame[metric].notna()].pivot(index="id", columns="system", values=metric)
        for a, b in pairs:
            if a in right and b in right:
                x, y = right[a].astype(bool).tolist(), right[b].astype(bool).tolist()
                gained, lost, p = metrics.mcnemar(x, y)
                difference = format_difference(x, y)
                rows.append((f"{a} → {b}", metric, len(x), *difference, gained, lost, labels.format_p(p)))
    columns = ["comparison", "metric", "n", "difference", "95 % interval", "gained", "lost", "McNemar p"]
    return pd.DataFrame(rows, columns=columns)


def share(right: Sequence[bool]) -> tuple[float, float, float]:
    """How many of these are right, in %, with the Wilson interval; NaN where there are none."""
    n, count = len(right), int(sum(right))
    value = count / n if n else float("nan")
    return 100 * value, *(100 * end for end in metrics.wilson(count, n))


def with_interval(form: str, value: float, low: float, high: float) -> str:
    """A value and its interval, each in this form; only the value without an interval, a dash without either."""
    if pd.isna(value):
        return "–"
    return form.format(value) + ("" if pd.isna(low) else f" [{form}, {form}]".format(low, high))


def with_visible(comparison: pd.DataFrame) -> pd.DataFrame:
    """Comparisons with the minimum detectable effect, in points, at 80 % power."""
    rows = zip(comparison.gained, comparison.lost, comparison.n)
    effects = [metrics.smallest_visible(*row) for row in rows]
    shown = ["–" if pd.isna(effect) else f"{effect:.1f}" for effect in effects]
    return comparison.assign(**{"detectable": shown})


def format_difference(a: Sequence[bool], b: Sequence[bool]) -> tuple[str, str]:
    """The paired difference b − a in points and its interval; a count where there are few questions."""
    if len(a) < labels.SMALL_SAMPLE:
        return f"{sum(b) - sum(a):+d} of {len(a)}", "–"
    value, low, high = metrics.paired_interval(a, b)
    return labels.format_points(value), labels.format_interval(low, high)


def count_changes(rows: pd.DataFrame) -> tuple[int, int, int]:
    """Of one system's rows: how many were revised and can be scored, how many that helped, how many it hurt."""
    changed = rows[rows.revised & rows.normalised.notna()]
    return len(changed), *metrics.mcnemar(changed.first_normalised, changed.normalised)[:2]


def notes(frame: pd.DataFrame) -> list[str]:
    """Notes under an accuracy table: what did not parse, what cannot be scored, what the second search changed."""
    one = frame[frame.system == frame.system.iloc[0]]
    n = int(one.normalised.isna().sum())
    lines = [
        f"{n} of {len(one)} questions have gold answers that normalise to nothing; only the raw accuracy counts them."
    ]
    for name, rows in frame.groupby("system", sort=False):
        system = label_of(name)
        if rows.verdicts.sum():
            judged = ", ".join(f"{name} {(rows.judgment == name).sum()}" for name in ("true", "false", "unclear"))
            changed, helped, hurt = count_changes(rows)
            effect = f"helped {helped}, hurt {hurt} and changed nothing for {changed - helped - hurt}"
            lines.append(
                f"{system}: {rows.unparsed.sum()} of {rows.verdicts.sum()} verdicts did not parse; judgments: {judged}."
            )
            lines.append(f"{system}: {int(rows.revised.sum())} questions were searched again; that {effect}.")
        if rows.found_first.notna().any() and rows.searched.any():
            found = f"{100 * rows.found_last.dropna().mean():.0f} % of the questions"
            if rows.gold_last.notna().any():
                found += f", a gold passage for {100 * rows.gold_last.dropna().mean():.0f} %"
            lines.append(f"{system}: the last search finds an answer for {found}.")
    return lines


def title(table: str, config: Config, long: pd.DataFrame, found: str = "") -> str:
    """The title of an accuracy table's picture: what it shows, and for which model and data."""
    mean = long[(long.dataset == "average") & (long.metric == "normalised")].set_index("system").value
    means = [f"{label_of(name)} {mean[name]:.1f} %" for name in FOUND if name in mean]
    if means:
        found = f"{', '.join(means[:3])}\n"
    sizes = long[long.dataset != "average"].n
    if sizes.min() < FEW:
        found = SAMPLE
    shown = "CoV-RAG and related methods" if table == "related" else table.replace("table", "Table ")
    layout = "" if config.model.layout == Model().layout else f", {config.model.layout} layout,"
    n = f"{sizes.min()} each" if sizes.nunique() == 1 else f"{sizes.min()} to {sizes.max()}"
    return f"{found}{shown}: {config.model.short}{layout} on {name_data(config)}, n = {n}"


def build(name: str, frame: pd.DataFrame, run: Recorded, facts: Mapping[str, str]) -> Table:
    """An accuracy table with its paired comparisons and picture; `facts` are further ones."""
    long, comparison = accuracy_table(frame, name), compare(frame)
    parts = {}
    for metric in metrics.METRICS:
        parts[f"Accuracy in %, {metric}: {legend(long)}"] = with_labels(wide(long, metric)).reset_index()
    parts["Paired comparisons on the same questions"] = with_labels(comparison)
    all_facts = facts_of_accuracy(frame, long, comparison) | facts_on_paper_sets(frame) | facts
    plot = partial(plot_accuracy, long, title(name, run.config, long))
    return Table(name, long, parts, notes(frame), all_facts, {"png": plot})


def legend(long: pd.DataFrame) -> str:
    """What a cell holds."""
    return "ours [95 % interval]" + (" (the paper)" if long.paper.notna().any() else "")


def minus(text: str) -> str:
    """A number with a proper minus sign."""
    return text.replace("-", "−")


def facts_of(name: str, values: Mapping[str, object]) -> dict[str, str]:
    """Facts whose names share a beginning, formatted for prose; an empty key adds nothing to the name."""
    return {f"{name} {end}".strip(): minus(str(value)) for end, value in values.items()}


def tell_rows(rows: pd.DataFrame, name: str, forms: Mapping[str, str] | None = None) -> dict[str, str]:
    """Facts of every row; `name` and each text of `forms` may contain the row's columns in braces.

    A form's key ends the fact's name. Without forms every column but the first is a fact, as it is.
    """
    made, forms = {}, forms or {column: f"{{{column}}}" for column in rows.columns[1:]}
    for row in rows.to_dict("records"):
        made |= facts_of(name.format(**row), {end: form.format(**row) for end, form in forms.items()})
    return made


def facts_of_accuracy(frame: pd.DataFrame, long: pd.DataFrame, comparison: pd.DataFrame) -> dict[str, str]:
    """Every system's accuracy, set by set and on average, how often it finds a gold passage, and systems two by two."""
    forms = {"": "{value:.1f}", "interval": "[{low:.0f}–{high:.0f}]", "n": "{n}"}
    made = tell_rows(long[long.metric == "normalised"], "{system} {dataset}", forms)
    for system, found in frame.dropna(subset="gold_last").groupby("system").gold_last:
        made[f"{system} gold"] = f"{100 * found.mean():.1f}"
    rows = with_visible(comparison[comparison.metric == "normalised"])
    forms = {"points": "{difference}", "interval": "{95 % interval}", "p": "{McNemar p}"}
    forms |= {"gained": "{gained}", "lost": "{lost}", "visible": "{detectable}"}
    return made | tell_rows(rows, "{comparison}", forms)


def facts_on_paper_sets(frame: pd.DataFrame) -> dict[str, str]:
    """Systems two by two on each set whose questions are the paper's own."""
    made = {}
    forms = {"points": "{difference}", "interval": "{95 % interval}", "p": "{McNemar p}"}
    for dataset in sorted(paper.PUBLISHED & set(frame.dataset)):
        rows = compare(frame[frame.dataset == dataset])
        made |= tell_rows(rows[rows.metric == "normalised"], f"{{comparison}} {dataset}", forms)
    return made


def plot_accuracy(long: pd.DataFrame, title: str, path: Path, metric: str | None = "normalised") -> "pictures.Figure":
    """Bars a system and set with their intervals, the paper's values as diamonds; for None a group a metric."""
    plt, sns = pictures.style()
    rows = by_set_or_metric(long, metric)
    colours = {label_of(system): palette().get(system, pictures.OTHER) for system in rows.system.unique()}
    rows = rows.assign(system=rows.system.map(label_of))
    rows = rows.assign(dataset=[label_of_set(dataset).replace(" ", "\n") for dataset in rows.dataset])
    figure, axes = plt.subplots(figsize=(13, 6.5), layout="constrained")
    sns.barplot(rows, x="dataset", y="value", hue="system", palette=colours, errorbar=None, ax=axes)
    for bars, (_, group) in zip(axes.containers, rows.groupby("system", sort=False)):
        middle = [bar.get_x() + bar.get_width() / 2 for bar in bars]
        pictures.draw_intervals(axes, middle, group)
        axes.plot(middle, group.paper.astype(float), ms=7, zorder=3, **pictures.DIAMOND)
    if rows.paper.notna().any():
        axes.plot([], [], ms=7, label=pictures.THE_PAPER, **pictures.DIAMOND)
    label = f"accuracy, {metric} (%)" if metric else "share (%)"
    axes.set(title=title, xlabel="", ylabel=label, ylim=(0, 100))
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return pictures.save_picture(figure, path)
