"""Recorded runs: save one, find or choose those under results/ and figures/, load and compare them.

A recorded run is a file `<table>.manifest.json` with the table's .csv and .md and its figure, next
to the data from which they are made: `<table>.predictions.jsonl.xz` (for Table 6 one such file per
retriever, for Table 3 the judges' verdicts).
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from covrag_lite import config
from covrag_lite.data import load_passages, load_questions
from covrag_lite.engine.interface import Engine
from covrag_lite.engine.weights import hash_encoder
from covrag_lite.records import Passage, Prediction, Question, digest
from covrag_lite.retrieval import describe_snapshots, find_passages
from covrag_lite.runs.manifest import build_manifest, save_manifest
from covrag_lite.runs.outcomes import load_predictions, save_predictions

# Parameters that change no result: they set speed, place or the choice of systems. Adapters and
# snapshots are compared by their hashes.
IMMATERIAL = set("device adapters systems free_every retrievers live snapshot n_learnt related_systems".split())
CONCERNS = (config.World, config.Data, config.Model, config.Retrieval, config.Chain, config.Judging, config.Related)
# Parameters that may differ between two runs of the same model and data: a run may use only some of
# the questions, and the judges do not change the answers.
OTHERWISE_ALIKE = {"n_questions", *(f.name for f in fields(config.Judging))}

Parts = Mapping[str, Sequence[Prediction]]  # predictions: one part named "", or one per retriever


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
    folder: Path, table: str, predictions: Parts, asked: config.Config, model: Engine, seconds: float, data: Mapping
) -> Recorded:
    """Save the predictions and the manifest of a table, and print what the run cost."""
    folder.mkdir(parents=True, exist_ok=True)
    run = Recorded(folder, table, build_manifest(asked, model, seconds, **data))
    searched = {asked.retrieval.retriever, *predictions} - {""}  # Table 6: one part per retriever
    snapshots = describe_snapshots(asked.retrieval, searched)
    for part, made in predictions.items():
        save_predictions(run.predictions(part), made)
    used = model.used  # a text that was already in the journal costs nothing
    tokens = f"{used['prompt_tokens']:,} tokens read and {used['completion_tokens']:,} written"
    print(f"cost: {seconds:.0f} s, {used['requests']} texts, {tokens}")
    if snapshots:
        run.manifest["snapshots"] = snapshots
    if searched - {"bm25"}:
        run.manifest["encoder_sha256"] = hash_encoder(asked.retrieval.encoder)
    save_manifest(run.file("manifest.json"), run.manifest)
    return run


def find(root: Path = config.ROOT) -> list[Recorded]:
    """Find all recorded runs under results/ and figures/embedded, but no runs of a user."""
    return [run for place in ("results", "figures/embedded") for run in find_under(root / place, root)]


def find_under(folder: Path, root: Path = config.ROOT) -> list[Recorded]:
    """Find all recorded runs in a folder and its subfolders."""
    files = {file: json.loads(file.read_text()) for file in sorted(folder.glob("**/*.manifest.json"))}
    return [Recorded(one.parent, one.name.removesuffix(".manifest.json"), told, root) for one, told in files.items()]


def load(run: Recorded, asked: config.Config | None = None) -> list[Prediction]:
    """Load a run's predictions with questions and passages, by default of its configuration."""
    asked = asked or run.config
    questions, passages = load_questions(asked), load_passages(asked)
    check_data(run, [asked.retrieval.retriever], questions=questions, passages=passages)
    return load_part(run, "", questions, find_passages(asked.retrieval, passages))


def load_part(
    run: Recorded, part: str = "", questions: Sequence[Question] | None = None, passages: Sequence[Passage] = ()
) -> list[Prediction]:
    """Load a run's predictions, or one part; without `questions` only with recorded outcomes."""
    adapters = run.manifest["adapters"]
    return load_predictions(run.predictions(part), questions, passages, run.config.model.model, adapters)


def load_or_outcomes(run: Recorded, load: Callable = load, load_outcomes: Callable = load_part) -> Any:
    """Load a run's predictions; if their data is missing, only with recorded outcomes."""
    try:
        return load(run)
    except FileNotFoundError as error:
        if error.filename:  # a file of the run itself is missing
            raise
    return load_outcomes(run)


def check_data(run: Recorded, retrievers: Sequence[str] = (), **data: Sequence) -> None:
    """Raise an error if the data, or the retrievers' saved web results, differ from the run's."""
    was = run.manifest["data"] | run.manifest.get("snapshots", {})
    now = {name: digest(rows) for name, rows in data.items()}
    for name, snapshot in describe_snapshots(run.config.retrieval, retrievers).items():
        if not snapshot["queries"]:
            raise FileNotFoundError(
                f"the snapshot {run.config.retrieval.snapshot} of {name} is missing; "
                "set the parameter snapshot to the folder with the saved web results"
            )
        now[name] = snapshot["sha256"]
    for name, sha256 in now.items():
        known = was.get(name, {}).get("sha256")
        if sha256 != known:
            raise ValueError(
                f"{name}: this configuration has other data than the run: the recorded hash is "
                f"{known}, the hash now is {sha256}; use the parameters and files of that run"
            )


def choose(asked: config.Config, root: Path = config.ROOT, table: str = "table2") -> Recorded | None:
    """Return the recorded run that the parameter `record` names, or None if there is none."""
    wanted = asked.run.record
    if wanted == "none":
        return None
    known = [run for run in find_under(root / "results", root) if run.table == table and run.predictions().exists()]
    runs = {str(run.folder.relative_to(root / "results")): run for run in known}
    if wanted == "auto":
        alike = [run for run in runs.values() if not changed_parameters(asked, run.config, OTHERWISE_ALIKE)]
        return max(alike, key=lambda run: (run.n, run.folder.name), default=None)
    if wanted not in runs:
        raise ValueError(f"record is {wanted!r}, but must be 'auto', 'none' or one of {', '.join(runs)}")
    return runs[wanted]


def tell(run: Recorded | None) -> str:
    """Describe in one sentence what was recorded, where and when."""
    if run is None:
        return "no recorded run of this model and data is shown; set record to a folder of results/"
    model, hardware = run.config.model, run.manifest["hardware"]
    told = f"{model.short} ({model.quantize}, {model.layout} layout) on {run.n} questions of {name_data(run.config)}"
    machine = hardware["gpu"] or f"{hardware['cores']} {hardware['machine']} cores"
    when = f"at {run.manifest['commit'][:7]} in {run.manifest['wall_seconds']:.0f} s"
    return f"{run.folder.relative_to(run.root)}: {told}, recorded on {machine} {when}"


def name_data(asked: config.Config) -> str:
    """Return the name of the data for sentences and titles."""
    names = {"world": "the fictional world", "real": "public questions"}
    return names.get(asked.data.data, Path(asked.data.data).name)


def changed(now: dict, recorded: dict) -> list[str]:
    """List everything that differs between two manifests and can change a result."""
    differs = changed_parameters(*(config.from_manifest(one["parameters"]) for one in (now, recorded)))
    ours, theirs = now["adapters"], recorded["adapters"]
    both = sorted(ours.keys() & theirs.keys())  # only adapters that both runs used can be compared
    differs += [f"the adapter {name}" for name in both if ours[name] != theirs[name]]
    differs += ["having adapters"] if bool(ours) != bool(theirs) else []
    hashes = {"the weights of the model": "model_sha256", "the weights of the encoder": "encoder_sha256"}
    hashes |= {"the frozen results of the web": "snapshots"}
    differs += [what for what, name in hashes.items() if now.get(name) != recorded.get(name)]
    return differs or [f"the {name}" for name in now["data"] if now["data"][name] != recorded["data"].get(name)]


def changed_parameters(now: config.Config, recorded: config.Config, but: Collection[str] = ()) -> list[str]:
    """List the parameters, with both values, that differ and can change a result, except `but`."""
    a, b, differs = now.flat(), recorded.flat(), []
    for name in [f.name for concern in CONCERNS for f in fields(concern) if f.name not in {*IMMATERIAL, *but}]:
        # "all" may mean the same sets as a list; the hash of the questions decides.
        same_sets = name == "datasets" and config.ALL in (a[name], b[name])
        if a[name] != b[name] and not same_sets:
            differs.append(f"{name} ({a[name]!r}, recorded {b[name]!r})")
    return differs
