"""The retriever `engine`: full-text search in LanceDB, whose index is a folder or lies in an object store.

The address follows the name: "engine" alone keeps one folder a corpus in the cache; engine:<folder> and
engine:s3://bucket/folder name another place. The table holds each passage's row and its stems, as `bm25` sees them, so
both find the same but for LanceDB's constants (k1 is 1.2, not 1.5, and lengths are kept in a byte).
results/speed-engines compares it with other engines.
"""

import contextlib
import fcntl
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from covrag_lite import config
from covrag_lite.data import digest
from covrag_lite.engine import weights
from covrag_lite.records import Passage, Search
from covrag_lite.retrieval import bm25
from covrag_lite.runs.progress import track

if TYPE_CHECKING:
    from lancedb import DBConnection
    from lancedb.table import Table

DEPTH = 64  # hits per request, more than k, so that ties can be broken by the row
THREADS = 8  # queries in flight
BATCH = 10_000  # passages per commit, the most that a killed build loses
# Object stores, and the environment variables that hold their keys.
STORES = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_SERVICE_ACCOUNT",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
REFUSED = re.compile(r"\b(401|403)\b|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|Unauthorized|Forbidden")


class EngineError(RuntimeError):
    """LanceDB cannot be reached, refuses the key, or holds another index; batches that were committed are kept."""


def load(passages: Sequence[Passage], settings: config.Retrieval) -> Search:
    """Open the index, built or completed first where needed; the search returns the k passages that score highest."""
    address = find_address(passages, settings)
    table = open_index(address, passages)

    def search_one(stems: Sequence[str]) -> list[Passage]:
        with one_sentence(address):
            return [passages[row] for row in find_rows(table, " ".join(stems), settings.k)]

    def search(queries: Sequence[str]) -> list[list[Passage]]:
        with ThreadPoolExecutor(THREADS) as pool:
            return list(pool.map(search_one, bm25.tokenise(queries) if queries else []))

    return search


def find_address(passages: Sequence[Passage], settings: config.Retrieval) -> str:
    """Return the address in the retriever's name, a folder's from the project's root; the corpus's cache if none."""
    given = settings.retriever.partition(":")[2]
    if "://" in given:
        return given
    folder = config.resolve(given) if given else weights.CACHE / "engine" / bm25.key_of(passages)
    with one_sentence(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return str(folder)


def find_rows(table: "Table", words: str, k: int) -> list[int]:
    """Find the k rows that score highest, ties by the row; the first rows fill up where too few hold a word."""
    hits: list[tuple[float, int]] = []
    depth = max(DEPTH, 2 * k)
    while words:
        hits = query_table(table, words, depth)
        if len(hits) < depth or hits[k - 1][0] < hits[-1][0]:  # all that tie with the k-th are among them
            break
        depth *= 8
    rows = [row for _, row in hits[:k]]
    others = (row for row in range(2 * k) if row not in rows)
    return rows + [next(others) for _ in range(k - len(rows))]


def query_table(table: "Table", words: str, depth: int) -> list[tuple[float, int]]:
    """Return so many hits as (minus the score, row), sorted."""
    from lancedb.query import MatchQuery

    query = table.search(MatchQuery(words, "words"), query_type="fts")
    hits = query.select(["row", "_score"]).limit(depth).to_arrow()
    scores = (-round(score, 4) for score in hits["_score"].to_pylist())  # the order of a sum changes its last bit
    return sorted(zip(scores, hits["row"].to_pylist()))


def open_index(address: str, passages: Sequence[Passage]) -> "Table":
    """Open these passages' index: built where there is none, completed where a build was killed."""
    import pyarrow as pa

    base = connect(address)
    with locked(address), one_sentence(address):
        check_corpus(base, address, passages)
        schema = pa.schema([("row", pa.int64()), ("words", pa.string())])
        table = base.create_table("passages", schema=schema, exist_ok=True)
        add_passages(table, passages)
        n_rows = table.count_rows()
        if n_rows != len(passages):
            raise EngineError(
                f"the index at {address} has {n_rows:,} rows for {len(passages):,} passages, as if two processes had "
                f"built it at once; delete it and run again"
            )
        index_words(table)
    return table


def connect(address: str) -> "DBConnection":
    """Connect to the database at an address; keys come from the environment alone."""
    import lancedb

    parts = urlsplit(address)
    if parts.username or parts.password or parts.query:
        raise ValueError("the engine's address must hold no key, because manifests keep it; set it in the environment")
    if parts.scheme and parts.scheme not in STORES:
        known = ", ".join(f"engine:{scheme}://…" for scheme in STORES)
        raise ValueError(f"the engine's address {address!r} is not known; give engine:<folder> or one of {known}")
    with one_sentence(address):
        return lancedb.connect(address)


@contextlib.contextmanager
def one_sentence(address: str | Path) -> Iterator[None]:
    """Turn LanceDB's long messages into one sentence each; one about a key might show it, and is not repeated."""
    try:
        yield
    except EngineError:
        raise
    except (OSError, RuntimeError, ValueError) as error:
        said = " ".join(str(error).split())
        sentence = f"the engine at {address} failed: {said[:200]}; what was indexed before is kept"
        if REFUSED.search(said):
            keys = STORES.get(urlsplit(str(address)).scheme, "key")
            sentence = f"the engine at {address} refused the key; set the environment's {keys} to one that it knows"
        raise EngineError(sentence) from None


@contextlib.contextmanager
def locked(address: str) -> Iterator[None]:
    """Let one process at a time build in a folder; elsewhere there is no lock, so that the rows are counted."""
    if urlsplit(address).scheme:
        yield
        return
    with open(Path(address) / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # released by the system when a process is killed
        yield


def check_corpus(base: "DBConnection", address: str, passages: Sequence[Passage]) -> None:
    """Stop where the address holds the index of another corpus or of other stems; note ours where it holds none."""
    import pyarrow as pa

    ours = {"corpus": digest(passages), "stems": bm25.name_stems()}
    schema = pa.schema([(name, pa.string()) for name in ours])
    about = base.create_table("about", schema=schema, exist_ok=True)
    if about.count_rows() == 0:
        about.add(pa.Table.from_pylist([ours], schema=schema))
        return
    known = about.search().limit(1).to_list()[0]
    for name, value in ours.items():
        if known[name] != value:
            raise EngineError(
                f"the index at {address} is of another corpus or of other stems ({name} {known[name]!r}, here "
                f"{value!r}); give another address, or delete that index"
            )


def add_passages(table: "Table", passages: Sequence[Passage]) -> None:
    """Add the passages that the table lacks; batches are committed in the corpus's order."""
    import pyarrow as pa

    done = table.count_rows()
    starts = range(done, len(passages), BATCH)
    n_done = -(-done // BATCH)
    for start in track(starts, "index", "batch", total=n_done + len(starts), done=n_done):
        block = passages[start : start + BATCH]
        words = [" ".join(stems) for stems in bm25.tokenise(f"{p.title} {p.text}" for p in block)]
        table.add(pa.table({"row": list(range(start, start + len(block))), "words": words}, schema=table.schema))


def index_words(table: "Table") -> None:
    """Index the stems as they are, where some of them are not indexed yet."""
    from lancedb.index import FTS

    indexed = {index.name for index in table.list_indices()}
    if "words_idx" in indexed and table.index_stats("words_idx").num_unindexed_rows == 0:
        return
    as_they_are = FTS(
        base_tokenizer="whitespace",
        max_token_length=None,
        lower_case=False,
        stem=False,
        remove_stop_words=False,
        ascii_folding=False,
    )
    table.create_index("words", config=as_they_are)
