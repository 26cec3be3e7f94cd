"""Retrieval: a function from queries to passages, one file a retriever.

A further retriever is a file with `load(passages, settings) -> search` and one entry in RETRIEVERS. No file of this
room loads a language model.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from covrag_lite import config
from covrag_lite.records import Passage, Search
from covrag_lite.retrieval import bm25, dense, engine, fused, web
from covrag_lite.retrieval.web.providers import PROVIDERS

RETRIEVERS = {
    "bm25": bm25.load,
    "dense": dense.load,
    "fused": fused.load,
    "engine": engine.load,
    "web": web.load,
}
RETRIEVERS |= {f"web-{provider}": web.load for provider in PROVIDERS}  # several in one table


def load_retriever(settings: config.Retrieval, passages: Sequence[Passage]) -> Search:
    """The search function `queries -> k passages each` over these passages."""
    if settings.retriever not in RETRIEVERS:
        raise ValueError(f"retriever {settings.retriever!r} is not known; use one of {', '.join(RETRIEVERS)}")
    if settings.k < 1:
        raise ValueError(f"k is {settings.k}; at least one passage must be retrieved")
    if settings.has_corpus and len(passages) < settings.k:
        raise ValueError(
            f"the corpus has {len(passages)} passages, fewer than the k = {settings.k} asked for; "
            f"lower k or give a larger corpus"
        )
    return RETRIEVERS[settings.retriever](passages, settings)


def describe_snapshots(settings: config.Retrieval, retrievers: Iterable[str]) -> dict[str, dict]:
    """What a manifest says of the frozen results behind those of the retrievers that search the web."""
    chosen = [replace(settings, retriever=name) for name in sorted(set(retrievers)) if name in RETRIEVERS]
    return {one.retriever: web.open_snapshot(one).describe() for one in chosen if not one.has_corpus}


def find_passages(settings: config.Retrieval, corpus: Sequence[Passage]) -> Sequence[Passage]:
    """Every passage that a search can have returned: the corpus, or what a web retriever's snapshot holds."""
    return corpus if settings.has_corpus else web.open_snapshot(settings).passages()
