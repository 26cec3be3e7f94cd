"""Retrieval: functions from queries to passages; each retriever is a module, imported when used.

The part of a retriever's name after "-" or ":" is its own setting: web-serper, engine:runs/index.

    search = load_retriever(Retrieval(retriever="bm25", k=5), passages)
    search(["who wrote Emma"])[0]  # five passages
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import ModuleType

from covrag_lite import config
from covrag_lite.loader import need, plugins
from covrag_lite.records import Passage, Search

RETRIEVERS = {
    "bm25": "covrag_lite.retrieval.bm25",
    "dense": "covrag_lite.retrieval.dense",
    "fused": "covrag_lite.retrieval.fused",
}


def load_retriever(settings: config.Retrieval, passages: Sequence[Passage]) -> Search:
    """Load the search function `queries -> k passages each` over these passages."""
    module = find_module(settings)
    if settings.k < 1:
        raise ValueError(f"k is {settings.k}, but must be 1 or more")
    if settings.has_corpus and len(passages) < settings.k:
        counts = f"the corpus has {len(passages)} passages, fewer than k = {settings.k}"
        raise ValueError(f"{counts}; lower k")
    return module.load(passages, settings)


def find_module(settings: config.Retrieval) -> ModuleType:
    """Import the module of a retriever: its `load`, and for one without a corpus also the rest."""
    modules = {**RETRIEVERS, **plugins("retriever"), **plugins("corpus-free retriever")}
    if settings.kind not in modules:  # without the address, which may contain a key
        names = ", ".join(modules)
        raise ValueError(f"retriever {settings.kind!r} is not known; use one of {names}")
    return need(modules[settings.kind])


def load_deeper(settings: config.Retrieval, passages: Sequence[Passage], times: int) -> Search:
    """Load the same search with `times` times k passages, or all of the corpus."""
    most = max(settings.k, len(passages)) if settings.has_corpus else times * settings.k
    return load_retriever(replace(settings, k=min(times * settings.k, most)), passages)


def describe_snapshots(settings: config.Retrieval, retrievers: Iterable[str]) -> dict[str, dict]:
    """Describe, for a manifest, the frozen results of those retrievers that search the web."""
    snapshots = {}
    for name in sorted(set(retrievers)):
        of_retriever = replace(settings, retriever=name)
        if not of_retriever.has_corpus:
            snapshots[name] = find_module(of_retriever).describe(of_retriever)
    return snapshots


def find_passages(settings: config.Retrieval, corpus: Sequence[Passage]) -> Sequence[Passage]:
    """Return all passages that a search can find: the corpus, or a web retriever's snapshot."""
    return corpus if settings.has_corpus else find_module(settings).find_passages(settings)
