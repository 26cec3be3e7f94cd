"""Speed as ratios: what was measured here or recorded elsewhere, as one table and one picture.

Made from the frames of `training.benchmark` and `inference.benchmark`; notebooks/speed.ipynb and `check` call this.
"""

import importlib
import json
import platform
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from covrag_lite.systems import palette
from covrag_lite.tables import Table
from covrag_lite.tables.pictures import save_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# What training must reach on a CUDA GPU.
WANTED = {"smollm2": 3.0, "7b": 1.9, "13b": 1.9}  # times the plain way's tokens a second, to one decimal
MEMORY = 0.6  # of the plain way's memory
USEFUL = 0.97  # of all computed tokens
FORMS = {  # how prose writes a number of a column; one decimal where it is not named
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
COUNTS = ("n", "same", "parsed", "passes", "tokens", "padded_tokens")  # columns of whole numbers, some missing


def load_speed(path: Path) -> tuple[pd.DataFrame, str]:
    """Recorded rows that were measured, and a sentence on the machine."""
    content = json.loads(path.read_text())
    frame = pd.DataFrame(content["rows"])
    measured = frame[frame.tokens_per_second.notna()].drop(columns=["operations_per_token", "failure"])
    machine = (
        f"{content['device']}, torch {content['torch']}; "
        f"{content['matrix_rate'] / 1e12:.0f} × 10¹² operations a second in large matrix products"
    )
    return measured.reset_index(drop=True), machine


def save_frames(path: Path, frames: dict[str, pd.DataFrame], device: str) -> None:
    """Write what was measured of answering, and where."""
    import torch

    machine = torch.cuda.get_device_name() if device == "cuda" else platform.machine()
    content = {"device": machine, "torch": torch.__version__}
    for part, frame in frames.items():
        content[part] = json.loads(frame.to_json(orient="index"))
    path.write_text(json.dumps(content, indent=1) + "\n")


def update_record(path: Path, parts: dict) -> None:
    """Write these parts of a record, and keep what else it holds."""
    known = json.loads(path.read_text()) if path.exists() else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(known | parts, indent=1) + "\n")


def find_frames(folder: Path) -> list[Path]:
    """The files in which a folder records answering: inference.json, and one of each run besides."""
    return sorted(folder.glob("inference*.json"))


def load_frames(path: Path) -> tuple[dict[str, pd.DataFrame], str]:
    """What was recorded of answering, part by part, and a sentence on the machine."""
    content = json.loads(path.read_text())
    frames = {}
    for part, rows in content.items():
        if isinstance(rows, dict) and rows:  # all else tells of the machine
            frames[part] = pd.DataFrame.from_dict(rows, orient="index")
    return frames, f"{content['device']}, torch {content['torch']}, commit {content['commit'][:7]}"


def without_details(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows and columns to read: without how often and how long the parts of a way took, which the record has."""
    parts = {"reads", "begins", "steps", "gaps", "recorded", "given_up"}
    details = [name for name in frame if name in parts or name.endswith(("_s", "_ms")) and name != "first_s"]
    shown = frame.drop(columns=details).dropna(how="all")
    return shown.astype({name: "Int64" for name in COUNTS if name in shown})


def facts(folder: Path) -> dict[str, str]:
    """Every number that the README may tell of recorded speed, by its name, as prose writes it.

    A dot in a name is written as a hyphen, because one in braces is refused.
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
    """Whether it is a number of tokens or prompts, and no word; pandas makes it a float where others are missing."""
    return isinstance(value, int | float) and pd.notna(value)


def load_peers(folder: Path) -> pd.DataFrame:
    """What was recorded of training against what others use, none where nothing was."""
    file = folder / "peers.json"
    return with_as_lean(pd.DataFrame(json.loads(file.read_text())["rows"] if file.exists() else []))


def with_as_lean(frame: pd.DataFrame) -> pd.DataFrame:
    """Beside each other way the quickest of ours that takes no more memory on the same samples, if one does.

    `as_lean_faster` is its speed over the other's, `as_lean_steady` that of each one's fastest step.
    """
    if frame.empty:
        return frame
    columns = ["as_lean", "as_lean_faster", "as_lean_steady"]
    made = pd.DataFrame(index=frame.index, columns=columns).astype({"as_lean_faster": float, "as_lean_steady": float})
    is_ours = frame.way.str.startswith("ours")
    for number, row in frame[~is_ours].iterrows():
        beside = frame[is_ours & (frame["shape"] == row["shape"]) & (frame.samples == row.samples)]
        lean = beside[beside.peak_gb <= row.peak_gb]
        if len(lean):
            ours = lean.loc[lean.tokens_per_second.astype(float).idxmax()]
            ratios = [ours[name] / row[name] for name in ("tokens_per_second", "steady")]
            made.loc[number] = [ours.way, *ratios]
    place = list(frame).index("tokens_per_second")
    for offset, name in enumerate(columns):
        frame.insert(place + offset, name, made[name])
    return frame


def load_holding(folder: Path) -> pd.DataFrame:
    """What was recorded of the cards' memory, likewise."""
    file = folder / "holding.json"
    return pd.DataFrame(json.loads(file.read_text())["rows"] if file.exists() else [])


def tell_peers(frame: pd.DataFrame) -> pd.DataFrame:
    """The ways as a table to read, those on the same samples together; what is not known has a dash."""
    if frame.empty:
        return frame
    groups = frame.groupby(["shape", "samples"], sort=False).ngroup()
    rows = frame.loc[groups.sort_values(kind="stable").index]
    forms = {
        "tokens_per_second": ("tokens a second", "{:,.0f}"),
        "steady": ("fastest step", "{:,.0f}"),
        "peak_gb": ("peak", "{:.2f} GB"),
        "of_limit": ("of the limit", "{:.2f}"),
        "ours_faster": ("ours_faster", "{:.2f}"),
        "ours_memory": ("ours_memory", "{:.2f}"),
        "as_lean": ("as_lean", "{}"),
        "as_lean_faster": ("as_lean_faster", "{:.2f}"),
        "last_loss": ("last loss", "{:.3f}"),
    }
    cells = {
        heading: rows[name].map(form.format, na_action="ignore").astype(object)
        for name, (heading, form) in forms.items()
        if name in rows
    }
    table = pd.DataFrame(cells, index=rows.index).fillna("–")
    if "failure" in rows and rows.failure.notna().any():
        table["failure"] = rows.failure.astype(object).fillna("")
    return table.set_index(pd.MultiIndex.from_frame(rows[["shape", "samples", "way"]]))


def tell_holding(frame: pd.DataFrame) -> pd.DataFrame:
    """What cards hold as a table to read; what was not measured has a dash, and says why."""
    if frame.empty:
        return frame
    cells = {"card": frame.card_gb.map("{:g} GB".format)}
    works = {"training": ("row", "rows to train on"), "away": ("away_row", "rows, away")}
    works |= {"answering": ("batch", "prompts to answer")}
    for work, (size, heading) in works.items():
        held = frame.get(size, pd.Series(index=frame.index, dtype=object))
        peaks = frame.get(f"{work}_peak_gb", pd.Series(index=frame.index, dtype=float))
        cells[heading] = held.map(lambda value: value if isinstance(value, str) else f"{value:,.0f}", "ignore")
        cells[f"peak of {work}"] = peaks.map("{:.1f} GB".format, na_action="ignore")
    for work in works:
        if f"{work}_failure" in frame:
            cells[f"why no {work}"] = frame[f"{work}_failure"].astype(object).fillna("")
    return pd.DataFrame(cells).set_axis(pd.Index(frame.backbone, name="backbone")).fillna("–")


def plot_losses(frame: pd.DataFrame, path: Path) -> "Figure":
    """A panel a shape and kind of samples: each way's loss after every step, on the same rows in the same order."""
    import matplotlib.pyplot as plt
    import seaborn as sns

    sns.set_theme(style="whitegrid", context="talk", font_scale=0.75)
    measured = frame[frame.losses.notna()]
    groups = list(measured.groupby(["shape", "samples"], sort=False))
    figure, panels = plt.subplots(
        1, max(1, len(groups)), figsize=(5 * max(1, len(groups)), 4.5), squeeze=False, layout="constrained"
    )
    styles = ["-", "--", ":", "-."]
    colours = dict(zip(dict.fromkeys(measured.way), sns.color_palette("colorblind", 12)))  # the same in every panel
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


def best(frame: pd.DataFrame, memory: float = MEMORY) -> pd.DataFrame:
    """For each shape our quickest way within that share of the plain way's memory."""
    is_ours = frame.variant.str.startswith("ours")
    is_lean = frame.memory_ratio.isna() | (frame.memory_ratio <= memory)
    ours = frame[is_ours & is_lean]
    quickest = ours.groupby("shape", sort=False).speed_ratio.idxmax()
    return ours.loc[quickest].reset_index(drop=True)


def title(machine: str) -> str:
    """The heading of the picture."""
    return f"Training on {machine.split(',')[0]}"


def plot_speed(frame: pd.DataFrame, title: str, path: Path) -> "Figure":
    """A panel a shape: how many times as fast as the plain way each variant is, and beside it its share of memory."""
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
    figure.suptitle(f"{title}\n(both against the plain way; dashed: the aim)")
    return save_picture(figure, path)


def _plot_bars(axes: "Axes", rows: pd.DataFrame, column: str, form: str, aim: float | None) -> None:
    """One panel: a labelled bar a variant, and a line at the aim."""
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


def build(folder: Path) -> Table:
    """A folder of measured speed: its facts, and pictures of training where that was measured."""
    plots = {}
    if (folder / "training.json").exists():
        frame, machine = load_speed(folder / "training.json")
        plots["training.png"] = partial(plot_speed, frame, title(machine))
        peers = load_peers(folder)
        plots |= {"losses.png": partial(plot_losses, peers)} if len(peers) else {}
    costs = importlib.import_module("benchmarks.rental").facts(folder)
    return Table("speed", pd.DataFrame(), facts=facts(folder) | costs, other_plots=plots)
