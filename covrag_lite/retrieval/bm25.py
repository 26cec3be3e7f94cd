"""Search by words: BM25 with English stop words and stemming, over title and text."""

from collections.abc import Sequence

import numpy as np

from covrag_lite import config
from covrag_lite.records import Passage, Search

BLOCK = 512  # scores that are first looked at by their highest alone


def load(passages: Sequence[Passage], settings: config.Retrieval) -> Search:
    """Index the passages; the search returns the k of the highest scores."""
    import bm25s
    import Stemmer

    stemmer = Stemmer.Stemmer("english")

    def tokens(texts: Sequence[str]) -> list[list[str]]:
        return bm25s.tokenize(list(texts), stopwords="en", stemmer=stemmer, show_progress=False, return_ids=False)

    # numpy, said aloud: where JAX is installed bm25s would pick it, and JAX takes most of a GPU's memory at once.
    index = bm25s.BM25(backend="numpy")
    index.index(tokens(f"{p.title} {p.text}" for p in passages), show_progress=False)

    def search(queries: Sequence[str]) -> list[list[Passage]]:
        if not queries:
            return []
        scores = (index.get_scores_from_ids(index.get_tokens_ids(words)) for words in tokens(queries))
        return [[passages[i] for i in highest(one, settings.k)] for one in scores]

    return search


def highest(scores: np.ndarray, k: int) -> np.ndarray:
    """The places of the k highest scores, of equal ones the first: bm25s's own choice depends on the processor."""
    floor = -np.inf
    whole = len(scores) // BLOCK * BLOCK
    if whole > k * BLOCK:  # whatever is among the k highest is at least as high as the k-th of the blocks' highest
        floor = kth(scores[:whole].reshape(-1, BLOCK).max(1), k)
    rows = np.flatnonzero(scores >= floor)
    rows = rows[scores[rows] >= kth(scores[rows], k)]
    return rows[np.argsort(-scores[rows], kind="stable")][:k]


def kth(values: np.ndarray, k: int) -> float:
    """The k-th highest value."""
    return np.partition(values, len(values) - k)[len(values) - k]
