"""What a head of the related systems learns from and records; which tools a system gets."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from covrag_lite.config import Config, Model
from covrag_lite.method import Tools
from covrag_lite.plugins.related import heads, table, tools, train_heads
from covrag_lite.plugins.related.features import Pair
from covrag_lite.plugins.related.heads import find_head, score_pairs
from covrag_lite.plugins.related.names import ENTAILMENT, EVALUATOR
from covrag_lite.records import Passage, Question
from covrag_lite.replication import stages
from covrag_lite.tables import accuracy

PASSAGES = [Passage(name, "", name) for name in "abcd"]
QUESTIONS = [Question("q1", "nq", "who?", ("x",)), Question("q2", "nq", "where?", ("y",))]
PAIRS = [Pair("who?", passage) for passage in PASSAGES]
LABELLED = list(zip(PAIRS, (True, False, None, False)))


@pytest.fixture
def train(monkeypatch, tmp_path):
    """A function that trains a head on four pairs; the encoder and the regression are scripted."""
    monkeypatch.setattr(train_heads, "hash_encoder", lambda name: "e5")
    monkeypatch.setattr(train_heads, "find_commit", lambda: {"commit": "123"})
    monkeypatch.setattr(train_heads, "compute_features", lambda encoder, pairs: list(pairs))
    monkeypatch.setattr(train_heads, "fit", lambda pairs, labels: [len(pairs), labels.tolist()])
    monkeypatch.setattr(
        train_heads, "score_pairs", lambda head, pairs: np.array([0.9, 0.2, 0.3, 0])
    )
    monkeypatch.setattr(train_heads, "validate", lambda head, labelled, scores: scores.tolist())
    monkeypatch.setattr(
        train_heads, "load_training_pairs", lambda config, name: (QUESTIONS, LABELLED)
    )
    monkeypatch.setattr(train_heads, "load_validation_pairs", lambda config, name: LABELLED)
    config = Config().change(adapters_out=str(tmp_path / "out"), data=str(tmp_path / "mine"))
    return lambda name: train_heads.train(config, name)


def test_a_head_learns_from_the_pairs_with_a_label(train):
    head = train(EVALUATOR)
    assert head["head"] == [3, [True, False, False]]
    assert (head["pairs"], head["questions"]["n"]) == (3, 2)


def test_a_head_records_its_kind_encoder_data_and_commit(train):
    head = train(ENTAILMENT)
    recorded = {
        name: head[name] for name in ("kind", "encoder", "encoder_sha256", "data", "commit")
    }
    assert recorded == {
        "kind": "entailment",
        "encoder": "minilm",
        "encoder_sha256": "e5",
        "data": "mine",  # without the path
        "commit": "123",
    }


def test_a_head_is_validated_on_all_validation_pairs(train):
    assert train(ENTAILMENT)["validation"] == [0.9, 0.2, 0.3, 0.0]


def test_only_the_evaluator_has_thresholds(train):
    assert len(train(EVALUATOR)["thresholds"]) == 2
    assert "thresholds" not in train(ENTAILMENT)


def test_a_head_is_saved_under_its_name(train, tmp_path):
    head = train(EVALUATOR)
    saved = json.loads((tmp_path / "out" / "evaluator" / "head.json").read_text())
    assert saved == json.loads(json.dumps(head))


def test_the_training_pairs_are_those_of_every_source_up_to_the_limit(monkeypatch):
    limits = []
    source = SimpleNamespace(questions=QUESTIONS, search="a search", passages=PASSAGES)

    def load_sources(config):
        limits.append(config.synthesis.n_train_questions)
        return [source, source]

    monkeypatch.setattr(train_heads, "load_sources", load_sources)
    monkeypatch.setitem(train_heads.LABEL_PAIRS, EVALUATOR, lambda *words: [words])
    questions, labelled = train_heads.load_training_pairs(Config().change(n_learnt=7), EVALUATOR)
    assert limits == [7]
    assert questions == QUESTIONS * 2
    assert labelled == [(QUESTIONS, "a search", PASSAGES)] * 2


def test_gold_passages_that_were_missed_do_not_validate_a_head(monkeypatch):
    monkeypatch.setattr(train_heads, "load_questions", lambda config: QUESTIONS)
    monkeypatch.setattr(train_heads, "load_passages", lambda config: PASSAGES)
    monkeypatch.setattr(train_heads, "load_retriever", lambda settings, passages: len(passages))
    monkeypatch.setitem(train_heads.LABEL_PAIRS, EVALUATOR, lambda *words: words)
    pairs = train_heads.load_validation_pairs(Config(), EVALUATOR)
    assert pairs == (QUESTIONS, 4, ())  # searched in the whole corpus, labelled without it


# Scores.


def test_a_score_is_the_logistic_function_of_the_weighted_features(monkeypatch):
    monkeypatch.setattr(heads, "hash_encoder", lambda name: "e5")
    features = pd.DataFrame({"cosine": [0.0, 1.0], "answer": [0.5, 1.0]})
    monkeypatch.setattr(heads, "compute_features", lambda encoder, pairs: features)
    weights = {"cosine": 2.0, "answer": -2.0, "bias": 1.0}
    head = {"kind": EVALUATOR, "encoder": "toy", "encoder_sha256": "e5", "head": weights}
    assert score_pairs(head, PAIRS[:2]) == pytest.approx([0.5, 1 / (1 + np.exp(-1))])


def test_an_own_head_comes_before_the_shipped_one(tmp_path):
    (tmp_path / EVALUATOR).mkdir()
    (tmp_path / EVALUATOR / "head.json").write_text('{"data": "world", "mine": true}')
    assert find_head(Config().change(adapters=str(tmp_path)), EVALUATOR)["mine"]


# Tools.


@pytest.mark.parametrize("needed", [(), (EVALUATOR,), (ENTAILMENT,)])
def test_a_system_gets_the_heads_that_it_needs(monkeypatch, needed):
    found = {
        EVALUATOR: {"name": EVALUATOR, "thresholds": (0.2, 0.8)},
        ENTAILMENT: {"name": ENTAILMENT},
    }
    monkeypatch.setattr(heads, "find_head", lambda config, name: found[name])
    common = Tools("toy", "a search", "an answer", max_rounds=7)
    author = SimpleNamespace(settings=Model())
    equipped = tools.equip(common, Config(), lambda times: f"{times} k", author, needed)
    assert (equipped.name, equipped.search, equipped.max_rounds) == ("toy", "a search", 7)
    assert (equipped.author, equipped.wider) == (author, "3 k")
    assert equipped.score.args == (found[EVALUATOR] if EVALUATOR in needed else {},)
    assert equipped.entail.args == (found[ENTAILMENT] if ENTAILMENT in needed else {},)
    assert equipped.thresholds == ((0.2, 0.8) if EVALUATOR in needed else ())


# The table.


def row(system, dataset, metric, value):
    values = ("related", dataset, system, "toy", metric, 4, value, 0.0, 100.0, None)
    return dict(zip(accuracy.COLUMNS, values))


@pytest.fixture
def cells():
    """The table of qualities of two systems, one of which has no citation precision."""
    rows = [
        row("CRAG", "average", "normalised", 50.0),
        row("CRAG", "average", "raw", 25.0),
        row("CRAG", "nq", "normalised", 75.0),
        row("CRAG", "average", "citation precision", 33.3),
        row("FaVe", "average", "normalised", 25.0),
    ]
    frame = pd.DataFrame({"system": ["CRAG"] * 3 + ["FaVe"], "citations": [0, 1, 5, 0]})
    return table.quality_table(pd.DataFrame(rows), frame).set_index("system")


def test_a_system_is_shown_with_its_accuracy_over_all_sets(cells):
    assert cells.accuracy.to_dict() == {"CRAG": "2 of 4", "FaVe": "1 of 4"}


def test_a_quality_that_is_unknown_is_a_dash(cells):
    assert cells["citation precision"].to_dict() == {"CRAG": "33", "FaVe": "–"}


def test_answers_that_cite_are_those_with_a_citation(cells):
    assert cells["answers that cite"].to_dict() == {"CRAG": "67", "FaVe": "0"}


def test_no_other_metric_is_shown(cells):
    assert list(cells) == ["accuracy", "citation precision", "answers that cite"]


@pytest.fixture
def qualities():
    """The long table of a system with three answers, of which one cites nothing."""
    frame = pd.DataFrame(
        {
            "system": "CRAG",
            "backbone": "toy",
            "support": [1.0, 0.0, 1.0],
            "citation_precision": [1.0, None, 0.0],
        }
    )
    with pytest.MonkeyPatch.context() as patch:
        empty = pd.DataFrame(columns=accuracy.COLUMNS)
        patch.setattr(table.tables, "accuracy_table", lambda frame, name: empty)
        return table.long_table(frame).set_index("metric")


def test_a_quality_is_a_mean_in_percent_of_the_answers_that_have_it(qualities):
    assert qualities.loc["supported", ["n", "value"]].tolist() == [3, pytest.approx(200 / 3)]
    assert qualities.loc["citation precision", ["n", "value"]].tolist() == [2, 50.0]


def test_a_quality_that_was_not_measured_has_no_row(qualities):
    assert list(qualities.index) == ["supported", "citation precision"]
    assert set(qualities.dataset) == {"average"}


# The time of a replication's stages.


def test_a_stage_has_the_seconds_that_it_took(monkeypatch, tmp_path):
    clock = iter([100.0, 107.4, 200.0, 200.1])
    monkeypatch.setattr(stages.time, "perf_counter", lambda: next(clock))
    for name in ("save_plan", "refuse_changes", "pool_seeds"):
        monkeypatch.setattr(stages, name, lambda _: None)
    ran = []
    plan = SimpleNamespace(seed=3, results=tmp_path / "toy" / "seed-3", folder=tmp_path)
    (tmp_path / "done").touch()
    steps = [
        stages.Step(plan, "rag", tmp_path / "rag", lambda _: ran.append("rag")),
        stages.Step(plan, "cov", tmp_path / "done", lambda _: ran.append("cov")),
    ]
    monkeypatch.setattr(stages, "list_steps", lambda plans, wanted: steps)
    rows = stages.replicate([plan], ["rag", "cov"])
    assert rows.to_dict("list") == {"seed": [3, 3], "stage": ["rag", "cov"], "seconds": [7, 0]}
    assert ran == ["rag"]
    assert plan.results.is_dir()


def test_the_data_is_saved_for_every_method_under_the_folder_of_the_backbone(
    monkeypatch, tmp_path, capsys
):
    saved = {}
    recipe = stages.recipe
    monkeypatch.setattr(stages, "load_sources", lambda config: "sources")
    monkeypatch.setattr(recipe, "train_seeds", lambda config, sources: None)
    monkeypatch.setattr(recipe, "synthesise_d2", lambda config, sources: ([1, 2, 3], [1]))
    learnt = {"rag": ["r"], "cov": ["c"]}
    monkeypatch.setattr(recipe, "learnt_samples", lambda config, sources, chosen: learnt)
    counts = pd.Series({"helped": 1})
    monkeypatch.setattr(stages.training_data, "count_examples", lambda chosen: counts)
    drawn = []
    monkeypatch.setattr(
        stages.training_data, "plot_examples", lambda *words: drawn.append(words[1])
    )
    monkeypatch.setattr(stages, "save_samples", lambda path, samples: saved.update({path: samples}))
    config = Config().change(runs=str(tmp_path))
    plan = SimpleNamespace(
        config=config, backbone="toy", folder=tmp_path / "toy", training=lambda: config
    )
    stages.make_data(plan)
    folder = tmp_path / "toy"
    assert saved == {
        folder / "rag.samples.jsonl.gz": ["r"],
        folder / "cov.samples.jsonl.gz": ["c"],
    }
    assert drawn == [folder / "figure3.png"]
    assert "3 examples, 1 after balancing" in capsys.readouterr().out
