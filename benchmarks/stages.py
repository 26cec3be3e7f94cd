"""What CoV-RAG costs stage by stage, and the clock that all measurements of answering go by.

`inference.benchmark` calls `rounds`; `continuous` and `replaying` time the same stages of other ways to write.
"""

import copy
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pandas as pd
import torch

from covrag_lite import prompts
from covrag_lite.config import Config, Model
from covrag_lite.engine.local import LanguageModel
from covrag_lite.engine.weights import find_adapter
from covrag_lite.method import Tools, cov_rag
from covrag_lite.records import Question
from covrag_lite.runs.journal import Journal
from covrag_lite.task_model import TaskModel

LATER = 3  # times that are timed after a first one, where that records and compiles


@contextmanager
def measured(model: LanguageModel, network: torch.nn.Module | None = None) -> Iterator[dict]:
    """Seconds and forward passes of what is done inside."""
    row = {"seconds": 0.0, "passes": 0}

    def count(*_: object) -> None:
        row["passes"] += 1

    def wait() -> None:
        if model.device == "cuda":
            torch.cuda.synchronize()

    hook = (network or model.network).register_forward_pre_hook(count)
    try:
        wait()
        start = time.perf_counter()
        yield row
        wait()
        row["seconds"] = time.perf_counter() - start
    finally:
        hook.remove()


def rounds(config: Config, model: LanguageModel, search: Callable, questions: Sequence[Question]) -> pd.DataFrame:
    """What CoV-RAG costs over plain RAG with the same model, stage by stage, in both layouts of the prompts."""
    model.with_adapter("cov").generate(["?"], 1)
    taken = {}
    for layout in prompts.LAYOUTS:
        own = replace(config, model=replace(config.model, layout=layout))
        first, stages = time_settled(own, model, search, questions)
        for name, row in stages.items():
            taken[f"{name}, {layout} layout"] = row
        total = pd.DataFrame(stages.values())[["seconds", "passes"]].sum().to_dict()
        taken[f"CoV-RAG, {layout} layout"] = total | {"n": len(questions), "first_s": first}
    frame = pd.DataFrame.from_dict(taken, orient="index")
    rag_seconds = frame.seconds[["search, paper layout", "answer, paper layout"]].sum()
    frame.insert(0, "times_rag", frame.seconds / rag_seconds)
    return frame


def time_settled(
    config: Config, model: LanguageModel, search: Callable, questions: Sequence[Question]
) -> tuple[float, dict[str, dict]]:
    """The seconds of a first time, and the stages; where steps are recorded or compiled, those of a later time.

    A second time may still make room for what a first one left, so that the middle one of three counts.
    """
    stages = time_stages(config, model, search, questions)
    first = seconds_of(stages)
    if model.execution != "eager":
        later = [time_stages(config, model, search, questions) for _ in range(LATER)]
        stages = sorted(later, key=seconds_of)[LATER // 2]
    return first, stages


def seconds_of(stages: dict[str, dict]) -> float:
    """Of all stages together."""
    return sum(stage["seconds"] for stage in stages.values())


def view_in(settings: Model, model: LanguageModel) -> LanguageModel:
    """The model with the adapter that was trained in this layout, where one is shipped; else with its own.

    What another one writes is worth little, and costs more: verdicts that it never learnt are guessed wrong.
    """
    view = copy.copy(model.with_adapter("cov"))
    view.config = settings
    if settings.adapters == "auto" and settings.layout != "paper":
        view.adapter = find_adapter(settings, "cov", model.base.weights_hash) or view.adapter
    return view


def time_stages(
    config: Config, model: LanguageModel, search: Callable, questions: Sequence[Question]
) -> dict[str, dict]:
    """Seconds, passes and questions of each stage of CoV-RAG in the configured layout."""
    view = view_in(config.model, model)
    stages: dict[str, dict] = {}

    def timed(name: str, work: Callable) -> Callable:
        def run(*given: Sequence) -> list:
            with measured(view) as row:
                made = work(*given)
            stage = f"{name} again" if name in stages else name
            stages[stage] = row | {"n": len(given[-1])}
            return made

        return run

    with tempfile.TemporaryDirectory() as folder:
        author = TaskModel(config.model, view, Journal(Path(folder) / "journal.jsonl"))
        if config.model.layout == "shared":
            x = [question.question for question in questions]
            timed("answer and verify", author.foresee)(x, search(x))
        tools = Tools(
            "CoV-RAG", timed("search", search), timed("answer", author.answer), timed("verify", author.verify)
        )
        cov_rag(questions, tools)
    return stages
