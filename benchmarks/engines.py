"""Search engines that install as a wheel, each as a way to build an index and a way to search it.

`speed.retrieving` measures them, and those of `speed.clustered`. All get the stems that our BM25 sees, split at blanks,
so that what differs is the engine and not its reading of English. None but that of `retrieval.engine` is a
requirement of ours.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

K = 5
Batches = Iterator[tuple[range, Sequence]]  # rows, and the words or vectors of each
Find = Callable[[object], list[int]]  # one query, words or a vector -> the rows found, best first


@dataclass(frozen=True)
class Engine:
    """How one engine is built in a folder, batch by batch, and opened again."""

    package: str  # what pip calls it; "" is Python's own
    build_words: Callable[[Path, Batches], None] | None
    find_words: Callable[[Path], Find] | None
    build_vectors: Callable[[Path, Batches], None] | None = None
    find_vectors: Callable[[Path], Find] | None = None
    count: Callable[[Path], int] | None = None  # passages that it holds when it is opened anew, as after a kill

    def version(self) -> str | None:
        """The installed version, or None."""
        try:
            return version(self.package) if self.package else sqlite3.sqlite_version
        except PackageNotFoundError:
            return None


def build_sqlite(folder: Path, batches: Batches) -> None:
    base = sqlite3.connect(folder / "base.sqlite")
    base.execute("create virtual table passages using fts5(words, content='', tokenize='unicode61')")
    for rows, words in batches:
        base.executemany("insert into passages(rowid, words) values (?, ?)", zip(rows, words))
        base.commit()


def find_sqlite(folder: Path) -> Find:
    base = sqlite3.connect(folder / "base.sqlite")
    ask = "select rowid from passages where passages match ? order by rank limit ?"

    def find(query: str) -> list[int]:
        any_word = " OR ".join(f'"{word}"' for word in query.split())
        return [row for (row,) in base.execute(ask, (any_word, K))]

    return find


def count_sqlite(folder: Path) -> int:
    return sqlite3.connect(folder / "base.sqlite").execute("select count(*) from passages_docsize").fetchone()[0]


def build_tantivy(folder: Path, batches: Batches) -> None:
    import tantivy

    schema = tantivy.SchemaBuilder()
    schema.add_unsigned_field("row", stored=True)
    schema.add_text_field("words", tokenizer_name="whitespace", index_option="freq")
    writer = tantivy.Index(schema.build(), path=str(folder)).writer()
    for rows, words in batches:
        for row, text in zip(rows, words):
            writer.add_document(tantivy.Document(row=row, words=text))
        writer.commit()
    writer.wait_merging_threads()


def find_tantivy(folder: Path) -> Find:
    import tantivy

    index = tantivy.Index.open(str(folder))
    searcher = index.searcher()

    def find(query: str) -> list[int]:
        terms = [tantivy.Query.term_query(index.schema, "words", word) for word in query.split()]
        asked = tantivy.Query.boolean_query([(tantivy.Occur.Should, term) for term in terms])
        return [searcher.doc(place)["row"][0] for _, place in searcher.search(asked, K).hits]

    return find


def count_tantivy(folder: Path) -> int:
    import tantivy

    return tantivy.Index.open(str(folder)).searcher().num_docs


def connect_duckdb(folder: Path) -> object:
    import duckdb
    import duckdb_extension_fts

    base = duckdb.connect(str(folder / "base.duckdb"), config={"allow_unsigned_extensions": "true", "threads": "2"})
    extension = next(Path(duckdb_extension_fts.__path__[0]).glob("**/*.duckdb_extension"))
    base.execute(f"load '{extension}'")
    return base


def build_duckdb(folder: Path, batches: Batches) -> None:
    import pyarrow as pa

    base = connect_duckdb(folder)
    base.execute('create table passages("row" bigint, words varchar)')
    for rows, words in batches:
        batch = pa.table({"row": list(rows), "words": list(words)})
        base.execute("insert into passages select * from batch") if len(batch) else None
    base.execute(
        "pragma create_fts_index('passages', 'row', 'words', stemmer='none', stopwords='none', ignore='[^\\w]')"
    )
    base.close()


def find_duckdb(folder: Path) -> Find:
    base = connect_duckdb(folder)
    ask = (
        'select "row" from (select "row", fts_main_passages.match_bm25("row", ?, k := 1.5) as score from passages) '
        "where score is not null order by score desc limit ?"
    )
    return lambda query: [row for (row,) in base.execute(ask, (query, K)).fetchall()]


def count_duckdb(folder: Path) -> int:
    return connect_duckdb(folder).execute("select count(*) from passages").fetchone()[0]


def build_lancedb(folder: Path, batches: Batches) -> None:
    import lancedb
    from lancedb.index import FTS

    table = fill_lancedb(lancedb.connect(folder), batches, "words")
    own = FTS(base_tokenizer="whitespace", stem=False, remove_stop_words=False, ascii_folding=False)
    table.create_index("words", config=own)


def fill_lancedb(base: object, batches: Batches, column: str) -> object:
    import pyarrow as pa

    table = None
    for rows, items in batches:
        if isinstance(items, np.ndarray):
            values = pa.FixedSizeListArray.from_arrays(pa.array(items.ravel()), items.shape[1])
        else:
            values = pa.array(items)
        batch = pa.table({"row": pa.array(rows, pa.int64()), column: values})
        if table is None:
            table = base.create_table("passages", batch)
        else:
            table.add(batch)
    return table


def find_lancedb(folder: Path) -> Find:
    import lancedb
    from lancedb.query import MatchQuery

    table = lancedb.connect(folder).open_table("passages")

    def find(query: str) -> list[int]:
        found = table.search(MatchQuery(query, "words"), query_type="fts").select(["row", "_score"]).limit(K).to_arrow()
        return found["row"].to_pylist()

    return find


def build_lancedb_vectors(folder: Path, batches: Batches) -> None:
    import lancedb
    from lancedb.index import IvfRq

    table = fill_lancedb(lancedb.connect(folder), batches, "vector")
    # Chosen among eight settings on these very vectors: IvfPq took 61 s of CPU for 20,000 of them, this one 0.4.
    table.create_index("vector", config=IvfRq(distance_type="dot"))


def find_lancedb_vectors(folder: Path) -> Find:
    import lancedb

    table = lancedb.connect(folder).open_table("passages")

    def find(vector: np.ndarray) -> list[int]:
        asked = table.search(vector).distance_type("dot").nprobes(40).refine_factor(50)
        return asked.select(["row", "_distance"]).limit(K).to_arrow()["row"].to_pylist()

    return find


def count_lancedb(folder: Path) -> int:
    import lancedb

    return lancedb.connect(folder).open_table("passages").count_rows()


ENGINES = {
    "sqlite fts5": Engine("", build_sqlite, find_sqlite, count=count_sqlite),
    "tantivy": Engine("tantivy", build_tantivy, find_tantivy, count=count_tantivy),
    "duckdb": Engine("duckdb", build_duckdb, find_duckdb, count=count_duckdb),
    "lancedb": Engine(
        "lancedb", build_lancedb, find_lancedb, build_lancedb_vectors, find_lancedb_vectors, count_lancedb
    ),
}
