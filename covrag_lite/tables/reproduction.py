"""A new result beside the recorded one of its configuration, cell by cell: every table notebook ends with it."""

import json
import math
from collections import namedtuple
from collections.abc import Collection
from dataclasses import fields
from pathlib import Path

import pandas as pd

from covrag_lite import config
from covrag_lite.runs.recorded import find

# Columns that say whose value a row holds; a table has some of them.
KEY = (
    "backbone",
    "what",
    "σ",
    "seed",
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
    "knob",
    "setting",
)
VALUES = ("n", "value", "low", "high")
# Parameters that change no number: how fast, where, which of the systems; adapters and snapshots have their hash.
IMMATERIAL = {
    "batch_tokens",
    "requests",
    "device",
    "adapters",
    "systems",
    "positions",
    "chains",
    "free_every",
    "retrievers",
    "retrieval_datasets",
    "live",
    "snapshot",
    "max_age",
    "related_systems",
    "entailment",
    "learners",
    "tune",
    "n_learnt",
}
CONCERNS = (config.World, config.Data, config.Model, config.Retrieval, config.Chain, config.Judging, config.Related)
Rival = namedtuple("Rival", "differs, cells, name, both, manifest")


def reproduction(long: pd.DataFrame, manifest: dict, root: Path = config.ROOT) -> pd.DataFrame | None:
    """A new long table beside the recorded one of the same configuration; where there is none, the nearest is named."""
    new = tidy(long)
    key = [name for name in KEY if name in new and name != "backbone"]  # Figure 4 writes it without its adapter
    rivals = find_rivals(new, key, manifest, root)
    if not rivals:
        print("no recorded run has any of these cells")
        return None
    nearest = min(rivals, key=lambda one: (len(one.differs), -one.cells, one.name))
    if nearest.differs:
        differs = "; ".join(nearest.differs)
        print(f"no recorded run has this configuration; the nearest, {nearest.name}, differs in {differs}")
        return None
    both = nearest.both
    digits = 2 if both.value_recorded.round(2).equals(both.value_recorded) else 3  # as it was recorded
    both["verdict"] = [verdict(row, 0.51 * 10**-digits) for row in both.itertuples()]
    counts = [f"{word} {(both.verdict == word).sum()}" for word in ("OK", "within noise", "DIFFERS")]
    print(f"beside {nearest.name}: {', '.join(counts)} of {len(both)} cells")
    columns = [*key, "n", "value", "n_recorded", "value_recorded", "low_recorded", "high_recorded", "verdict"]
    return both[columns].round(digits)


def find_rivals(new: pd.DataFrame, key: list[str], manifest: dict, root: Path) -> list[Rival]:
    """Every recorded run that has some of the new cells, with what its configuration differs in."""
    rivals = []
    for run in find(root):
        if not run.folder.is_relative_to(root / "results"):  # figures/ holds whatever ran last
            continue
        known = tidy(pd.read_csv(run.file("csv")))
        if not set(key) <= set(known):
            continue
        both = new.merge(known, on=key, suffixes=("", "_recorded"))
        if len(both):
            name = str(run.file("csv").relative_to(root))
            rivals.append(Rival(changed(manifest, run.manifest), len(both), name, both, run.manifest))
    return rivals


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


def changed(now: dict, recorded: dict) -> list[str]:
    """What differs between two runs' manifests of all that can change a number."""
    differs = changed_parameters(*(config.from_manifest(one["parameters"]) for one in (now, recorded)))
    differs += changed_adapters(now.get("adapters"), recorded.get("adapters"))
    for name in ("model_sha256", "encoder_sha256"):
        if now.get(name) != recorded.get(name):
            differs.append(f"the weights of the {name.partition('_')[0]}")
    if now.get("snapshots") != recorded.get("snapshots"):
        differs.append("the frozen results of the web")
    return differs or [f"the {name}" for name in now["data"] if now["data"][name] != recorded["data"].get(name)]


def changed_parameters(now: config.Config, recorded: config.Config, but: Collection[str] = ()) -> list[str]:
    """The parameters that can change a number and differ, each with its two values; `but` names some to pass over."""
    a, b = (json.loads(json.dumps(one.flat())) for one in (now, recorded))
    differs = []
    for concern in CONCERNS:
        for name in [f.name for f in fields(concern) if f.name not in IMMATERIAL and f.name not in but]:
            if a[name] != b[name] and not same_sets(name, a, b):
                differs.append(f"{name} ({a[name]!r}, recorded {b[name]!r})")
    return differs


def same_sets(name: str, a: dict, b: dict) -> bool:
    """Do both name the same sets, one of them as "all"? Whether the questions are the same, their hash tells."""
    return name == "datasets" and list(config.ALL) in (a[name], b[name])


def changed_adapters(now: dict | None, recorded: dict | None) -> list[str]:
    """Adapters, by their hash; of two tables' runs only those that both used can be compared."""
    if now is None or recorded is None:
        return []
    shared = sorted(now.keys() & recorded.keys())
    differs = [f"the adapter {name}" for name in shared if now[name] != recorded[name]]
    return differs + (["having adapters"] if bool(now) != bool(recorded) else [])
