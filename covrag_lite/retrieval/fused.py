"""BM25 and dense retrieval combined by reciprocal rank fusion."""

from collections.abc import Sequence
from dataclasses import replace

from covrag_lite import config
from covrag_lite.records import Passage, Search
from covrag_lite.retrieval import bm25, dense

DEPTH = 100  # ranks of each retriever that are fused


def load(passages: Sequence[Passage], settings: config.Retrieval) -> Search:
    """Load both retrievers over the same passages."""
    deep = replace(settings, k=max(settings.k, min(DEPTH, len(passages))))
    by_words = bm25.load(passages, deep)
    by_meaning = dense.load(passages, deep)

    def search(queries: Sequence[str]) -> list[list[Passage]]:
        rankings = zip(by_words(queries), by_meaning(queries))
        return [fuse(pair, settings.k) for pair in rankings]

    return search


def fuse(rankings: Sequence[Sequence[Passage]], k: int) -> list[Passage]:
    """Fuse rankings by reciprocal ranks (Cormack et al. 2009, with their constant 60)."""
    scores: dict[Passage, float] = {}
    for ranking in rankings:
        for rank, passage in enumerate(ranking, 1):
            scores[passage] = scores.get(passage, 0) + 1 / (60 + rank)
    return sorted(scores, key=scores.get, reverse=True)[:k]  # ties keep the first ranking's order
