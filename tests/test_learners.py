"""CRAG's evaluator and the entailment proxy: what they learn from, how, and who finds them."""

from pathlib import Path

import numpy as np
import pytest

from covrag_lite.config import Config
from covrag_lite.records import Passage, Question
from covrag_lite.related import heads, relevance, tools
from covrag_lite.related.relevance import Pair


def test_relevance_is_learnt_from_gold_passages_and_entailment_from_right_and_wrong_answers_in_them(passages):
    def search(queries):
        return [passages[:3] for _ in queries]

    # A passage is relevant if it is gold, and unsettled if it only holds the answer.
    asked = Question("q", "nq", "who wrote the copper lanterns", ("Edith Marrow",), ("p0",))
    labels = {pair.passage.id: right for pair, right in heads.relevance_pairs([asked], search)}
    assert labels == {"p0": True, "p1": None, "p2": False}  # p1 names Edith Marrow, but is not the gold passage
    far = Question("r", "nq", "how long is it", ("71 kilometres",), ("p3",))
    rows = heads.relevance_pairs([far], search, passages)
    assert [(pair.passage.id, right) for pair, right in rows if right] == [("p3", True)]  # gold, though it was missed
    plain = Question("s", "nq", "who", ("Edith Marrow",))  # no gold passage is known: the answer's words tell
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
    # A question that found only the answer's words fits none.
    labels = {"a1": True, "a2": None, "b1": None, "c1": False}
    rows = [(Pair(name[0], Passage(name, "", "")), right) for name, right in labels.items()]
    assert heads.best_of_questions(rows, np.array([0.2, 0.9, 0.5, 0.3])) == ([0.9, 0.3], [True, False])


def test_an_evaluator_learns_on_a_frozen_encoder_and_is_found_for_its_own_data_and_weights(tiny_encoder, tmp_path):
    small = {"n_passages": 1000, "n_world": (4, 400, 40), "n_learnt": 20, "k": 3}
    places = {"adapters_out": str(tmp_path), "adapters": str(tmp_path)}
    config = Config().change(encoder=str(tiny_encoder), **places, **small)
    report = heads.train(config, "evaluator")
    assert report.AUROC.iloc[0] > 0.7  # even on random vectors the shared letters tell something
    folder = tools.find_head(config, "evaluator")
    assert [file.name for file in folder.iterdir()] == ["head.json"]
    about = relevance.read_about(folder)
    assert (about["data"], about["kind"], about["questions"]["n"]) == ("world", "evaluator", 20)
    assert 0 <= about["thresholds"][0] <= about["thresholds"][1] <= 1.01
    score = relevance.load_score(folder)
    own = Passage("p", "Aldermere", "Aldermere is a town.")
    scores = score(["where is aldermere", "who?"], [[own, Passage("q", "Stell", "A river.")], [own]])
    assert [len(row) for row in scores] == [2, 1]
    assert scores[0][0] > scores[0][1]
    assert score(["who?"], [[]]) == [[]]
    with pytest.raises(ValueError, match="was trained on other weights of the encoder"):
        relevance.rate_by_head(about | {"encoder_sha256": "other"})


def test_the_shipped_heads_are_those_of_the_embedded_data():
    for kind in tools.HEADS:
        about = relevance.read_about(tools.find_head(Config(), kind))
        assert (about["data"], about["encoder"], about["kind"]) == ("world", "minilm", kind)
        assert about["validation"][0]["AUROC"] > 0.85


def test_a_head_entails_by_the_best_passage_and_a_model_by_all_of_them(passages, monkeypatch):
    seen = []

    def rate(asked):
        seen.extend(asked)
        return np.array([0.9 if "1861" in pair.passage.text else 0.1 for pair in asked])

    monkeypatch.setattr(relevance, "load_rate", lambda folder: rate)
    head, model = relevance.load_entail(tools.find_head(Config(), "entailment")), relevance.load_entail(Path("a model"))
    assert head(["when?"], [passages[:2]], ["1861"]) == [0.9]
    assert len(seen) == 2
    assert model(["when?"], [passages[:2]], ["1861"]) == [0.9]
    assert passages[0].text in seen[-1].passage.text
    assert head(["when?"], [()], ["1861"]) == [0.0]


def test_an_entailment_model_from_elsewhere_reads_the_passage_first_and_tells_one_of_its_labels(tiny_encoder, tmp_path):
    from sentence_transformers import CrossEncoder

    network = CrossEncoder(str(tiny_encoder), num_labels=3)
    network.config.id2label = {0: "CONTRADICTION", 1: "NEUTRAL", 2: "ENTAILMENT"}
    network.save_pretrained(str(tmp_path / "model"))
    folder = tools.find_head(Config().change(entailment=str(tmp_path / "model")), "entailment")
    pair = Pair("who?", Passage("p", "Stell", "A river."), "Edith")
    (expected,) = network.predict([("Stell A river.", "who? Edith")], apply_softmax=True)[:, 2]
    assert relevance.load_rate(folder)([pair]) == pytest.approx([expected])
    network.config.id2label = {0: "bad", 1: "fair", 2: "good"}
    network.save_pretrained(str(tmp_path / "model"))
    with pytest.raises(ValueError, match="has the labels bad, fair, good, and none of entailment, entailed"):
        relevance.load_classifier(folder)
