"""Related systems: training of the heads, costs of each system, and the table."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from conftest import ScriptedModel, write_jsonl

from covrag_lite import evaluate
from covrag_lite.check import check
from covrag_lite.config import Config
from covrag_lite.engine.interface import Completion
from covrag_lite.records import Passage, Question
from covrag_lite.related import heads, tools
from covrag_lite.related import table as related
from covrag_lite.related.heads import Pair
from covrag_lite.runs.outcomes import read_packed
from covrag_lite.runs.recorded import save_run

EVERY = ("RAG trained", "CRAG", "A²R", "FaVe", "CoV-RAG")


@pytest.fixture
def config(tmp_path, monkeypatch):
    """An evaluator that prefers passages about Edith, and a proxy that always entails."""

    def rate(head, pairs):
        return np.array([1.0 if one.said else 0.9 if "Edith" in one.passage.text else 0.1 for one in pairs])

    monkeypatch.setattr(heads, "rate", rate)
    about = {"data": "mine", "encoder": "toy", "thresholds": [0.2, 0.8]}
    about["validation"] = [{"balanced (%)": 90.0, "n": 9, "AUROC": 0.8}]
    for name in heads.PAIRS:
        write_jsonl(tmp_path / "adapters" / name / "head.json", [about])
    own = {"data": str(tmp_path / "mine"), "adapters": str(tmp_path / "adapters"), "runs": str(tmp_path / "runs")}
    return Config().change(k=2, n_questions=0, related_systems=EVERY, systems=EVERY, **own)


@pytest.fixture
def resources(config, passages, scripted):
    return evaluate.load_resources(config, passages, scripted)


def test_every_system_runs_over_the_same_parts_and_is_counted(config, resources, questions):
    predictions, costs = tools.run(config, resources, questions)
    assert [p.system for p in predictions[::4]] == list(config.chain.systems) == costs.system.tolist()
    spent = costs.set_index("system")
    assert (spent.n == 4).all()
    assert spent.loc["RAG trained", ["searches", "passages", "texts", "steps"]].tolist() == [1, 2, 1, 1]
    assert spent.loc["CoV-RAG", "searches"] == 1.25  # one of four was searched again
    assert spent.loc["CoV-RAG", "texts"] == 2.25  # an answer and a verdict each, and one further answer
    assert spent.loc["FaVe", "searches"] == 4  # a sub-question in each of four sessions
    assert spent.loc["FaVe", "steps"] == 4  # whose plans wait for no other; relevance, sub-answers, conclusion
    assert spent["tokens read"].isna().all()  # a scripted model has no tokenizer


def test_a_text_costs_every_system_that_asks_for_it_whoever_asked_first(config, resources, questions):
    only = config.change(systems=("RAG trained",))
    _, alone = tools.run(only, resources, questions)
    _, again = tools.run(only.change(systems=("CoV-RAG", "RAG trained")), resources, questions)
    assert again[again.system == "RAG trained"].texts.tolist() == alone.texts.tolist()
    asked = len(resources.model.asked)
    resources.model.count_tokens = lambda prompts, texts: [(100, 7)] * len(prompts)
    spent = tools.run(only, resources, questions)[1].iloc[0]
    assert (spent["tokens read"], spent["tokens written"]) == (100, 7)  # though the journal had them all
    assert len(resources.model.asked) == asked


def test_what_cannot_run_stops_before_anything_is_loaded_or_asked(config, resources, questions):
    for name in ("RRR", "CoQ"):
        with pytest.raises(ValueError, match=f"{name} is in recorded tables only, .*; leave"):
            tools.run(config.change(systems=("RAG trained", name)), resources, questions)
    assert not resources.journal.texts
    told = "no evaluator was trained on 'other'; train it with: papermill notebooks/train_related.ipynb -p data other"
    with pytest.raises(FileNotFoundError, match=told):
        tools.run(config.change(data="other"), resources, questions)


def record(config, questions, passages, folder, model):
    """Run what notebooks/related.ipynb runs."""
    resources = evaluate.load_resources(config, passages, model)
    predictions, costs = tools.run(config, resources, questions)
    data = {"questions": questions, "passages": passages}
    run = save_run(folder, "related", {"": predictions}, config, resources.model, 1.0, data)
    related.record(run, predictions, costs)
    related.build(related.load(run), run).save(folder, draw=False)
    return run


def test_the_table_of_all_systems_is_made_anew_without_a_model_and_without_the_data(
    config, questions, passages, scripted, tmp_path
):
    run = record(config, questions, passages, tmp_path / "results" / "real" / "toy" / "seed-1", scripted)
    assert set(run.manifest["adapters"]) >= set(heads.PAIRS)
    assert "on the encoder toy; it is right for 90.0 % of 9" in run.manifest["notes"][-1]
    assert check(tmp_path)[0] == []
    table = related.build(related.load(run), run)
    systems = table.part("Accuracy and citations").set_index("system")
    assert list(systems.index) == ["RAG (trained)", "CoV-RAG", "CRAG", "A²R", "FaVe"]
    assert systems.loc["CRAG", "citation recall"] == "100"
    assert float(table.part("Costs").set_index("system").loc["CRAG", "searches"]) > 1
    assert "claim recall" not in systems  # which earlier runs recorded
    others = ("CRAG", "A²R", "FaVe")
    pairs = [f"{one} → CoV-RAG" for one in ("RAG (trained)", *others)]
    pairs += [f"RAG (trained) → {one}" for one in others]
    assert table.part("Each system").comparison.unique().tolist() == pairs
    judged = table.part("Was an answer found?")
    assert judged.score.tolist() == ["CRAG's evaluator", "our judge's reference score"]
    assert judged.n.tolist() == [3, 3]  # the fourth question's gold answer normalises to nothing
    assert judged["answer found %"].tolist() == ["100.0", "100.0"]
    names = ("CRAG citation recall", "CoV-RAG searches")
    assert [table.facts[name] for name in names] == ["100.0", "1.25"]
    assert "our judge's reference score AUROC" in table.facts


def test_no_question_is_recorded_though_every_text_of_the_model_copies_it(config, questions, passages, tmp_path):
    asked = [replace(one, question=f"{one.question} in the old town of Aldermere upon Stell") for one in questions]
    known = {one.question[:20].lower(): one.question for one in asked}

    class Copying(ScriptedModel):
        def complete(self, prompts, *rest):
            copied = [next(known[one] for one in known if one in prompt.lower()) for prompt in prompts]
            copied = [f"1. {one[:-3].upper()}" if "numbered" in p else one for p, one in zip(prompts, copied)]
            return [Completion(text) for text in copied]

    run = record(config, asked, passages, tmp_path / "out", Copying())
    again = record(config.change(runs=str(tmp_path / "again")), asked, passages, tmp_path / "again", Copying())
    for name in ("predictions.jsonl.xz", "qualities.csv.gz", "csv"):
        assert run.file(name).read_bytes() == again.file(name).read_bytes(), name  # a second run has the same bytes
    for file in run.folder.iterdir():
        written = read_packed(file) if file.suffix in (".gz", ".xz") else file.read_text()
        assert not any(one in written.lower() for one in known), file.name
    lines = [json.loads(line) for line in read_packed(run.predictions()).splitlines()]
    (line,) = [line for line in lines if line["id"] == "q1"]
    assert line["rounds"][line["systems"]["FaVe"][0][0]]["query"].startswith("⟨question")


# CRAG's evaluator and the entailment proxy: labels, training, and where they are found.


def test_relevance_is_learnt_from_gold_passages_and_entailment_from_right_and_wrong_answers_in_them(passages):
    def search(queries):
        return [passages[:3] for _ in queries]

    # A passage is relevant if it is gold, and unlabelled if it only contains the answer.
    asked = Question("q", "nq", "who wrote the copper lanterns", ("Edith Marrow",), ("p0",))
    labels = {pair.passage.id: right for pair, right in heads.relevance_pairs([asked], search)}
    assert labels == {"p0": True, "p1": None, "p2": False}  # p1 names Edith Marrow, but is not the gold passage
    far = Question("r", "nq", "how long is it", ("71 kilometres",), ("p3",))
    rows = heads.relevance_pairs([far], search, passages)
    assert [(pair.passage.id, right) for pair, right in rows if right] == [("p3", True)]  # gold, though it was missed
    # No gold passage is known: the answer's words decide.
    plain = Question("s", "nq", "who", ("Edith Marrow",))
    assert [right for _, right in heads.relevance_pairs([plain], search)] == [True, True, False]
    # Entailment is learnt from right answers, and from wrong ones in the same passage.
    rows = heads.entailment_pairs([asked], search, passages)
    assert [(pair.passage.id, pair.said) for pair, truth in rows if truth] == [("p0", "Edith Marrow")]
    wrong = [pair for pair, truth in rows if truth is False]
    assert any(pair.passage.id == "p0" and pair.said in pair.passage.text for pair in wrong)
    assert not any("Marrow" in pair.said for pair in wrong if pair.passage.id == "p0")


def test_thresholds_decide_as_much_as_they_may():
    best = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
    found = [False, False, False, True, False, True, True, True]
    assert heads.fit_thresholds(best, found, sure=0.9) == (0.4, 0.6)
    assert heads.fit_thresholds(best, found, sure=0.75) == (0.5, 0.5)  # they would cross: 0.6 and 0.4
    assert heads.fit_thresholds(best, [not one for one in found], sure=0.9) == (0.0, 1.01)  # nothing can be decided
    # A question that found only the answer's words is not used to fit thresholds.
    labels = {"a1": True, "a2": None, "b1": None, "c1": False}
    rows = [(Pair(name[0], Passage(name, "", "")), right) for name, right in labels.items()]
    assert heads.best_of_questions(rows, np.array([0.2, 0.9, 0.5, 0.3])) == ([0.9, 0.3], [True, False])


def test_an_evaluator_learns_on_a_frozen_encoder_and_is_found_for_its_own_data_and_weights(tiny_encoder, tmp_path):
    small = {"n_passages": 1000, "n_world": (4, 400, 40), "n_learnt": 20, "k": 3}
    places = {"adapters_out": str(tmp_path), "adapters": str(tmp_path)}
    config = Config().change(encoder=str(tiny_encoder), **places, **small)
    report = heads.train(config, "evaluator")["validation"]
    assert report[0]["AUROC"] > 0.7  # even with random vectors, shared letters help
    assert [row["score"] for row in report[1:]] == ["cosine alone", "words of the question alone"]
    head = heads.find_head(config, "evaluator")
    assert (head["data"], head["kind"], head["questions"]["n"]) == ("world", "evaluator", 20)
    assert 0 <= head["thresholds"][0] <= head["thresholds"][1] <= 1.01
    score = partial(heads.score, head)
    own = Passage("p", "Aldermere", "Aldermere is a town.")
    scores = score(["where is aldermere", "who?"], [[own, Passage("q", "Stell", "A river.")], [own]])
    assert [len(row) for row in scores] == [2, 1]
    assert scores[0][0] > scores[0][1]
    assert score(["who?"], [[]]) == [[]]
    with pytest.raises(ValueError, match="was trained on other weights of the encoder"):
        heads.rate(head | {"encoder_sha256": "other"}, [])


@pytest.mark.parametrize("kind", heads.PAIRS)
def test_a_shipped_head_is_good_and_scores_passage_by_passage(kind, passages, monkeypatch):
    head = heads.find_head(Config(), kind)
    assert (head["data"], head["encoder"], head["kind"]) == ("world", "minilm", kind)
    assert head["validation"][0]["AUROC"] > 0.85
    seen = []
    monkeypatch.setattr(heads, "rate", lambda head, pairs: seen.extend(pairs) or np.arange(len(pairs)))
    assert heads.score(head, ["when?", "who?"], [passages[:2], passages[:1]], ["1861", "Edith"]) == [[0, 1], [2]]
    assert [(pair.question, pair.passage, pair.said) for pair in seen[1:]] == [
        ("when?", passages[1], "1861"),
        ("who?", passages[0], "Edith"),
    ]
