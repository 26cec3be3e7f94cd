"""Runs of related systems: who can run, what each costs, and the table that is made of it."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from covrag_lite import evaluate
from covrag_lite.check import check
from covrag_lite.config import Config
from covrag_lite.records import Prediction, Question, Round
from covrag_lite.related import table as related
from covrag_lite.related import tools
from covrag_lite.runs.outcomes import read_packed, to_frame


@pytest.fixture
def config(tmp_path):
    every = ("RAG trained", "CRAG", "A²R", "FaVe", "CoV-RAG")
    return Config().change(k=2, runs=str(tmp_path), related_systems=every, systems=every)


@pytest.fixture
def heads(monkeypatch):
    """An evaluator that likes passages about Edith, and an entailment model that believes everything there is."""

    def score(x, k):
        return [[0.9 if "Edith" in p.text else 0.1 for p in own] for own in k]

    def entail(x, k, y):
        return [1.0 if own else 0.0 for own in k]

    monkeypatch.setattr(tools, "find_head", lambda config, name: Path("toy"))
    monkeypatch.setattr(tools, "read_about", lambda folder: {"thresholds": [0.2, 0.8]})
    for module in (tools, related):
        monkeypatch.setattr(module, "load_score", lambda folder: score)
        monkeypatch.setattr(module, "load_entail", lambda folder: entail)
    monkeypatch.setattr(related, "describe_entailment", lambda folder: "a toy")
    return entail, score


@pytest.fixture
def resources(config, passages, scripted):
    return tools.load_resources(config, passages, scripted)


def test_every_system_runs_over_the_same_parts_and_is_counted(config, resources, questions, heads):
    predictions, costs = tools.run(config, resources, questions)
    assert [p.system for p in predictions[::4]] == list(config.chain.systems) == costs.system.tolist()
    spent = costs.set_index("system")
    assert (spent.n == 4).all()
    assert spent.loc["RAG trained", ["searches", "passages", "texts", "steps"]].tolist() == [1, 2, 1, 1]
    assert spent.loc["CoV-RAG", "searches"] == 1.25  # one of four was searched again
    assert spent.loc["CoV-RAG", "texts"] == 2.25  # an answer and a verdict each, and one further answer
    assert spent.loc["FaVe", "searches"] == 4  # a sub-question in each of four sessions
    assert spent["tokens read"].isna().all()  # a scripted model has no tokenizer
    assert (spent.seconds >= 0).all()


def test_a_text_costs_every_system_that_asks_for_it_whoever_asked_first(config, resources, questions, heads):
    only = config.change(systems=("RAG trained",))
    _, alone = tools.run(only, resources, questions)
    _, again = tools.run(only.change(systems=("CoV-RAG", "RAG trained")), resources, questions)
    assert again[again.system == "RAG trained"].texts.tolist() == alone.texts.tolist()
    assert again.seconds.notna().all()
    unmeasured = [replace(one, question=f"{one.question}, please") for one in questions]
    evaluate.run_system("RAG trained", config, resources, unmeasured)  # the journal does not know how long it took
    assert tools.run(only, resources, unmeasured)[1].seconds.isna().all()


def test_a_system_that_is_only_recorded_stops_the_run_before_it_begins(config, resources, questions, scripted):
    for name in ("RRR", "CoQ"):
        with pytest.raises(ValueError, match=f"the system {name} is in recorded tables only; leave it out"):
            tools.run(config.change(systems=("RAG trained", name)), resources, questions)
    assert not resources.journal.texts


@pytest.fixture
def frame(config, resources, questions, heads):
    predictions, costs = tools.run(config, resources, questions)
    return related.add_costs(related.add_quality(to_frame(predictions), predictions, *heads), costs)


def test_the_table_has_accuracy_citations_and_costs_of_every_system(frame):
    table = related.summary(related.long_table(frame), frame).set_index("system")
    assert list(table.index) == ["RAG trained", "CoV-RAG", "CRAG", "A²R", "FaVe"]
    assert table.loc["CRAG", "citation recall"].startswith("100.0")
    assert float(table.loc["CRAG", "searches"]) > 1
    compared = related.compare(frame)
    others = ("CRAG", "A²R", "FaVe")
    pairs = [f"{one} → CoV-RAG" for one in ("RAG trained", *others)] + [f"RAG trained → {one}" for one in others]
    assert compared.comparison.unique().tolist() == pairs
    judged = related.evaluators(frame)
    assert judged.score.tolist() == ["CRAG's evaluator", "our judge's reference score"]
    assert judged.n.tolist() == [3, 3]  # the fourth question's gold answer normalises to nothing
    assert judged["found (%)"].tolist() == [100.0, 100.0]
    assert "claim recall" not in table  # which earlier runs recorded


def test_without_an_entailment_model_the_table_says_so_and_tells_no_citation_quality(config, capsys):
    nobody = config.change(data="mine")
    assert tools.find_heads(nobody) == {}
    assert tools.describe_entailment(None).startswith("nobody")
    assert "no entailment was trained on 'mine'" in capsys.readouterr().out
    one = Prediction(Question("a", "nq", "x?", ("yes",)), "RAG trained", (Round("x?", (), "yes[1]"),))
    frame = related.add_quality(to_frame([one]), [one], None, None)
    assert frame.citation_recall.isna().all()
    assert "citation recall" not in set(related.long_table(frame).metric)
    assert frame[["words", "citations"]].iloc[0].tolist() == [1, 1]


def test_the_table_of_real_questions_is_made_anew_without_a_model_and_without_the_data(tmp_path, scripted, heads):
    data = tmp_path / "mine"
    data.mkdir()
    texts = ["The Copper Lanterns is a novel by Edith Marrow.", "Edith Marrow was born in Stonebridge.", "A river."]
    rows = {
        "nq": [{"id": "a", "question": "who wrote the copper lanterns", "answers": ["Edith Marrow"]}],
        "corpus": [{"id": f"p{i}", "title": "", "text": text} for i, text in enumerate(texts * 3)],
    }
    for name, some in rows.items():
        (data / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
    config = Config().change(
        data=str(data),
        k=2,
        n_questions=0,
        runs=str(tmp_path / "runs"),
        related_systems=("RAG trained", "CRAG", "CoV-RAG"),
    )
    folder, again = tmp_path / "results" / "real" / "toy" / "seed-1", tmp_path / "again"
    run = related.make(config, folder, scripted)
    assert "copper lanterns" not in read_packed(folder / "related.predictions.jsonl.xz").lower()
    assert (tmp_path / "runs" / "embedded" / "journal.related.jsonl").exists()  # not where a record is copied from
    assert "entailment is told by a toy" in " ".join(run.manifest["notes"])
    shutil.rmtree(data)
    table = related.build(related.load(run), run)
    table.save(again)
    for name in ("related.csv", "related.md"):
        assert (again / name).read_text() == (folder / name).read_text()
    told = table.facts
    names = ("CRAG average", "CRAG → CoV-RAG points", "CRAG citation recall")
    assert [told[name] for name in names] == ["100.0", "0.0", "100.0"]
    assert "our judge's reference score AUROC" in told
    assert check(tmp_path)[0] == []
