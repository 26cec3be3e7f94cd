"""What a related system gets beside `Tools`: an author, a wider search and two scores; and the meter of its costs."""

import math
import time
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
from covrag_lite.runs.journal import Journal
from covrag_lite.systems import System
from covrag_lite.task_model import TaskModel

COSTS = ("searches", "passages", "texts", "tokens read", "tokens written", "seconds")


@dataclass(frozen=True)
class RelatedTools:
    """What a system may use beside `Tools`; a score works where the system's entry names its head in `needs`."""

    author: TaskModel  # writes plans, key terms and feedback
    wider: Search  # queries -> passages from deeper down
    score: Score
    entail: Score
    thresholds: Sequence[float]  # of scores: all below the first, Incorrect; one above the second, Correct


def bind(system: System, config: Config, wider: Search, author: TaskModel) -> RelatedTools:
    """A system's further tools; an error that names the command where something it needs is missing."""
    evaluator, entailment = (find_head(config, name) if name in system.needs else {} for name in heads.PAIRS)
    scores = (partial(heads.score, head) for head in (evaluator, entailment))
    return RelatedTools(author, wider, *scores, evaluator.get("thresholds", ()))


def recorded_only(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Stands for a system that is a row of recorded tables and whose code, or training, has gone."""
    raise ValueError(f"the system {tools.name} is in recorded tables only; leave it out of the systems to run")


def load_resources(config: Config, passages: Sequence[Passage], model: object = None) -> Resources:
    """Those of a run, with a journal of their own, which knows how long each text took."""
    for name in heads.PAIRS:  # without which the table cannot be made: missed before anything runs
        find_head(config, name)
    shared = evaluate.load_resources(config, passages, model)
    return replace(shared, journal=Journal(config.journal().with_name("journal.related.jsonl")))


class Meter:
    """What one system costs a batch of questions: searches, passages, tokens, seconds, calls that wait for each other.

    Tokens and seconds are those of every text that it asked for, also where the journal had it already, because another
    system, or an earlier run, asked first. Seconds are a text's share of its batch when it was written, so they are a
    machine's throughput in full batches, not the wait for one answer; `steps` says how often a question must wait.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def watch(self, tools: Tools) -> Tools:
        """The same tools, counted."""
        related = tools.related and replace(tools.related, **self._counted(tools.related, "wider", "score", "entail"))
        return replace(tools, related=related, **self._counted(tools, "search", "answer"))

    def _counted(self, tools: object, *names: str) -> dict[str, Callable]:
        return {name: partial(self._count, name, getattr(tools, name)) for name in names}

    def _count(self, name: str, call: Callable, first: Sequence, *rest: object) -> list:
        """Call one function, counted by what it is for."""
        start = time.perf_counter()
        made = call(first, *rest)
        if name == "answer":  # whose seconds are those of its texts
            self.counts["passages"] += sum(map(len, rest[0]))
        else:
            self.counts["seconds"] += time.perf_counter() - start
        if name in ("search", "wider"):
            self.counts["searches"] += len(first)
        return made

    def add(self, costs: Sequence[dict], sample: int | None) -> None:
        """Count texts by what the journal knows of each; what it does not know of one is not known of all.

        Further samples wait for no other one, so that only the first is a step.
        """
        self.counts["texts"] += len(costs)
        self.counts["steps"] += bool(costs) and not sample
        for known in costs:
            for name, key in (("seconds", "seconds"), ("tokens read", "read"), ("tokens written", "written")):
                value = known.get(key)
                self.counts[name] += math.nan if value is None else value

    def row(self, system: str, n: int) -> dict[str, object]:
        """The costs of a question on average."""
        told = {name: float(f"{self.counts[name] / n:.4g}") for name in COSTS}  # as they are recorded
        return {"system": system, "n": n, "steps": self.counts["steps"], **told}


def run(config: Config, resources: Resources, questions: Sequence[Question]) -> tuple[list[Prediction], pd.DataFrame]:
    """Every configured system over the questions, and what each cost: a row a system, means a question."""
    for name in config.chain.systems:  # over none first: what is missing is named before anything is written
        evaluate.run_system(name, config, resources, [])
    made, costs = [], []
    for name in config.chain.systems:
        heads.VECTORS.clear()  # or the next system would be spared what this one has read
        meter, start = Meter(), time.perf_counter()
        made += evaluate.run_system(name, config, replace(resources, meter=meter), questions)
        print(f"{name}: {len(questions)} questions in {time.perf_counter() - start:.0f} s", flush=True)
        costs.append(meter.row(name, len(questions)))
    return made, pd.DataFrame(costs)
