"""Engines are measured over the same stems and vectors, and their recall against exact search."""

import socket

import numpy as np
import pandas as pd
import pytest

from benchmarks import corpus, report, retrieving, served
from benchmarks.engines import K
from benchmarks.retrieving import ENGINES
from covrag_lite.config import Config


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A small world as files."""
    folder = tmp_path_factory.mktemp("world")
    corpus.write_world(folder, 1000, 20, ("words", "vectors"))
    return folder


@pytest.mark.parametrize("name", ["ours (bm25s)", "sqlite fts5", "lancedb"])
def test_an_engine_finds_by_words_nearly_what_exact_search_finds(name, world, tmp_path):
    if name in ENGINES and not ENGINES[name].version():
        pytest.skip(f"{name} is not installed")
    exact = tmp_path / "exact"
    for engine, place in ((name, tmp_path / "index"), ("ours (bm25s)", exact)):
        place.mkdir()
        built = retrieving.build(engine, world, place, "words")
    row, found = retrieving.ask(name, world, tmp_path / "index", "words")
    share = retrieving.recall(world, exact, "words", found)
    assert share == 1 if name.startswith("ours") else share > 0.9
    assert built["disk_mb"] > 0 and row["n"] == len(found) and max(len(rows) for rows in found) == K


@pytest.mark.parametrize("name", ["lancedb", "sqlite fts5", "qdrant-edge"])
@pytest.mark.parametrize("kind", ["words", "vectors"])
def test_what_a_killed_engine_keeps_is_counted_when_it_is_opened_anew(name, kind, world, monkeypatch):
    if name not in retrieving.choose([name], kind, 1000):
        pytest.skip(f"{name} is not installed, or does not search by {kind}")
    rows = retrieving.kill([name], kind, world)
    assert rows == {f"{name}, {kind}": {"given": 500, "kept": 500}}


def test_an_engine_that_fails_is_told_of_and_the_others_are_measured(world, monkeypatch):
    def build(name, *given):
        if name == "tantivy":
            raise RuntimeError("there is\nno room")
        return {"index_seconds": 1.0}

    def alone(work, *given):
        return build(*given) if work is retrieving.build else ({"n": 1}, [])

    monkeypatch.setattr(retrieving, "alone", alone)
    monkeypatch.setattr(retrieving, "recall", lambda *given: 0.9)
    rows, failed = retrieving.measure(["tantivy", "lancedb"], "words", world)
    assert rows["lancedb"] == {"n": 1, "recall": 0.9, "index_seconds": 1.0} and "tantivy" not in rows
    assert failed == {"tantivy": {"said": "RuntimeError: there is no room"}}


def test_a_record_can_be_read_back_and_keeps_its_other_parts(tmp_path):
    file = tmp_path / "speed" / "inference.json"
    report.update_record(file, {"served": {"a": {"n": 1.0}}, "words": {"old": {"n": 1.0}}})
    report.update_record(file, retrieving.tell(["lancedb"]) | {"words": {"new": {"n": 2.0}}, "failed": {}})
    frames, machine = report.load_frames(file)
    assert {part: list(frame.index) for part, frame in frames.items()} == {"served": ["a"], "words": ["new"]}
    assert "cores, load" in machine and ", commit " in machine


def test_no_engine_is_measured_beyond_what_it_can_hold(monkeypatch):
    monkeypatch.setattr(retrieving.engines.Engine, "version", lambda self: "1")
    assert retrieving.choose(["milvus-lite", "qdrant-local", "lancedb"], "words", 10) == ["milvus-lite", "lancedb"]
    assert retrieving.choose(["milvus-lite", "lancedb"], "words", 1_000_000) == ["lancedb"]
    monkeypatch.setattr(retrieving.engines.Engine, "version", lambda self: None)
    assert retrieving.choose(["lancedb"], "words", 10) == []


def test_recall_counts_scores_and_not_places(world, tmp_path):
    retrieving.build("ours (bm25s)", world, tmp_path, "words")
    _, found = retrieving.ask("ours (bm25s)", world, tmp_path, "words")
    turned = [rows[::-1] for rows in found]
    nothing = [[] for _ in found]
    assert retrieving.recall(world, tmp_path, "words", turned) == 1
    assert retrieving.recall(world, tmp_path, "words", nothing) == 0
    part = retrieving.recall(world, tmp_path, "words", [rows[:2] for rows in found])
    assert 2 / K <= part < 0.6


def test_texts_that_share_words_have_near_vectors():
    one, near, far = corpus.embed([["otter", "hill", "kite"], ["otter", "hill", "fair"], ["novel", "town", "sea"]])
    assert one @ near > 0.5 > one @ far
    assert np.linalg.norm(one) == pytest.approx(1)


def test_what_a_larger_corpus_takes_lies_on_the_line_through_the_two_largest():
    sizes = {"a, 10 passages": 99.0, "a, 100 passages": 200.0, "a, 1,000 passages": 1100.0, "b, 10 passages": 1.0}
    frame = pd.DataFrame({column: sizes for column in retrieving.GROWING})
    frame["cpu_ms_in_a_batch"] = np.nan  # what was measured of some alone is no reason to leave out the others
    paper = retrieving.extrapolate(frame, 10_000)  # one more a passage
    assert list(paper.index) == ["a"]  # one size makes no line
    assert paper.disk_gb["a"] == pytest.approx(10.1) and paper.index_cpu_hours["a"] == pytest.approx(10_100 / 3600)


def test_a_served_model_gets_the_prompts_of_table_2():
    texts = served.build_prompts(Config(), 6)
    assert len(set(texts)) == 6
    row = served.timed(lambda: texts, iter([1.0, 7.0]).__next__)
    assert row["n"] == 6 and row["cpu_seconds_each"] == 1 and row["per_second"] > 0


def test_a_servers_work_is_read_from_its_process():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        assert served.server_seconds(address) > 0  # this very process listens
    assert np.isnan(served.server_seconds(address))
