"""The steps from training questions to adapters, as train.ipynb and replications run them.

Train two seed models, make D2′ with them, make the samples of every adapter, train, and validate.
"""

import time
from collections.abc import Iterator, Sequence
from functools import cache

import pandas as pd

from covrag_lite import qlora, synthesis
from covrag_lite.config import Config, resolve
from covrag_lite.data import load_passages, load_questions
from covrag_lite.engine import load_engine
from covrag_lite.engine.journal import Journal
from covrag_lite.engine.progress import track
from covrag_lite.engine.task_model import TaskModel
from covrag_lite.files import write_json
from covrag_lite.method import Answer
from covrag_lite.oracle import Example
from covrag_lite.records import Prediction, Sample, Source
from covrag_lite.runs.manifest import build_manifest
from covrag_lite.systems import evaluate, find_system
from covrag_lite.systems.names import COV_RAG, COV_RAG_S, RAG, RAG_TRAINED
from covrag_lite.training.annotators import load_annotator

VALIDATED = (RAG_TRAINED, COV_RAG_S, COV_RAG)  # if their adapters exist


def train_adapter(config: Config, method: str, samples: Sequence[Sample]) -> pd.DataFrame:
    """Train one adapter into `adapters_out` and save its manifest; returns one row per step."""
    out = resolve(config.training.adapters_out) / method
    start = time.perf_counter()
    model = load_engine(config.change(adapters="none").model)
    losses = qlora.train(model, samples, out, config.training, track)
    # A resumed training has steps of earlier sessions.
    seconds = max(time.perf_counter() - start, losses.seconds.sum())
    manifest = build_manifest(config.change(systems=()), model, seconds, samples=samples)
    write_json(out / "manifest.json", manifest)
    return losses


def train_seeds(config: Config, sources: Sequence[Source]) -> dict[str, pd.DataFrame]:
    """Train the seed models; each learns to answer one half of D."""
    losses = {}
    for name, half in synthesis.seed_halves(config.synthesis.mixture).items():
        samples = []
        for source in sources:
            questions = synthesis.halve(source.questions)[half]
            samples += synthesis.answer_samples(source, questions, config.model.layout)
        losses[name] = train_adapter(config, name, samples)
    return losses


def synthesise_d2(config: Config, sources: Sequence[Source]) -> tuple[list[Example], list[Example]]:
    """Make D2′ with the trained seed models; returns all examples, and the balanced ones."""

    def seed_readers() -> Iterator[tuple[int, Answer]]:
        # One after the other, so that only one of them is in memory.
        halves = synthesis.seed_halves(config.synthesis.mixture)
        for name, half in reversed(halves.items()):
            yield half, load_trained(config, name).answer

    @cache
    def base_model() -> TaskModel:
        return load_trained(config, "")

    def write(task: str, x: Sequence[str]) -> list[str]:
        return base_model().write_from_question(task, x)

    d2 = synthesis.make_d2(
        sources,
        seed_readers(),
        write,
        k=config.retrieval.k,
        verify_share=config.synthesis.verify_share,
        annotate=load_annotator(config),
    )
    print(d2.summary)
    return d2.examples, d2.chosen


def load_trained(config: Config, adapter: str) -> TaskModel:
    """Return the model with an adapter from `adapters_out`; "" is the base model."""
    changed = config.change(adapters=config.training.adapters_out)
    model = load_engine(changed.model, changed.training.execution).with_adapter(adapter)
    return TaskModel(changed.model, model, Journal(config.journal()))


def learnt_answers(config: Config, sources: Sequence[Source]) -> list[Sample]:
    """Make the answer samples of all training questions."""
    samples = []
    for source in sources:
        samples += synthesis.answer_samples(source, source.questions, config.model.layout)
    return samples


def learnt_samples(
    config: Config, sources: Sequence[Source], chosen: Sequence[Example]
) -> dict[str, list[Sample]]:
    """Make what each adapter learns, in the configured mixture."""
    mixture = config.synthesis.mixture
    return synthesis.make_samples(sources, chosen, mixture, config.model.layout)


def validate(config: Config) -> list[Prediction]:
    """Run the base model and every system with a trained adapter on the validation questions."""
    changed = config.change(split="validation", adapters=config.training.adapters_out)
    folder = resolve(config.training.adapters_out)
    systems = [RAG]
    for name in VALIDATED:
        if (folder / find_system(name).adapter / "adapter_config.json").exists():
            systems.append(name)
    resources = evaluate.load_resources(changed, load_passages(changed))
    return evaluate.run(changed.change(systems=tuple(systems)), resources, load_questions(changed))
