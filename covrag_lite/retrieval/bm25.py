"""Search by words: BM25 with English stop words and stemming, over title and text.

The index of a large corpus is built once and kept under weights.CACHE; later starts map it into memory.
"""

import hashlib
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from covrag_lite import config
from covrag_lite.data import digest
from covrag_lite.engine import weights
from covrag_lite.records import Passage, Search

if TYPE_CHECKING:
    import bm25s

BLOCK = 512  # scores that are first looked at by their highest alone
KEPT = 10_000  # passages from which on an index is kept: a smaller one is built in less than two seconds
LANGUAGE = "english"  # of the stemmer
STOP_WORDS = "en"


def load(passages: Sequence[Passage], settings: config.Retrieval) -> Search:
    """Index the passages, or map the index of an earlier start; the search returns the k of the highest scores."""
    index = load_index(passages) if len(passages) >= KEPT else build_index(passages)

    def search(queries: Sequence[str]) -> list[list[Passage]]:
        if not queries:
            return []
        scores = (index.get_scores_from_ids(index.get_tokens_ids(words)) for words in tokenise(queries))
        return [[passages[i] for i in highest(one, settings.k)] for one in scores]

    return search


def tokenise(texts: Iterable[str]) -> list[list[str]]:
    """The stems of each text's words, without stop words."""
    import bm25s
    import Stemmer

    stemmer = Stemmer.Stemmer(LANGUAGE)
    return bm25s.tokenize(list(texts), stopwords=STOP_WORDS, stemmer=stemmer, show_progress=False, return_ids=False)


def build_index(passages: Sequence[Passage]) -> "bm25s.BM25":
    """The index of these passages."""
    import bm25s

    # numpy, said aloud: where JAX is installed bm25s would pick it, and JAX takes most of a GPU's memory at once.
    index = bm25s.BM25(backend="numpy")
    index.index(tokenise(f"{p.title} {p.text}" for p in passages), show_progress=False)
    return index


def load_index(passages: Sequence[Passage]) -> "bm25s.BM25":
    """The index of these passages from disk, mapped into memory; built and written first where it is not there."""
    import bm25s

    folder = find_folder(passages)
    if not folder.exists():
        making = folder.with_name(f"{folder.name}.{os.getpid()}")
        build_index(passages).save(making, show_progress=False)
        try:
            making.rename(folder)  # whole or not there
        except OSError:  # another process was faster
            shutil.rmtree(making)
    return bm25s.BM25.load(folder, mmap=True)


def find_folder(passages: Sequence[Passage]) -> Path:
    """The folder of the index: another one for other passages, another bm25s or stemmer, or other settings."""
    return weights.CACHE / "bm25" / key_of(passages)


def key_of(passages: Sequence[Passage]) -> str:
    """A hash of the passages and of what makes stems of them."""
    return hashlib.sha256(f"{digest(passages)} {name_stems()}".encode()).hexdigest()[:16]


def name_stems() -> str:
    """What makes stems of a text: versions and settings."""
    import bm25s
    import Stemmer

    return " ".join((bm25s.__version__, Stemmer.version(), LANGUAGE, STOP_WORDS))


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
