"""The retriever `engine`: full-text search in LanceDB, with an index on disk or in an object store.

"engine" keeps its index in the cache; engine:<folder> or engine:s3://bucket/folder sets another
place. A place has one table per corpus, with each passage's row and its stems as in `bm25`. So both
retrievers find the same, except for LanceDB's constants (k1 is 1.2, not 1.5, and a length takes one
byte). results/speed-engines compares it with others.
"""

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import bm25s
import Stemmer
from filelock import FileLock

from covrag_lite import config
from covrag_lite.engine import weights
from covrag_lite.engine.progress import track
from covrag_lite.loader import need
from covrag_lite.records import Passage, Search, digest
from covrag_lite.retrieval import bm25

if TYPE_CHECKING:
    from lancedb.table import Table

DEPTH = 64  # hits per request, more than k, so that ties can be broken by row
DEEPER = 8  # factor by which the depth grows while ties with the k-th hit may be missing
THREADS = 8  # queries in flight
BATCH = 10_000  # passages per commit: the most that a killed build loses
STORES = ("s3://", "gs://", "az://")  # object stores


def load(passages: Sequence[Passage], settings: config.Retrieval) -> Search:
    """Open the index, after building or completing it; the search returns the k best passages."""
    table = open_index(find_place(settings.retriever.partition(":")[2]), passages)

    def search(queries: Sequence[str]) -> list[list[Passage]]:
        stemmed = [" ".join(stems) for stems in bm25.tokenise(queries)]
        with ThreadPoolExecutor(THREADS) as pool:
            results = pool.map(lambda words: find_rows(table, words, settings.k), stemmed)
            return [[passages[row] for row in rows] for rows in results]

    return search


def find_place(address: str) -> Path | str:
    """Return the place of the index: an object store, a folder, or by default the cache."""
    is_store = address.startswith(STORES)
    # The error does not show the address, which may contain a key.
    if "@" in address or "?" in address or ("://" in address and not is_store):
        allowed = "engine, engine:<folder> or engine:s3://bucket/folder"
        raise ValueError(f"set retriever to {allowed}; keys come from the environment")
    if is_store:
        return address
    return config.resolve(address) if address else weights.CACHE / "engine"


def find_rows(table: "Table", words: str, k: int) -> list[int]:
    """Find the k best rows, ties by row; if too few match, the first rows fill up the list."""
    from lancedb.query import MatchQuery

    hits: list[tuple[float, int]] = []  # minus the score, row
    depth = max(DEPTH, 2 * k)
    while words:
        query = table.search(MatchQuery(words, "words"), query_type="fts")
        matches = query.select(["row", "_score"]).limit(depth).to_arrow()
        # Rounded, because the order of a sum changes its last bit.
        scores = (-round(score, 4) for score in matches["_score"].to_pylist())
        hits = sorted(zip(scores, matches["row"].to_pylist()))
        if len(hits) < depth or hits[k - 1][0] < hits[-1][0]:  # all ties with the k-th are included
            break
        depth *= DEEPER
    rows = [row for _, row in hits[:k]]
    return (rows + [row for row in range(k) if row not in rows])[:k]


def open_index(place: Path | str, passages: Sequence[Passage]) -> "Table":
    """Open the index of these passages; build it, or complete it if a build was killed."""
    lancedb = need("lancedb")
    pa = need("pyarrow")
    schema = pa.schema([("row", pa.int64()), ("words", pa.string())])
    whole_stems = lancedb.index.FTS(
        base_tokenizer="whitespace",
        max_token_length=None,
        lower_case=False,
        stem=False,
        remove_stop_words=False,
        ascii_folding=False,
    )
    # One process at a time builds in a folder; the lock is released when a process is killed.
    with FileLock(place / "lock") if isinstance(place, Path) else nullcontext():
        table = lancedb.connect(place).create_table(key_of(passages), schema=schema, exist_ok=True)
        n_rows = table.count_rows()  # batches are committed in the order of the corpus
        starts = range(n_rows, len(passages), BATCH)
        n_done = -(-n_rows // BATCH)
        for start in track(starts, "index", "batch", total=n_done + len(starts), done=n_done):
            block = passages[start : start + BATCH]
            stemmed = bm25.tokenise(f"{passage.title} {passage.text}" for passage in block)
            columns = {
                "row": range(start, start + len(block)),
                "words": [" ".join(stems) for stems in stemmed],
            }
            table.add(pa.table(columns, schema=schema))
        if not table.list_indices():
            table.create_index("words", config=whole_stems)
    return table


def key_of(passages: Sequence[Passage]) -> str:
    """Hash the passages and the stemming: another corpus, bm25s or stemmer has another index."""
    versions = (bm25s.__version__, Stemmer.version(), bm25.LANGUAGE, bm25.STOP_WORDS)
    return hashlib.sha256(" ".join((digest(passages), *versions)).encode()).hexdigest()[:16]
