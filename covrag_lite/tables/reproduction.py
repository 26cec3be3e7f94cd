"""Recorded results to compare with: ours next to the paper's, and a new result next to ours.

`next_to_paper` shows our recorded run on the paper's own NQ and WebQ questions. `reproduction`
compares a new table with the recorded one of the same configuration, for the end of a notebook.
"""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from covrag_lite import config
from covrag_lite.labels import label_of
from covrag_lite.records import Prediction
from covrag_lite.runs.recorded import changed, find_under, load_part
from covrag_lite.systems import SYSTEMS
from covrag_lite.tables import accuracy, paper

REAL = Path("real", "qwen2.5-coder-1.5b")  # under results/: the backbone of our main result
SEED = REAL / "seed-3"  # its training run that has all tables
# Columns that say which value a row holds; a table has some of them.
KEY = ("revision", "judge", "dataset", "questions", "criterion", "system", "retriever", "measure", "metric", "share")
VALUES = ("n", "value", "low", "high")
OK = "OK"


def load_rows(table: str, folder: Path | str = SEED, root: Path = config.ROOT) -> pd.DataFrame:
    """The long form of a recorded table, as `results/<folder>/<table>.csv` has it."""
    return pd.read_csv(root / "results" / folder / f"{table}.csv")


def load_outcomes(table: str, root: Path = config.ROOT) -> list[Prediction]:
    """The predictions of our real run, with their outcomes but without the texts of the questions."""
    (run,) = (run for run in find_under(root / "results" / SEED, root) if run.table == table)
    return load_part(run)


def next_to_paper(
    table: str,
    systems: Sequence[str],
    differences: Sequence[tuple[str, str]] = (),
    label: Callable[[str], str] = label_of,
    root: Path = config.ROOT,
) -> pd.DataFrame:
    """Our recorded run on the paper's own NQ and WebQ questions, with the paper's values in the rows.

    One row per system, with the name of the paper's row, then one row per difference.
    """
    rows = load_rows(table, root=root)
    rows = rows[rows.system.isin(systems) & (rows.metric == "normalised")]
    shown = accuracy.next_to_paper(rows).loc[list(systems)]
    facts = json.loads((root / "results" / SEED / f"{table}.facts.json").read_text())
    values = rows.set_index(["system", "dataset"]).paper
    for before, after in differences:
        cells = []
        for name in rows.dataset[rows.dataset.isin(paper.PUBLISHED)].unique():
            gain = values[after, name] - values[before, name]
            cells.append("–" if pd.isna(gain) else accuracy.minus(f"{gain:+.1f}"))
            comparison = f"{before} → {after} {name}"
            points, interval = (facts[f"{comparison} {end}"] for end in ("points", "interval"))
            cells.append(f"{points} {interval}".removesuffix(" –"))  # where no question differs
        shown.loc[f"{label(after)} − {label(before)}"] = cells
    names = [SYSTEMS[system].paper.get(table, "–") for system in systems]
    shown.insert(0, ("", "the paper's row"), names + ["difference"] * len(differences))
    return shown.rename(index=label)


def reproduction(long: pd.DataFrame, manifest: dict, root: Path = config.ROOT) -> pd.DataFrame | None:
    """A new long table next to the recorded one of its configuration; prints how many cells agree."""
    new = tidy(long)
    key = [name for name in KEY if name in new]
    candidates = []  # how a run's configuration differs, the cells of both, its name
    for run in find_under(root / "results", root):  # figures/ holds whatever ran last
        if not run.file("csv").exists():  # one seed's claim: its CSV covers all seeds
            continue
        recorded = tidy(pd.read_csv(run.file("csv")))
        both = new.merge(recorded, on=key, suffixes=("", "_recorded")) if set(key) <= set(recorded) else ()
        if len(both):
            candidates.append((changed(manifest, run.manifest), both, str(run.file("csv").relative_to(root))))
    if not candidates:
        print("no recorded run has any of these cells")
        return None
    differs, both, name = min(candidates, key=lambda run: (len(run[0]), -len(run[1]), run[2]))
    if differs:
        print(f"no recorded run has this configuration; the nearest, {name}, differs in {'; '.join(differs)}")
        return None
    digits = 2 if both.value_recorded.round(2).equals(both.value_recorded) else 3  # as it was recorded
    both["verdict"] = [verdict(row, 0.51 * 10**-digits) for row in both.itertuples()]
    counts = [f"{word} {(both.verdict == word).sum()}" for word in (OK, "within noise", "DIFFERS")]
    print(f"next to {name}: {', '.join(counts)} of {len(both)} cells")
    columns = [*key, "n", "value", "n_recorded", "value_recorded", "low_recorded", "high_recorded", "verdict"]
    return both[columns].round(digits)


def differing_cells(long: pd.DataFrame, manifest: dict, root: Path = config.ROOT) -> pd.DataFrame | None:
    """The cells of `reproduction` that are not the recorded number; None if there are none."""
    cells = reproduction(long, manifest, root)
    if cells is None or (cells.verdict == OK).all():
        return None
    ends = ["n_recorded", "low_recorded", "high_recorded"]
    return cells[cells.verdict != OK].drop(columns=ends).rename(columns={"value_recorded": "recorded"})


def tidy(long: pd.DataFrame) -> pd.DataFrame:
    """A long table with one value per row; Table 6 has three, and rows that are only the paper's."""
    shares = [name.removesuffix("_low") for name in long if name.endswith("_low")]
    if not shares:
        return long
    parts = []
    for share in shares:
        names = {share: "value", f"{share}_low": "low", f"{share}_high": "high"}
        part = long[long.n.notna()].rename(columns=names).assign(share=share)
        parts.append(part[[name for name in (*KEY, *VALUES) if name in part]])
    return pd.concat(parts)


def verdict(row: tuple, exact: float) -> str:
    """OK if the value is the recorded one; within noise if zero is in the difference's interval."""
    gap = row.value - row.value_recorded
    if row.n == row.n_recorded and (abs(gap) < exact or row.n == 0):
        return OK
    up = math.hypot(row.high - row.value, row.value_recorded - row.low_recorded)
    down = math.hypot(row.value - row.low, row.high_recorded - row.value_recorded)
    return "within noise" if gap - down <= 0 <= gap + up else "DIFFERS"
