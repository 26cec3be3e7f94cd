"""The picture of Figure 4: four panels over the backbones, the paper's values as diamonds."""

from pathlib import Path

import pandas as pd

import covrag_lite.tables.pictures as pictures
from covrag_lite.systems import names, palette
from covrag_lite.tables.backbones import (
    ACCURACIES,
    AREAS,
    MEAN,
    OUR_FORM,
    PAPER_FORM,
    PAPER_SYSTEMS,
    SECOND_ROUND,
    label,
    load_backbones,
    load_paper_backbones,
)

GREEN = palette()[names.COV_RAG]
ORANGE = palette()[names.START_REVISE]
LOOKS = {  # colour and marker of every series; those of one panel differ in both
    names.RAG_TRAINED: (palette()[names.RAG_TRAINED], "s"),
    names.COV_RAG_S: (palette()[names.COV_RAG_S], "v"),
    names.COV_RAG: (GREEN, "o"),
    "judge": (GREEN, "o"),
    "likelihood": (ORANGE, "s"),
    "both": (pictures.DARK, "v"),
    PAPER_FORM: (GREEN, "o"),
    SECOND_ROUND: (ORANGE, "s"),
    OUR_FORM: (pictures.DARK, "v"),
}


def plot(long: pd.DataFrame, path: Path) -> "pictures.Figure":
    """Plot accuracy and gain of the paper's form; below, AUROC and what the second round gains."""
    plt, _ = pictures.style(0.8)
    figure, panels = plt.subplots(2, 2, figsize=(13.5, 11), layout="constrained")
    (accuracy, gain), (area, second) = panels
    of_paper = load_paper_backbones()
    sizes = len(long.backbone.unique())
    _draw(accuracy, long, "accuracy", list(ACCURACIES))
    for what, shift in zip(PAPER_SYSTEMS, (-0.2, 0.2)):
        _draw_paper(accuracy, of_paper[what], sizes, LOOKS[what][0], shift)
    _draw(gain, long, "gain", [PAPER_FORM])
    paper_gain = of_paper[names.COV_RAG] - of_paper[names.RAG_TRAINED]
    _draw_paper(gain, paper_gain, sizes, LOOKS[PAPER_FORM][0])
    _draw(area, long, "AUROC", list(AREAS))
    _draw(second, long, "gain", [SECOND_ROUND, OUR_FORM])
    accuracy.set(title="Accuracy", ylabel="right answers (%)", ylim=(0, 100))
    gain.set(title="CoV-RAG − RAG (trained), one model", ylabel="points")
    area.set(title="Separating right from wrong answers", ylabel="AUROC")
    second.set(title="What the second round gains", ylabel="points")
    for axes in (accuracy, gain):
        axes.plot([], [], ms=8, label="the paper (other questions)", **pictures.DIAMOND)
        axes.axvline(sizes - 0.5, color=pictures.OTHER, ls=":", lw=1.5)
    for axes in (gain, second):
        axes.axhline(0, color=pictures.OTHER, ls="--", lw=1.5)
    area.axhline(0.5, color=pictures.OTHER, ls="--", lw=1.5)
    right_end = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "bottom"}
    area.annotate("chance", (0.99, 0.5), **right_end)
    for axes in panels.flat:
        axes.grid(axis="x", visible=False)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncol=2, frameon=False)
    note = "bars: 95 % intervals; small rings: single seeds"
    figure.suptitle(f"Figure 4: one recipe, several backbones ({note})")
    plt.close(figure)  # the notebook shows the saved file, not the open figure as well
    return pictures.save_picture(figure, path)


def _draw(axes: "pictures.Axes", long: pd.DataFrame, measure: str, series: list[str]) -> None:
    """Draw series over our backbones: means with intervals, and single seeds if several."""
    backbones = list(long.backbone.unique())
    for number, what in enumerate(series):
        colour, marker = LOOKS[what]
        shift = 0.2 * (number - (len(series) - 1) / 2)
        rows = long[(long.measure == measure) & (long.what == what)]
        rows = rows.assign(place=[backbones.index(name) + shift for name in rows.backbone])
        mean = rows[rows.seed == MEAN]
        single = rows[rows.seed != MEAN]
        span = [(mean.value - mean.low).astype(float), (mean.high - mean.value).astype(float)]
        style = dict(marker=marker, ms=9, ls="none", elinewidth=2, capsize=4, color=colour)
        axes.errorbar(mean.place, mean.value, span, label=label(what), **style)
        several = single[single.groupby("backbone").seed.transform("nunique") > 1]
        if measure != "accuracy":  # where seeds differ by less than a marker's size
            rings = {"ms": 4, "mfc": "white", "mec": colour, "zorder": 4}
            axes.plot(several.place + 0.07, several.value, "o", **rings)
    axes.set_xticks(range(len(backbones)), map(_tick, backbones))
    axes.set_xlim(-0.5, len(backbones) - 0.5)


def _draw_paper(
    axes: "pictures.Axes", values: pd.Series, start: int, colour: str, shift: float = 0
) -> None:
    """Draw the paper's values right of ours, as diamonds."""
    places = range(start, start + len(values))
    style = pictures.DIAMOND | {"mec": colour, "mew": 2.5, "ms": 8}
    axes.plot([place + shift for place in places], values, **style)
    ours = [text.get_text() for text in axes.get_xticklabels()][:start]
    theirs = [name.replace("-", "\n").replace("b", "B") for name in values.index]
    axes.set_xticks([*range(start), *places], ours + theirs)
    axes.set_xlim(-0.5, start + len(values) - 0.5)


def _tick(backbone: str) -> str:
    """Return a backbone's label, short enough for an axis with six of them."""
    return load_backbones()[backbone]["label"].replace("Qwen2.5-Coder", "Qwen")
