"""The picture of an accuracy table: bars with intervals, the paper's values as diamonds."""

from collections.abc import Iterable
from itertools import cycle
from pathlib import Path
from textwrap import fill

import pandas as pd

import covrag_lite.tables.pictures as pictures
from covrag_lite.config import Config, Model
from covrag_lite.runs.recorded import name_data
from covrag_lite.systems import names, palette
from covrag_lite.tables.labels import SMALL_SAMPLE, label_of, label_of_set

# Systems whose mean accuracy is in the title, if they were run; the first of these.
IN_TITLE = (names.COV_RAG, names.RAG_TRAINED, names.START_REVISE_TRAINED, names.COV_RAG_S)
MEANS_IN_TITLE = 3
MANY_GROUPS = 7  # of bars; the labels of more only fit if they are smaller
LEGEND_WIDTH = 24  # characters of a line, next to that many groups
GREYS = (pictures.OTHER, "#222222")  # of systems without a colour, in the order of their rows
SAMPLE_TITLE = "A sample: too few questions to compare systems\n"


def build_title(table: str, config: Config, long: pd.DataFrame, result: str = "") -> str:
    """Return a picture's title: its result, what it shows, and for which model and data."""
    means = long[(long.dataset == "average") & (long.metric == "normalised")]
    accuracies = means.set_index("system").value
    texts = [
        f"{label_of(name)} {accuracies[name]:.1f} %" for name in IN_TITLE if name in accuracies
    ]
    if texts:
        result = f"{', '.join(texts[:MEANS_IN_TITLE])}\n"
    sizes = long[long.dataset != "average"].n
    if sizes.min() < SMALL_SAMPLE:
        result = SAMPLE_TITLE
    name = table.replace("table", "Table ")
    if table == "related":
        name = "Related methods"
    layout = "" if config.model.layout == Model().layout else f", {config.model.layout} layout,"
    n = f"{sizes.min()} each" if sizes.nunique() == 1 else f"{sizes.min()} to {sizes.max()}"
    return f"{result}{name}: {config.model.short}{layout} on {name_data(config)}, n = {n}"


def plot_accuracy(
    long: pd.DataFrame, title: str, path: Path, metric: str | None = "normalised"
) -> "pictures.Figure":
    """Plot a bar per system and set, or per system and metric if `metric` is None."""
    plt, sns = pictures.style()
    rows = by_set_or_metric(long, metric)
    colours = choose_colours(rows.system.unique())
    groups = [label_of_set(dataset).replace(" ", "\n") for dataset in rows.dataset]
    rows = rows.assign(system=rows.system.map(label_of), dataset=groups)
    figure, axes = plt.subplots(figsize=(13, 6.5), layout="constrained")
    sns.barplot(rows, x="dataset", y="value", hue="system", palette=colours, errorbar=None, ax=axes)
    for bars, (_, group) in zip(axes.containers, rows.groupby("system", sort=False)):
        middle = [bar.get_x() + bar.get_width() / 2 for bar in bars]
        pictures.draw_intervals(axes, middle, group)
        axes.plot(middle, group.paper.astype(float), ms=7, zorder=3, **pictures.DIAMOND)
    if rows.paper.notna().any():
        axes.plot([], [], ms=7, label=pictures.THE_PAPER, **pictures.DIAMOND)
    label = f"accuracy, {metric} (%)" if metric else "share (%)"
    axes.set(xlabel="", ylabel=label, ylim=(0, 100))
    axes.set_title(title, pad=14, size=15)
    legend = axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    if rows.dataset.nunique() > MANY_GROUPS:
        axes.tick_params(axis="x", labelsize=11)
        for text in legend.get_texts():
            text.set_text(fill(text.get_text(), LEGEND_WIDTH))
    return pictures.save_picture(figure, path)


def choose_colours(systems: Iterable[str]) -> dict[str, str]:
    """Return a colour for each label: the system's, or a grey for a system that has none."""
    greys = cycle(GREYS)
    colours = {}
    for system in systems:
        colours[label_of(system)] = palette().get(system) or next(greys)
    return colours


def by_set_or_metric(long: pd.DataFrame, metric: str | None) -> pd.DataFrame:
    """Return a metric's rows; for None all rows, with the metrics in place of the sets."""
    return long[long.metric == metric] if metric else long.assign(dataset=long.metric)
