"""What a system costs: searches, passages and tokens read, tokens written, seconds, and calls that wait for each other.

Tokens and seconds are those of every text that a system asked for, also where the journal had it already, because
another system, or an earlier run, asked first. Seconds are a text's share of its batch when it was written, so they are
a machine's throughput in full batches, not the wait for one answer; `steps` says how often a question must wait.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from covrag_lite.model.completion import keys_of, seconds_of
from covrag_lite.systems.aids import Aids
from covrag_lite.systems.tools import Tools

if TYPE_CHECKING:
    from covrag_lite.model.author import Author

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
        self.unknown = 0  # texts whose seconds the journal does not know

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

    def add(
        self, author: "Author", stage: str, texts: Sequence[str], made: Sequence[str], limit: int, sample: int | None
    ) -> None:
        """Count prompts and what was written for them."""
        model = author.model
        self.counts["texts"] += len(texts)
        if hasattr(model, "tokenizer"):
            self.counts["tokens read"] += sum(map(len, model.encode(texts, 0))) if texts else 0
            self.counts["tokens written"] += sum(map(len, model.tokenizer(list(made)).input_ids)) if made else 0
        else:  # a served model's tokens are in its bill
            self.counts["uncounted"] += len(texts)
        for key in keys_of(stage, texts, limit, model, sample).values():
            known = author.journal.texts.get(seconds_of(key))
            self.unknown += known is None
            self.counts["seconds"] += float(known or 0)

    def row(self, system: str, n: int) -> dict[str, object]:
        """The costs of a question on average; None where they are not known."""
        told = {name: float(f"{self.counts[name] / n:.4g}") for name in COSTS}  # as they are recorded
        if self.counts["uncounted"]:
            told |= {"tokens read": None, "tokens written": None}
        if self.unknown:
            told["seconds"] = None
        return {"system": system, "n": n, "steps": self.counts["steps"], **told}


KNOWN = SEARCHES + SCORES + TEXTS
COSTS = ("searches", "passages", "texts", "tokens read", "tokens written", "seconds")
