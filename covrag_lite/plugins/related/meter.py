"""A meter of what a system costs: searches, passages, texts, tokens, and steps that must wait."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from covrag_lite.method import Tools
from covrag_lite.plugins.related.tools import RelatedTools
from covrag_lite.records import Passage, Search

# The counts that are recorded as means per question.
PER_QUESTION = ("searches", "passages", "texts", "tokens read", "tokens written")


class Meter:
    """Counts the searches of a system and the texts that it asks a model for.

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

        watched = replace(
            tools,
            answer=answer,
            search=partial(self._search, tools.search),
            search_deeper=partial(self._search, tools.search_deeper),
        )
        if isinstance(watched, RelatedTools):
            watched = replace(watched, wider=partial(self._search, watched.wider))
        return watched

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

    def row(self, system: str, n: int) -> dict[str, object]:
        """Return the costs of a system: mean counts of n questions, and the number of steps."""
        means = {name: float(f"{self.counts[name] / n:.4g}") for name in PER_QUESTION}
        return {"system": system, "n": n, "steps": self.counts["steps"], **means}
