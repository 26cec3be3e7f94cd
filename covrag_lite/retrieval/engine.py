"""Search by words in an engine, LanceDB: from a folder on disk to a cluster, with only the address changed.

`engine_address` is empty (a folder of the cache, one a corpus), another folder, an object store (s3://bucket/folder)
or a cluster (https://host/database). The words are BM25's own stems, so that what it finds is what `bm25` finds but
for the engine's constants (k1 is 1.2, not 1.5, and lengths are kept in a byte).

Why LanceDB: of what installs as a wheel it alone is both compiled and one client from a folder to a cluster. Qdrant
Edge is quicker (at a million passages three times), but a beta for one machine alone, with another client than Qdrant's
cluster, and wants four times the memory to index; Qdrant's local mode knows no words; Milvus's embedded form scores in
Python loops; SQLite, DuckDB and tantivy know no second machine; OpenSearch is a server. results/speed-engines keeps
what was measured of them.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from covrag_lite import config
from covrag_lite.engine import weights
from covrag_lite.records import Passage, Search
from covrag_lite.retrieval import bm25, lance

if TYPE_CHECKING:
    from lancedb.table import Table

DEPTH = 64  # hits that are asked for, so that of equal scores the first passage can be told
AT_ONCE = 8  # queries under way


def load(passages: Sequence[Passage], settings: config.Retrieval) -> Search:
    """Open the index, built or completed first where it must be; the search returns the k of the highest scores."""
    address = find_address(passages, settings)
    table = lance.open_index(address, passages)

    def search_one(stems: Sequence[str]) -> list[Passage]:
        with lance.reaching(address):
            return [passages[row] for row in find(table, " ".join(stems), settings.k)]

    def search(queries: Sequence[str]) -> list[list[Passage]]:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(search_one, bm25.tokenise(queries) if queries else []))

    return search


def find_address(passages: Sequence[Passage], settings: config.Retrieval) -> str:
    """The address as it was given, a folder from the project's root, or this corpus's folder in the cache."""
    given = settings.engine_address
    if "://" in given:
        return given
    folder = config.resolve(given) if given else weights.CACHE / "engine" / bm25.key_of(passages)
    with lance.reaching(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return str(folder)


def find(table: "Table", words: str, k: int) -> list[int]:
    """The rows of the k highest scores, of equal ones the first; the corpus's first rows where too few have a word."""
    hits: list[tuple[float, int]] = []
    depth = max(DEPTH, 2 * k)
    while words:
        hits = ask(table, words, depth)
        if len(hits) < depth or hits[k - 1][0] < hits[-1][0]:  # whatever equals the k-th is among them
            break
        depth *= 8
    rows = [row for _, row in hits[:k]]
    others = (row for row in range(2 * k) if row not in rows)
    return rows + [next(others) for _ in range(k - len(rows))]


def ask(table: "Table", words: str, depth: int) -> list[tuple[float, int]]:
    """So many hits as (minus the score, row), sorted."""
    from lancedb.query import MatchQuery

    asked = table.search(MatchQuery(words, "words"), query_type="fts")
    hits = asked.select(["row", "_score"]).limit(depth).to_arrow()
    scores = (-round(score, 4) for score in hits["_score"].to_pylist())  # sums in another order differ by a last bit
    return sorted(zip(scores, hits["row"].to_pylist()))
