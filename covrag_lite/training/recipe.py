"""The steps of notebooks/train.ipynb (Section 2.3 of the paper): train an adapter, answer with it, validate it."""

import time
from collections.abc import Sequence

import pandas as pd

from covrag_lite import evaluation
from covrag_lite.config import Config, resolve
from covrag_lite.data import load_passages, load_questions
from covrag_lite.journal import Journal
from covrag_lite.manifest import build_manifest, save_manifest
from covrag_lite.model.author import Author
from covrag_lite.model.local import load_model
from covrag_lite.records import Prediction, Sample
from covrag_lite.systems import find_system
from covrag_lite.training import loop

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


def load_trained(config: Config, adapter: str) -> Author:
    """The model with an adapter that was just trained, as an author."""
    own = config.change(adapters=config.training.adapters_out)
    return Author(own.model, load_model(own.model).with_adapter(adapter), Journal(config.journal()))


def validate(config: Config) -> list[Prediction]:
    """The bare model and every system whose adapter is there, on questions that none of them has learnt from."""
    own = config.change(split="validation", adapters=config.training.adapters_out)
    folder = resolve(config.training.adapters_out)
    trained = [name for name in TRIED if (folder / find_system(name).adapter / "adapter_config.json").exists()]
    resources = evaluation.load_resources(own, load_passages(own))
    return evaluation.run(own.change(systems=("RAG", *trained)), resources, load_questions(own))
