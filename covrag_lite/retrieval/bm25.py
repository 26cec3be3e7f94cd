"""BM25 over title and text, with English stop words and stemming.

The index of a large corpus is kept in the cache, and read from there at the next start.
"""

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

# bm25s imports JAX if it is installed, and JAX would reserve most of a GPU's memory.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
import bm25s
import numpy as np
import Stemmer

from covrag_lite import config
from covrag_lite.engine import weights
from covrag_lite.engine.progress import track
from covrag_lite.records import Passage, Search

LANGUAGE = "english"  # of the stemmer
STOP_WORDS = "en"
BLOCK = 10_000  # passages per step of the progress bar
# The numbers of passages whose index is kept. Below, it is built in a second; above, it takes
# gigabytes of disk.
FEWEST_KEPT = 10_000
MOST_KEPT = 1_000_000
INDEXES_KEPT = 3  # the oldest ones are removed


def load(passages: Sequence[Passage], settings: config.Retrieval) -> Search:
    """Index the passages; the search returns the k passages that score highest."""
    is_kept = FEWEST_KEPT <= len(passages) <= MOST_KEPT
    index = load_or_build(passages) if is_kept else build_index(passages)

    def search(queries: Sequence[str]) -> list[list[Passage]]:
        results = []
        for words in tokenise(queries):
            scores = index.get_scores_from_ids(index.get_tokens_ids(words))
            results.append([passages[row] for row in highest(scores, settings.k)])
        return results

    return search


def build_index(passages: Sequence[Passage]) -> bm25s.BM25:
    """Build the index of the passages."""
    index = bm25s.BM25(backend="numpy")
    starts = range(0, len(passages), BLOCK)
    words = []
    for start in track(starts, "index", "block", total=len(starts)) if len(starts) > 1 else starts:
        block = passages[start : start + BLOCK]
        words += tokenise(f"{passage.title} {passage.text}" for passage in block)
    index.index(words, show_progress=False)
    return index


def load_or_build(passages: Sequence[Passage]) -> bm25s.BM25:
    """Read the index of these passages from the cache; the first time, build it and keep it."""
    folder = weights.CACHE / "bm25" / hash_passages(passages)
    if folder.exists():
        folder.touch()
        return bm25s.BM25.load(folder, mmap=True, show_progress=False)
    index = build_index(passages)
    with contextlib.suppress(OSError):  # such as a full disk: the next start is slower, no more
        keep(index, folder)
    return index


def keep(index: bm25s.BM25, folder: Path) -> None:
    """Write an index to its folder in the cache."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".unfinished-") as unfinished:
        written = Path(unfinished) / "index"
        index.save(written, show_progress=False)
        if not folder.exists():  # another process may have been faster
            written.rename(folder)
    remove_oldest(folder.parent)


def hash_passages(passages: Sequence[Passage]) -> str:
    """Return a hash of everything that an index depends on."""
    content = hashlib.sha256(f"{bm25s.__version__} {LANGUAGE} {STOP_WORDS}".encode())
    for passage in passages:
        content.update(f"\0{passage.title}\0{passage.text}".encode("utf-8", "surrogatepass"))
    return content.hexdigest()[:16]


def remove_oldest(folder: Path) -> None:
    """Remove the indexes in the cache that were not used for the longest time."""
    indexes = sorted(folder.glob("[0-9a-f]*"), key=lambda path: path.stat().st_mtime)
    for index in indexes[:-INDEXES_KEPT]:
        shutil.rmtree(index, ignore_errors=True)


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
