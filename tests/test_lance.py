"""LanceDB finds what BM25 finds, and an index is completed after its build was killed."""

from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import lancedb
import pytest

from covrag_lite.config import Retrieval
from covrag_lite.engine import weights
from covrag_lite.records import Passage
from covrag_lite.retrieval import lance, load_retriever

OTTERS = [Passage(f"p{i}", "", f"otter {i} of {'Ambleford' if i % 2 else 'Brinkwell'}") for i in range(60)]


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """A LanceDB retriever with a cache of its own."""
    monkeypatch.setattr(weights, "CACHE", tmp_path / "cache")
    return Retrieval(retriever="engine", k=3)


def ids(found):
    return [[passage.id for passage in row] for row in found]


def at(settings, address):
    return Retrieval(retriever=f"engine:{address}", k=settings.k)


def test_it_finds_what_bm25_finds(settings, passages):
    queries = ["novels by marrow", "the harrow hill", "kite"]
    search = load_retriever(settings, passages)
    found = search(queries)
    by_words = load_retriever(Retrieval(k=3), passages)(queries)
    assert [row[0] for row in found] == [row[0] for row in by_words]
    assert search([]) == []
    plain, other = search(["kite fair", "(kite) *fair* ^2 ~1 OR words:"])  # a question is words and never a command
    assert other[0] == plain[0] and search(['kite AND NOT "fair'])[0]


def test_of_equal_scores_the_first_passages_stand_first_however_many_there_are(settings):
    passages = [Passage("p0", "", "an otter of Ambleford and a kite")]
    passages += [Passage(f"p{i}", "", "the otter of Brinkwell") for i in range(1, 3 * lance.DEPTH)]
    search = load_retriever(settings, passages)
    first = ["p0", "p1", "p2"]
    assert ids(search(["otter", "kite", "zebra", "the", ""])) == [["p1", "p2", "p3"], first, first, first, first]


def test_a_build_that_a_full_disk_or_a_kill_ended_goes_on_and_ends_as_an_unbroken_one(settings, tmp_path, monkeypatch):
    here, add, tokenise = at(settings, tmp_path / "index"), lancedb.table.LanceTable.add, lance.bm25.tokenise
    tokenised = Mock(side_effect=lambda texts: tokenise(list(texts)))

    def fill_up(table, rows, *_, **__):
        if rows["row"][0].as_py() >= 30:
            raise RuntimeError("lance error: LanceError(IO): No space left on device (os error 28)")
        return add(table, rows)

    monkeypatch.setattr(lance, "BATCH", 10)
    with monkeypatch.context() as patch:
        patch.setattr(lancedb.table.LanceTable, "add", fill_up)
        with pytest.raises(RuntimeError, match="No space left"):
            load_retriever(here, OTTERS)
    with monkeypatch.context() as patch:
        patch.setattr(lance.bm25, "tokenise", tokenised)
        patch.setattr(lancedb.table.LanceTable, "create_index", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            load_retriever(here, OTTERS)
        assert tokenised.call_count == 3  # of six batches the three that were committed are kept
    with monkeypatch.context() as patch:
        patch.setattr(lance.bm25, "tokenise", Mock(side_effect=KeyboardInterrupt))
        resumed = load_retriever(here, OTTERS)  # only the index was missing
    queries = ["otter", "brinkwell", "ambleford 31", "17"]
    assert resumed(queries) == load_retriever(settings, OTTERS)(queries)
    assert resumed(["otter 17"])[0][0].id == "p17"


def test_a_place_has_one_index_for_every_corpus_and_stemmer_though_two_build_it_at_once(
    settings, passages, tmp_path, monkeypatch
):
    here = at(settings, tmp_path / "index")
    search = load_retriever(here, passages)
    before = search(["kite"])
    with ThreadPoolExecutor(2) as pool:
        first, _ = pool.map(lambda _: load_retriever(here, OTTERS), range(2))
    assert ids(first(["otter 17"]))[0][0] == "p17"
    monkeypatch.setattr(lance.bm25, "LANGUAGE", "porter")
    load_retriever(here, passages)
    monkeypatch.undo()
    database = lancedb.connect(tmp_path / "index")
    assert len(database.list_tables().tables) == 3
    assert sorted(database.open_table(lance.key_of(OTTERS)).to_arrow()["row"].to_pylist()) == list(range(60))
    assert search(["kite"]) == before == load_retriever(here, passages)(["kite"])


def test_an_address_elsewhere_is_refused_and_not_shown(settings, passages):
    with pytest.raises(ValueError, match="keys come from the environment") as raised:
        load_retriever(at(settings, "s3://me:secret-word@host/x"), passages)
    assert "secret-word" not in str(raised.value)
