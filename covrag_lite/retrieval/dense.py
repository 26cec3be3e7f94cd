"""Dense retrieval: unit vectors of an encoder, compared by exact dot products."""

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from covrag_lite import config
from covrag_lite.engine import weights
from covrag_lite.engine.progress import track
from covrag_lite.files import replacing
from covrag_lite.loader import need
from covrag_lite.records import Passage, Search
from covrag_lite.retrieval.bm25 import highest

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

BLOCK = 10_000  # texts encoded together: the most that a killed run loses
AT_ONCE = 64  # queries compared together: less than a gigabyte for three million passages


def load(passages: Sequence[Passage], settings: config.Retrieval) -> Search:
    """Encode the passages, or read their vectors from the cache; a search returns the k nearest."""
    network = load_encoder(weights.find_encoder(settings.encoder))
    blocks = embed([f"{p.title} {p.text}" for p in passages], settings.encoder)

    def search(queries: Sequence[str]) -> list[list[Passage]]:
        vectors = network.encode_query(list(queries), normalize_embeddings=True)
        results = []
        for rows in nearest(vectors, blocks, settings.k):
            results.append([passages[row] for row in rows])
        return results

    return search


def nearest(queries: np.ndarray, blocks: Sequence[np.ndarray], k: int) -> list[np.ndarray]:
    """Return for each query the rows of the k largest dot products, the largest first."""
    rows = []
    for start in range(0, len(queries), AT_ONCE):
        some = queries[start : start + AT_ONCE]
        scores = np.hstack([some @ vectors.T for vectors in blocks])  # (queries, passages)
        rows += [highest(query_scores, k) for query_scores in scores]
    return rows


def embed(texts: Sequence[str], encoder: str) -> list[np.ndarray]:
    """Return the texts' unit vectors in blocks; they are computed once, then memory-mapped."""
    content = "\0".join([weights.hash_encoder(encoder), *texts])
    key = hashlib.sha256(content.encode()).hexdigest()[:16]
    folder = weights.CACHE / "embeddings" / key
    folder.mkdir(parents=True, exist_ok=True)
    blocks = {start: folder / f"{start}.npy" for start in range(0, len(texts), BLOCK)}
    left = [start for start, block in blocks.items() if not block.exists()]
    for start in track(left, "encode", "block", total=len(blocks), done=len(blocks) - len(left)):
        block = list(texts[start : start + BLOCK])
        network = load_encoder(weights.find_encoder(encoder))
        vectors = network.encode_document(block, normalize_embeddings=True, show_progress_bar=False)
        with replacing(blocks[start]) as file:
            np.save(file, vectors)
    return [np.load(block, mmap_mode="r") for block in blocks.values()]


@cache
def load_encoder(folder: Path) -> "SentenceTransformer":
    """Load an encoder with its own pooling and prompts; a plain transformer gets mean pooling."""
    sentence_transformers = need("sentence_transformers")
    return sentence_transformers.SentenceTransformer(
        str(folder), model_kwargs={"use_safetensors": True}
    )
