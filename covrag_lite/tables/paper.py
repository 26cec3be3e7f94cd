"""The paper's own numbers (paper.toml): whole tables to look at, and single values to stand beside ours.

A value of the paper stands only beside the sets it was measured on: never beside the embedded world's, and never beside
an average over other sets.
"""

import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pandas as pd

from covrag_lite.metrics import mean_interval
from covrag_lite.systems import SYSTEMS

SETS = ("nq", "webq", "mintaka", "triviaqa")
PUBLISHED = {"nq", "webq"}  # sets whose 400 questions are known
# The gaps that the paper's claims rest on: name, table, the worse row, the better row, columns.
GAPS = (
    (
        "Table 2: WebGLM → CoV-RAG, Llama2-13b",
        "table2",
        "WebGLM Llama2-13b",
        "CoV-RAG Llama2-13b",
        (*SETS, "average"),
    ),
    ("Table 4: No-Revise → End-Revise", "table4", "No-Revise", "End-Revise", SETS),
    ("Table 5: w/o → w/ chain", "table5", "w/o Chain", "w/ Chain", ("judge", "revise", "single", "multi")),
)
BACKBONES = ("ChatGLM2-6b", "Vicuna-13b", "Llama2-13b")  # those of Figure 4 that Table 2 has numbers of


@cache
def load_paper() -> dict:
    """Every table of the paper by its name."""
    return tomllib.loads(Path(__file__).with_name("paper.toml").read_text(encoding="utf-8"))


def load_table(table: str) -> pd.DataFrame:
    """One of the paper's tables, whole."""
    rows = load_paper()[table]["rows"]
    columns = list(max(rows.values(), key=len))  # a row may lack some
    return pd.DataFrame.from_dict(rows, orient="index")[columns].rename_axis(load_paper()[table]["title"])


def load_row(table: str, system: str) -> dict[str, float]:
    """The row of the paper's table that one of our systems is compared with; empty where there is none."""
    row = SYSTEMS[system].paper.get(table) if system in SYSTEMS else None
    return load_paper()[table]["rows"][row] if row else {}


def find_values(table: str, system: str, datasets: Iterable[str]) -> dict[str, float]:
    """The paper's values that may stand beside ours: a set's beside that set, others only if all sets are the same.

    Its samples of Mintaka and TriviaQA are not published, so nobody has these questions, nor an average over them.
    """
    if table not in load_paper():
        return {}
    own = set(load_paper()[table]["sets"])
    row = load_row(table, system)
    if set(datasets) == own and own <= PUBLISHED:
        return row
    return {name: value for name, value in row.items() if name in own & PUBLISHED and name in set(datasets)}


def load_figure4() -> pd.DataFrame:
    """Figure 4 is only drawn in the paper: these are the averages of Table 2, a row a backbone."""
    rows = load_paper()["table2"]["rows"]
    made = {}
    for backbone in BACKBONES:
        made[backbone] = {
            "RAG trained": rows[f"WebGLM {backbone}"]["average"],
            "CoV-RAG": rows[f"CoV-RAG {backbone}"]["average"],
        }
    return pd.DataFrame.from_dict(made, orient="index")


def gaps(n: int = 400) -> pd.DataFrame:
    """The paper's own gaps against the noise of n questions a set.

    The interval is that of two unpaired systems. A paired test sees less noise, but McNemar's exact test needs six
    questions gained and none lost for p < 0.05, whatever the two systems are. The paper's shares are multiples of
    1/400, those of Table 5 of 1/800.
    """
    rows = []
    for name, table, worse, better, columns in GAPS:
        known = load_paper()[table]
        size = 2 * n if table == "table5" else n
        for column in columns:
            parts = known["sets"] if column == "average" else [column]
            counts = [
                [(round(known["rows"][row][part] * size / 100), size) for part in parts] for row in (worse, better)
            ]
            gap, low, high = _unpaired(*counts)
            total = size * len(parts)
            least = 6 / total
            if low > 0 or high < 0:
                so = "beyond noise"
            else:
                so = "only a paired test could tell" if abs(gap) >= least else "no test could tell"
            interval = f"[{100 * low:+.1f}, {100 * high:+.1f}]"
            rows.append((name, column, total, f"{100 * gap:+.1f}", interval, f"{100 * least:.2f}", so))
    columns = ["the paper's gap", "of", "n", "gap", "95 % interval, unpaired", "least a paired test can see", "so"]
    return pd.DataFrame(rows, columns=columns)


def _unpaired(worse: list[tuple[int, int]], better: list[tuple[int, int]]) -> tuple[float, float, float]:
    """The difference of two mean shares with its interval, as if their questions were different ones."""
    a, a_low, a_high = mean_interval(worse)
    b, b_low, b_high = mean_interval(better)
    low = b - a - ((b - b_low) ** 2 + (a_high - a) ** 2) ** 0.5
    high = b - a + ((b_high - b) ** 2 + (a - a_low) ** 2) ** 0.5
    return b - a, low, high
