"""Our recorded run on the paper's own NQ and WebQ questions, next to the paper's values."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from covrag_lite.config import ROOT
from covrag_lite.records import Prediction
from covrag_lite.runs.recorded import find_under, load_part
from covrag_lite.systems import find_system
from covrag_lite.tables import accuracy, paper
from covrag_lite.tables.facts import minus
from covrag_lite.tables.labels import label_of

REAL = Path("real", "qwen2.5-coder-1.5b")  # under results/: the backbone of our main result
COMPLETE_SEED = REAL / "seed-3"  # its training run that has all tables


def load_rows(table: str, folder: Path | str = COMPLETE_SEED, root: Path = ROOT) -> pd.DataFrame:
    """Load the long form of a recorded table, as `results/<folder>/<table>.csv` has it."""
    return pd.read_csv(root / "results" / folder / f"{table}.csv")


def load_outcomes(table: str, root: Path = ROOT) -> list[Prediction]:
    """Load the predictions of our real run with their outcomes, without texts of questions."""
    runs = find_under(root / "results" / COMPLETE_SEED, root)
    (run,) = (run for run in runs if run.table == table)
    return load_part(run)


def next_to_paper(
    table: str,
    systems: Sequence[str],
    differences: Sequence[tuple[str, str]] = (),
    label: Callable[[str], str] = label_of,
    root: Path = ROOT,
) -> pd.DataFrame:
    """Return one row per system, with the name of the paper's row, then one per difference."""
    rows = load_rows(table, root=root)
    rows = rows[rows.system.isin(systems) & (rows.metric == "normalised")]
    shown = accuracy.next_to_paper(rows).loc[list(systems)]
    facts = json.loads((root / "results" / COMPLETE_SEED / f"{table}.facts.json").read_text())
    for before, after in differences:
        cells = compare_pair(before, after, rows, facts)
        shown.loc[f"{label(after)} − {label(before)}"] = cells
    paper_rows = [find_system(system).paper.get(table, "–") for system in systems]
    paper_rows += ["difference"] * len(differences)
    shown.insert(0, ("", "the paper's row"), paper_rows)
    return shown.rename(index=label)


def compare_pair(
    before: str, after: str, rows: pd.DataFrame, facts: Mapping[str, str]
) -> list[str]:
    """Return the paper's difference of two systems and ours, set by set."""
    paper_values = rows.set_index(["system", "dataset"]).paper
    cells = []
    for dataset in rows.dataset[rows.dataset.isin(paper.PUBLISHED)].unique():
        gain = paper_values[after, dataset] - paper_values[before, dataset]
        cells.append("–" if pd.isna(gain) else minus(f"{gain:+.1f}"))
        comparison = f"{before} → {after} {dataset}"
        points = facts[f"{comparison} points"]
        interval = facts[f"{comparison} interval"]
        cells.append(f"{points} {interval}".removesuffix(" –"))  # where no question differs
    return cells
