"""Run systems over questions: load the shared resources and give each system its tools.

Retriever, model and journal are shared by all systems of a run; each system gets the model with its
own adapters. This file names no system: `systems.py` has one entry for each.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pkgutil import resolve_name
from typing import Any

from covrag_lite import method
from covrag_lite.config import Config
from covrag_lite.engine.interface import Engine, load_engine
from covrag_lite.journal import Journal
from covrag_lite.method import Sigma, Tools
from covrag_lite.records import Passage, Prediction, Question, Search
from covrag_lite.retrieval import load_deeper, load_retriever
from covrag_lite.systems import System, find_system
from covrag_lite.task_model import TaskModel, schema_of

BARE_LAYOUT = "paper"  # layout of the base model's prompts; it was trained on neither layout
# The rules that choose which round's answer to return, by their names in the parameter `keep`.
KEEPS = {"last": method.keep_last, "likelier": method.keep_likelier, "weighed": method.keep_weighed}


@dataclass(frozen=True)
class Resources:
    """The retriever, model and journal that all systems of a run share."""

    search: Search
    model: Engine  # the base model; a system uses it with its own adapter
    journal: Journal
    deeper: Callable[[int], Search] | None = None  # n -> the same search with n times k passages
    meter: Any = None  # a related.tools.Meter that counts what one system costs, or None


def load_resources(config: Config, passages: Sequence[Passage], model: Engine | None = None) -> Resources:
    """Load retriever, model and journal of a run; a test passes a scripted `model` instead."""
    search = load_retriever(config.retrieval, passages)
    model = model or load_engine(config.model, config.training.execution)
    deeper = cache(partial(load_deeper, config.retrieval, passages))
    return Resources(search, model, Journal(config.journal()), deeper)


def load_task_model(config: Config, resources: Resources, adapter: str) -> TaskModel:
    """Return the model with this adapter; without one, the base model with the paper's layout."""
    model = resources.model.with_adapter(adapter)
    settings = config.model if model.adapter else replace(config.model, layout=BARE_LAYOUT)
    count = resources.meter and resources.meter.add
    return TaskModel(settings, model, resources.journal, schema_of(adapter), count)


def bind(system: System, config: Config, resources: Resources) -> Tools:
    """Build the tools of a system: search, and answer and verify with the system's adapters."""
    own = config.change(**system.settings)
    if own.chain.keep not in KEEPS:
        raise ValueError(f"keep {own.chain.keep!r} is not known; use one of {', '.join(KEEPS)}")
    if own.chain.max_rounds < 1:
        raise ValueError(f"max_rounds is {own.chain.max_rounds}; use 1 or more (the paper: 2)")
    author = load_task_model(own, resources, system.adapter)
    verifier = load_task_model(own, resources, system.verifier or system.adapter)
    rewriter = load_task_model(own, resources, system.rewriter)
    tools = Tools(
        name=system.name,
        search=resources.search,
        search_on=lambda queries: [found[own.retrieval.k :] for found in resources.deeper(2)(queries)],
        answer=author.answer,
        verify=verifier.verify,
        write_alone=rewriter.write_alone,
        likelihoods=author.likelihoods,
        sigma=choose_sigma(own.chain.sigma, verifier),
        keep=KEEPS[own.chain.keep],
        max_rounds=own.chain.max_rounds,
        verifies_last=own.chain.keep == "weighed",
    )
    if system.needs:
        further = resolve_name("covrag_lite.related.tools:bind")(system, own, resources.deeper, rewriter)
        tools = replace(tools, related=further)
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
    if adapter and (adapter / "sigma.json").exists():
        try:
            return method.by_fitted_thresholds(**json.loads((adapter / "sigma.json").read_text()))
        except (ValueError, TypeError):
            raise ValueError(
                f"{adapter / 'sigma.json'} is damaged or has an outdated format; delete it to use "
                "the paper's thresholds, or fit the thresholds again with notebooks/train.ipynb"
            ) from None
    return method.by_thresholds


def run_system(name: str, config: Config, resources: Resources, questions: Sequence[Question]) -> list[Prediction]:
    """Run one system over the questions."""
    system = find_system(name)
    function = resolve_name(system.run) if isinstance(system.run, str) else system.run
    made = function(questions, bind(system, config, resources))
    has_adapter = bool(system.adapter and resources.model.with_adapter(system.adapter).adapter)
    backbone = f"{config.model.model}+{system.adapter}" if has_adapter else config.model.model
    return [replace(prediction, backbone=backbone) for prediction in made]


def run(config: Config, resources: Resources, questions: Sequence[Question]) -> list[Prediction]:
    """Run every configured system over the questions; prompts that systems share run only once."""
    chosen = [find_system(name) for name in config.chain.systems]  # an unknown name stops here
    if not questions:
        raise ValueError(
            f"there are no questions in {config.data.data!r}; a folder needs the file "
            "questions.csv or a file <set>.jsonl"
        )
    return [made for system in chosen for made in run_system(system.name, config, resources, questions)]
