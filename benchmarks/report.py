"""Facts and figures of recorded speed, and the cost of a replication on a rented GPU."""

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from benchmarks.measurements import (
    MEMORY,
    best,
    find_frames,
    load_frames,
    load_holding,
    load_peers,
    load_speed,
)
from covrag_lite.runs.outcomes import load_predictions, to_frame
from covrag_lite.systems import adapter_of, palette
from covrag_lite.tables import Table
from covrag_lite.tables.pictures import save_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RECORDED = "speed-h200"  # the folder under results/ whose figures are shown
# The targets for training on a CUDA GPU.
WANTED = {"smollm2": 3.0, "7b": 1.9, "13b": 1.9}  # tokens per second relative to plain, 1 decimal
USEFUL = 0.97  # share of all computed tokens
FORMS = {  # how prose writes the numbers of a column; columns not listed have one decimal
    "memory_ratio": "{:.2f}",
    "ours_memory": "{:.2f}",
    "as_lean_faster": "{:.2f}",
    "as_lean_steady": "{:.2f}",
    "of_limit": "{:.2f}",
    "row": "{:,.0f}",
    "away_row": "{:,.0f}",
    "tokens_per_second": "{:,.0f}",
    "steady": "{:,.0f}",
    "per_second": "{:,.0f}",
    "same": "{:.0f}",
    "parsed": "{:.0f}",
    "n": "{:.0f}",
    "batch": "{:,.0f}",
    "queries_per_second": "{:,.0f}",
    "index_seconds": "{:.0f}",
    "index_mb": "{:.0f}",
}
# The cost of a replication: the work of one recorded run, at measured rates.
PRICE = 3.0  # of a GPU hour, in dollars: an assumption
WORK = "real/qwen2.5-coder-1.5b/seed-3"  # the recorded run whose work is counted
# Seconds of Tables 2, 4, 5 and 6 over those of Table 2, in the fictional world's run of 365914f.
OF_TABLE2 = 121.7 / 72.3
SHAPES = {"smollm2": "smollm2-135m", "7b": "7b shape", "13b": "7b shape"}  # measured in answering


def facts(folder: Path) -> dict[str, str]:
    """Return every number of a folder of measured speed by its name, as prose writes it."""
    return facts_of_speed(folder) | facts_of_cost(folder)


def facts_of_speed(folder: Path) -> dict[str, str]:
    """Return the measured numbers: training, other libraries, cards and answering.

    A dot in a name becomes a hyphen, because templates do not accept a dot in braces.
    """
    rows = {}
    if (folder / "training.json").exists():
        trained, _ = load_speed(folder / "training.json")
        for row in trained.to_dict("records"):
            rows[f"{row['shape']} {row['variant']}"] = row
    for row in load_peers(folder).to_dict("records"):
        rows[f"{row['shape']}, {row['samples']}, {row['way']}"] = row
    for row in load_holding(folder).to_dict("records"):
        sizes = {name: float(row[name]) for name in ("row", "away_row", "batch") if is_size(row.get(name))}
        rows[f"{row['backbone']} in {row['card_gb']:g} GB"] = row | sizes
    for frames, _ in map(load_frames, find_frames(folder)):
        for part, frame in frames.items():
            for name, row in frame.to_dict("index").items():
                rows[f"{part} {name}"] = row
    told = {}
    for name, row in rows.items():
        for column, value in row.items():
            if isinstance(value, float) and pd.notna(value):
                told[f"{name} {column}".replace(".", "-")] = FORMS.get(column, "{:.1f}").format(value)
    return told


def is_size(value: object) -> bool:
    """Is it a number of tokens or prompts, not a word? It is a float if others are missing."""
    return isinstance(value, int | float) and pd.notna(value)


def facts_of_cost(speed: Path, price: float = PRICE) -> dict[str, str]:
    """Return the cost of a replication; empty if it was not measured."""
    if not (speed / "training.json").exists() or not (speed.parent / WORK).exists():
        return {}
    told = {"price of an hour": f"{price:.2f}"}
    for shape, row in replication(speed, price).iterrows():
        told |= {f"{shape} {name}": _time(row[name]) for name in ("training", "data", "tables")}
        told[f"{shape} together"] = _time(3600 * row.hours)
        told[f"{shape} price"] = f"{row.price:.2f}"
    work = count_work(speed.parent / WORK)
    return told | {f"work {name}": f"{n:,}" for name, n in work.items()}


def _time(seconds: float) -> str:
    """Write a time in minutes, or in hours if it is long."""
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def replication(speed: Path, price: float = PRICE) -> pd.DataFrame:
    """Return one row per backbone: seconds of each stage, hours in total, and the cost.

    `speed` is a folder of measured speed under results/. Only training was measured for 13B: its
    answers are assumed to be slower than those of 7B by the same factor.
    """
    work = count_work(speed.parent / WORK)
    trained = best(load_speed(speed / "training.json")[0]).set_index("shape").tokens_per_second
    frames, _ = load_frames(speed / "inference.json")
    rows = {}
    for shape, measured in SHAPES.items():
        slower = 1.0 if measured != "7b shape" else trained["7b"] / trained[shape]
        answer, verdict = (_seconds_each(frames, part, measured) * slower for part in ("batches", "verdicts"))
        seconds = {
            "training": work["tokens"] / trained[shape],
            "data": work["synthesis"] * answer,
            "tables": OF_TABLE2 * (work["answers"] * answer + work["verdicts"] * verdict),
        }
        hours = sum(seconds.values()) / 3600
        rows[shape] = {**seconds, "hours": hours, "price": hours * price}
    return pd.DataFrame.from_dict(rows, orient="index")


def count_work(run: Path) -> dict[str, int]:
    """Count the work for one backbone: training tokens, texts for D2′, and Table 2's texts.

    Training consists of `cov`, `cov-direct` on the same amount, `rag`, and two seed models on half
    of its data each. For D2′ every verdict has an answer of a seed model and, if that was wrong,
    three texts for the proposed revisions: at most four.
    """
    losses = {name: pd.read_csv(run / f"train.{name}.losses.csv").tokens.sum() for name in ("cov", "rag")}
    samples = {name: json.loads((run / f"train.{name}.json").read_text())["data"]["samples"]["n"] for name in losses}
    frame = to_frame(load_predictions(run / "table2.predictions.jsonl.xz"))
    by_system = frame.assign(asked=1).groupby("system")[["asked", "revised", "verdicts"]].sum()
    texts = by_system.groupby(adapter_of).max()  # systems with the same adapter share its texts
    return {
        "tokens": int(2 * losses["cov"] + 2 * losses["rag"]),
        "synthesis": 4 * (samples["cov"] - samples["rag"]),
        "answers": int(texts.asked.sum() + texts.revised.sum()),
        "verdicts": int(texts.verdicts.sum()),
    }


def _seconds_each(frames: dict[str, pd.DataFrame], part: str, measured: str) -> float:
    """Return the seconds per text in a batch."""
    row = frames[f"{part}, {measured}"].loc["forced" if part == "verdicts" else "batches"]
    return row.seconds / row.n


def plot_speed(frame: pd.DataFrame, machine: str, path: Path) -> "Figure":
    """Plot one panel per shape: speed and memory of each variant relative to the plain method."""
    import matplotlib.pyplot as plt
    import seaborn as sns

    sns.set_theme(style="whitegrid", context="talk", font_scale=0.75)
    shapes = list(dict.fromkeys(frame["shape"]))
    heights = [(frame["shape"] == shape).sum() + 1 for shape in shapes]
    figure, panels = plt.subplots(
        len(shapes),
        2,
        figsize=(15, 0.55 * sum(heights) + 1.5),
        squeeze=False,
        layout="constrained",
        sharey="row",
        gridspec_kw={"height_ratios": heights, "width_ratios": [3, 2]},
    )
    for (left, right), shape in zip(panels, shapes):
        rows = frame[frame["shape"] == shape][::-1]
        _plot_bars(left, rows, "speed_ratio", "{:.1f}×", WANTED.get(shape))
        _plot_bars(right, rows, "memory_ratio", "{:.2f}", MEMORY)
        left.set_title(f"{shape}: speed", loc="left")
        right.set_title("memory", loc="left")
    figure.suptitle(f"Training on {machine.split(',')[0]}\n(both against the plain way; dashed: the aim)")
    return save_picture(figure, path)


def _plot_bars(axes: "Axes", rows: pd.DataFrame, column: str, form: str, aim: float | None) -> None:
    """Plot one panel: one labelled bar per variant, and a line at the target."""
    values = rows[column].astype(float)
    colours = [_colour_of(variant) for variant in rows.variant]
    labels = ["" if pd.isna(value) else form.format(value) for value in values]
    bars = axes.barh(rows.variant, values.fillna(0), color=colours)
    axes.bar_label(bars, labels, padding=4)
    axes.margins(x=0.15)
    axes.grid(axis="y", visible=False)
    if aim and values.notna().any():
        axes.axvline(aim, color="#333333", ls="--", lw=1.5)


def _colour_of(variant: str) -> str:
    if variant.startswith("ours"):
        return palette()["CoV-RAG"]
    if variant.startswith("packed"):
        return palette()["RAG"]
    return palette()["closed-book"]


def plot_losses(frame: pd.DataFrame, path: Path) -> "Figure":
    """Plot one panel per shape and kind of samples: the loss of each method after every step."""
    import matplotlib.pyplot as plt
    import seaborn as sns

    sns.set_theme(style="whitegrid", context="talk", font_scale=0.75)
    measured = frame[frame.losses.notna()]
    groups = list(measured.groupby(["shape", "samples"], sort=False))
    figure, panels = plt.subplots(
        1, max(1, len(groups)), figsize=(5 * max(1, len(groups)), 4.5), squeeze=False, layout="constrained"
    )
    styles = ["-", "--", ":", "-."]
    # The same colours in every panel.
    colours = dict(zip(dict.fromkeys(measured.way), sns.color_palette("colorblind", 12)))
    drawn = {}
    for panel, ((shape, samples), rows) in zip(panels[0], groups):
        for row in rows.itertuples():
            number = list(colours).index(row.way)
            steps = range(1, len(row.losses) + 1)
            (drawn[row.way],) = panel.plot(steps, row.losses, ls=styles[number % 4], lw=2.5, color=colours[row.way])
        panel.set_title(f"{shape}, {samples}", loc="left")
        panel.set_xlabel("step")
    panels[0][0].set_ylabel("loss")
    if drawn:
        figure.legend(drawn.values(), drawn, loc="outside lower center", ncol=len(drawn), frameon=False)
    return save_picture(figure, path)


def build(folder: Path) -> Table:
    """Build the facts of a folder of measured speed, and its figures if training was measured."""
    drawn = {}
    if (folder / "training.json").exists():
        drawn["training.png"] = partial(plot_speed, *load_speed(folder / "training.json"))
        peers = load_peers(folder)
        drawn |= {"losses.png": partial(plot_losses, peers)} if len(peers) else {}
    return Table("speed", pd.DataFrame(), facts=facts(folder), plots=drawn)
