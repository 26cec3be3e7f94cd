"""Recorded measurements under results/speed-*, as data frames and as readable tables."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

MEMORY = 0.6  # the most memory of training on a CUDA GPU, relative to the plain method
COUNTS = ("n", "same", "parsed", "passes", "tokens", "padded_tokens")  # integers, some missing
WIKIPEDIA = 21_015_324  # passages of a hundred words: the usual corpus of all of Wikipedia
# The columns that grow with the number of passages.
GROWING = ["index_cpu_seconds", "index_peak_mb", "disk_mb", "search_mb", "cpu_ms_per_query"]


def load_speed(path: Path) -> tuple[pd.DataFrame, str]:
    """Load recorded rows that were measured, and a sentence on the machine."""
    content = json.loads(path.read_text())
    frame = pd.DataFrame(content["rows"])
    measured = frame[frame.tokens_per_second.notna()].drop(columns=["operations_per_token", "failure"])
    machine = (
        f"{content['device']}, torch {content['torch']}; "
        f"{content['matrix_rate'] / 1e12:.0f} × 10¹² operations per second in large matrix products"
    )
    return measured.reset_index(drop=True), machine


def find_frames(folder: Path) -> list[Path]:
    """Return a folder's records of answering: inference.json and those of other runs."""
    return sorted(folder.glob("inference*.json"))


def load_frames(path: Path) -> tuple[dict[str, pd.DataFrame], str]:
    """Load the records of answering, part by part, and a sentence on the machine."""
    content = json.loads(path.read_text())
    frames = {}
    for part, rows in content.items():
        if isinstance(rows, dict) and rows:  # everything else describes the machine
            frames[part] = pd.DataFrame.from_dict(rows, orient="index")
    return frames, f"{content['device']}, torch {content['torch']}, commit {content['commit'][:7]}"


def load_peers(folder: Path) -> pd.DataFrame:
    """Load the records of training with other libraries; an empty frame if there are none."""
    file = folder / "peers.json"
    return with_as_lean(pd.DataFrame(json.loads(file.read_text())["rows"] if file.exists() else []))


def with_as_lean(frame: pd.DataFrame) -> pd.DataFrame:
    """Add to each other method our fastest one that needs no more memory, if there is one.

    `as_lean_faster` is its relative speed, and `as_lean_steady` that of the fastest steps.
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
    """Load the records of what cards can hold; an empty frame if there are none."""
    file = folder / "holding.json"
    return pd.DataFrame(json.loads(file.read_text())["rows"] if file.exists() else [])


def best(frame: pd.DataFrame, memory: float = MEMORY) -> pd.DataFrame:
    """Return our fastest method for each shape, within a share of the plain method's memory."""
    is_ours = frame.variant.str.startswith("ours")
    is_lean = frame.memory_ratio.isna() | (frame.memory_ratio <= memory)
    ours = frame[is_ours & is_lean]
    quickest = ours.groupby("shape", sort=False).speed_ratio.idxmax()
    return ours.loc[quickest].reset_index(drop=True)


def without_details(frame: pd.DataFrame) -> pd.DataFrame:
    """Drop the columns on the parts of a method, which only the record needs."""
    parts = {"reads", "begins", "steps", "gaps", "recorded", "given_up"}
    details = [name for name in frame if name in parts or name.endswith(("_s", "_ms")) and name != "first_s"]
    shown = frame.drop(columns=details).dropna(how="all")
    return shown.astype({name: "Int64" for name in COUNTS if name in shown})


def tell_peers(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the methods as a readable table, grouped by samples; a dash means unknown."""
    if frame.empty:
        return frame
    groups = frame.groupby(["shape", "samples"], sort=False).ngroup()
    rows = frame.loc[groups.sort_values(kind="stable").index]
    forms = {
        "tokens_per_second": ("tokens per second", "{:,.0f}"),
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
    """Return what cards can hold as a readable table; a dash means not measured."""
    if frame.empty:
        return frame
    cells = {"card": frame.card_gb.map("{:g} GB".format)}
    works = {"training": ("row", "rows to train on"), "away": ("away_row", "rows, offloaded")}
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
    """Extrapolate each engine linearly from its two largest worlds to this many passages."""
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
