"""Related methods over two training runs of the same reader: their rows, corrected together.

Each run is recorded by the table "related". A row is compared with RAG (trained) of its own run,
paired by question. A system of both runs counts once, with the first; its second row is shown as a
repetition. Both runs are also compared with each other, because rows of two readers may only be
ranked together if the readers are equivalent. results/real/plan.md says what was fixed before.

A manifest names the folders of the runs, next to its own folder. This command writes it:

    python -m covrag_lite.plugins.related.readers results/real/<backbone> related related-2
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path

import pandas as pd

from covrag_lite import metrics
from covrag_lite.config import ROOT
from covrag_lite.files import describe_error, read_json, write_json
from covrag_lite.plugins.related.names import FAVE
from covrag_lite.runs.frame import outcome_table, to_frame
from covrag_lite.runs.recorded import MANIFEST, Recorded, load_or_outcomes
from covrag_lite.systems import names
from covrag_lite.tables.accuracy import in_order
from covrag_lite.tables.facts import facts_of_rows
from covrag_lite.tables.labels import format_p, with_labels
from covrag_lite.tables.mixture import difference, format_differences
from covrag_lite.tables.planned import MARGIN
from covrag_lite.tables.table import Table

NAME = "related_readers"
RECORDED = "real/qwen2.5-coder-1.5b/related-2"  # the folder of the recorded table under results/
SOURCE = "related"  # the recorded table of each run
METRIC = "normalised"  # as in the main table of the page
BASELINE = names.RAG_TRAINED
# Pairs within one run, the one expected to be worse first.
WITHIN = (
    (names.EXPANSION, names.COV_RAG),
    (names.EXPANSION, names.TWO_ADAPTERS_NO_CHAIN_COMBINED),
    (names.EXPANSION, names.EXPANSION_COMBINED),
    (FAVE, names.COV_RAG),
    (FAVE, names.TWO_ADAPTERS_NO_CHAIN_COMBINED),
)
HOLM = "p, Holm"  # the column of corrected p values
EQUIVALENT = f"equivalent within ±{MARGIN}"
NOT_EQUIVALENT = "not shown to be equivalent"
# How a comparison's facts end -> what they contain; most are called as in the table "related".
FORMS = {
    "points": "{difference}",
    "interval": "{95 % interval}",
    "p": "{p}",
    "n": "{n}",
    "from": "{from, %}",
    "to": "{to, %}",
    "gained": "{gained}",
    "lost": "{lost}",
    "visible": "{detectable}",
    "verdict": "{verdict}",
}

Outcomes = Mapping[str, pd.DataFrame]  # by run: whether each system answers each question correctly


def load(run: Recorded) -> dict[str, pd.DataFrame]:
    """Load the frames of the runs that the manifest names, by their folders."""
    return {name: to_frame(load_or_outcomes(source)) for name, source in find_sources(run).items()}


def find_sources(run: Recorded) -> dict[str, Recorded]:
    """Return the recorded runs that the manifest names, by their folders."""
    runs = {}
    for name in run.manifest["runs"]:
        folder = run.folder.parent / name
        manifest = read_json(folder / f"{SOURCE}{MANIFEST}")
        runs[name] = Recorded(folder, SOURCE, manifest, run.root)
    return runs


def find_recorded(root: Path = ROOT) -> Recorded:
    """Return the recorded comparison that the notebook shows."""
    folder = root / "results" / RECORDED
    return Recorded(folder, NAME, read_json(folder / f"{NAME}{MANIFEST}"), root)


def build(frames: Mapping[str, pd.DataFrame], run: Recorded) -> Table:
    """Build the table of all rows, of what both runs have, and of pairs within one run."""
    outcomes = {name: outcomes_of(frame) for name, frame in frames.items()}
    methods = pd.DataFrame(list(compare_with_reader(outcomes)))
    repeated = pd.DataFrame(list(compare_runs(outcomes)))
    within = pd.DataFrame(list(compare_within(outcomes)))
    table = format_rows(methods)
    table.insert(table.columns.get_loc("p") + 1, HOLM, correct_p(methods))
    counted = table[~methods.repeated]
    parts = {"Each method against RAG (trained) of its own run, in points": table}
    facts = facts_of_rows(counted, "{comparison}", FORMS | {"p corrected": f"{{{HOLM}}}"})
    facts |= facts_of_rows(table[methods.repeated], "{run}: {comparison}", FORMS)
    facts["comparisons"] = str(len(counted))
    if len(repeated):
        # Both sides are the same system.
        table = format_rows(repeated).rename(columns={"comparison": "system"})
        table["system"] = repeated["from"]
        parts["The same system in both runs, in points"] = table
        facts |= facts_of_rows(table, "{run}: {system}", FORMS)
    if len(within):
        table = format_rows(within)
        parts["Systems of the same run, in points"] = table
        facts |= facts_of_rows(table, "{run}: {comparison}", FORMS)
    labelled = {heading: with_labels(part) for heading, part in parts.items()}
    rows = pd.concat([methods, repeated, within], ignore_index=True)
    rows = rows.rename(columns={"seed": "run"})
    return Table(NAME, rows, labelled, notes(len(counted)), facts, digits=4)


def notes(n_counted: int) -> list[str]:
    """Return the notes under the table, of which this many rows count."""
    return [
        f"Accuracy ({METRIC}) is the mean over the question sets, as in the table of each run. "
        "Differences are over all questions that both sides answered.",
        f"p is McNemar's. Holm's method corrects the {n_counted} rows that count. A row without "
        "it repeats a system of an earlier run.",
        f"Equivalent: the whole 95 % interval lies within ±{MARGIN} points.",
        "Detectable: the minimum detectable effect at 80 % power, in points.",
    ]


def outcomes_of(frame: pd.DataFrame) -> pd.DataFrame:
    """Return whether each question is answered correctly, with the systems in their order.

    Questions that cannot be scored are left out.
    """
    outcomes = outcome_table(frame, METRIC)
    return outcomes[in_order(outcomes.columns)]


def compare_with_reader(outcomes: Outcomes) -> Iterator[dict]:
    """Compare every row with RAG (trained) of its own run."""
    counted = set()
    for run, of_run in outcomes.items():
        for system in of_run.columns.drop(BASELINE):
            row = compare(run, of_run[BASELINE], of_run[system])
            yield row | {"repeated": system in counted}
            counted.add(system)


def compare_runs(outcomes: Outcomes) -> Iterator[dict]:
    """Compare the systems that two runs have: the later run minus the earlier one."""
    for earlier, later in combinations(outcomes, 2):
        for system in outcomes[earlier].columns.intersection(outcomes[later].columns, sort=False):
            sides = (outcomes[earlier][system], outcomes[later][system])
            yield compare(f"{earlier} → {later}", *sides)


def compare_within(outcomes: Outcomes) -> Iterator[dict]:
    """Compare the pairs of `WITHIN` in every run that has both systems."""
    for run, of_run in outcomes.items():
        for before, after in WITHIN:
            if before in of_run and after in of_run:
                yield compare(run, of_run[before], of_run[after])


def compare(run: str, baseline: pd.Series, system: pd.Series) -> dict:
    """Compare two systems on the questions that both answered."""
    sides = pd.concat([baseline, system], axis=1, join="inner", keys=["from", "to"]).dropna()
    row = difference(baseline.name, system.name, run, sides["from"], sides["to"])
    averages = 100 * sides.groupby(level="dataset").mean().mean()
    row["accuracy_from"] = averages["from"]
    row["accuracy_to"] = averages["to"]
    row["p"] = metrics.mcnemar_p(row["gained"], row["lost"])  # not rounded, for Holm's method
    return row


def correct_p(rows: pd.DataFrame) -> list[str]:
    """Return the p of each row by Holm's method; a dash for rows that repeat a system."""
    corrected = iter(metrics.adjust_p(rows.p[~rows.repeated].tolist()))
    return ["–" if repeated else format_p(next(corrected)) for repeated in rows.repeated]


def format_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Return comparisons as people read them, with their run and what the interval says."""
    table = format_differences(rows).drop(columns="equivalent").rename(columns={"seed": "run"})
    return table.assign(
        verdict=[EQUIVALENT if value else NOT_EQUIVALENT for value in rows.equivalent]
    )


def join_parts(tables: Mapping[str, Table], words: str) -> pd.DataFrame:
    """Return the part with these words of each run's table, by run and system."""
    parts = {run: table.part(words).set_index("system") for run, table in tables.items()}
    return pd.concat(parts, names=["run"])


def record(backbone: Path, runs: Sequence[str], root: Path = ROOT) -> Recorded:
    """Write the manifest of these runs of a backbone into the last one's folder."""
    repeated = sorted({name for name in runs if runs.count(name) > 1})
    if repeated:
        raise ValueError(f"{', '.join(repeated)}: named twice; name each run once")
    folder = backbone / runs[-1]
    source = read_json(folder / f"{SOURCE}{MANIFEST}")
    manifest = {name: source[name] for name in ("commit", "parameters", "data")}
    run = Recorded(folder, NAME, manifest | {"runs": list(runs)}, root)
    write_json(run.file("manifest.json"), run.manifest)
    return run


def main(words: Sequence[str] | None = None) -> None:
    """Write the manifest and the table of several runs of a backbone."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("backbone", type=Path, help="the folder of the backbone's results")
    parser.add_argument("runs", nargs="+", help='folders in it with the table "related"')
    options = parser.parse_args(words)
    try:
        run = record(options.backbone.resolve(), options.runs)
        print(build(load(run), run).save(run.folder))
    except (OSError, ValueError) as error:
        parser.error(describe_error(error))


if __name__ == "__main__":
    main()
