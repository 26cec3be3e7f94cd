"""Runs of related systems: who can run, what each costs, and the table that is made of it."""

import gzip
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
from covrag_lite.related.a2r import claim_recall
from covrag_lite.runs.outcomes import to_frame


@pytest.fixture
def config(tmp_path):
    every = ("RAG trained", "RRR", "CRAG", "A²R", "FaVe", "CoV-RAG")
    return Config().change(k=2, runs=str(tmp_path), related_systems=every)


@pytest.fixture
def heads(monkeypatch):
    """An evaluator that likes passages about Edith, and an entailment model that believes everything there is."""

    def score(x, k):
        return [[0.9 if "Edith" in p.text else 0.1 for p in own] for own in k]

    def entail(x, k, y):
        return [1.0 if own else 0.0 for own in k]

    def find_trained(config, name):
        if name in tools.HEADS:
            return Path("toy")
        raise FileNotFoundError(f"no {name}")

    monkeypatch.setattr(tools, "find_trained", find_trained)
    monkeypatch.setattr(tools, "read_about", lambda folder: {"thresholds": [0.2, 0.8]})
    monkeypatch.setattr(tools, "load_score", lambda folder: score)
    monkeypatch.setattr(tools, "load_entail", lambda folder: entail)
    monkeypatch.setattr(related, "load_judges", lambda config: (entail, score, "a toy"))
    return entail, score


@pytest.fixture
def resources(config, passages, scripted):
    return tools.load_resources(config, passages, scripted)


def test_a_system_without_what_it_needs_is_left_out_with_the_command_that_trains_it(config, resources, tmp_path):
    empty = config.change(adapters=str(tmp_path), data="mine")
    ready, missing = tools.choose(empty, resources)
    assert ready.chain.systems == ("RAG trained", "CoV-RAG")
    told = dict(line.split(" was left out: ") for line in missing)
    assert list(told) == ["RRR", "CRAG", "A²R", "FaVe"]
    assert "no rewrite-reward was trained on 'mine'; train it with: papermill" in told["RRR"]
    assert "-p learners evaluator -p data mine" in told["CRAG"]
    assert "-p learners entailment -p data mine" in told["A²R"]
    with pytest.raises(FileNotFoundError, match="no evaluator was trained on 'mine'"):
        evaluate.run_system("CRAG", empty, resources, [])


def test_every_system_runs_over_the_same_parts_and_is_counted(config, resources, questions, heads, scripted):
    ready, missing = tools.choose(config, resources)
    assert [line.split()[0] for line in missing] == ["RRR"]
    predictions, costs = tools.run(ready, resources, questions)
    assert [p.system for p in predictions[::4]] == list(ready.chain.systems) == costs.system.tolist()
    spent = costs.set_index("system")
    assert (spent.n == 4).all()
    assert spent.loc["RAG trained", ["searches", "passages", "texts", "steps"]].tolist() == [1, 2, 1, 1]
    assert spent.loc["CoV-RAG", "searches"] == 1.25  # one of four was searched again
    assert spent.loc["CoV-RAG", "texts"] == 2.25  # an answer and a verdict each, and one further answer
    assert spent.loc["FaVe", "searches"] == 4  # a sub-question in each of four sessions
    assert spent["tokens read"].isna().all()  # a scripted model has no tokenizer
    assert (spent.seconds >= 0).all()


def test_no_question_waits_for_another_in_any_system(config, resources, questions, heads, monkeypatch):
    from covrag_lite import task_model as author

    calls = []
    real = author.write_journaled
    monkeypatch.setattr(author, "write_journaled", lambda stage, *rest: calls.append(stage) or real(stage, *rest))
    every = ("RAG trained", "CRAG", "A²R", "CoQ", "UoQ", "FaVe", "CoV-RAG")
    for name in every:
        made = []
        for n in (1, 7):
            asked = [replace(questions[1], id=f"{name}{i}", question=f"{name} {n}{i} marow") for i in range(n)]
            calls.clear()
            _, costs = tools.run(config.change(systems=(name,)), resources, asked)
            made.append((list(calls), costs.steps.item()))
        assert made[0] == made[1], name  # as many calls for seven questions as for one
        assert made[0][0], name


def test_a_text_costs_every_system_that_asks_for_it_whoever_asked_first(config, resources, questions, heads):
    only = config.change(systems=("RAG trained",))
    _, alone = tools.run(only, resources, questions)
    _, again = tools.run(only.change(systems=("CoV-RAG", "RAG trained")), resources, questions)
    assert again[again.system == "RAG trained"].texts.tolist() == alone.texts.tolist()
    assert again.seconds.notna().all()
    unmeasured = [replace(one, question=f"{one.question}, please") for one in questions]
    evaluate.run_system("RAG trained", config, resources, unmeasured)  # the journal does not know how long it took
    assert tools.run(only, resources, unmeasured)[1].seconds.isna().all()


def test_a_meter_counts_tokens_where_the_model_has_a_tokenizer(tiny_folder, config, passages, questions):
    own = config.change(model=str(tiny_folder), quantize="none", device="cpu", max_answer_tokens=3)
    resources = tools.load_resources(own, passages)
    _, costs = tools.run(own.change(systems=("RAG trained",)), resources, questions[:1])
    row = costs.iloc[0]
    assert row["tokens read"] > 30 and 0 < row["tokens written"] <= 9
    assert row.seconds == float(f"{row.seconds:.4g}") > 0  # four digits, as they are recorded


def test_the_wider_search_is_deeper_or_elsewhere(config, passages, tmp_path):
    asked = ["Edith Marrow novel"]
    assert len(tools.load_wider(config, passages)(asked)[0]) == 6  # three times k of the same corpus
    file = tmp_path / "more.jsonl"
    file.write_text('{"id": "x1", "title": "Edith Marrow", "text": "Edith Marrow wrote a second novel."}\n')
    elsewhere = config.change(wider=str(file))
    found = tools.load_wider(elsewhere, passages)(asked)[0]
    assert "x1" in [p.id for p in found]
    assert [p.id for p in tools.wider_passages(elsewhere, passages)][-1] == "x1"


@pytest.fixture
def made(config, resources, questions, heads):
    ready, missing = tools.choose(config, resources)
    predictions, costs = tools.run(ready, resources, questions)
    frame = related.add_quality(to_frame(predictions), predictions, *heads)
    return missing, predictions, costs, related.add_costs(frame, costs)


def test_the_table_has_accuracy_citations_and_costs_of_every_system(made):
    missing, _, costs, frame = made
    table = related.summary(related.long_table(frame), frame).set_index("system")
    assert list(table.index) == ["RAG trained", "CoV-RAG", "CRAG", "A²R", "FaVe"]
    assert table.loc["CRAG", "citation recall"].startswith("100.0")
    assert table.loc["CRAG", "searches"] == f"{costs.set_index('system').searches['CRAG']:.3g}"
    compared = related.compare(frame)
    others = ("CRAG", "A²R", "FaVe")
    pairs = [f"{one} → CoV-RAG" for one in ("RAG trained", *others)] + [f"RAG trained → {one}" for one in others]
    assert compared.comparison.unique().tolist() == pairs
    judged = related.evaluators(frame)
    assert judged.score.tolist() == ["CRAG's evaluator", "our judge's reference score"]
    assert judged.n.tolist() == [3, 3]  # the fourth question's gold answer normalises to nothing
    assert judged["found (%)"].tolist() == [100.0, 100.0]
    assert related.notes(frame, missing, "a toy")[-1].startswith("RRR was left out")


def test_claim_recall_of_a_long_gold_answer_is_by_its_sentences(heads):
    long = "Edith Marrow wrote it in 1893 while she lived in Stonebridge.[1] It was her second novel.[2]"
    asked = Question("q", "webglm", "who wrote it?", (long,))

    def entail(x, k, y):
        assert all(own[0].text == "an answer" for own in k)
        return [float("second" in said) for said in y]

    assert claim_recall([asked], ["an answer"], entail) == [0.5]
    assert claim_recall([asked], ["an answer"], None) == [None]
    calls = []
    two = [asked, replace(asked, id="r", answers=(f"{long} And it was her last one.",))]
    assert claim_recall(two, ["x", "y"], lambda x, k, y: calls.append(len(y)) or [1.0] * len(y)) == [1.0, 1.0]
    assert calls == [5]  # all claims of all questions in one go
    short = Question("q", "nq", "who?", ("Edith Marrow",))
    assert claim_recall([short, short], ["Edith Marrow[1]", "Edith"], None) == [1.0, 0.0]


def test_without_an_entailment_model_the_table_says_so_and_tells_no_citation_quality(config, capsys):
    nobody = config.change(data="mine")
    entail, score, told = tools.load_judges(nobody)
    assert (entail, score) == (None, None)
    assert told.startswith("nobody")
    assert "-p learners entailment -p data mine" in capsys.readouterr().out
    one = Prediction(Question("a", "nq", "x?", ("yes",)), "RAG trained", (Round("x?", (), "yes[1]"),))
    frame = related.add_quality(to_frame([one]), [one], None, None)
    assert frame.citation_recall.isna().all()
    assert "citation recall" not in set(related.long_table(frame).metric)
    assert frame[["words", "citations"]].iloc[0].tolist() == [1, 1]


def test_a_related_system_runs_in_any_table(config, passages, questions, scripted, heads):
    own = config.change(systems=("RAG trained", "CRAG"))
    resources = evaluate.load_resources(own, passages, scripted)
    predictions = evaluate.run(own, resources, questions)
    assert [p.system for p in predictions] == ["RAG trained"] * 4 + ["CRAG"] * 4
    assert evaluate.load_resources(config, passages, scripted).wider is None  # who needs none loads none


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
    assert b"copper lanterns" not in gzip.decompress((folder / "related.predictions.jsonl.gz").read_bytes()).lower()
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


def test_the_recorded_run_is_told_before_any_sample(capsys, tmp_path):
    told = related.recorded_summary().set_index("system")
    assert {"RAG trained", "RRR", "CRAG", "A²R", "CoQ", "FaVe", "CoV-RAG"} == set(told.index)
    assert told.accuracy["CoV-RAG"].startswith("37.9 [")  # as results/README.md tells it
    assert "results/real/qwen2.5-coder-1.5b/seed-1" in capsys.readouterr().out
    (tmp_path / "results").mkdir()
    assert related.recorded_summary(tmp_path).empty
    assert "no run of related systems is recorded" in capsys.readouterr().out
