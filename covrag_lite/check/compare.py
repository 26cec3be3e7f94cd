"""A recorded file beside the same file made anew: what differs, in words."""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path

import pandas as pd

from covrag_lite.tables.reproduction import KEY


def compare_file(recorded: Path, made: Path) -> list[str]:
    """A line for each cell, fact or line that differs."""
    if made.suffix == ".csv":
        return list(compare_csv(recorded, made))
    if made.name.endswith(".facts.json"):
        return list(compare_values(*(json.loads(file.read_text()) for file in (recorded, made))))
    return list(compare_text(*(squeeze(file.read_text()) for file in (recorded, made))))


def compare_csv(recorded: Path, made: Path) -> Iterator[str]:
    """A line for each cell that differs."""
    tables = (pd.read_csv(file, dtype=str, keep_default_na=False) for file in (recorded, made))
    was, now = (table.map(squeeze) for table in tables)
    key = [name for name in KEY if name in now]
    old, new = _cells(was, key), _cells(now, key)
    assert len(new) == now.size, f"{', '.join(key)} do not tell the rows of {made.name} apart"
    if len(old) < was.size:
        yield "a cell is recorded twice"
    yield from compare_values(old, new)


def _cells(table: pd.DataFrame, key: list[str]) -> dict[str, str]:
    """Every cell by the columns that tell its row apart, and its own column."""
    cells = {}
    for row in table.to_dict("records"):
        name = " / ".join(row.get(column, "nothing") for column in key)
        cells |= {f"{name}, {column}": value for column, value in row.items()}
    return cells


def compare_values(recorded: Mapping[str, str], made: Mapping[str, str]) -> Iterator[str]:
    """A line for each value that differs, by its name."""
    for name in {**recorded, **made}:
        was, now = recorded.get(name, "nothing"), made.get(name, "nothing")
        if was != now:
            yield f"{name}: recorded {was}, recomputed {now}"


def squeeze(text: str) -> str:
    """A text with its columns no wider than they need to be."""
    return re.sub(r"-{3,}", "---", re.sub(" {2,}", " ", text))


def compare_text(recorded: str, made: str) -> Iterator[str]:
    """A line for each line that differs, with the words in which it does."""
    pairs = zip_longest(recorded.splitlines(), made.splitlines(), fillvalue="")
    for number, (was, now) in enumerate(pairs, 1):
        if was != now:
            words = _different_words(was, now)
            yield f"line {number}: " + "; ".join(f"recorded {a}, recomputed {b}" for a, b in words)


def _different_words(was: str, now: str) -> list[tuple[str, str]]:
    """The words that differ, where both lines have as many; else the lines whole."""
    a, b = was.split(), now.split()
    words = [pair for pair in zip(a, b) if pair[0] != pair[1]] if len(a) == len(b) else []
    return words or [(was, now)]
