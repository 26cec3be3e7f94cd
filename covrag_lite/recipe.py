"""The steps of notebooks/train.ipynb (Section 2.3 of the paper): train adapters, make D2′ with them, validate them."""

import time
from collections.abc import Sequence

import pandas as pd

from covrag_lite import evaluate
from covrag_lite import qlora as loop
from covrag_lite.config import Config, resolve
from covrag_lite.data import load_passages, load_questions
from covrag_lite.engine.local import load_model
from covrag_lite.oracle import Example
from covrag_lite.records import Prediction, Sample
from covrag_lite.revisions import choose, count_forms, find_revisions
from covrag_lite.runs.journal import Journal
from covrag_lite.runs.manifest import build_manifest, save_manifest
from covrag_lite.sources import Source
from covrag_lite.synthesis import answer_samples, balance, find_failures, halve, make_examples
from covrag_lite.systems import find_system
from covrag_lite.task_model import TaskModel
from covrag_lite.teacher import load_annotator

TRIED = ("RAG trained", "CoV-RAG-S", "CoV-RAG")  # on validation questions, as far as their adapters are there


def train_adapter(config: Config, method: str, samples: Sequence[Sample]) -> pd.DataFrame:
    """Train one adapter into `adapters_out`, with the manifest of its training; a row a step comes back."""
    out = resolve(config.training.adapters_out) / method
    start = time.perf_counter()
    model = load_model(config.change(adapters="none").model)
    losses = loop.train(config, model, samples, out)
    manifest = build_manifest(config.change(systems=()), model, time.perf_counter() - start, samples=samples)
    save_manifest(out / "manifest.json", manifest)
    return losses


def load_trained(config: Config, adapter: str) -> TaskModel:
    """The model with an adapter that was just trained, or bare for "", as an author."""
    own = config.change(adapters=config.training.adapters_out)
    model = load_model(own.model, own.training.execution).with_adapter(adapter)
    return TaskModel(own.model, model, Journal(config.journal()))


def train_seeds(config: Config, sources: Sequence[Source]) -> dict[str, pd.DataFrame]:
    """Two seed models, each trained to answer one half of D."""
    losses = {}
    for number, name in enumerate(("seed-1", "seed-2")):
        samples = []
        for source in sources:
            half = halve(source.questions, config.synthesis.synthesis_seed)[number]
            samples += answer_samples(source, half, config)
        losses[name] = train_adapter(config, name, samples)
    return losses


def make_d2(config: Config, sources: Sequence[Source]) -> tuple[list[Example], list[Example]]:
    """D2′, whole and balanced: every question is answered by the seed model that has not learnt from it."""
    bare = load_trained(config, "")
    annotate = load_annotator(config, bare.journal)
    every = []
    for number, name in enumerate(("seed-2", "seed-1")):  # each answers the half of the other
        author = load_trained(config, name)
        for source in sources:
            half = halve(source.questions, config.synthesis.synthesis_seed)[number]
            every.append((source, make_examples(source, half, author.answer, config)))
    failed = [find_failures(examples) for _, examples in every]
    found = [find_revisions(one, bare, source.search) for one, (source, _) in zip(failed, every)]
    counts = count_forms(found)
    print(
        f"revised questions: {sum(map(len, found))} of {sum(map(len, failed))} questions that found nothing have one; "
        f"by form: {', '.join(f'{form} {n}' for form, n in counts.most_common())}"
    )
    whole = []
    for (source, examples), one in zip(every, found):
        revisions = {text: choose(candidates, counts) for text, candidates in one.items()}
        whole += annotate(examples, revisions, source.search)
    n_questions = sum(len(source.questions) for source in sources)
    size = round(config.synthesis.verify_share * n_questions)
    chosen = balance(whole, size, config.synthesis.synthesis_seed)
    if not chosen:
        right = sum(one.verdict.judgment == "true" for one in whole)
        raise ValueError(
            f"D2' is empty: {right} of the seed models' {len(whole)} answers are right, and as many right as "
            f"wrong ones are needed in a set; train on more questions, or for more epochs"
        )
    return whole, chosen


def validate(config: Config) -> list[Prediction]:
    """The bare model and every system whose adapter is there, on questions that none of them has learnt from."""
    own = config.change(split="validation", adapters=config.training.adapters_out)
    folder = resolve(config.training.adapters_out)
    trained = [name for name in TRIED if (folder / find_system(name).adapter / "adapter_config.json").exists()]
    resources = evaluate.load_resources(own, load_passages(own))
    return evaluate.run(own.change(systems=("RAG", *trained)), resources, load_questions(own))
