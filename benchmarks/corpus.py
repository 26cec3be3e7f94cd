"""The world's passages and questions as files of stems and of vectors: what `speed.retrieving` hands to every engine.

Vectors are made of the stems, since an encoder would take half a day for a million passages on a CPU. They have the
size of MiniLM's; texts that share words are near each other, but they tell nothing of how well an encoder finds.
"""

import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.clustered import DIMENSIONS
from benchmarks.engines import Batches
from covrag_lite.config import Config
from covrag_lite.data import load_passages, load_questions
from covrag_lite.retrieval import bm25

BATCH = 10_000  # passages that are handed over together


def write_world(folder: Path, size: int, n_queries: int, kinds: Sequence[str]) -> None:
    """The world's passages and questions as files: their stems, and vectors made of these."""
    config = Config().change(n_passages=size, n_world=(min(150, size // 20), 1200, 200), n_questions=0)
    words = bm25.tokenise(f"{p.title} {p.text}" for p in load_passages(config))
    every = load_questions(config)
    asked = bm25.tokenise(question.question for question in every[:: max(1, len(every) // n_queries)])
    for name, texts in (("passages", words), ("queries", asked)):
        (folder / f"{name}.txt").write_text("".join(" ".join(text) + "\n" for text in texts))
        if "vectors" in kinds:
            np.save(folder / f"{name}.npy", embed(texts))


def embed(texts: Sequence[Sequence[str]]) -> np.ndarray:
    """Unit vectors that are near each other where texts share words: the sum of a random vector a word."""
    table = np.random.default_rng(1).normal(size=(2**14, DIMENSIONS)).astype(np.float32)
    made = np.zeros((len(texts), DIMENSIONS), np.float32)
    for row, words in enumerate(texts):
        made[row] = table[[zlib.crc32(word.encode()) % len(table) for word in words]].sum(0)
    return made / np.maximum(np.linalg.norm(made, axis=1, keepdims=True), 1e-9)


def read(folder: Path, name: str, kind: str) -> Sequence:
    """All stems as lines, or all vectors, mapped."""
    if kind == "vectors":
        return np.load(folder / f"{name}.npy", mmap_mode="r")
    return (folder / f"{name}.txt").read_text().splitlines()


def stream(folder: Path, kind: str) -> Batches:
    """The passages in batches, with their rows."""
    items = read(folder, "passages", kind)
    for start in range(0, len(items), BATCH):
        batch = items[start : start + BATCH]
        yield range(start, start + len(batch)), batch
