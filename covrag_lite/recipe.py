"""The training steps of notebooks/train.ipynb: train adapters, make D2′ with them, validate them.

This file also contains the paper's annotator (Section 2.3, Step 2): a larger model behind an
endpoint writes the verdicts. The paper used GPT-4, and 93 % of a sample of its verdicts were right.
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

TRIED = ("RAG trained", "CoV-RAG-S", "CoV-RAG")  # validated if their adapters exist
STRICT = (
    "Be a strict examiner: judge by the criteria and the references alone, use the whole range from 0 to 1, "
    "and call an answer true only if it is right, supported by the references it cites, and free of repetition."
)


def train_adapter(config: Config, method: str, samples: Sequence[Sample]) -> pd.DataFrame:
    """Train one adapter into `adapters_out` and save its manifest; returns one row per step."""
    out = resolve(config.training.adapters_out) / method
    start = time.perf_counter()
    model = load_engine(config.change(adapters="none").model)
    losses = qlora.train(config, model, samples, out)
    manifest = build_manifest(config.change(systems=()), model, time.perf_counter() - start, samples=samples)
    save_manifest(out / "manifest.json", manifest)
    return losses


def load_trained(config: Config, adapter: str) -> TaskModel:
    """Return the model with an adapter from `adapters_out`; "" is the base model."""
    own = config.change(adapters=config.training.adapters_out)
    model = load_engine(own.model, own.training.execution).with_adapter(adapter)
    return TaskModel(own.model, model, Journal(config.journal()), schema_of(adapter))


def train_seeds(config: Config, sources: Sequence[Source]) -> dict[str, pd.DataFrame]:
    """Train the seed models; each learns to answer one half of D."""
    losses = {}
    for name, half in synthesis.seed_halves(config).items():
        samples = []
        for source in sources:
            samples += synthesis.answer_samples(source, synthesis.halve(source.questions)[half], config)
        losses[name] = train_adapter(config, name, samples)
    return losses


def make_d2(config: Config, sources: Sequence[Source]) -> tuple[list[Example], list[Example]]:
    """Make D2′ with the trained seed models; returns all examples, and the balanced ones."""
    return synthesis.make_d2(config, sources, partial(load_trained, config), load_annotator(config))


def load_annotator(config: Config) -> Annotate:
    """Return the annotator of D2′: the oracle, which uses gold answers, or a served model."""
    annotator = config.synthesis.annotator
    if annotator == "oracle":
        return synthesis.annotate
    if not annotator.startswith("endpoint:"):
        raise ValueError(f"annotator {annotator!r} is not known; use 'oracle' or 'endpoint:<model>'")
    settings = replace(config.model, model=annotator, verdicts="forced")
    teacher = TaskModel(settings, load_engine(settings), Journal(config.journal()))
    return lambda examples, revisions, search: annotate_with_teacher(examples, teacher, search)


def annotate_with_teacher(examples: Sequence[Example], teacher: TaskModel, search: Search) -> list[Example]:
    """Add the teacher's verdicts, drop those that do not parse, and print its agreement with gold.

    The judgment "unclear" agrees with neither "true" nor "false".
    """
    asked = [f"{build_verify(one.question.question, one.passages, one.answer)}\n{STRICT}" for one in examples]
    verdicts = [parse_verdict(text) for text in teacher.write("verify", asked, teacher.settings.max_revised_tokens)]
    labelled = [replace(one, verdict=verdict) for one, verdict in zip(examples, verdicts) if verdict.parsed]
    n, same = len(labelled), sum(one.verdict.judgment == synthesis.judge(one, "").judgment for one in labelled)
    low, high = (100 * end for end in metrics.wilson(same, n))
    print(f"the teacher annotated {n} of {len(examples)} examples; the others did not parse")
    share = f"{100 * same / max(1, n):.1f} % (95 % interval {low:.1f} to {high:.1f}; the paper: 93 %)"
    print(f"the teacher's judgment agrees with the gold answer for {same} of {n} examples: {share}")
    return try_revisions(labelled, search)


def try_revisions(examples: Sequence[Example], search: Search) -> list[Example]:
    """Remove the revised questions that do not help.

    One helps if the answer is not true, its references do not support the gold answer, and the
    search with the revised question finds a reference that does.
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
    """Run the base model and every system with a trained adapter on the validation questions."""
    own = config.change(split="validation", adapters=config.training.adapters_out)
    folder = resolve(config.training.adapters_out)
    trained = [name for name in TRIED if (folder / find_system(name).adapter / "adapter_config.json").exists()]
    resources = evaluate.load_resources(own, load_passages(own))
    return evaluate.run(own.change(systems=("RAG", *trained)), resources, load_questions(own))


def save_samples(path: Path, samples: Sequence[Sample]) -> None:
    """Write samples as gzipped JSONL; the file appears only when it is complete."""
    lines = "".join(json.dumps(asdict(one), ensure_ascii=False) + "\n" for one in samples)
    making = path.with_suffix(".part")
    making.write_bytes(gzip.compress(lines.encode(), 1, mtime=0))
    making.rename(path)


def load_samples(path: Path) -> list[Sample]:
    """Read samples that `save_samples` wrote."""
    return [Sample(**row | {"target": tuple(row["target"])}) for row in read_rows(path)]
