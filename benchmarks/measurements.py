"""Measurements that were recorded under results/speed-*, as frames and as tables to read."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

MEMORY = 0.6  # of the plain way's memory: what training may take on a CUDA GPU
COUNTS = ("n", "same", "parsed", "passes", "tokens", "padded_tokens")  # columns of whole numbers, some missing
WIKIPEDIA = 21_015_324  # passages of a hundred words, as retrieval over all of Wikipedia is mostly measured
GROWING = ["index_cpu_seconds", "index_peak_mb", "disk_mb", "search_mb", "cpu_ms_per_query"]  # with the passages


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


def best(frame: pd.DataFrame, memory: float = MEMORY) -> pd.DataFrame:
    """For each shape our quickest way within that share of the plain way's memory."""
    is_ours = frame.variant.str.startswith("ours")
    is_lean = frame.memory_ratio.isna() | (frame.memory_ratio <= memory)
    ours = frame[is_ours & is_lean]
    quickest = ours.groupby("shape", sort=False).speed_ratio.idxmax()
    return ours.loc[quickest].reset_index(drop=True)


def without_details(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows and columns to read: without how often and how long the parts of a way took, which the record has."""
    parts = {"reads", "begins", "steps", "gaps", "recorded", "given_up"}
    details = [name for name in frame if name in parts or name.endswith(("_s", "_ms")) and name != "first_s"]
    shown = frame.drop(columns=details).dropna(how="all")
    return shown.astype({name: "Int64" for name in COUNTS if name in shown})


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
    return pd.DataFrame(cells).astype(object).set_axis(pd.Index(frame.backbone, name="backbone")).fillna("–")


def extrapolate(frame: pd.DataFrame, size: int = WIKIPEDIA) -> pd.DataFrame:
    """What so many passages would take, on paper: the straight line through each engine's two largest worlds."""
    frame = frame.reindex(columns=GROWING).dropna()
    parts = frame.index.str.extract(r"(?P<name>.*), (?P<size>[\d,]+) passages")
    sizes = parts["size"].str.replace(",", "").astype(int).to_numpy()
    rows = {}
    for name in parts["name"].unique():
        own = np.flatnonzero(parts["name"] == name)
        if len(own) < 2:
            continue
        small, large = own[np.argsort(sizes[own])][-2:]
        slope = (frame.iloc[large] - frame.iloc[small]) / (sizes[large] - sizes[small])
        made = frame.iloc[large] + slope * (size - sizes[large])
        rows[name] = {
            "index_cpu_hours": made.index_cpu_seconds / 3600,
            "index_peak_gb": made.index_peak_mb / 1e3,
            "disk_gb": made.disk_mb / 1e3,
            "search_gb": made.search_mb / 1e3,
            "cpu_ms_per_query": made.cpu_ms_per_query,
        }
    return pd.DataFrame.from_dict(rows, orient="index")
