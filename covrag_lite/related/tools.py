"""Tools of the related systems (an author, a wider search, two scores), and a meter of costs."""

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

WIDER = 3  # CRAG's second search returns this many times k passages from the same corpus
COSTS = ("searches", "passages", "texts", "tokens read", "tokens written")


@dataclass(frozen=True)
class RelatedTools:
    """What a related system may use in addition to `Tools`.

    A score works only if the system's entry in systems.py lists its head in `needs`.
    """

    author: TaskModel  # writes plans, keywords and feedback
    wider: Search  # queries -> more passages than `Tools.search` returns
    # questions, passages -> relevance of each passage
    score: Score
    # questions, passages, statements -> whether each passage entails the statement
    entail: Score
    # Incorrect if all relevance scores are below the first, Correct if one reaches the second.
    thresholds: Sequence[float]


def bind(system: System, config: Config, deeper: Callable[[int], Search], author: TaskModel) -> RelatedTools:
    """Build a system's additional tools; if a head is missing, the error gives the command."""
    evaluator, entailment = (find_head(config, name) if name in system.needs else {} for name in heads.PAIRS)
    scores = (partial(heads.score, head) for head in (evaluator, entailment))
    return RelatedTools(author, deeper(WIDER), *scores, evaluator.get("thresholds", ()))


def recorded_only(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Refuse to run a system that is in recorded tables only."""
    raise ValueError(
        f"the system {tools.name} is in recorded tables only, and its code is not included; "
        "leave it out of the parameters systems and related_systems"
    )


class Meter:
    """Counts what a system costs: searches, passages, texts, tokens and steps.

    Texts from the journal are counted too, so the cost does not depend on which system ran first.
    `steps` counts model calls that must wait for each other.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def watch(self, tools: Tools) -> Tools:
        """Return the same tools, with searches and passages counted."""

        def answer(x: Sequence[str], k: Sequence[Sequence[Passage]]) -> list[str]:
            self.counts["passages"] += sum(map(len, k))
            return tools.answer(x, k)

        related = tools.related and replace(tools.related, wider=partial(self._search, tools.related.wider))
        return replace(tools, search=partial(self._search, tools.search), answer=answer, related=related)

    def _search(self, search: Search, queries: Sequence[str]) -> list[list[Passage]]:
        self.counts["searches"] += len(queries)
        return search(queries)

    def add(self, tokens: Sequence[tuple[float, float]], sample: int | None) -> None:
        """Count texts and tokens; further samples run in parallel, so only the first is a step."""
        self.counts["texts"] += len(tokens)
        self.counts["steps"] += not sample
        for read, written in tokens:
            self.counts["tokens read"] += read
            self.counts["tokens written"] += written


def run(config: Config, resources: Resources, questions: Sequence[Question]) -> tuple[list[Prediction], pd.DataFrame]:
    """Run every configured system; returns predictions, and one row of mean costs per system."""
    for name in heads.PAIRS:  # the table needs both heads
        find_head(config, name)
    for name in config.chain.systems:  # run without questions first, to find missing parts early
        evaluate.run_system(name, config, resources, [])
    made, costs = [], []
    for name in config.chain.systems:
        meter = Meter()
        made += evaluate.run_system(name, config, replace(resources, meter=meter), questions)
        own = {cost: float(f"{meter.counts[cost] / len(questions):.4g}") for cost in COSTS}  # means
        costs.append({"system": name, "n": len(questions), "steps": meter.counts["steps"], **own})
    return made, pd.DataFrame(costs)
