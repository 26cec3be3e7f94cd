"""The steps of notebooks/train.ipynb around the method: train adapters, make D2′ with them, validate them.

The paper's own annotator (Section 2.3, Step 2) is here too, a larger model behind an endpoint: GPT-4 wrote the paper's
verdicts, of which 93 % of a sample were right.
"""

import gzip
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import pandas as pd

from covrag_lite import evaluate, metrics, qlora, synthesis
from covrag_lite.config import Config, resolve
from covrag_lite.data import load_passages, load_questions
from covrag_lite.engine.interface import load_engine
from covrag_lite.journal import Journal
from covrag_lite.prompts import build_verify, parse_verdict
from covrag_lite.records import Prediction, Sample, Search
from covrag_lite.runs.manifest import build_manifest, save_manifest
from covrag_lite.runs.outcomes import read_rows
from covrag_lite.sources import Source
from covrag_lite.synthesis import Annotate, Example, supporting
from covrag_lite.systems import find_system
from covrag_lite.task_model import TaskModel, schema_of

TRIED = ("RAG trained", "CoV-RAG-S", "CoV-RAG")  # on validation questions, as far as their adapters are there
STRICT = (
    "Be a strict examiner: judge by the criteria and the references alone, use the whole range from 0 to 1, "
    "and call an answer true only if it is right, supported by the references it cites, and free of repetition."
)


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
    """Train the seed models, each to answer one half of D."""
    losses = {}
    for name, half in synthesis.seed_halves(config).items():
        samples = []
        for source in sources:
            samples += synthesis.answer_samples(source, synthesis.halve(source.questions)[half], config)
        losses[name] = train_adapter(config, name, samples)
    return losses


def make_d2(config: Config, sources: Sequence[Source]) -> tuple[list[Example], list[Example]]:
    """Make D2′, whole and balanced, by the seed models in `adapters_out` and the annotator of the settings."""
    return synthesis.make_d2(config, sources, partial(load_trained, config), load_annotator(config))


def load_annotator(config: Config) -> Annotate:
    """Who writes the verdicts of D2′: the oracle, which knows the gold answers, or a served model."""
    annotator = config.synthesis.annotator
    if annotator == "oracle":
        return synthesis.annotate
    if not annotator.startswith("endpoint:"):
        raise ValueError(f"annotator {annotator!r} is not known; use 'oracle' or 'endpoint:<model>'")
    settings = replace(config.model, model=annotator, verdicts="forced")
    teacher = TaskModel(settings, load_engine(settings), Journal(config.journal()))
    return lambda examples, revisions, search: annotate_with_teacher(examples, teacher, search)


def annotate_with_teacher(examples: Sequence[Example], teacher: TaskModel, search: Search) -> list[Example]:
    """The examples with the teacher's verdicts, without those that cannot be read; what it agrees on is printed.

    "unclear" agrees with neither "true" nor "false".
    """
    asked = [f"{build_verify(one.question.question, one.passages, one.answer)}\n{STRICT}" for one in examples]
    verdicts = [parse_verdict(text) for text in teacher.write("verify", asked, teacher.settings.max_revised_tokens)]
    labelled = [replace(one, verdict=verdict) for one, verdict in zip(examples, verdicts) if verdict.parsed]
    n, same = len(labelled), sum(one.verdict.judgment == synthesis.judge(one, "").judgment for one in labelled)
    low, high = (100 * end for end in metrics.wilson(same, n))
    print(f"the teacher labelled {n} of {len(examples)} examples; the others could not be read")
    share = f"{100 * same / max(1, n):.1f} % (95 % interval {low:.1f} to {high:.1f}; the paper: 93 %)"
    print(f"the teacher's judgment is the gold one in {same} of n = {n} examples: {share}")
    return try_revisions(labelled, search)


def try_revisions(examples: Sequence[Example], search: Search) -> list[Example]:
    """Take away the revised questions that do not help.

    A revised question helps if it finds a supporting reference where none was found; a true answer needs none.
    """
    needed = [one.verdict.judgment != "true" and not supporting(one.question, one.passages) for one in examples]
    tried = [one.verdict.revised_question if need else "" for one, need in zip(examples, needed)]
    found = dict(zip(filter(None, tried), search(list(filter(None, tried)))))
    made = []
    for one, revised in zip(examples, tried):
        helps = revised and supporting(one.question, found[revised])
        made.append(one if helps else replace(one, verdict=replace(one.verdict, revised_question="")))
    return made


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
    return [Sample(**row | {"target": tuple(row["target"])}) for row in read_rows(path)]
