"""The engine finds what BM25 finds, goes on after a kill, and says in one sentence why it cannot be had."""

import re
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from covrag_lite import config
from covrag_lite.config import Retrieval
from covrag_lite.engine import weights
from covrag_lite.records import Passage
from covrag_lite.retrieval import engine, lance, load_retriever

pytest.importorskip("lancedb", reason=f"the engine is not installed: pip install {lance.PACKAGE}")

# What a process of its own does: index 60 otters of two towns in the folder argv[1], ten at a time.
BUILD = """
import os, signal, sys
from covrag_lite.config import Retrieval
from covrag_lite.records import Passage
from covrag_lite.retrieval import lance, load_retriever

lance.BATCH = 10
passages = [Passage(f"p{i}", "", f"otter {i} of {'Ambleford' if i % 2 else 'Brinkwell'}") for i in range(60)]
tokenise = lance.bm25.tokenise
calls = []

def stop(*given):
    os.kill(os.getpid(), signal.SIGKILL)

def tokenise_and_stop(texts):
    calls.append(1)
    return stop() if len(calls) == 4 else tokenise(texts)

if sys.argv[2] == "in the middle":
    lance.bm25.tokenise = tokenise_and_stop
if sys.argv[2] == "before the index":
    lance.make_searchable = stop
load_retriever(Retrieval(retriever="engine", engine_address=sys.argv[1]), passages)
"""
OTTERS = [Passage(f"p{i}", "", f"otter {i} of {'Ambleford' if i % 2 else 'Brinkwell'}") for i in range(60)]


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """An engine with a cache of its own and no patience."""
    monkeypatch.setattr(weights, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(lance, "RETRIES", 0)
    monkeypatch.setenv("LANCEDB_API_KEY", "secret-word")
    return Retrieval(retriever="engine", k=3)


def ids(found):
    return [[passage.id for passage in row] for row in found]


def at(settings, address):
    return config.Retrieval(retriever="engine", k=settings.k, engine_address=str(address))


def build(folder, where=""):
    return subprocess.Popen([sys.executable, "-c", BUILD, str(folder), where], stderr=subprocess.PIPE, text=True)


def test_it_finds_what_bm25_finds(settings, passages):
    queries = ["novels by marrow", "the harrow hill", "kite"]
    search = load_retriever(settings, passages)
    found = search(queries)
    by_words = load_retriever(Retrieval(k=3), passages)(queries)
    assert [row[0] for row in found] == [row[0] for row in by_words]
    assert search([]) == []


def test_of_equal_scores_the_first_passages_stand_first_however_many_there_are(settings):
    passages = [Passage("p0", "", "an otter of Ambleford and a kite")]
    passages += [Passage(f"p{i}", "", "the otter of Brinkwell") for i in range(1, 3 * engine.DEPTH)]
    search = load_retriever(settings, passages)
    first = ["p0", "p1", "p2"]
    assert ids(search(["otter", "kite", "zebra", "the", ""])) == [["p1", "p2", "p3"], first, first, first, first]


def test_more_hits_are_asked_for_while_the_last_equals_the_kth(monkeypatch):
    every = [(-2.0, 999), *((-1.0, row) for row in range(900))]
    asked = []

    def ask(table, words, depth):
        asked.append(depth)
        return sorted(every[-depth:])  # an engine that of equals gives the last

    monkeypatch.setattr(engine, "ask", ask)
    assert engine.find(None, "otter", 3) == [999, 0, 1]
    assert asked == [64, 512, 4096]


def test_a_question_is_words_and_never_a_command(settings, passages):
    search = load_retriever(settings, passages)
    plain = search(["kite fair"])
    assert search(['kite AND NOT "fair']) != [] and search(["(kite) *fair* ^2 ~1 OR words:"])[0][0] == plain[0][0]


def test_the_index_is_built_once_for_each_corpus(settings, passages, monkeypatch):
    first = load_retriever(settings, passages)(["kite"])
    folders = list((weights.CACHE / "engine").iterdir())
    monkeypatch.setattr(lance.bm25, "tokenise", lambda texts: [["kite"]])  # nothing but the query is read again
    assert load_retriever(settings, passages)(["kite"]) == first
    assert list((weights.CACHE / "engine").iterdir()) == folders and len(folders) == 1
    monkeypatch.undo()


@pytest.mark.parametrize("where", ["in the middle", "before the index"])
def test_a_killed_build_goes_on_and_ends_as_an_unbroken_one(where, settings, tmp_path, monkeypatch):
    broken = build(tmp_path / "index", where)
    broken.wait()
    assert broken.returncode == -signal.SIGKILL
    monkeypatch.setattr(lance, "BATCH", 10)
    read = []
    tokenise = lance.bm25.tokenise

    def counting(texts):
        texts = list(texts)
        read.extend(texts)
        return tokenise(texts)

    monkeypatch.setattr(lance.bm25, "tokenise", counting)
    resumed = load_retriever(at(settings, tmp_path / "index"), OTTERS)
    assert len(read) == (30 if where == "in the middle" else 0)  # three whole batches were kept, or all six
    whole = load_retriever(settings, OTTERS)
    queries = ["otter", "brinkwell", "ambleford 31", "17"]
    assert resumed(queries) == whole(queries)
    assert resumed(["otter 17"])[0][0].id == "p17"


def test_two_processes_build_one_index_between_them(settings, tmp_path):
    both = [build(tmp_path / "index") for _ in range(2)]
    assert [one.wait() for one in both] == [0, 0]
    table = lance.connect(str(tmp_path / "index")).open_table("passages")
    assert sorted(table.to_arrow()["row"].to_pylist()) == list(range(60))


def test_the_index_of_another_corpus_is_refused_and_left_alone(settings, passages, tmp_path, monkeypatch):
    here = at(settings, tmp_path / "index")
    search = load_retriever(here, passages)
    before = search(["kite"])
    with pytest.raises(lance.EngineError, match="is of another corpus or of other stems .corpus '[0-9a-f]{16}', here"):
        load_retriever(here, OTTERS)
    monkeypatch.setattr(lance.bm25, "LANGUAGE", "porter")
    with pytest.raises(lance.EngineError, match="another corpus or of other stems .stems '.*', here '.* porter en'"):
        load_retriever(here, passages)
    monkeypatch.undo()
    assert search(["kite"]) == before == load_retriever(here, passages)(["kite"])


def test_rows_that_stand_twice_are_noticed(settings, passages, tmp_path):
    here = at(settings, tmp_path / "index")
    load_retriever(here, passages)
    table = lance.connect(here.engine_address).open_table("passages")
    table.add(table.to_arrow())
    with pytest.raises(lance.EngineError, match="has 12 rows for 6 passages, .* delete it and run again"):
        load_retriever(here, passages)


class Refusing(BaseHTTPRequestHandler):
    """A server that lets nobody in."""

    status = 401

    def answer(self):
        self.send_response(self.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST = do_PUT = do_HEAD = answer

    def log_message(self, *_):
        pass


@pytest.fixture
def refusing():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_a_refused_key_is_said_and_never_shown(settings, passages, refusing, monkeypatch):
    with pytest.raises(lance.EngineError, match="refused the key; set the environment's LANCEDB_API_KEY") as raised:
        load_retriever(at(settings, f"{refusing}/wiki"), passages)
    assert "secret-word" not in str(raised.value)
    monkeypatch.setattr(Refusing, "status", 403)
    for name in ("AWS_ENDPOINT", "AWS_ALLOW_HTTP", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, {"AWS_ENDPOINT": refusing, "AWS_ALLOW_HTTP": "true"}.get(name, "secret-word"))
    with pytest.raises(lance.EngineError, match="refused the key; set the environment's AWS_ACCESS_KEY_ID") as raised:
        load_retriever(at(settings, "s3://bucket/wiki"), passages)
    assert "secret-word" not in str(raised.value)


@pytest.mark.parametrize("address", ["http://127.0.0.1:1/wiki", "s3://bucket/wiki"])
def test_a_wrong_address_is_one_sentence(address, settings, passages, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    with pytest.raises(lance.EngineError) as raised:
        load_retriever(at(settings, address), passages)
    assert re.fullmatch(f"no engine answers at {address}; check engine_address and the network .*", str(raised.value))


def test_what_is_no_address_is_said(settings, passages, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="engine_address 'ftp://host/x' is not known; give a folder, s3://"):
        load_retriever(at(settings, "ftp://host/x"), passages)
    with pytest.raises(ValueError, match="must hold no key, because manifests keep it") as raised:
        load_retriever(at(settings, "https://me:secret-word@host/x"), passages)
    assert "secret-word" not in str(raised.value)
    monkeypatch.delenv("LANCEDB_API_KEY")
    with pytest.raises(lance.EngineError, match="needs a key in the environment variable LANCEDB_API_KEY"):
        load_retriever(at(settings, "https://host/x"), passages)
    (tmp_path / "file").write_text("")
    with pytest.raises(lance.EngineError, match="failed: .*file"):
        load_retriever(at(settings, tmp_path / "file"), passages)
    monkeypatch.setattr(lance.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=f"needs LanceDB: pip install {lance.PACKAGE}"):
        load_retriever(settings, passages)


def test_the_package_is_the_pinned_one():
    assert lance.PACKAGE in (config.ROOT / "env" / "requirements.txt").read_text().split("\n")
