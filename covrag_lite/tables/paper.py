"""The paper's own numbers (paper.toml): whole tables to look at, and single values to stand beside ours.

A value of the paper stands only beside the sets it was measured on: never beside the embedded world's, and never beside
an average over other sets.
"""

import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pandas as pd

from covrag_lite.systems import SYSTEMS

PUBLISHED = {"nq", "webq"}  # sets whose 400 questions are known


@cache
def load_paper() -> dict:
    """Every table of the paper by its name."""
    return tomllib.loads(Path(__file__).with_name("paper.toml").read_text(encoding="utf-8"))


def load_table(table: str) -> pd.DataFrame:
    """One of the paper's tables, whole."""
    rows = load_paper()[table]["rows"]
    columns = list(max(rows.values(), key=len))  # a row may lack some
    return pd.DataFrame.from_dict(rows, orient="index")[columns].rename_axis(load_paper()[table]["title"])


def find_values(table: str, system: str, datasets: Iterable[str]) -> dict[str, float]:
    """The paper's values that may stand beside ours: a set's beside that set, others only if all sets are the same.

    Its samples of Mintaka and TriviaQA are not published, so nobody has these questions, nor an average over them.
    """
    name = SYSTEMS[system].paper.get(table) if system in SYSTEMS else None
    if name is None:
        return {}
    own, row = set(load_paper()[table]["sets"]), load_paper()[table]["rows"][name]
    if set(datasets) == own and own <= PUBLISHED:
        return row
    return {name: value for name, value in row.items() if name in own & PUBLISHED and name in set(datasets)}


def paper_facts() -> dict[str, dict[str, str]]:
    """Every number of the paper as a fact that a page can show: `{paper/table2 | CoV-RAG Llama2-13b nq}`.

    The gain of CoV-RAG over WebGLM with the same backbone is one too: `{paper/table2 | gain Llama2-13b average}`.
    """
    facts: dict[str, dict[str, str]] = {}
    for table, content in load_paper().items():
        own = facts.setdefault(f"paper/{table}", {})
        for row, values in content["rows"].items():
            numbers = {name: value for name, value in values.items() if isinstance(value, float)}
            own |= {
                f"{row} {name}": f"{value:g}" if table == "table3" else f"{value:.1f}"
                for name, value in numbers.items()
            }
    rows = load_paper()["table2"]["rows"]
    for name, values in rows.items():
        method, _, backbone = name.partition(" ")
        if method == "CoV-RAG":
            baseline = rows[f"WebGLM {backbone}"]
            gains = {f"gain {backbone} {key}": f"{value - baseline[key]:+.1f}" for key, value in values.items()}
            facts["paper/table2"] |= {key: gain.replace("-", "−") for key, gain in gains.items()}
    return facts
