import pytest

from covrag_lite.retrieval import load_retriever


def test_bm25_finds_by_stem_and_by_title(passages):
    search = load_retriever("bm25", passages, 2)
    found = search(["novels by marrow", "the harrow hill", "kite"])
    assert [len(row) for row in found] == [2, 2, 2]
    assert "p1" in [p.id for p in found[0]] and found[1][0].id == "p5" and found[2][0].id == "p4"
    assert search([]) == []
    assert len(search([""])[0]) == 2  # a query without a known word still gets k passages


def test_what_cannot_be_retrieved_is_said(passages):
    with pytest.raises(ValueError, match="'bing' is not known; use one of bm25"):
        load_retriever("bing", passages, 2)
    with pytest.raises(ValueError, match="has 6 passages, fewer than the k = 7"):
        load_retriever("bm25", passages, 7)
    with pytest.raises(ValueError, match="k is 0"):
        load_retriever("bm25", passages, 0)
