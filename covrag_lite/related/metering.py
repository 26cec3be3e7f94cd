"""What a system costs: searches, passages and tokens read, tokens written, seconds, and calls that wait for each other.

Tokens and seconds are those of every text that a system asked for, also where the journal had it already, because
another system, or an earlier run, asked first. Seconds are a text's share of its batch when it was written, so they are
a machine's throughput in full batches, not the wait for one answer; `steps` says how often a question must wait.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from covrag_lite.completion import cost_key, keys_of
from covrag_lite.related.aids import Aids
from covrag_lite.tools import Tools

if TYPE_CHECKING:
    from covrag_lite.task_model import TaskModel

SEARCHES = ("search", "wider")
SCORES = ("score", "entail")
TEXTS = (
    "answer",
    "verify",
    "rewrite",
    "recall",
    "name_terms",
    "plan",
    "follow_up",
    "is_relevant",
    "feedback",
    "refine",
)


class Meter:
    """Counts of one system over a batch of questions."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()  # texts of which the journal does not know this; a server bills its own

    def watch(self, tools: Tools) -> Tools:
        """The same tools, counted."""
        counted = self._watch(tools)
        return replace(counted, aids=self._watch(tools.aids)) if tools.aids else counted

    def _watch(self, some: Tools | Aids) -> Tools | Aids:
        given = {f.name: getattr(some, f.name) for f in fields(some)}
        changed = {name: self._count(name, call) for name, call in given.items() if call and name in KNOWN}
        return replace(some, **changed)

    def _count(self, name: str, call: Callable) -> Callable:
        """One function, counted by what it is for."""

        def counted(first: Sequence, *rest: object) -> list:
            start = time.perf_counter()
            made = call(first, *rest)
            if name in SEARCHES + SCORES:
                self.counts["seconds"] += time.perf_counter() - start
            if name in SEARCHES:
                self.counts["searches"] += len(first)
            if name == "answer":
                self.counts["passages"] += sum(map(len, rest[0]))
            if name in TEXTS and len(first):
                self.counts["steps"] += 1
            return made

        return counted

    def add(self, author: "TaskModel", stage: str, texts: Sequence[str], limit: int, sample: int | None) -> None:
        """Count what these prompts cost, with what was written for them."""
        self.counts["texts"] += len(texts)
        keys = keys_of(stage, texts, limit, author.model, sample)
        for text in texts:
            known = json.loads(author.journal.texts.get(cost_key(keys[text]), "{}"))
            for name, value in (("seconds", "seconds"), ("tokens read", "read"), ("tokens written", "written")):
                self.unknown[name] += known.get(value) is None
                self.counts[name] += known.get(value) or 0

    def row(self, system: str, n: int) -> dict[str, object]:
        """The costs of a question on average; None where they are not known."""
        told = {name: float(f"{self.counts[name] / n:.4g}") for name in COSTS}  # as they are recorded
        told |= {name: None for name, n_unknown in self.unknown.items() if n_unknown}
        return {"system": system, "n": n, "steps": self.counts["steps"], **told}


KNOWN = SEARCHES + SCORES + TEXTS
COSTS = ("searches", "passages", "texts", "tokens read", "tokens written", "seconds")
