"""The paper's own numbers (paper.toml): whole tables, and single values to show next to ours.

A value of the paper is shown only for the sets it was measured on: never for those of the
fictional world, and never next to an average over other sets.
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from covrag_lite.systems import all_systems

PUBLISHED = {"nq", "webq"}  # sets of which the paper's 400 questions are public


class Difference(NamedTuple):
    """Two rows of a table that the paper compares."""

    table: str
    name: str
    better: str
    baseline: str


@cache
def load_paper() -> dict:
    """Load every table of the paper, by name."""
    return tomllib.loads(Path(__file__).with_name("paper.toml").read_text(encoding="utf-8"))


def load_table(table: str) -> pd.DataFrame:
    """Load one of the paper's tables, all rows."""
    content = load_paper()[table]
    columns = list(max(content["rows"].values(), key=len))  # a row may lack some
    frame = pd.DataFrame.from_dict(content["rows"], orient="index")[columns]
    return frame.rename_axis(content["title"])


def find_values(table: str, system: str, datasets: Iterable[str]) -> dict[str, float]:
    """Find the paper's values that may be shown next to ours.

    An average is shown only if all its sets are ours. The paper's samples of Mintaka and TriviaQA
    are not public, so their values are left out.
    """
    entry = all_systems().get(system)
    name = entry.paper.get(table) if entry else None
    if name is None:
        return {}
    measured = set(load_paper()[table]["sets"])
    row = load_paper()[table]["rows"][name]
    if set(datasets) == measured and measured <= PUBLISHED:
        return row
    shown = measured & PUBLISHED & set(datasets)
    return {column: value for column, value in row.items() if column in shown}


def paper_facts() -> dict[str, dict[str, str]]:
    """Return every number of the paper as a fact for pages.

    Examples: `{paper/table2 | CoV-RAG Llama2-13b nq}`, and CoV-RAG's gain over WebGLM with the same
    backbone, `{paper/table2 | gain Llama2-13b average}`.
    """
    facts = {f"paper/{table}": facts_of_table(table) for table in load_paper()}
    for difference in list_differences():
        facts[f"paper/{difference.table}"] |= facts_of_difference(difference)
    for row, values in load_paper()["table6"]["rows"].items():
        facts["paper/table6"][f"{row} delta"] = f"{values['multi'] - values['single']:+.1f}"
    return facts


def facts_of_table(table: str) -> dict[str, str]:
    """Return the numbers of one table; ranks with all their digits, shares with one."""
    facts = {}
    for row, values in load_paper()[table]["rows"].items():
        for column, value in values.items():
            if isinstance(value, float):
                facts[f"{row} {column}"] = f"{value:g}" if table == "table3" else f"{value:.1f}"
    return facts


def facts_of_difference(difference: Difference) -> dict[str, str]:
    """Return the difference of two rows in each column that both have."""
    rows: Mapping[str, Mapping] = load_paper()[difference.table]["rows"]
    better = rows[difference.better]
    baseline = rows[difference.baseline]
    facts = {}
    for column in better.keys() & baseline.keys():
        gain = f"{better[column] - baseline[column]:+.1f}"
        facts[f"{difference.name} {column}"] = gain.replace("-", "−")
    return facts


def list_differences() -> Iterator[Difference]:
    """Yield what is compared in the paper's tables."""
    for row in load_paper()["table2"]["rows"]:
        method, _, backbone = row.partition(" ")
        if method == "CoV-RAG":
            yield Difference("table2", f"gain {backbone}", row, f"WebGLM {backbone}")
    yield Difference("table4", "gain", "End-Revise", "No-Revise")
    yield Difference("table4", "cost", "Start-Revise", "No-Revise")
    yield Difference("table5", "gain", "w/ Chain", "w/o Chain")
