"""The files with measured speed under results/speed-*, as data frames."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

# What training on a CUDA GPU must reach.
SPEED_TARGETS = {"smollm2": 3.0, "7b": 1.9, "13b": 1.9}  # times as fast as "plain", rounded
MEMORY_TARGET = 0.6  # the largest peak memory, relative to "plain"
USEFUL_TARGET = 0.97  # share of all computed tokens that are not padding

TRAINING_FILE = "training.json"
PEERS_FILE = "peers.json"
CARDS_FILE = "holding.json"
ANSWERING_FILE = "inference.json"

WIKIPEDIA_PASSAGES = 21_015_324  # of a hundred words: the usual corpus of all of Wikipedia
# The columns that grow with the number of passages.
GROWING_COLUMNS = [
    "index_cpu_seconds",
    "index_peak_mb",
    "disk_mb",
    "search_mb",
    "cpu_ms_per_query",
]


def load_training(folder: Path) -> tuple[pd.DataFrame, str]:
    """Load the training settings that were measured, and a sentence on the machine."""
    content = json.loads((folder / TRAINING_FILE).read_text())
    frame = pd.DataFrame(content["rows"])
    measured = frame[frame.tokens_per_second.notna()]
    measured = measured.drop(columns=["operations_per_token", "failure"])
    rate = f"{content['matrix_rate'] / 1e12:.0f} × 10¹² operations per second"
    machine = f"{content['device']}, torch {content['torch']}; {rate} in large matrix products"
    return measured.reset_index(drop=True), machine


def list_answering_files(folder: Path) -> list[Path]:
    """Return a folder's records of answering: inference.json and those of other runs."""
    return sorted(folder.glob("inference*.json"))


def load_answering(path: Path) -> dict[str, pd.DataFrame]:
    """Load one record of answering: each part's rows as a frame, by the name of the part."""
    frames = {}
    for part, rows in json.loads(path.read_text()).items():
        if isinstance(rows, dict) and rows:  # everything else describes the machine
            frames[part] = pd.DataFrame.from_dict(rows, orient="index")
    return frames


def load_rows(path: Path) -> pd.DataFrame:
    """Load the rows of a record; an empty frame if there is no such file."""
    if not path.exists():
        return pd.DataFrame([])
    return pd.DataFrame(json.loads(path.read_text())["rows"])


def load_peers(folder: Path) -> pd.DataFrame:
    """Load the records of training with other programs; an empty frame if there are none."""
    return add_lean_settings(load_rows(folder / PEERS_FILE))


def load_cards(folder: Path) -> pd.DataFrame:
    """Load the records of what cards can hold; an empty frame if there are none."""
    return load_rows(folder / CARDS_FILE)


def is_size(value: object) -> bool:
    """Return whether a value is a number of tokens or prompts, not a word."""
    return isinstance(value, int | float) and pd.notna(value)


def add_lean_settings(frame: pd.DataFrame) -> pd.DataFrame:
    """Add to each other program our fastest setting that needs no more memory, if there is one.

    `as_lean` is that setting, `as_lean_faster` its relative speed, and `as_lean_steady` the
    relative speed of the fastest steps.
    """
    if frame.empty:
        return frame
    columns = pd.DataFrame(index=frame.index, columns=["as_lean"], dtype=object)
    columns["as_lean_faster"] = np.nan
    columns["as_lean_steady"] = np.nan
    is_ours = frame.way.str.startswith("ours")
    for number, row in frame[~is_ours].iterrows():
        same_case = (frame["shape"] == row["shape"]) & (frame.samples == row.samples)
        lean = frame[is_ours & same_case & (frame.peak_gb <= row.peak_gb)]
        if len(lean):
            ours = lean.loc[lean.tokens_per_second.astype(float).idxmax()]
            ratios = [ours[name] / row[name] for name in ("tokens_per_second", "steady")]
            columns.loc[number] = [ours.way, *ratios]
    place = list(frame).index("tokens_per_second")
    for offset, name in enumerate(columns):
        frame.insert(place + offset, name, columns[name])
    return frame


def select_fastest(frame: pd.DataFrame, memory: float = MEMORY_TARGET) -> pd.DataFrame:
    """Return our fastest setting for each shape, within a share of the plain method's memory."""
    is_ours = frame.variant.str.startswith("ours")
    is_lean = frame.memory_ratio.isna() | (frame.memory_ratio <= memory)
    ours = frame[is_ours & is_lean]
    fastest = ours.groupby("shape", sort=False).speed_ratio.idxmax()
    return ours.loc[fastest].reset_index(drop=True)


def extrapolate(frame: pd.DataFrame, n_passages: int = WIKIPEDIA_PASSAGES) -> pd.DataFrame:
    """Extrapolate each search engine linearly from its two largest corpora to this size."""
    frame = frame.reindex(columns=GROWING_COLUMNS).dropna()
    names = frame.index.str.extract(r"(?P<engine>.*), (?P<passages>[\d,]+) passages")
    sizes = names.passages.str.replace(",", "").astype(int).to_numpy()
    rows = {}
    for engine in names.engine.unique():
        places = np.flatnonzero(names.engine == engine)
        if len(places) < 2:
            continue
        small, large = places[np.argsort(sizes[places])][-2:]
        slope = (frame.iloc[large] - frame.iloc[small]) / (sizes[large] - sizes[small])
        estimate = frame.iloc[large] + slope * (n_passages - sizes[large])
        rows[engine] = {
            "index_cpu_hours": estimate.index_cpu_seconds / 3600,
            "index_peak_gb": estimate.index_peak_mb / 1e3,
            "disk_gb": estimate.disk_mb / 1e3,
            "search_gb": estimate.search_mb / 1e3,
            "cpu_ms_per_query": estimate.cpu_ms_per_query,
        }
    return pd.DataFrame.from_dict(rows, orient="index")
