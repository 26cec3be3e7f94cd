"""Recorded runs: save one, find or choose those under results/ and figures/, load what they are made from, compare two.

A recorded run is a `<table>.manifest.json` with the table's .csv and .md, its picture, and what these are made from:
`<table>.predictions.jsonl.xz`, one such file a retriever for Table 6, the judges' verdicts for Table 3.
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

# Parameters that change no number: how fast, where, which of the systems; adapters and snapshots have their hash.
IMMATERIAL = set("device adapters systems free_every retrievers live snapshot n_learnt related_systems".split())
CONCERNS = (config.World, config.Data, config.Model, config.Retrieval, config.Chain, config.Judging, config.Related)
# Parameters in which a recorded run may differ and still be of the same model and data: a run may ask some of its
# questions, and who judges its answers changes none of them.
OTHERWISE_ALIKE = {"n_questions", *(f.name for f in fields(config.Judging))}

Parts = Mapping[str, Sequence[Prediction]]  # a run's predictions: one part, called "", or one a retriever


@dataclass(frozen=True)
class Recorded:
    """One recorded run of one table."""

    folder: Path
    table: str
    manifest: dict
    root: Path = config.ROOT  # of the project that it lies in

    def file(self, end: str) -> Path:
        """One of the run's files; a retriever's name may hold an address."""
        return self.folder / f"{self.table}.{end.replace('/', '_')}"

    def predictions(self, part: str = "") -> Path:
        """The file of its predictions, or of one part's."""
        return self.file(f"{part}.predictions.jsonl.xz".lstrip("."))

    @cached_property
    def config(self) -> config.Config:
        """Its parameters, read once."""
        return config.from_manifest(self.manifest["parameters"])

    @property
    def n(self) -> int:
        """How many questions it asked."""
        return self.manifest["data"]["questions"]["n"]


def save_run(
    folder: Path, table: str, predictions: Parts, asked: config.Config, model: Engine, seconds: float, data: Mapping
) -> Recorded:
    """Write what a table was made from, the predictions of each part and a manifest; prints what the run has cost."""
    folder.mkdir(parents=True, exist_ok=True)
    run = Recorded(folder, table, build_manifest(asked, model, seconds, **data))
    searched = {asked.retrieval.retriever, *predictions} - {""}  # Table 6 has one part a retriever
    snapshots = describe_snapshots(asked.retrieval, searched)
    for part, made in predictions.items():
        save_predictions(run.predictions(part), made)
    used = model.used  # a text that was journaled costs nothing
    tokens = f"{used['prompt_tokens']:,} tokens read and {used['completion_tokens']:,} written"
    print(f"cost: {seconds:.0f} s, {used['requests']} texts, {tokens}")
    if snapshots:
        run.manifest["snapshots"] = snapshots
    if searched - {"bm25"}:
        run.manifest["encoder_sha256"] = hash_encoder(asked.retrieval.encoder)
    save_manifest(run.file("manifest.json"), run.manifest)
    return run


def find(root: Path = config.ROOT) -> list[Recorded]:
    """Every recorded run under results/, and those of the defaults; a user's own under figures/ come and go."""
    return [run for place in ("results", "figures/embedded") for run in find_under(root / place, root)]


def find_under(folder: Path, root: Path = config.ROOT) -> list[Recorded]:
    """Every recorded run in a folder, or in one under it."""
    files = {file: json.loads(file.read_text()) for file in sorted(folder.glob("**/*.manifest.json"))}
    return [Recorded(one.parent, one.name.removesuffix(".manifest.json"), told, root) for one, told in files.items()]


def load(run: Recorded, asked: config.Config | None = None) -> list[Prediction]:
    """The run's predictions, with the questions and passages of its configuration, or of another one, put back."""
    asked = asked or run.config
    questions, passages = load_questions(asked), load_passages(asked)
    check_data(run, [asked.retrieval.retriever], questions=questions, passages=passages)
    return load_part(run, "", questions, find_passages(asked.retrieval, passages))


def load_part(
    run: Recorded, part: str = "", questions: Sequence[Question] | None = None, passages: Sequence[Passage] = ()
) -> list[Prediction]:
    """The predictions of a run, or of one of its parts, over these data; without any, with their outcomes."""
    adapters = run.manifest["adapters"]
    return load_predictions(run.predictions(part), questions, passages, run.config.model.model, adapters)


def load_or_outcomes(run: Recorded, load: Callable = load, load_outcomes: Callable = load_part) -> Any:
    """The run's predictions; without the data's texts, but with what came of them, where the data is not at hand."""
    try:
        return load(run)
    except FileNotFoundError as error:
        if error.filename:
            raise
    return load_outcomes(run)


def check_data(run: Recorded, retrievers: Sequence[str] = (), **data: Sequence) -> None:
    """An error where the data, or what these retrievers froze of the web, are no longer those of the run."""
    was = run.manifest["data"] | run.manifest.get("snapshots", {})
    now = {name: digest(rows) for name, rows in data.items()}
    for name, snapshot in describe_snapshots(run.config.retrieval, retrievers).items():
        if not snapshot["queries"]:
            raise FileNotFoundError(f"the snapshot {run.config.retrieval.snapshot} of {name} is not at hand")
        now[name] = snapshot["sha256"]
    for name, sha256 in now.items():
        known = was.get(name, {}).get("sha256")
        if sha256 != known:
            raise ValueError(f"{name}: this configuration has other data than the run: recorded {known}, now {sha256}")


def choose(asked: config.Config, root: Path = config.ROOT, table: str = "table2") -> Recorded | None:
    """The recorded run that the parameter `record` names; None for "none", and where "auto" finds none."""
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
    """A sentence on what was recorded, where and when."""
    if run is None:
        return "no recorded run of this model and data is shown; record names one of those under results/"
    model, hardware = run.config.model, run.manifest["hardware"]
    told = f"{model.short} ({model.quantize}, {model.layout} layout) on {run.n} questions of {name_data(run.config)}"
    machine = hardware["gpu"] or f"{hardware['cores']} {hardware['machine']} cores"
    when = f"at {run.manifest['commit'][:7]} in {run.manifest['wall_seconds']:.0f} s"
    return f"{run.folder.relative_to(run.root)}: {told}, recorded on {machine} {when}"


def name_data(asked: config.Config) -> str:
    """How a sentence or a title calls the data."""
    return "the embedded world" if asked.data.data == "world" else Path(asked.data.data).name


def changed(now: dict, recorded: dict) -> list[str]:
    """What differs between two runs' manifests of all that can change a number."""
    differs = changed_parameters(*(config.from_manifest(one["parameters"]) for one in (now, recorded)))
    ours, theirs = now["adapters"], recorded["adapters"]
    both = sorted(ours.keys() & theirs.keys())  # of two tables' runs only adapters that both used can be compared
    differs += [f"the adapter {name}" for name in both if ours[name] != theirs[name]]
    differs += ["having adapters"] if bool(ours) != bool(theirs) else []
    hashes = {"the weights of the model": "model_sha256", "the weights of the encoder": "encoder_sha256"}
    hashes |= {"the frozen results of the web": "snapshots"}
    differs += [what for what, name in hashes.items() if now.get(name) != recorded.get(name)]
    return differs or [f"the {name}" for name in now["data"] if now["data"][name] != recorded["data"].get(name)]


def changed_parameters(now: config.Config, recorded: config.Config, but: Collection[str] = ()) -> list[str]:
    """The parameters that can change a number and differ, each with its two values; `but` names some to pass over."""
    a, b, differs = now.flat(), recorded.flat(), []
    for name in [f.name for concern in CONCERNS for f in fields(concern) if f.name not in {*IMMATERIAL, *but}]:
        same_sets = name == "datasets" and config.ALL in (a[name], b[name])  # perhaps: the questions' hash tells
        if a[name] != b[name] and not same_sets:
            differs.append(f"{name} ({a[name]!r}, recorded {b[name]!r})")
    return differs
