"""LanceDB finds what BM25 finds, and an index is completed after its build was killed."""

from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import lancedb
import pyarrow
import pytest

from covrag_lite.config import Retrieval
from covrag_lite.engine import weights
from covrag_lite.plugins.lance import retriever as lance
from covrag_lite.records import Passage
from covrag_lite.retrieval import load_retriever

TOWNS = ("Brinkwell", "Ambleford")
OTTERS = [Passage(f"p{i}", "", f"otter {i} of {TOWNS[i % 2]}") for i in range(60)]
ADD = lancedb.table.LanceTable.add
TOKENISE = lance.bm25.tokenise


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """A LanceDB retriever with a cache of its own."""
    monkeypatch.setattr(weights, "CACHE", tmp_path / "cache")
    return Retrieval(retriever="engine", k=3)


@pytest.fixture
def elsewhere(settings, tmp_path):
    """A LanceDB retriever with an index in a folder."""
    return Retrieval(retriever=f"engine:{tmp_path / 'index'}", k=settings.k)


def ids(results):
    """The ids of the passages of each query."""
    return [[passage.id for passage in passages] for passages in results]


# Search.


@pytest.fixture
def search(settings, passages):
    return load_retriever(settings, passages)


@pytest.mark.parametrize("query", ["novels by marrow", "the harrow hill", "kite"])
def test_the_best_passage_is_that_of_bm25(search, passages, query):
    (by_lance,) = search([query])
    (by_bm25,) = load_retriever(Retrieval(k=3), passages)([query])
    assert by_lance[0] == by_bm25[0]


def test_no_query_finds_nothing(search):
    assert search([]) == []


def test_a_query_consists_of_words_and_never_of_commands(search):
    plain, other = search(["kite fair", "(kite) *fair* ^2 ~1 OR words:"])
    assert other[0] == plain[0]


def test_an_open_quotation_mark_is_no_error(search):
    assert search(['kite AND NOT "fair'])[0]


@pytest.mark.parametrize(
    "query, expected",
    [
        ("otter", ["p1", "p2", "p3"]),
        ("kite", ["p0", "p1", "p2"]),  # only p0 matches; the first rows fill up the list
        ("zebra", ["p0", "p1", "p2"]),
        ("the", ["p0", "p1", "p2"]),
        ("", ["p0", "p1", "p2"]),
    ],
)
def test_of_equal_scores_the_first_passages_are_found_however_many_there_are(
    settings, query, expected
):
    passages = [Passage("p0", "", "an otter of Ambleford and a kite")]
    passages += [Passage(f"p{i}", "", "the otter of Brinkwell") for i in range(1, 3 * lance.DEPTH)]
    assert ids(load_retriever(settings, passages)([query])) == [expected]


class Backwards:
    """A table of 100 rows with equal scores, which finds the last rows first."""

    def search(self, query, query_type):
        return self

    def select(self, columns):
        return self

    def limit(self, depth):
        self.rows = list(range(100))[-depth:]
        return self

    def to_arrow(self):
        columns = {"_score": [1.0] * len(self.rows), "row": self.rows}
        return {name: pyarrow.array(values) for name, values in columns.items()}


def test_equal_scores_are_searched_deeper_until_the_first_rows_are_found():
    assert lance.find_rows(Backwards(), "otter", 3) == [0, 1, 2]


# Interrupted builds.


@pytest.fixture
def half_built(elsewhere, monkeypatch):
    """The retriever of an index with three of six batches, because the disk was full."""

    def fill_up(table, rows, *_, **__):
        if rows["row"][0].as_py() >= 30:
            raise RuntimeError("lance error: LanceError(IO): No space left on device (os error 28)")
        return ADD(table, rows)

    monkeypatch.setattr(lance, "BATCH", 10)
    with monkeypatch.context() as patch:
        patch.setattr(lancedb.table.LanceTable, "add", fill_up)
        with pytest.raises(RuntimeError, match="No space left"):
            load_retriever(elsewhere, OTTERS)
    return elsewhere


@pytest.fixture
def tokenised(monkeypatch):
    """The calls that tokenise passages or queries."""
    tokenise = Mock(side_effect=lambda texts: TOKENISE(list(texts)))
    monkeypatch.setattr(lance.bm25, "tokenise", tokenise)
    return tokenise


def test_batches_that_were_committed_are_kept(half_built, tokenised):
    load_retriever(half_built, OTTERS)
    assert tokenised.call_count == 3  # of six


@pytest.fixture
def without_index(half_built, monkeypatch):
    """The retriever of a table whose index was not built, because the process was killed."""
    with monkeypatch.context() as patch:
        patch.setattr(lancedb.table.LanceTable, "create_index", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            load_retriever(half_built, OTTERS)
    return half_built


def test_a_table_without_an_index_is_not_built_again(without_index, tokenised):
    load_retriever(without_index, OTTERS)
    assert not tokenised.called


@pytest.mark.parametrize("query", ["otter", "brinkwell", "ambleford 31", "17"])
def test_a_resumed_build_finds_what_an_uninterrupted_one_finds(without_index, settings, query):
    resumed = load_retriever(without_index, OTTERS)
    assert resumed([query]) == load_retriever(settings, OTTERS)([query])


def test_a_resumed_build_finds_a_passage_of_each_half(without_index):
    resumed = load_retriever(without_index, OTTERS)
    assert [row[0] for row in ids(resumed(["otter 17", "otter 41"]))] == ["p17", "p41"]


# Several corpora in one place.


@pytest.fixture
def shared(elsewhere, passages, tmp_path, monkeypatch):
    """A place with three tables: a corpus, another one, and the first with another stemmer."""
    load_retriever(elsewhere, passages)
    with ThreadPoolExecutor(2) as pool:  # two processes build the second at once
        list(pool.map(lambda _: load_retriever(elsewhere, OTTERS), range(2)))
    with monkeypatch.context() as patch:
        patch.setattr(lance.bm25, "LANGUAGE", "porter")
        load_retriever(elsewhere, passages)
    return lancedb.connect(tmp_path / "index")


def test_every_corpus_and_stemmer_has_its_own_table(shared):
    assert len(shared.list_tables().tables) == 3


def test_two_builds_at_once_add_every_passage_once(shared):
    rows = shared.open_table(lance.key_of(OTTERS)).to_arrow()["row"].to_pylist()
    assert sorted(rows) == list(range(60))


def test_a_corpus_is_found_next_to_others(shared, elsewhere, passages):
    assert load_retriever(elsewhere, passages)(["kite"])[0][0].title == "Kite Fair"


# Addresses.


def test_an_address_with_a_key_is_refused_and_not_shown(settings, passages):
    address = "s3://me:secret-word@host/x"
    with pytest.raises(ValueError, match="keys come from the environment") as raised:
        load_retriever(Retrieval(retriever=f"engine:{address}", k=3), passages)
    assert "secret-word" not in str(raised.value)
