"""What the tables of searches have in common: the queries of a recorded run, searched again.

Nothing is answered. The counts need the data, so they are recorded, one row per question.
"""

import argparse
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from covrag_lite.config import Config
from covrag_lite.data.missing import DataMissing
from covrag_lite.files import read_packed, write_gzip, write_json
from covrag_lite.runs import recorded
from covrag_lite.runs.manifest import ModelFacts, build_manifest
from covrag_lite.runs.recorded import Recorded
from covrag_lite.tables.facts import facts_of_rows

SOURCE = "claim"  # the recorded table whose queries are searched again
COUNTS = "found.csv.gz"  # the end of the file with one row per question


def save_counts(
    searched: Recorded, source: Recorded, text: str, facts: Mapping[str, str] | None = None
) -> None:
    """Write the counts and the manifest; `facts` are added to the manifest."""
    queries = source.folder.relative_to(source.root).as_posix()
    searched.manifest.update({**(facts or {}), "queries": queries})
    searched.folder.mkdir(parents=True, exist_ok=True)
    write_gzip(searched.file(COUNTS), text)
    write_json(searched.file("manifest.json"), searched.manifest)


def describe_search(source: Recorded, config: Config, seconds: float, **data: Sequence) -> dict:
    """Build the manifest of searches; the model of the source wrote the queries."""
    model = ModelFacts(source.manifest["model_sha256"], source.manifest["weights"], {})
    return build_manifest(config, model, seconds, **data)


def load_counts(run: Recorded) -> pd.DataFrame:
    """Load what was found, one row per question."""
    return pd.read_csv(io.StringIO(read_packed(run.file(COUNTS))), dtype={"id": str})


def facts_of_comparisons(comparisons: pd.DataFrame) -> dict[str, str]:
    """Return the facts of paired comparisons."""
    forms = {name: f"{{{name}}}" for name in ("p", "n", "gained", "lost", "detectable")}
    forms |= {"": "{difference}", "interval": "{95 % interval}"}
    return facts_of_rows(comparisons, "{comparison}", forms)


def run_command(
    parser: argparse.ArgumentParser, folder: Path, record: Callable[[Recorded], Recorded]
) -> Recorded:
    """Record the searches of the run in a folder.

    Without a run, or with missing or faulty data, the command ends with one sentence.
    """
    runs = [run for run in recorded.find_in(folder.resolve()) if run.table == SOURCE]
    if not runs:
        parser.error(f"{folder} has no recorded run of the table {SOURCE}")
    try:
        return record(runs[0])
    except (DataMissing, ValueError) as error:
        parser.error(str(error))
