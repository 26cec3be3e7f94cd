"""The steps of notebooks/train.ipynb around the method: train adapters, make D2′ with them, validate them."""

import gzip
import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from importlib import import_module
from pathlib import Path

import pandas as pd

from covrag_lite import evaluate, qlora, synthesis
from covrag_lite.config import Config, resolve
from covrag_lite.data import load_passages, load_questions
from covrag_lite.engine.interface import load_engine
from covrag_lite.records import Prediction, Sample
from covrag_lite.runs.journal import Journal
from covrag_lite.runs.manifest import build_manifest, save_manifest
from covrag_lite.runs.outcomes import read_packed
from covrag_lite.sources import Source
from covrag_lite.systems import find_system
from covrag_lite.task_model import TaskModel, schema_of

TRIED = ("RAG trained", "CoV-RAG-S", "CoV-RAG")  # on validation questions, as far as their adapters are there


def train_adapter(config: Config, method: str, samples: Sequence[Sample]) -> pd.DataFrame:
    """Train one adapter into `adapters_out`, with the manifest of its training; a row a step comes back."""
    out = resolve(config.training.adapters_out) / method
    start = time.perf_counter()
    model = load_engine(config.change(adapters="none").model)
    losses = qlora.train(config, model, samples, out)
    manifest = build_manifest(config.change(systems=()), model, time.perf_counter() - start, samples=samples)
    save_manifest(out / "manifest.json", manifest)
    return losses


def load_trained(config: Config, adapter: str) -> TaskModel:
    """The model with an adapter that was just trained, or bare for ""."""
    own = config.change(adapters=config.training.adapters_out)
    model = load_engine(own.model, own.training.execution).with_adapter(adapter)
    return TaskModel(own.model, model, Journal(config.journal()), schema_of(adapter))


def train_seeds(config: Config, sources: Sequence[Source]) -> dict[str, pd.DataFrame]:
    """Train two seed models, each to answer one half of D."""
    losses = {}
    for number, name in enumerate(("seed-1", "seed-2")):
        samples = []
        for source in sources:
            samples += synthesis.answer_samples(source, synthesis.halve(source.questions)[number], config)
        losses[name] = train_adapter(config, name, samples)
    return losses


def make_d2(config: Config, sources: Sequence[Source]) -> tuple[list[synthesis.Example], list[synthesis.Example]]:
    """Make D2′, whole and balanced, by the seed models in `adapters_out` and the annotator of the settings."""
    annotate = synthesis.annotate
    if config.synthesis.annotator != "oracle":
        teacher = import_module("covrag_lite.teacher")
        annotate = teacher.load_annotator(config, Journal(config.journal()))
    return synthesis.make_d2(config, sources, partial(load_trained, config), annotate)


def validate(config: Config) -> list[Prediction]:
    """Run the bare model and every system whose adapter is there on questions that none of them has learnt from."""
    own = config.change(split="validation", adapters=config.training.adapters_out)
    folder = resolve(config.training.adapters_out)
    trained = [name for name in TRIED if (folder / find_system(name).adapter / "adapter_config.json").exists()]
    resources = evaluate.load_resources(own, load_passages(own))
    return evaluate.run(own.change(systems=("RAG", *trained)), resources, load_questions(own))


def save_samples(path: Path, samples: Sequence[Sample]) -> None:
    """Write samples as gzipped JSONL, whole or not at all, so that a stage can begin where another ended."""
    lines = "".join(json.dumps(asdict(one), ensure_ascii=False) + "\n" for one in samples)
    making = path.with_suffix(".part")
    making.write_bytes(gzip.compress(lines.encode(), 1, mtime=0))
    making.rename(path)


def load_samples(path: Path) -> list[Sample]:
    """Read the samples that `save_samples` wrote."""
    try:
        rows = [json.loads(line) for line in read_packed(path).splitlines()]
    except ValueError as error:
        raise ValueError(f"{error}: remove {path}, and run the stage data again") from None
    return [Sample(**row | {"target": tuple(row["target"])}) for row in rows]
