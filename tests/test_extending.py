"""A new part is one file and one entry: a retriever, a kind of data, a table, an engine, a plug-in.

tests/test_evaluation.py adds a system.
"""

import sys
from types import SimpleNamespace

import pandas as pd
import pytest

from covrag_lite import data, engine, loader, retrieval, tables
from covrag_lite.config import Config, Model, Retrieval
from covrag_lite.records import Passage, Question
from covrag_lite.runs.recorded import Recorded
from covrag_lite.tables.table import Table


@pytest.fixture
def add_module(monkeypatch):
    """Add a module with these contents, as if it were a file."""

    def add(name, **contents):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(**contents))
        return name

    return add


def load_backwards(passages, settings):
    return lambda queries: [list(passages)[::-1][: settings.k] for _ in queries]


def test_a_retriever(monkeypatch, add_module, passages):
    module = add_module("toy_retriever", load=load_backwards)
    monkeypatch.setitem(retrieval.RETRIEVERS, "backwards", module)
    search = retrieval.load_retriever(Retrieval(retriever="backwards", k=2), passages)
    assert search(["anything"]) == [[passages[-1], passages[-2]]]


def test_a_kind_of_data(monkeypatch, add_module):
    riddle = Question("r1", "riddles", "What has keys but no locks?", ("a piano",))
    module = add_module(
        "toy_data",
        sets=lambda config, split: ("riddles",),
        questions=lambda config, split, dataset: [riddle],
        passages=lambda config: [Passage("p", "Piano", "A piano has keys.")],
    )
    monkeypatch.setitem(data.KINDS, "riddles", module)
    config = Config().change(data="riddles", n_questions=0)
    assert data.load_questions(config) == [riddle]
    assert [passage.title for passage in data.load_passages(config)] == ["Piano"]


def test_a_table(monkeypatch, add_module, tmp_path):
    def build(basis, run):
        return Table("counted", pd.DataFrame({"n": [len(basis)]}))

    module = add_module("toy_table", build=build, load=lambda run: ["x", "y"])
    monkeypatch.setitem(tables.TABLES, "counted", module)
    run = Recorded(tmp_path, "counted", {})
    table = tables.find_table("counted").build(tables.load_basis(run), run)
    assert table.files["csv"] == "n\n2\n"


def test_an_engine(monkeypatch, add_module, scripted):
    module = add_module("toy_engine", load=lambda settings, execution: scripted)
    monkeypatch.setitem(engine.ENGINES, "toy:", module)
    assert engine.load_engine(Model(model="toy:any")) is scripted


def test_a_plug_in(monkeypatch, add_module, passages):
    loader.plugins("retriever")  # those that exist are found first
    monkeypatch.setattr(
        loader, "_registered", {kind: dict(parts) for kind, parts in loader._registered.items()}
    )
    loader.register("retriever", "backwards", add_module("toy_plugin", load=load_backwards))
    search = retrieval.load_retriever(Retrieval(retriever="backwards", k=1), passages)
    assert search(["anything"]) == [[passages[-1]]]


def test_every_plug_in_of_the_package_is_found():
    assert set(loader.plugins("retriever")) == {"engine"}
    assert set(loader.plugins("corpus-free retriever")) == {"web"}
    assert "related" in loader.plugins("table")
    assert {"CRAG", "A²R", "FaVe"} <= set(loader.plugins("system"))


def test_an_unknown_retriever_is_named_with_those_that_exist(passages):
    with pytest.raises(ValueError, match="'bm52' is not known; use one of bm25, dense, fused"):
        retrieval.load_retriever(Retrieval(retriever="bm52"), passages)


def test_tables_of_plug_ins_follow_ours(monkeypatch):
    monkeypatch.setattr(tables, "plugins", lambda kind: {f"a {kind}": "module"})
    assert list(tables.all_tables()) == [*tables.TABLES, "a table"]


def test_a_table_without_a_way_to_load_is_built_from_its_predictions(monkeypatch):
    monkeypatch.setattr(tables, "find_table", lambda name: SimpleNamespace())
    monkeypatch.setattr(tables, "load_or_outcomes", lambda run: f"predictions of {run.table}")
    assert tables.load_basis(SimpleNamespace(table="toy")) == "predictions of toy"


def test_a_table_may_have_a_way_to_load_of_its_own(monkeypatch):
    module = SimpleNamespace(load=lambda run: f"counts of {run.table}")
    monkeypatch.setattr(tables, "find_table", lambda name: module)
    assert tables.load_basis(SimpleNamespace(table="toy")) == "counts of toy"
