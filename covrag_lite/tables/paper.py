"""The paper's own numbers (paper.toml): whole tables, and single values to show next to ours.

A value of the paper is shown only for the sets it was measured on: never for those of the
fictional world, and never next to an average over other sets.
"""

import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pandas as pd

from covrag_lite.systems import SYSTEMS

PUBLISHED = {"nq", "webq"}  # sets of which the paper's 400 questions are public


@cache
def load_paper() -> dict:
    """Every table of the paper, by name."""
    return tomllib.loads(Path(__file__).with_name("paper.toml").read_text(encoding="utf-8"))


def load_table(table: str) -> pd.DataFrame:
    """One of the paper's tables, all rows."""
    rows = load_paper()[table]["rows"]
    columns = list(max(rows.values(), key=len))  # a row may lack some
    return pd.DataFrame.from_dict(rows, orient="index")[columns].rename_axis(load_paper()[table]["title"])


def find_values(table: str, system: str, datasets: Iterable[str]) -> dict[str, float]:
    """The paper's values that may be shown next to ours; an average only if all its sets are ours.

    The paper's samples of Mintaka and TriviaQA are not public, so values of these are left out.
    """
    name = SYSTEMS[system].paper.get(table) if system in SYSTEMS else None
    if name is None:
        return {}
    sets, row = set(load_paper()[table]["sets"]), load_paper()[table]["rows"][name]
    if set(datasets) == sets and sets <= PUBLISHED:
        return row
    return {name: value for name, value in row.items() if name in sets & PUBLISHED and name in set(datasets)}


def paper_facts() -> dict[str, dict[str, str]]:
    """Every number of the paper as a fact for pages: `{paper/table2 | CoV-RAG Llama2-13b nq}`.

    So is CoV-RAG's gain over WebGLM with the same backbone: `{paper/table2 | gain Llama2-13b average}`.
    """
    facts: dict[str, dict[str, str]] = {}
    for table, content in load_paper().items():
        of_table = facts.setdefault(f"paper/{table}", {})
        for row, values in content["rows"].items():
            numbers = {name: value for name, value in values.items() if isinstance(value, float)}
            of_table |= {
                f"{row} {name}": f"{value:g}" if table == "table3" else f"{value:.1f}"
                for name, value in numbers.items()
            }
    for table, name, better, baseline in differences():
        rows = load_paper()[table]["rows"]
        for column in rows[better].keys() & rows[baseline].keys():
            difference = f"{rows[better][column] - rows[baseline][column]:+.1f}"
            facts[f"paper/{table}"][f"{name} {column}"] = difference.replace("-", "−")
    for row, values in load_paper()["table6"]["rows"].items():
        facts["paper/table6"][f"{row} delta"] = f"{values['multi'] - values['single']:+.1f}"
    return facts


def differences() -> Iterator[tuple[str, str, str, str]]:
    """What is compared in the paper's tables: the table, the comparison's name, and its two rows."""
    for row in load_paper()["table2"]["rows"]:
        method, _, backbone = row.partition(" ")
        if method == "CoV-RAG":
            yield "table2", f"gain {backbone}", row, f"WebGLM {backbone}"
    yield "table4", "gain", "End-Revise", "No-Revise"
    yield "table4", "cost", "Start-Revise", "No-Revise"
    yield "table5", "gain", "w/ Chain", "w/o Chain"
