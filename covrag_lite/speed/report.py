"""Speed as ratios: what was measured here or recorded elsewhere, as one table and one picture.

Made from the frames of `training.benchmark` and `inference.benchmark`; notebooks/speed.ipynb calls it.
"""

import json
import platform
from pathlib import Path

import pandas as pd

from covrag_lite.report.pictures import save_picture
from covrag_lite.report.tables import PALETTE

# What training must reach on a CUDA GPU: times the plain way's tokens a second, its share of the plain way's memory, useful over computed tokens.
WANTED = {"smollm2": 3.0, "7b": 1.9, "13b": 1.9}  # to one decimal
MEMORY, USEFUL = 0.6, 0.97


def load_speed(path: Path) -> tuple[pd.DataFrame, str]:
    """Recorded rows that were measured, and a sentence on the machine."""
    content = json.loads(path.read_text())
    frame = pd.DataFrame(content["rows"])
    made = f"{content['device']}, torch {content['torch']}; {content['matrix_rate'] / 1e12:.0f} × 10¹² operations a second in large matrix products"
    return frame[frame.tokens_per_second.notna()].drop(columns=["operations_per_token", "failure"]).reset_index(
        drop=True
    ), made


def save_frames(path: Path, frames: dict[str, pd.DataFrame], device: str) -> None:
    """What was measured of answering, and where."""
    import torch

    machine = torch.cuda.get_device_name() if device == "cuda" else platform.machine()
    content = {"device": machine, "torch": torch.__version__} | {
        part: json.loads(frame.to_json(orient="index")) for part, frame in frames.items()
    }
    path.write_text(json.dumps(content, indent=1) + "\n")


def load_frames(path: Path) -> tuple[dict[str, pd.DataFrame], str]:
    """What was recorded of answering, part by part, and a sentence on the machine."""
    content = json.loads(path.read_text())
    frames = {
        part: pd.DataFrame.from_dict(rows, orient="index") for part, rows in content.items() if isinstance(rows, dict)
    }
    return frames, f"{content['device']}, torch {content['torch']}, commit {content['commit'][:7]}"


def facts(folder: Path) -> dict[str, str]:
    """Every number that the README may tell of recorded speed, by its name, as prose writes it."""
    forms, made = (
        {
            "speed_ratio": "{:.1f}",
            "memory_ratio": "{:.2f}",
            "peak_gb": "{:.1f}",
            "queries_per_second": "{:,.0f}",
            "index_seconds": "{:.0f}",
            "index_mb": "{:.0f}",
        },
        {},
    )
    rows = (
        {f"{row.shape} {row.variant}": row._asdict() for row in load_speed(folder / "training.json")[0].itertuples()}
        if (folder / "training.json").exists()
        else {}
    )
    rows |= {
        f"{part} {name}": row
        for part, frame in load_frames(folder / "inference.json")[0].items()
        for name, row in frame.to_dict("index").items()
    }
    return {
        f"{name} {column}": forms.get(column, "{:.1f}").format(value)
        for name, row in rows.items()
        for column, value in row.items()
        if isinstance(value, float)
    }


def best(frame: pd.DataFrame, memory: float = MEMORY) -> pd.DataFrame:
    """For each shape our quickest way within that share of the plain way's memory."""
    ours = frame[frame.variant.str.startswith("ours") & (frame.memory_ratio.isna() | (frame.memory_ratio <= memory))]
    return ours.loc[ours.groupby("shape", sort=False).speed_ratio.idxmax()].reset_index(drop=True)


def title(machine: str) -> str:
    """What stands over the picture."""
    return f"Training on {machine.split(',')[0]}"


def plot_speed(frame: pd.DataFrame, title: str, path: Path):
    """A panel a shape: how many times as fast as the plain way each variant is, and beside it its share of the memory."""
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
        colours = [
            PALETTE["CoV-RAG"]
            if name.startswith("ours")
            else PALETTE["RAG"]
            if name.startswith("packed")
            else PALETTE["closed-book"]
            for name in rows.variant
        ]
        for axes, column, form, mark in (
            (left, "speed_ratio", "{:.1f}×", WANTED.get(shape)),
            (right, "memory_ratio", "{:.2f}", MEMORY),
        ):
            bars = axes.barh(rows.variant, rows[column].astype(float).fillna(0), color=colours)
            axes.bar_label(
                bars,
                [form.format(value) if value == value and value is not None else "" for value in rows[column]],
                padding=4,
            )
            axes.margins(x=0.15)
            axes.grid(axis="y", visible=False)
            if mark and rows[column].notna().any():
                axes.axvline(mark, color="#333333", ls="--", lw=1.5)
        left.set_title(f"{shape}: speed", loc="left")
        right.set_title("memory", loc="left")
    figure.suptitle(f"{title}\n(both against the plain way; dashed: the aim)")
    return save_picture(figure, path)
