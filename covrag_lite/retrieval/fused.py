"""Search by words and by meaning at once: the two rankings joined by their reciprocal ranks."""

from collections.abc import Sequence
from dataclasses import replace

from covrag_lite import config
from covrag_lite.records import Passage, Search
from covrag_lite.retrieval import bm25, dense

DEPTH = 100  # places of each ranking that are looked at


def load(passages: Sequence[Passage], settings: config.Retrieval) -> Search:
    """Both retrievers over the same passages."""
    deep = replace(settings, k=max(settings.k, min(DEPTH, len(passages))))
    by_words = bm25.load(passages, deep)
    by_meaning = dense.load(passages, deep)

    def search(queries: Sequence[str]) -> list[list[Passage]]:
        return [fuse(rankings, settings.k) for rankings in zip(by_words(queries), by_meaning(queries))]

    return search


def fuse(rankings: Sequence[Sequence[Passage]], k: int) -> list[Passage]:
    """Reciprocal rank fusion (Cormack et al. 2009, with their constant 60), for which scores need no common scale."""
    scores: dict[Passage, float] = {}
    for ranking in rankings:
        for place, passage in enumerate(ranking, 1):
            scores[passage] = scores.get(passage, 0) + 1 / (60 + place)
    return sorted(scores, key=scores.get, reverse=True)[:k]  # of equals, the first ranking's stands first
