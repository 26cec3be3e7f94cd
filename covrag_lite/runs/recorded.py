"""Recorded runs: save one, find or choose those under results/ and figures/, load and compare them.

A recorded run is a file `<table>.manifest.json` with the table's .csv and .md and its figure, next
to the data from which they are made: `<table>.predictions.jsonl.xz` (for Table 6 one such file per
retriever, for Table 3 the judges' verdicts).
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from covrag_lite import config
from covrag_lite.data import load_passages, load_questions
from covrag_lite.data.missing import DataMissing
from covrag_lite.engine.interface import Engine
from covrag_lite.engine.weights import hash_encoder
from covrag_lite.files import read_json, write_json
from covrag_lite.records import Passage, Prediction, Question, digest
from covrag_lite.retrieval import describe_snapshots, find_passages
from covrag_lite.runs.compare import OTHERWISE_ALIKE, changed_parameters
from covrag_lite.runs.manifest import ModelFacts, build_manifest
from covrag_lite.runs.predictions import load_predictions, save_predictions

MANIFEST = ".manifest.json"  # the end of a manifest's name, after the name of the table

Parts = Mapping[str, Sequence[Prediction]]  # predictions: one part named "", or one per retriever


class DataChanged(ValueError):
    """Data that is not the data of the recorded run."""


@dataclass(frozen=True)
class Recorded:
    """One recorded run of one table."""

    folder: Path
    table: str
    manifest: dict
    root: Path = config.ROOT  # root of the clone that contains the run

    def file(self, end: str) -> Path:
        """Return the path of one of the run's files; "/" in a retriever's name is replaced."""
        return self.folder / f"{self.table}.{end.replace('/', '_')}"

    def predictions(self, part: str = "") -> Path:
        """Return the path of its predictions, or of those of one part."""
        return self.file(f"{part}.predictions.jsonl.xz".lstrip("."))

    @cached_property
    def config(self) -> config.Config:
        """Its parameters."""
        return config.from_manifest(self.manifest["parameters"])

    @property
    def n(self) -> int:
        """Its number of questions."""
        return self.manifest["data"]["questions"]["n"]


def save_run(
    folder: Path,
    table: str,
    predictions: Parts,
    settings: config.Config,
    model: Engine | ModelFacts,
    seconds: float,
    data: Mapping,
) -> Recorded:
    """Save the predictions and the manifest of a table, and print what the run cost."""
    folder.mkdir(parents=True, exist_ok=True)
    run = Recorded(folder, table, build_manifest(settings, model, seconds, **data))
    # Table 6 has one part per retriever.
    retrievers = {settings.retrieval.retriever, *predictions} - {""}
    snapshots = describe_snapshots(settings.retrieval, retrievers)
    for part, part_predictions in predictions.items():
        save_predictions(run.predictions(part), part_predictions)
    used = Counter(run.manifest["used"])  # a text that was already in the journal costs nothing
    tokens = f"{used['prompt_tokens']:,} tokens read and {used['completion_tokens']:,} written"
    print(f"cost: {seconds:.0f} s, {used['requests']} texts, {tokens}")
    if snapshots:
        run.manifest["snapshots"] = snapshots
    if retrievers - {"bm25"}:
        run.manifest["encoder_sha256"] = hash_encoder(settings.retrieval.encoder)
    write_json(run.file("manifest.json"), run.manifest)
    return run


def find(root: Path = config.ROOT) -> list[Recorded]:
    """Find all recorded runs under results/ and figures/embedded, but no runs of a user."""
    return find_under(root / "results", root) + find_under(root / "figures/embedded", root)


def find_under(folder: Path, root: Path = config.ROOT) -> list[Recorded]:
    """Find all recorded runs in a folder and its subfolders."""
    return _read_manifests(sorted(folder.glob(f"**/*{MANIFEST}"), key=by_number), root)


def by_number(path: Path) -> list[list[str | int]]:
    """Return a key that sorts paths with their numbers as numbers.

    >>> sorted([Path("seed-10"), Path("seed-9")], key=by_number)[0].name
    'seed-9'
    """
    key = []
    for part in path.parts:
        texts_and_numbers = re.split(r"(\d+)", part)
        key.append([int(text) if text.isdecimal() else text for text in texts_and_numbers])
    return key


def find_in(folder: Path, root: Path = config.ROOT) -> list[Recorded]:
    """Find all recorded runs in a folder, without its subfolders."""
    return _read_manifests(sorted(folder.glob(f"*{MANIFEST}")), root)


def _read_manifests(files: Sequence[Path], root: Path) -> list[Recorded]:
    runs = []
    for file in files:
        table = file.name.removesuffix(MANIFEST)
        runs.append(Recorded(file.parent, table, read_json(file), root))
    return runs


def load(run: Recorded, settings: config.Config | None = None) -> list[Prediction]:
    """Load a run's predictions with questions and passages, by default of its configuration."""
    settings = settings or run.config
    questions = load_questions(settings)
    passages = load_passages(settings)
    retriever = settings.retrieval.retriever
    check_data(run, [retriever], questions=questions, passages=passages)
    return load_part(run, "", questions, find_passages(settings.retrieval, passages))


def load_part(
    run: Recorded,
    part: str = "",
    questions: Sequence[Question] | None = None,
    passages: Sequence[Passage] = (),
) -> list[Prediction]:
    """Load a run's predictions, or one part; without `questions` only with recorded outcomes."""
    adapters = run.manifest["adapters"]
    return load_predictions(
        run.predictions(part), questions, passages, run.config.model.model, adapters
    )


def load_or_outcomes(
    run: Recorded,
    load: Callable[[Recorded], Any] = load,
    load_outcomes: Callable[[Recorded], Any] = load_part,
) -> Any:
    """Load a run's predictions; if their data is missing, only with recorded outcomes."""
    try:
        return load(run)
    except DataMissing:
        return load_outcomes(run)


def check_data(run: Recorded, retrievers: Sequence[str] = (), **data: Sequence) -> None:
    """Raise an error if the data, or the retrievers' saved web results, differ from the run's."""
    recorded = run.manifest["data"] | run.manifest.get("snapshots", {})
    hashes = {name: digest(rows) for name, rows in data.items()}
    for name, snapshot in describe_snapshots(run.config.retrieval, retrievers).items():
        if not snapshot["queries"]:
            raise DataMissing(
                f"the snapshot {run.config.retrieval.snapshot} of {name} is missing; "
                "set the parameter snapshot to the folder with the saved web results"
            )
        hashes[name] = snapshot["sha256"]
    for name, sha256 in hashes.items():
        recorded_sha256 = recorded.get(name, {}).get("sha256")
        if sha256 != recorded_sha256:
            raise DataChanged(
                f"{name}: this configuration has other data than the run: the recorded hash is "
                f"{recorded_sha256}, the hash now is {sha256}; "
                "use the parameters and files of that run"
            )


def choose(
    settings: config.Config, root: Path = config.ROOT, table: str = "table2"
) -> Recorded | None:
    """Return the recorded run that the parameter `record` names, or None if there is none."""
    record = settings.run.record
    if record == "none":
        return None
    runs = {}
    for run in find_under(root / "results", root):
        if run.table == table and run.predictions().exists():
            runs[str(run.folder.relative_to(root / "results"))] = run
    if record == "auto":
        return _choose_alike(settings, list(runs.values()))
    if record not in runs:
        raise ValueError(
            f"record is {record!r}, but must be 'auto', 'none' or one of {', '.join(runs)}"
        )
    return runs[record]


def _choose_alike(settings: config.Config, runs: Sequence[Recorded]) -> Recorded | None:
    """Return the run of the same model and data that has the most questions, if there is one."""
    alike = []
    for run in runs:
        if not changed_parameters(settings, run.config, OTHERWISE_ALIKE):
            alike.append(run)
    return max(alike, key=lambda run: (run.n, run.folder.name), default=None)


def describe_run(run: Recorded | None) -> str:
    """Describe in one sentence what was recorded, where and when."""
    if run is None:
        return "no recorded run of this model and data is shown; set record to a folder of results/"
    model = run.config.model
    hardware = run.manifest["hardware"]
    precision = f"{model.quantize}, {model.layout} layout"
    what = f"{model.short} ({precision}) on {run.n} questions of {name_data(run.config)}"
    machine = hardware["gpu"] or f"{hardware['cores']} {hardware['machine']} cores"
    when = f"at {run.manifest['commit'][:7]} in {run.manifest['wall_seconds']:.0f} s"
    return f"{run.folder.relative_to(run.root)}: {what}, recorded on {machine} {when}"


def name_data(settings: config.Config) -> str:
    """Return the name of the data for sentences and titles."""
    names = {"world": "the fictional world", "real": "public questions"}
    return names.get(settings.data.data, Path(settings.data.data).name)
