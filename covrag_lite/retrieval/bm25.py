"""BM25 over title and text, with English stop words and stemming; each run builds the index."""

import os
from collections.abc import Iterable, Sequence

# bm25s imports JAX if it is installed, and JAX would reserve most of a GPU's memory.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
import bm25s
import numpy as np
import Stemmer

from covrag_lite import config
from covrag_lite.records import Passage, Search

LANGUAGE = "english"  # of the stemmer
STOP_WORDS = "en"


def load(passages: Sequence[Passage], settings: config.Retrieval) -> Search:
    """Index the passages; the search returns the k passages that score highest."""
    index = bm25s.BM25(backend="numpy")
    index.index(tokenise(f"{p.title} {p.text}" for p in passages), show_progress=False)

    def search(queries: Sequence[str]) -> list[list[Passage]]:
        results = []
        for words in tokenise(queries):
            scores = index.get_scores_from_ids(index.get_tokens_ids(words))
            results.append([passages[row] for row in highest(scores, settings.k)])
        return results

    return search


def tokenise(texts: Iterable[str]) -> list[list[str]]:
    """Split each text into the stems of its words, without stop words."""
    stemmer = Stemmer.Stemmer(LANGUAGE)
    return bm25s.tokenize(
        list(texts), stopwords=STOP_WORDS, stemmer=stemmer, show_progress=False, return_ids=False
    )


def highest(scores: np.ndarray, k: int) -> np.ndarray:
    """Return the indices of the k highest scores; ties keep their order, unlike in bm25s."""
    k = min(k, len(scores))
    positive = np.flatnonzero(scores > 0)  # few passages share a word with the query
    rows = positive if len(positive) >= k else np.arange(len(scores))
    lowest = np.partition(scores[rows], -k)[-k]
    rows = rows[scores[rows] >= lowest]
    return rows[np.argsort(-scores[rows], kind="stable")][:k]
