"""The figures of recorded training: speed and memory, and the losses of all programs."""

from functools import partial
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import pandas as pd

from covrag_lite.config import ROOT, resolve
from covrag_lite.systems import names, palette
from covrag_lite.tables import pictures
from covrag_lite.tables.speed.labels import label_model, label_setting
from covrag_lite.tables.speed.records import (
    MEMORY_TARGET,
    SPEED_TARGETS,
    TRAINING_FILE,
    load_peers,
    load_training,
)
from covrag_lite.tables.table import Plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COMMITTED = "speed-h200"  # the folder under results/ whose figures are committed
SHOWN_SETTINGS = ("ours", "ours away")  # of our settings, in the figure of losses
LINE_STYLES = ("-", "--", ":", "-.")


def list_plots(speed: Path) -> dict[str, Plot]:
    """Return the figures of a folder, by the ends of their files; none without training."""
    if not (speed / TRAINING_FILE).exists():
        return {}
    plots: dict[str, Plot] = {"training.png": partial(plot_speed, *load_training(speed))}
    peers = load_peers(speed)
    if len(peers):
        plots["losses.png"] = partial(plot_losses, peers)
    return plots


def show_figure(speed: Path, folder: Path, end: str) -> object:
    """Show a figure of recorded speed: the committed one, or a new one for another record."""
    from IPython.display import Image

    path = ROOT / "figures" / "embedded" / f"speed.{end}"
    if speed != resolve("results") / COMMITTED:
        path = folder / f"speed.{end}"
        list_plots(speed)[end](path)
    return Image(filename=path, width=900)


def plot_speed(frame: pd.DataFrame, machine: str, path: Path) -> "Figure":
    """Plot speed and memory of each setting relative to plain, with one row of panels per model."""
    plt, _ = pictures.style(0.7)
    shapes = frame["shape"].unique().tolist()
    heights = [(frame["shape"] == shape).sum() + 1 for shape in shapes]
    figure, panels = plt.subplots(
        len(shapes),
        2,
        figsize=(11.5, 0.46 * sum(heights) + 1.4),
        squeeze=False,
        layout="constrained",
        sharey="row",
        gridspec_kw={"height_ratios": heights, "width_ratios": [3, 2]},
    )
    for (left, right), shape in zip(panels, shapes):
        rows = frame[frame["shape"] == shape][::-1]
        draw_bars(left, rows, "speed_ratio", "{:.1f}×", SPEED_TARGETS.get(shape))
        draw_bars(right, rows, "memory_ratio", "{:.2f}", MEMORY_TARGET)
        left.set_title(f"{label_model(shape)}: speed relative to plain", loc="left")
        right.set_title("GPU memory relative to plain", loc="left")
    device = machine.split(",")[0]
    figure.suptitle(f"Training on {device} (plain: transformers + peft; dashed: our target)")
    return pictures.save_picture(figure, path)


def draw_bars(
    axes: "Axes",
    rows: pd.DataFrame,
    column: str,
    text: str,
    target: float | None,
) -> None:
    """Draw one panel: a labelled bar per setting, and a line at the target."""
    values = rows[column].astype(float)
    colours = [colour_of_setting(variant) for variant in rows.variant]
    labels = ["" if pd.isna(value) else text.format(value) for value in values]
    settings = [fill(label_setting(variant), 36) for variant in rows.variant]
    bars = axes.barh(settings, values.fillna(0), color=colours)
    if target and values.notna().any():
        axes.axvline(target, color=pictures.DARK, ls="--", lw=1.5)
    box = dict(fc="white", ec="none", pad=1)
    axes.bar_label(bars, labels, padding=5, bbox=box)
    axes.margins(x=0.22)
    axes.grid(axis="y", visible=False)


def colour_of_setting(variant: str) -> str:
    """Return the colour of a setting: ours as CoV-RAG, packed as RAG, plain as closed-book."""
    if variant.startswith("ours"):
        return palette()[names.COV_RAG]
    if variant.startswith("packed"):
        return palette()[names.RAG]
    return palette()[names.CLOSED_BOOK]


def plot_losses(frame: pd.DataFrame, path: Path) -> "Figure":
    """Plot the loss of each training program by step; all train on the same rows in the same order.

    There is one panel per model and kind of samples. Of our settings, the default and the
    offloaded one are drawn.
    """
    plt, sns = pictures.style(0.7)
    is_shown = ~frame.way.str.startswith("ours") | frame.way.isin(SHOWN_SETTINGS)
    measured = frame[frame.losses.notna() & is_shown]
    groups = list(measured.groupby(["shape", "samples"], sort=False))
    n_rows = max(1, (len(groups) + 1) // 2)
    size = (11, 3.2 * n_rows + 0.6)
    figure, panels = plt.subplots(n_rows, 2, figsize=size, squeeze=False, layout="constrained")
    programs = measured.way.unique().tolist()
    colours = sns.color_palette("colorblind", 12)  # a program has the same one in every panel
    lines = {}
    for panel, ((shape, samples), rows) in zip(panels.flat, groups):
        for row in rows.itertuples():
            number = programs.index(row.way)
            steps = range(1, len(row.losses) + 1)
            look = {"ls": LINE_STYLES[number % 4], "color": colours[number], "lw": 2.5}
            (lines[label_setting(row.way)],) = panel.plot(steps, row.losses, **look)
        panel.set_title(f"{label_model(shape)}, {samples}", loc="left")
        panel.set(xlabel="step", ylabel="loss")
    for panel in panels.flat[len(groups) :]:
        panel.set_axis_off()
    if lines:
        place = dict(loc="outside lower center", ncol=len(lines), frameon=False)
        figure.legend(lines.values(), lines, **place)
    return pictures.save_picture(figure, path)
