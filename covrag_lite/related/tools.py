"""What a related system gets beside `Tools`: an author, a wider search and two scores; and the meter of its costs."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pandas as pd

from covrag_lite import evaluate
from covrag_lite.config import Config
from covrag_lite.evaluate import Resources
from covrag_lite.method import Tools
from covrag_lite.records import Passage, Prediction, Question, Search
from covrag_lite.related import heads
from covrag_lite.related.heads import Score, find_head
from covrag_lite.systems import System
from covrag_lite.task_model import TaskModel

WIDER = 3  # times as many passages of the same corpus are CRAG's search elsewhere
COSTS = ("searches", "passages", "texts", "tokens read", "tokens written")


@dataclass(frozen=True)
class RelatedTools:
    """What a system may use beside `Tools`; a score works where the system's entry names its head in `needs`."""

    author: TaskModel  # writes plans, key terms and feedback
    wider: Search  # queries -> passages from deeper down
    score: Score
    entail: Score
    thresholds: Sequence[float]  # of scores: all below the first, Incorrect; one above the second, Correct


def bind(system: System, config: Config, deeper: Callable[[int], Search], author: TaskModel) -> RelatedTools:
    """A system's further tools; an error that names the command where something it needs is missing."""
    evaluator, entailment = (find_head(config, name) if name in system.needs else {} for name in heads.PAIRS)
    scores = (partial(heads.score, head) for head in (evaluator, entailment))
    return RelatedTools(author, deeper(WIDER), *scores, evaluator.get("thresholds", ()))


def recorded_only(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Stands for a system that is a row of recorded tables and whose code, or training, has gone."""
    raise ValueError(f"the system {tools.name} is in recorded tables only; leave it out of the systems to run")


class Meter:
    """What one system costs a batch of questions: searches, passages, tokens, and calls that wait for each other.

    Tokens are those of every text that it asked for, also where the journal had it already, because another system, or
    an earlier run, asked first; `steps` says how often a question must wait.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def watch(self, tools: Tools) -> Tools:
        """The same tools, counted."""

        def answer(x: Sequence[str], k: Sequence[Sequence[Passage]]) -> list[str]:
            self.counts["passages"] += sum(map(len, k))
            return tools.answer(x, k)

        related = tools.related and replace(tools.related, wider=partial(self._search, tools.related.wider))
        return replace(tools, search=partial(self._search, tools.search), answer=answer, related=related)

    def _search(self, search: Search, queries: Sequence[str]) -> list[list[Passage]]:
        self.counts["searches"] += len(queries)
        return search(queries)

    def add(self, tokens: Sequence[tuple[float, float]], sample: int | None) -> None:
        """Count texts by their tokens; further samples wait for no other one, so that only the first is a step."""
        self.counts["texts"] += len(tokens)
        self.counts["steps"] += not sample
        for read, written in tokens:
            self.counts["tokens read"] += read
            self.counts["tokens written"] += written


def run(config: Config, resources: Resources, questions: Sequence[Question]) -> tuple[list[Prediction], pd.DataFrame]:
    """Every configured system over the questions, and what each cost: a row a system, means a question."""
    for name in heads.PAIRS:  # without which the table cannot be made
        find_head(config, name)
    for name in config.chain.systems:  # over none first: what is missing is named before anything is written
        evaluate.run_system(name, config, resources, [])
    made, costs = [], []
    for name in config.chain.systems:
        meter = Meter()
        made += evaluate.run_system(name, config, replace(resources, meter=meter), questions)
        own = {cost: float(f"{meter.counts[cost] / len(questions):.4g}") for cost in COSTS}  # a question on average
        costs.append({"system": name, "n": len(questions), "steps": meter.counts["steps"], **own})
    return made, pd.DataFrame(costs)
