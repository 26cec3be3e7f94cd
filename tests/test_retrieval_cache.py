"""The BM25 index of a large corpus is built once; what it finds is what an index without a cache finds."""

import bm25s
import numpy as np
import pytest

from covrag_lite.config import Retrieval
from covrag_lite.engine import weights
from covrag_lite.records import Passage
from covrag_lite.retrieval import bm25, load_retriever

WORDS = "otter river copper lantern kite fair harrow hill sheep novel bridge stone".split()
QUERIES = ["otters of the copper hill", "kites", "the", "zebra", "novel novel bridge", ""]


@pytest.fixture
def corpus():
    """Passages of a few words each, so that many have the same score."""
    rng = np.random.default_rng(1)
    texts = [" ".join(rng.choice(WORDS, 6)) for _ in range(3000)]
    return [Passage(f"p{i}", WORDS[i % 12], text) for i, text in enumerate(texts)]


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A cache of its own, and every corpus counts as large."""
    monkeypatch.setattr(weights, "CACHE", tmp_path)
    monkeypatch.setattr(bm25, "KEPT", 1)
    return tmp_path / "bm25"


def refuse(*_):
    raise AssertionError("the index was built again")


def test_a_mapped_index_gives_the_very_scores_and_order_of_a_fresh_one(kept, corpus, monkeypatch):
    fresh = bm25.build_index(corpus)
    bm25.load_index(corpus)
    monkeypatch.setattr(bm25, "build_index", refuse)
    mapped = bm25.load_index(corpus)
    assert isinstance(mapped.scores["data"], np.memmap)
    for words in bm25.tokenise(QUERIES):
        one = fresh.get_scores_from_ids(fresh.get_tokens_ids(words))
        other = mapped.get_scores_from_ids(mapped.get_tokens_ids(words))
        assert one.dtype == other.dtype and (one == other).all()
        assert (bm25.highest(one, 5) == bm25.highest(other, 5)).all()


def test_the_second_start_finds_the_same_without_building(kept, corpus, monkeypatch):
    first = load_retriever(Retrieval(), corpus)(QUERIES)
    monkeypatch.setattr(bm25, "build_index", refuse)
    assert load_retriever(Retrieval(), corpus)(QUERIES) == first
    assert load_retriever(Retrieval(k=2), corpus)(QUERIES) == [row[:2] for row in first]


def test_a_small_corpus_leaves_nothing_behind(tmp_path, monkeypatch, corpus):
    monkeypatch.setattr(weights, "CACHE", tmp_path)
    load_retriever(Retrieval(), corpus)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("field", ["id", "title", "text"])
def test_other_passages_have_another_index(kept, corpus, field):
    parts = {"id": "p0", "title": corpus[0].title, "text": corpus[0].text}
    changed = [Passage(**{**parts, field: "zebra"}), *corpus[1:]]
    assert bm25.find_folder(changed) != bm25.find_folder(corpus) == bm25.find_folder(list(corpus))


def test_another_bm25s_or_other_settings_have_another_index(kept, corpus, monkeypatch):
    before = bm25.find_folder(corpus)
    with monkeypatch.context() as patch:
        patch.setattr(bm25s, "__version__", "0.0")
        assert bm25.find_folder(corpus) != before
    monkeypatch.setattr(bm25, "LANGUAGE", "german")
    assert bm25.find_folder(corpus) != before


def test_an_index_that_was_not_written_to_the_end_is_not_there(kept, corpus, monkeypatch):
    def stop(self, folder, **_):
        folder.mkdir(parents=True)
        (folder / "data.csc.index.npy").write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(bm25s.BM25, "save", stop)
        with pytest.raises(KeyboardInterrupt):
            bm25.load_index(corpus)
    assert not bm25.find_folder(corpus).exists()
    assert len(load_retriever(Retrieval(), corpus)(["otter"])[0]) == 5
    assert [folder.name for folder in kept.iterdir()] == [bm25.find_folder(corpus).name]


def test_of_two_processes_that_build_at_once_the_slower_one_uses_the_others_index(kept, corpus, monkeypatch):
    build = bm25.build_index

    def build_late(passages):
        monkeypatch.setattr(bm25, "build_index", build)
        monkeypatch.setattr(bm25.os, "getpid", lambda: 1)
        bm25.load_index(passages)
        return build(passages)

    monkeypatch.setattr(bm25, "build_index", build_late)
    bm25.load_index(corpus)
    assert [folder.name for folder in kept.iterdir()] == [bm25.find_folder(corpus).name]
