"""A new table next to the recorded one of the same configuration, for the end of a notebook."""

import math
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from covrag_lite.config import ROOT
from covrag_lite.runs.compare import changed
from covrag_lite.runs.recorded import find_under

# Columns that say which value a row holds; a table has some of them.
KEY = (
    "revision",
    "judge",
    "dataset",
    "questions",
    "criterion",
    "system",
    "retriever",
    "measure",
    "metric",
    "share",
)
VALUES = ("n", "value", "low", "high")
SHOWN = ["n", "value", "n_recorded", "value_recorded", "low_recorded", "high_recorded", "verdict"]
OK = "OK"
WITHIN_NOISE = "within noise"
DIFFERS = "DIFFERS"


class ComparedRun(NamedTuple):
    """A recorded run that has some of the new cells."""

    differences: list[str]  # of its configuration
    cells: pd.DataFrame  # the new and the recorded values
    name: str


def compare_cells(long: pd.DataFrame, manifest: dict, root: Path = ROOT) -> pd.DataFrame | None:
    """Compare a new long table with the recorded one of its configuration, cell by cell.

    How many cells agree is printed. Without a recorded run of this configuration, the nearest is
    named and nothing is returned.
    """
    new = tidy(long)
    key = [name for name in KEY if name in new]
    candidates = find_candidates(new, key, manifest, root)
    if not candidates:
        print("no recorded run has any of these cells")
        return None
    nearest = min(candidates, key=lambda run: (len(run.differences), -len(run.cells), run.name))
    if nearest.differences:
        problem = f"no recorded run has this configuration; the nearest, {nearest.name}"
        print(f"{problem}, differs in {'; '.join(nearest.differences)}")
        return None
    cells = nearest.cells
    recorded = cells.value_recorded
    digits = 2 if recorded.round(2).equals(recorded) else 3  # as it was recorded
    cells["verdict"] = [judge_cell(row, 0.51 * 10**-digits) for row in cells.itertuples()]
    counts = [f"{word} {(cells.verdict == word).sum()}" for word in (OK, WITHIN_NOISE, DIFFERS)]
    print(f"next to {nearest.name}: {', '.join(counts)} of {len(cells)} cells")
    return cells[[*key, *SHOWN]].round(digits)


def find_candidates(
    new: pd.DataFrame, key: list[str], manifest: dict, root: Path
) -> list[ComparedRun]:
    """Find the recorded runs that have some of the new cells."""
    candidates = []
    for run in find_under(root / "results", root):  # figures/ holds whatever ran last
        file = run.file("csv")
        if not file.exists():  # one seed's claim: its CSV covers all seeds
            continue
        recorded = tidy(pd.read_csv(file))
        if not set(key) <= set(recorded):
            continue
        cells = new.merge(recorded, on=key, suffixes=("", "_recorded"))
        if len(cells):
            differences = changed(manifest, run.manifest)
            candidates.append(ComparedRun(differences, cells, str(file.relative_to(root))))
    return candidates


def differing_cells(long: pd.DataFrame, manifest: dict, root: Path = ROOT) -> pd.DataFrame | None:
    """Return the new cells that are not the recorded number; None if there are none."""
    cells = compare_cells(long, manifest, root)
    if cells is None or (cells.verdict == OK).all():
        return None
    differing = cells[cells.verdict != OK]
    differing = differing.drop(columns=["n_recorded", "low_recorded", "high_recorded"])
    return differing.rename(columns={"value_recorded": "recorded"})


def tidy(long: pd.DataFrame) -> pd.DataFrame:
    """Return a long table with one value per row.

    Table 6 has three values in a row, and rows that are only the paper's.
    """
    shares = [name.removesuffix("_low") for name in long if name.endswith("_low")]
    if not shares:
        return long
    parts = []
    for share in shares:
        columns = {share: "value", f"{share}_low": "low", f"{share}_high": "high"}
        part = long[long.n.notna()].rename(columns=columns).assign(share=share)
        parts.append(part[[name for name in (*KEY, *VALUES) if name in part]])
    return pd.concat(parts)


def judge_cell(row: tuple, exact: float) -> str:
    """Return OK if the value is the recorded one, within noise if the difference may be zero."""
    difference = row.value - row.value_recorded
    if row.n == row.n_recorded and (abs(difference) < exact or row.n == 0):
        return OK
    up = math.hypot(row.high - row.value, row.value_recorded - row.low_recorded)
    down = math.hypot(row.value - row.low, row.high_recorded - row.value_recorded)
    return WITHIN_NOISE if difference - down <= 0 <= difference + up else DIFFERS
