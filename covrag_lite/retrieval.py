"""Retrieval: a function from queries to passages. BM25 here; other retrievers take the same shape.

`evaluation` binds the number of passages and hands the function to `chain`.
"""

from collections.abc import Callable, Sequence

from covrag_lite.records import Passage

RETRIEVERS = ("bm25",)


def load_retriever(name: str, passages: Sequence[Passage], k: int) -> Callable[[Sequence[str]], list[list[Passage]]]:
    """The search function `queries -> k passages each` over these passages."""
    if name not in RETRIEVERS:
        raise ValueError(f"retriever {name!r} is not known; use one of {', '.join(RETRIEVERS)}")
    if k < 1:
        raise ValueError(f"k is {k}; at least one passage must be retrieved")
    if len(passages) < k:
        raise ValueError(f"the corpus has {len(passages)} passages, fewer than the k = {k} asked for; lower k or give a larger corpus")
    return _bm25(passages, k)


def _bm25(passages: Sequence[Passage], k: int) -> Callable[[Sequence[str]], list[list[Passage]]]:
    import bm25s
    import Stemmer

    def tokens(texts: Sequence[str]):
        return bm25s.tokenize(list(texts), stopwords="en", stemmer=stemmer, show_progress=False)

    stemmer = Stemmer.Stemmer("english")
    # numpy, said aloud: where JAX is installed bm25s would pick it, and JAX takes most of a GPU's memory at once.
    index = bm25s.BM25(backend="numpy")
    index.index(tokens(f"{p.title} {p.text}" for p in passages), show_progress=False)

    def search(queries: Sequence[str]) -> list[list[Passage]]:
        if not queries:
            return []
        rows, _ = index.retrieve(tokens(queries), k=k, show_progress=False, backend_selection="numpy")
        return [[passages[i] for i in row] for row in rows]

    return search
