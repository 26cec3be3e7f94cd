"""The facts and figures of one folder of measured speed, for `make check` and for pages."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from covrag_lite.tables.speed.cost import facts_of_cost
from covrag_lite.tables.speed.plots import list_plots
from covrag_lite.tables.speed.records import (
    TRAINING_FILE,
    is_size,
    list_answering_files,
    load_answering,
    load_cards,
    load_peers,
    load_training,
)
from covrag_lite.tables.table import Table

FORMATS = {  # how prose writes a number of a column; one decimal for all others
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
    "passages": "{:,.0f}",
    "peak_mb": "{:.0f}",
    "again_peak_mb": "{:.0f}",
}
CARD_SIZES = ("row", "away_row", "batch")
RecordRows = dict[str, Mapping[str, object]]  # a record's rows by the names that facts begin with


def build(speed: Path) -> Table:
    """Build the facts of a folder of measured speed, and figures if it measured training."""
    facts = facts_of_speed(speed) | facts_of_cost(speed)
    return Table("speed", pd.DataFrame(), facts=facts, plots=list_plots(speed))


def facts_of_speed(speed: Path) -> dict[str, str]:
    """Return every measured number that prose may use, as prose writes it.

    A dot in a name is written as a hyphen, because templates do not allow dots in braces.
    """
    rows = rows_of_training(speed) | rows_of_peers(speed)
    rows |= rows_of_cards(speed) | rows_of_answering(speed)
    facts = {}
    for name, row in rows.items():
        for column, value in row.items():
            if isinstance(value, float) and pd.notna(value):
                text = FORMATS.get(column, "{:.1f}")
                facts[f"{name} {column}".replace(".", "-")] = text.format(value)
    return facts


def rows_of_training(speed: Path) -> RecordRows:
    """Return the rows of our own training settings, such as "7b ours, 4k"."""
    if not (speed / TRAINING_FILE).exists():
        return {}
    settings, _ = load_training(speed)
    return {f"{row['shape']} {row['variant']}": row for row in settings.to_dict("records")}


def rows_of_peers(speed: Path) -> RecordRows:
    """Return the rows of all training programs, such as "7b, our mix, Unsloth"."""
    rows = load_peers(speed).to_dict("records")
    return {f"{row['shape']}, {row['samples']}, {row['way']}": row for row in rows}


def rows_of_cards(speed: Path) -> RecordRows:
    """Return the rows of what cards hold, such as "7b in 12 GB"."""
    rows = {}
    for row in load_cards(speed).to_dict("records"):
        sizes = {name: float(row[name]) for name in CARD_SIZES if is_size(row.get(name))}
        rows[f"{row['backbone']} in {row['card_gb']:g} GB"] = row | sizes
    return rows


def rows_of_answering(speed: Path) -> RecordRows:
    """Return the rows of answering and of search engines, such as "vllm, 135M answers, ours"."""
    rows = {}
    for path in list_answering_files(speed):
        for part, frame in load_answering(path).items():
            for name, row in frame.to_dict("index").items():
                rows[f"{part} {name}"] = row
    return rows
