"""Retrieval: a function from queries to passages, one file a retriever.

A further retriever is a file with `load(passages, settings) -> search` and one entry in RETRIEVERS. No file of this
room loads a language model.
"""

from collections.abc import Sequence

from covrag_lite import config
from covrag_lite.records import Passage, Search
from covrag_lite.retrieval import bm25, dense, engine, fused

RETRIEVERS = {"bm25": bm25.load, "dense": dense.load, "fused": fused.load, "engine": engine.load}


def load_retriever(settings: config.Retrieval, passages: Sequence[Passage]) -> Search:
    """The search function `queries -> k passages each` over these passages."""
    if settings.retriever not in RETRIEVERS:
        raise ValueError(f"retriever {settings.retriever!r} is not known; use one of {', '.join(RETRIEVERS)}")
    if settings.k < 1:
        raise ValueError(f"k is {settings.k}; at least one passage must be retrieved")
    if len(passages) < settings.k:
        raise ValueError(
            f"the corpus has {len(passages)} passages, fewer than the k = {settings.k} asked for; "
            f"lower k or give a larger corpus"
        )
    return RETRIEVERS[settings.retriever](passages, settings)
