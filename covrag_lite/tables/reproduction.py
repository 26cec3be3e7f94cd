"""A new result beside the recorded one of its configuration, cell by cell: every table notebook ends with it."""

import math
from pathlib import Path

import pandas as pd

from covrag_lite import config
from covrag_lite.runs.recorded import changed, find_under

# Columns that say whose value a row holds; a table has some of them.
KEY = ("revision", "judge", "dataset", "questions", "criterion", "system", "retriever", "measure", "metric", "share")
VALUES = ("n", "value", "low", "high")


def reproduction(long: pd.DataFrame, manifest: dict, root: Path = config.ROOT) -> pd.DataFrame | None:
    """A new long table beside the recorded one of the same configuration; where there is none, the nearest is named."""
    new = tidy(long)
    key = [name for name in KEY if name in new]
    rivals = []  # in what a run's configuration differs, both cells, its name
    for run in find_under(root / "results", root):  # figures/ holds whatever ran last
        if not run.file("csv").exists():  # one training's claim, told with the others
            continue
        known = tidy(pd.read_csv(run.file("csv")))
        both = new.merge(known, on=key, suffixes=("", "_recorded")) if set(key) <= set(known) else ()
        if len(both):
            rivals.append((changed(manifest, run.manifest), both, str(run.file("csv").relative_to(root))))
    if not rivals:
        print("no recorded run has any of these cells")
        return None
    differs, both, name = min(rivals, key=lambda one: (len(one[0]), -len(one[1]), one[2]))
    if differs:
        print(f"no recorded run has this configuration; the nearest, {name}, differs in {'; '.join(differs)}")
        return None
    digits = 2 if both.value_recorded.round(2).equals(both.value_recorded) else 3  # as it was recorded
    both["verdict"] = [verdict(row, 0.51 * 10**-digits) for row in both.itertuples()]
    counts = [f"{word} {(both.verdict == word).sum()}" for word in ("OK", "within noise", "DIFFERS")]
    print(f"beside {name}: {', '.join(counts)} of {len(both)} cells")
    columns = [*key, "n", "value", "n_recorded", "value_recorded", "low_recorded", "high_recorded", "verdict"]
    return both[columns].round(digits)


def tidy(long: pd.DataFrame) -> pd.DataFrame:
    """A long table with one value a row; Table 6 has three, each with its interval, and rows of the paper alone."""
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
    """OK where the value is the recorded one; within noise where the interval of the difference has zero."""
    gap = row.value - row.value_recorded
    if row.n == row.n_recorded and (abs(gap) < exact or row.n == 0):
        return "OK"
    up = math.hypot(row.high - row.value, row.value_recorded - row.low_recorded)
    down = math.hypot(row.value - row.low, row.high_recorded - row.value_recorded)
    return "within noise" if gap - down <= 0 <= gap + up else "DIFFERS"
