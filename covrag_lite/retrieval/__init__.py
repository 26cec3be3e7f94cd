"""Retrieval: a function from queries to passages, one module a retriever, imported when it is asked for.

What follows "-" or ":" in a retriever's name is its own setting, as in web-serper or engine:runs/index.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from covrag_lite import config
from covrag_lite.records import Passage, Search

RETRIEVERS = {
    "bm25": "covrag_lite.retrieval.bm25",
    "dense": "covrag_lite.retrieval.dense",
    "fused": "covrag_lite.retrieval.fused",
    "engine": "covrag_lite.retrieval.lance",
    "web": "covrag_lite.retrieval.web",
}


def load_retriever(settings: config.Retrieval, passages: Sequence[Passage]) -> Search:
    """Load the search function `queries -> k passages each` over these passages."""
    if settings.kind not in RETRIEVERS:  # an address may hold a key, which no error shows
        raise ValueError(f"retriever {settings.kind!r} is not known; use one of {', '.join(RETRIEVERS)}")
    if settings.k < 1:
        raise ValueError(f"k is {settings.k}; at least one passage must be retrieved")
    if settings.has_corpus and len(passages) < settings.k:
        raise ValueError(f"the corpus has {len(passages)} passages, fewer than the k = {settings.k} asked for; lower k")
    return config.need(RETRIEVERS[settings.kind]).load(passages, settings)


def load_deeper(settings: config.Retrieval, passages: Sequence[Passage], times: int) -> Search:
    """The same search with so many times as many passages, or all that the corpus has."""
    most = max(settings.k, len(passages)) if settings.has_corpus else times * settings.k
    return load_retriever(replace(settings, k=min(times * settings.k, most)), passages)


def describe_snapshots(settings: config.Retrieval, retrievers: Iterable[str]) -> dict[str, dict]:
    """Describe, for a manifest, the frozen results of those retrievers that search the web."""
    chosen = [replace(settings, retriever=name) for name in sorted(set(retrievers))]
    web = [one for one in chosen if not one.has_corpus]
    return {one.retriever: config.need(RETRIEVERS["web"]).describe(one) for one in web}


def find_passages(settings: config.Retrieval, corpus: Sequence[Passage]) -> Sequence[Passage]:
    """Return every passage that a search can have found: the corpus, or what a web retriever's snapshot holds."""
    return corpus if settings.has_corpus else config.need(RETRIEVERS["web"]).find_passages(settings)
