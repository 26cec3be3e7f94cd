"""Run systems over questions: load the shared resources and give each system its tools.

Retriever, model and journal are shared by all systems of a run; each system gets the model with its
own adapters. This file names no system: `systems/__init__.py` has one entry for each.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import NoReturn, Protocol

from covrag_lite import method
from covrag_lite.config import Config
from covrag_lite.engine import load_engine
from covrag_lite.engine.interface import Engine, Schema
from covrag_lite.engine.journal import Journal
from covrag_lite.engine.task_model import TaskModel
from covrag_lite.method import Sigma, Tools
from covrag_lite.prompts import SCHEMA
from covrag_lite.records import Passage, Prediction, Question, Search
from covrag_lite.retrieval import load_deeper, load_retriever
from covrag_lite.systems import System, find_system

BARE_LAYOUT = "paper"  # layout of the base model's prompts; it was trained on neither layout
# The rules that choose which round's answer to return, by their names in the parameter `keep`.
KEEPS = {
    "last": method.keep_last,
    "likelier": method.keep_likelier,
    "weighed": method.keep_combined,
}


class Meter(Protocol):
    """Counts what a system costs."""

    def watch(self, tools: Tools) -> Tools:
        """Return the same tools, whose use is counted."""

    def add(self, tokens: Sequence[tuple[float, float]], sample: int | None) -> None:
        """Count texts, by the tokens read and written for each."""


def has_no_deeper_search(times: int) -> NoReturn:
    """Refuse to search for more passages."""
    raise ValueError("these resources have no search for more than k passages")


@dataclass(frozen=True)
class Resources:
    """The retriever, model and journal that all systems of a run share."""

    search: Search
    model: Engine  # the base model; a system uses it with its own adapter
    journal: Journal
    # n -> the search with n times k passages
    deeper: Callable[[int], Search] = has_no_deeper_search
    meter: Meter | None = None  # counts what a system costs


def load_resources(
    config: Config, passages: Sequence[Passage], model: Engine | None = None
) -> Resources:
    """Load retriever, model and journal of a run; a test passes a scripted `model` instead."""
    search = load_retriever(config.retrieval, passages)
    model = model or load_engine(config.model, config.training.execution)
    deeper = cache(partial(load_deeper, config.retrieval, passages))
    return Resources(search, model, Journal(config.journal()), deeper)


def load_task_model(
    config: Config, resources: Resources, adapter: str, schema: Schema = SCHEMA
) -> TaskModel:
    """Return the model with this adapter; without one, the base model with the paper's layout."""
    model = resources.model.with_adapter(adapter)
    settings = config.model if model.adapter else replace(config.model, layout=BARE_LAYOUT)
    count = resources.meter.add if resources.meter else None
    return TaskModel(settings, model, resources.journal, schema, count)


def bind(system: System, config: Config, resources: Resources) -> Tools:
    """Build the tools of a system: search, and answer and verify with the system's adapters."""
    settings = config.change(**system.settings)
    keep = settings.chain.keep
    if keep not in KEEPS:
        raise ValueError(f"keep {keep!r} is not known; use one of {', '.join(KEEPS)}")
    if settings.chain.max_rounds < 1:
        raise ValueError(f"max_rounds is {settings.chain.max_rounds}; use 1 or more (the paper: 2)")
    k = settings.retrieval.k

    def search_deeper(queries: Sequence[str]) -> list[list[Passage]]:
        """Return the next k passages."""
        return [passages[k:] for passages in resources.deeper(2)(queries)]

    author = load_task_model(settings, resources, system.adapter)
    verifier = load_task_model(
        settings, resources, system.verifier or system.adapter, system.schema
    )
    rewriter = load_task_model(settings, resources, system.rewriter)
    tools = Tools(
        name=system.name,
        search=resources.search,
        search_deeper=search_deeper,
        answer=author.answer,
        verify=verifier.verify,
        write_from_question=rewriter.write_from_question,
        likelihoods=author.likelihoods,
        sigma=choose_sigma(settings.chain.sigma, verifier),
        keep=KEEPS[keep],
        max_rounds=settings.chain.max_rounds,
        verifies_last=keep == "weighed",
    )
    if system.equip:
        tools = system.equip(tools, settings, resources.deeper, rewriter)
    return resources.meter.watch(tools) if resources.meter else tools


def choose_sigma(rule: str, verifier: TaskModel) -> Sigma:
    """Return the rule σ by its name.

    "thresholds" uses the adapter's fitted thresholds (expected scores, likelihood) or the paper's.
    """
    if rule == "revision":
        return method.by_revision
    if rule != "thresholds":
        raise ValueError(f"sigma {rule!r} is not known; use 'revision' or 'thresholds'")
    adapter = verifier.model.adapter
    fitted = adapter / "sigma.json" if adapter else None
    if fitted is None or not fitted.exists():
        return method.by_thresholds
    try:
        return method.by_fitted_thresholds(**json.loads(fitted.read_text()))
    except (ValueError, TypeError):
        raise ValueError(
            f"{fitted} is damaged or has an outdated format; delete it to use the paper's "
            "thresholds, or fit the thresholds again with notebooks/train.ipynb"
        ) from None


def run_system(
    name: str, config: Config, resources: Resources, questions: Sequence[Question]
) -> list[Prediction]:
    """Run one system over the questions."""
    system = find_system(name)
    predictions = system.run(questions, bind(system, config, resources))
    backbone = config.model.model
    if system.adapter and resources.model.with_adapter(system.adapter).adapter:
        backbone += f"+{system.adapter}"
    return [replace(prediction, backbone=backbone) for prediction in predictions]


def run(config: Config, resources: Resources, questions: Sequence[Question]) -> list[Prediction]:
    """Run every configured system over the questions; prompts that systems share run only once."""
    for name in config.chain.systems:
        find_system(name)  # an unknown name stops before anything runs
    if not questions:
        raise ValueError(
            f"there are no questions in {config.data.data!r}; a folder needs the file "
            "questions.csv or a file <set>.jsonl"
        )
    predictions = []
    for name in config.chain.systems:
        predictions += run_system(name, config, resources, questions)
    return predictions
