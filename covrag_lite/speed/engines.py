"""Search engines that install as a wheel, each as a way to build an index and a way to search it.

`speed.retrieving` measures them. All get the stems that our BM25 sees, split at blanks, so that what differs is the
engine and not its reading of English. None but the one of `retrieval.engine` is a requirement of ours.
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
    build_words: Callable[[Path, Batches], None]
    find_words: Callable[[Path], Find]
    build_vectors: Callable[[Path, Batches], None] | None = None
    find_vectors: Callable[[Path], Find] | None = None

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
    from lancedb.index import IvfPq

    table = fill_lancedb(lancedb.connect(folder), batches, "vector")
    table.create_index("vector", config=IvfPq(distance_type="dot", num_sub_vectors=48))


def find_lancedb_vectors(folder: Path) -> Find:
    import lancedb

    table = lancedb.connect(folder).open_table("passages")

    def find(vector: np.ndarray) -> list[int]:
        asked = table.search(vector).distance_type("dot").nprobes(40).refine_factor(10)
        return asked.select(["row", "_distance"]).limit(K).to_arrow()["row"].to_pylist()

    return find


def connect_milvus(folder: Path) -> object:
    from pymilvus import MilvusClient

    return MilvusClient(str(folder / "base.db"))


def build_milvus(folder: Path, batches: Batches) -> None:
    from pymilvus import DataType, Function, FunctionType

    client = connect_milvus(folder)
    schema = client.create_schema(auto_id=False)
    schema.add_field("row", DataType.INT64, is_primary=True)
    schema.add_field("words", DataType.VARCHAR, max_length=65_535, enable_analyzer=True)
    schema.add_field("sparse", DataType.SPARSE_FLOAT_VECTOR)
    schema.add_function(Function("bm25", FunctionType.BM25, ["words"], ["sparse"]))
    settings = {"index_type": "SPARSE_INVERTED_INDEX", "metric_type": "BM25", "params": {"bm25_k1": 1.5}}
    fill_milvus(client, schema, batches, "words", "sparse", settings)


def fill_milvus(client: object, schema: object, batches: Batches, column: str, field: str, settings: dict) -> None:
    client.create_collection("passages", schema=schema)
    for rows, items in batches:
        client.insert("passages", [{"row": row, column: item} for row, item in zip(rows, items)])
    index = client.prepare_index_params()
    index.add_index(field_name=field, **settings)
    client.create_index("passages", index)
    client.close()


def find_milvus(folder: Path, field: str = "sparse") -> Find:
    client = connect_milvus(folder)
    client.load_collection("passages")

    def find(query: object) -> list[int]:
        (hits,) = client.search("passages", [query], anns_field=field, limit=K)
        return [hit["row"] if "row" in hit else hit["id"] for hit in hits]

    return find


def build_milvus_vectors(folder: Path, batches: Batches) -> None:
    from pymilvus import DataType

    client = connect_milvus(folder)
    schema = client.create_schema(auto_id=False)
    schema.add_field("row", DataType.INT64, is_primary=True)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=384)
    settings = {"index_type": "HNSW", "metric_type": "IP", "params": {"M": 16, "efConstruction": 100}}
    fill_milvus(client, schema, batches, "vector", "vector", settings)


def find_milvus_vectors(folder: Path) -> Find:
    return find_milvus(folder, "vector")


def build_qdrant_vectors(folder: Path, batches: Batches) -> None:
    from qdrant_client import QdrantClient, models

    client = QdrantClient(path=str(folder))
    client.create_collection("passages", models.VectorParams(size=384, distance=models.Distance.DOT))
    for rows, vectors in batches:
        points = [models.PointStruct(id=row, vector=vector.tolist()) for row, vector in zip(rows, vectors)]
        client.upsert("passages", points)
    client.close()


def find_qdrant_vectors(folder: Path) -> Find:
    from qdrant_client import QdrantClient

    client = QdrantClient(path=str(folder))
    return lambda vector: [hit.id for hit in client.query_points("passages", vector.tolist(), limit=K).points]


ENGINES = {
    "sqlite fts5": Engine("", build_sqlite, find_sqlite),
    "tantivy": Engine("tantivy", build_tantivy, find_tantivy),
    "duckdb": Engine("duckdb", build_duckdb, find_duckdb),
    "lancedb": Engine("lancedb", build_lancedb, find_lancedb, build_lancedb_vectors, find_lancedb_vectors),
    "milvus-lite": Engine("milvus-lite", build_milvus, find_milvus, build_milvus_vectors, find_milvus_vectors),
    "qdrant-local": Engine("qdrant-client", None, None, build_qdrant_vectors, find_qdrant_vectors),
}
