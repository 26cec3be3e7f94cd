"""BM25 over title and text, with English stop words and stemming.

The index of a large corpus is built once and kept under weights.CACHE; later runs map it into memory.
"""

import hashlib
import os
import shutil
from collections.abc import Iterable, Sequence

import bm25s
import numpy as np
import Stemmer

from covrag_lite import config
from covrag_lite.data import digest
from covrag_lite.engine import weights
from covrag_lite.records import Passage, Search

KEPT = 10_000  # passages from which on an index is cached; a smaller one is built in less than two seconds
LANGUAGE = "english"  # of the stemmer
STOP_WORDS = "en"


def load(passages: Sequence[Passage], settings: config.Retrieval) -> Search:
    """Index the passages, or map a cached index; the search returns the k passages that score highest."""
    index = load_index(passages) if len(passages) >= KEPT else build_index(passages)

    def search(queries: Sequence[str]) -> list[list[Passage]]:
        if not queries:
            return []
        scores = (index.get_scores_from_ids(index.get_tokens_ids(words)) for words in tokenise(queries))
        return [[passages[i] for i in highest(one, settings.k)] for one in scores]

    return search


def tokenise(texts: Iterable[str]) -> list[list[str]]:
    """Split each text into the stems of its words, without stop words."""
    stemmer = Stemmer.Stemmer(LANGUAGE)
    return bm25s.tokenize(list(texts), stopwords=STOP_WORDS, stemmer=stemmer, show_progress=False, return_ids=False)


def build_index(passages: Sequence[Passage]) -> bm25s.BM25:
    """Build the index of these passages."""
    # numpy by name: where JAX is installed bm25s would pick it, and JAX takes most of a GPU's memory at once.
    index = bm25s.BM25(backend="numpy")
    index.index(tokenise(f"{p.title} {p.text}" for p in passages), show_progress=False)
    return index


def load_index(passages: Sequence[Passage]) -> bm25s.BM25:
    """Map these passages' index from the cache into memory; build and write it first where it is not there."""
    folder = weights.CACHE / "bm25" / key_of(passages)
    if not folder.exists():
        unfinished = folder.with_name(f"{folder.name}.{os.getpid()}")
        build_index(passages).save(unfinished, show_progress=False)
        try:
            unfinished.rename(folder)  # whole or not there
        except OSError:  # another process was faster
            shutil.rmtree(unfinished)
    return bm25s.BM25.load(folder, mmap=True)


def key_of(passages: Sequence[Passage]) -> str:
    """Hash the passages and what stems them: another corpus, bm25s, stemmer or setting has another index."""
    depends_on = (digest(passages), bm25s.__version__, Stemmer.version(), LANGUAGE, STOP_WORDS)
    return hashlib.sha256(" ".join(depends_on).encode()).hexdigest()[:16]


def highest(scores: np.ndarray, k: int) -> np.ndarray:
    """Return the indices of the k highest scores, ties in order; bm25s breaks ties as the processor happens to."""
    rows = np.flatnonzero(scores >= np.partition(scores, -k)[-k])
    return rows[np.argsort(-scores[rows], kind="stable")][:k]
