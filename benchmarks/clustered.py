"""Milvus and Qdrant, which are clusters elsewhere, as what installs as a wheel: further engines for `speed.retrieving`.

Milvus Lite is the client of a cluster over a file. Qdrant has two forms: the local mode of its client, in Python, and
Qdrant Edge, the server's own code in the process (a client of its own, one machine).
"""

from collections.abc import Callable
from pathlib import Path

from benchmarks.engines import Batches, Engine, Find, K

DIMENSIONS = 384  # MiniLM's
LENGTH = 37.0  # stems of a passage, about


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


def count_milvus(folder: Path) -> int:
    client = connect_milvus(folder)
    client.load_collection("passages")
    return client.query("passages", output_fields=["count(*)"])[0]["count(*)"]


def build_milvus_vectors(folder: Path, batches: Batches) -> None:
    from pymilvus import DataType

    client = connect_milvus(folder)
    schema = client.create_schema(auto_id=False)
    schema.add_field("row", DataType.INT64, is_primary=True)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=DIMENSIONS)
    settings = {"index_type": "HNSW", "metric_type": "IP", "params": {"M": 16, "efConstruction": 100}}
    fill_milvus(client, schema, batches, "vector", "vector", settings)


def find_milvus_vectors(folder: Path) -> Find:
    return find_milvus(folder, "vector")


def build_qdrant_vectors(folder: Path, batches: Batches) -> None:
    from qdrant_client import QdrantClient, models

    client = QdrantClient(path=str(folder))
    client.create_collection("passages", models.VectorParams(size=DIMENSIONS, distance=models.Distance.DOT))
    for rows, vectors in batches:
        points = [models.PointStruct(id=row, vector=vector.tolist()) for row, vector in zip(rows, vectors)]
        client.upsert("passages", points)
    client.close()


def find_qdrant_vectors(folder: Path) -> Find:
    from qdrant_client import QdrantClient

    client = QdrantClient(path=str(folder))
    return lambda vector: [hit.id for hit in client.query_points("passages", vector.tolist(), limit=K).points]


def count_qdrant(folder: Path) -> int:
    from qdrant_client import QdrantClient

    return QdrantClient(path=str(folder)).count("passages").count


def model_edge() -> object:
    """Its BM25, which makes sparse vectors of words; the average length is a guess, since it cannot know the corpus."""
    import qdrant_edge as edge

    plain = {"stemmer": edge.DisabledStemmer(), "stopwords": edge.StopwordsSet(), "lowercase": False}
    return edge.Bm25(edge.Bm25Config(k=1.5, avg_len=LENGTH, tokenizer=edge.TokenizerType.Whitespace, **plain))


def fill_edge(folder: Path, config: object, batches: Batches, to_vector: Callable) -> None:
    import qdrant_edge as edge

    shard = edge.EdgeShard.create(str(folder), config)
    for rows, items in batches:
        points = [edge.Point(row, to_vector(item)) for row, item in zip(rows, items)]
        shard.update(edge.UpdateOperation.upsert_points(points))
        shard.flush()
    shard.optimize()
    shard.close()


def build_edge(folder: Path, batches: Batches) -> None:
    import qdrant_edge as edge

    model = model_edge()
    sparse = {"words": edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf)}
    fill_edge(folder, edge.EdgeConfig(sparse_vectors=sparse), batches, lambda x: {"words": model.embed_document(x)})


def find_edge(folder: Path) -> Find:
    import qdrant_edge as edge

    shard, model = edge.EdgeShard.load(str(folder)), model_edge()

    def find(query: str) -> list[int]:
        asked = edge.Query.Nearest(model.embed_query(query), using="words")
        return [hit.id for hit in shard.query(edge.QueryRequest(K, query=asked))]

    return find


def build_edge_vectors(folder: Path, batches: Batches) -> None:
    import qdrant_edge as edge

    graph = edge.HnswIndexConfig(16, 100, 10)
    dense = {"vector": edge.EdgeVectorParams(DIMENSIONS, edge.Distance.Dot, hnsw_config=graph)}
    fill_edge(folder, edge.EdgeConfig(vectors=dense), batches, lambda x: {"vector": x.tolist()})


def find_edge_vectors(folder: Path) -> Find:
    import qdrant_edge as edge

    shard = edge.EdgeShard.load(str(folder))

    def find(vector: object) -> list[int]:
        asked = edge.Query.Nearest(vector.tolist(), using="vector")
        wide = edge.SearchParams(hnsw_ef=400)  # by its own default it finds three in four of a hundred thousand
        return [hit.id for hit in shard.query(edge.QueryRequest(K, query=asked, params=wide))]

    return find


def count_edge(folder: Path) -> int:
    import qdrant_edge as edge

    return edge.EdgeShard.load(str(folder)).count(edge.CountRequest(exact=True))


CLUSTERED = {
    "milvus-lite": Engine(
        "milvus-lite", build_milvus, find_milvus, build_milvus_vectors, find_milvus_vectors, count_milvus
    ),
    "qdrant-local": Engine("qdrant-client", None, None, build_qdrant_vectors, find_qdrant_vectors, count_qdrant),
    "qdrant-edge": Engine("qdrant-edge-py", build_edge, find_edge, build_edge_vectors, find_edge_vectors, count_edge),
}
