"""CRAG's evaluator and the entailment proxy: what they learn from, how they are fitted, and who finds them."""

import json
from pathlib import Path

import numpy as np
import pytest

from covrag_lite.config import Config
from covrag_lite.records import Passage, Question
from covrag_lite.related import heads
from covrag_lite.related import relevance as pairs
from covrag_lite.related import tools as aiding
from covrag_lite.related.relevance import FEATURES, Pair
from covrag_lite.systems import find_system


@pytest.fixture
def search(passages):
    def search(queries):
        return [passages[:3] for _ in queries]

    return search


def test_a_passage_is_relevant_if_it_is_gold_and_unsettled_if_it_only_holds_the_answer(passages, search):
    asked = Question("q", "nq", "who wrote the copper lanterns", ("Edith Marrow",), ("p0",))
    labels = {pair.passage.id: right for pair, right in heads.relevance_pairs([asked], search)}
    assert labels == {"p0": True, "p1": None, "p2": False}  # p1 names Edith Marrow, but is not the gold passage
    far = Question("r", "nq", "how long is it", ("71 kilometres",), ("p3",))
    rows = heads.relevance_pairs([far], search, passages)
    assert [(pair.passage.id, right) for pair, right in rows if right] == [("p3", True)]  # gold, though it was missed
    plain = Question("s", "nq", "who", ("Edith Marrow",))  # no gold passage is known: the answer's words tell
    assert [right for _, right in heads.relevance_pairs([plain], search)] == [True, True, False]


def test_entailment_is_learnt_from_right_answers_and_from_wrong_ones_in_the_same_passage(passages, search):
    asked = Question("q", "nq", "who wrote the copper lanterns", ("Edith Marrow",), ("p0",))
    rows = heads.entailment_pairs([asked], search, passages)
    right = [(pair.passage.id, pair.said) for pair, truth in rows if truth]
    assert right == [("p0", "Edith Marrow")]
    wrong = [pair for pair, truth in rows if truth is False]
    assert any(pair.passage.id == "p0" and pair.said in pair.passage.text for pair in wrong)
    assert not any("Marrow" in pair.said for pair in wrong if pair.passage.id == "p0")


def test_features_say_what_is_shared(tiny_encoder):
    passage = Passage("p", "Copper Lanterns", "It is by Edith Marrow. It appeared in 1893.")
    pair = Pair("who wrote the coper lanterns", passage, "Edith Marrow")
    told = dict(zip(FEATURES, pairs.Features(str(tiny_encoder))([pair])[0]))
    assert told["words of the title"] == pytest.approx(1 / 2)
    assert 0.5 < told["letters of the title"] < 1  # the misspelt name is nearly there
    assert told["answer"] == told["words of the answer"] == told["new words"] == 1
    assert told["answer and cosine"] == pytest.approx(told["cosine"])
    assert told["claim and sentence"] != 0
    assert pairs.find_sentence(pair) == "It is by Edith Marrow."
    without = dict(zip(FEATURES, pairs.Features(str(tiny_encoder))([Pair(pair.question, passage)])[0]))
    assert all(without[name] == 0 for name in FEATURES[5:])
    assert pair.asked == "who wrote the coper lanterns Edith Marrow"


def test_a_head_finds_the_feature_that_tells(tiny_encoder):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(400, len(FEATURES))).astype(np.float32)
    truth = 3 * features[:, 2] - features[:, 4] > 0.5
    head = heads.fit(features, truth)
    score = features @ np.array([head[name] for name in FEATURES]) + head["bias"]
    assert ((score > 0) == truth).mean() > 0.97
    assert max(FEATURES, key=lambda name: abs(head[name])) == FEATURES[2]


def test_thresholds_decide_as_much_as_they_may():
    best = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
    found = [False, False, False, True, False, True, True, True]
    assert heads.fit_thresholds(best, found, sure=0.9) == (0.4, 0.6)
    assert heads.fit_thresholds(best, found, sure=0.75) == (0.5, 0.5)  # they would cross: 0.6 and 0.4
    assert heads.fit_thresholds(best, [not one for one in found], sure=0.9) == (0.0, 1.01)  # nothing can be decided


def test_a_question_that_found_only_the_answers_words_fits_no_threshold():
    def pair(question, place):
        return Pair(question, Passage(place, "", ""))

    rows = [(pair("a", "1"), True), (pair("a", "2"), None), (pair("b", "1"), None), (pair("c", "1"), False)]
    assert heads.best_of_questions(rows, np.array([0.2, 0.9, 0.5, 0.3])) == ([0.9, 0.3], [True, False])


@pytest.fixture
def config(tiny_encoder, tmp_path):
    """The world in little, and a tiny encoder."""
    small = {
        "n_passages": 1000,
        "n_world": (4, 400, 40),
        "n_learnt": 20,
        "n_validated": 5,
        "k": 3,
    }
    return Config().change(encoder=str(tiny_encoder), adapters_out=str(tmp_path / "adapters"), **small)


@pytest.fixture
def evaluator(config):
    report = heads.train(config, "evaluator")
    return Path(config.training.adapters_out) / "evaluator", report


def test_an_evaluator_learns_on_a_frozen_encoder_and_tells_what_it_is(config, evaluator):
    folder, report = evaluator
    about = json.loads((folder / "head.json").read_text())
    assert [file.name for file in folder.iterdir()] == ["head.json"]
    assert (about["data"], about["kind"], about["questions"]["n"]) == ("world", "evaluator", 20)
    assert report.AUROC.iloc[0] > 0.7  # even on random vectors the shared letters tell something
    assert 0 <= about["thresholds"][0] <= about["thresholds"][1] <= 1.01
    rate = pairs.load_rate(folder, False)
    score = pairs.as_score(rate)
    own = Passage("p", "Aldermere", "Aldermere is a town.")
    scores = score(["where is aldermere", "who?"], [[own, Passage("q", "Stell", "A river.")], [own]])
    assert [len(row) for row in scores] == [2, 1]
    assert scores[0][0] > scores[0][1]
    assert score(["who?"], [[]]) == [[]]


def test_a_head_of_other_weights_is_refused(evaluator):
    folder, _ = evaluator
    about = json.loads((folder / "head.json").read_text())
    (folder / "head.json").write_text(json.dumps(about | {"encoder_sha256": "other"}))
    with pytest.raises(ValueError, match="was trained on other weights of the encoder"):
        pairs.load_head(folder)


def test_the_evaluator_is_found_beside_the_adapters_and_only_for_its_own_data(config, evaluator):
    folder, _ = evaluator
    beside = config.change(adapters=config.training.adapters_out)
    assert aiding.find_head(beside, "evaluator") == folder
    with pytest.raises(
        FileNotFoundError, match="no evaluator was trained on 'mine'; train it with: papermill"
    ) as error:
        aiding.find_head(beside.change(data="mine"), "evaluator")
    assert "notebooks/train_related.ipynb -p learners evaluator -p data mine" in str(error.value)
    assert aiding.find_head(beside.change(data="mine", evaluator=str(folder)), "evaluator") == folder  # named aloud
    with pytest.raises(FileNotFoundError, match="there is no evaluator in .*train_related.ipynb"):
        aiding.find_head(config.change(evaluator="nowhere"), "evaluator")


def test_a_head_whose_training_was_killed_is_none(config, evaluator):
    folder, _ = evaluator
    about = json.loads((folder / "head.json").read_text())
    (folder / "head.json").write_text(json.dumps({name: about[name] for name in about if name != "validation"}))
    with pytest.raises(FileNotFoundError, match="no evaluator was trained on 'world'"):
        aiding.find_head(config.change(adapters=config.training.adapters_out), "evaluator")


def test_what_the_commands_train_is_what_the_systems_need():
    for name in ("RRR", "CRAG", "A²R", "CoQ", "UoQ", "FaVe"):
        assert set(find_system(name).needs) <= set(aiding.LEARNERS)
    said = aiding.train_with("rewrite-reward", Config())
    assert said.endswith("-p learners rewriter -p adapters_out results/adapters/smollm2-135m")
    other = aiding.train_with("rewrite-reward", Config().change(model="other", adapters="runs/other"))
    assert other.endswith("-p learners rewriter -p model other -p adapters runs/other -p adapters_out runs/other")


def test_the_shipped_heads_are_those_of_the_embedded_data():
    for kind in heads.KINDS:
        about = pairs.read_about(aiding.find_head(Config(), kind))
        assert (about["data"], about["encoder"], about["kind"]) == ("world", "minilm", kind)
        assert about["validation"][0]["AUROC"] > 0.85


@pytest.mark.parametrize(
    "parameters, sentence", [({"tune": "half"}, "tune 'half' is not known"), ({}, "learner 'luck'")]
)
def test_unknown_names_are_named(config, parameters, sentence):
    with pytest.raises(ValueError, match=sentence):
        heads.train(config.change(**parameters), "evaluator" if parameters else "luck")


def build_classifier(folder, encoder, labels):
    from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

    about = AutoConfig.from_pretrained(encoder, id2label=dict(enumerate(labels)), num_labels=len(labels))
    AutoModelForSequenceClassification.from_config(about).save_pretrained(folder)
    AutoTokenizer.from_pretrained(encoder).save_pretrained(folder)


def test_an_entailment_model_is_asked_for_its_own_label(tiny_encoder, tmp_path, passages):
    build_classifier(tmp_path / "nli", tiny_encoder, ["contradiction", "Entailment", "neutral"])
    config = Config().change(entailment=str(tmp_path / "nli"))
    entail = aiding.load_entail(config)
    scores = entail(["who?", "when?"], [passages[:2], passages[:1]], ["Edith", "1893"])
    assert len(scores) == 2
    assert all(0 < score < 1 for score in scores)
    build_classifier(tmp_path / "mood", tiny_encoder, ["glad", "sad"])
    with pytest.raises(ValueError, match="has the labels glad, sad, and none of entailment"):
        pairs.load_classifier(tmp_path / "mood", True)


def test_a_head_entails_by_the_best_passage_and_a_model_by_all_of_them(passages):
    seen = []

    def rate(asked):
        seen.extend(asked)
        return np.array([0.9 if "1861" in pair.passage.text else 0.1 for pair in asked])

    assert pairs.as_entail(rate, True)(["when?"], [passages[:2]], ["1861"]) == [0.9]
    assert len(seen) == 2
    assert pairs.as_entail(rate, False)(["when?"], [passages[:2]], ["1861"]) == [0.9]
    assert passages[0].text in seen[-1].passage.text
    assert pairs.as_entail(rate, True)(["when?"], [()], ["1861"]) == [0.0]


def test_the_whole_encoder_can_be_tuned_instead(config, tmp_path, monkeypatch):
    from covrag_lite.related import tuning

    monkeypatch.setattr(tuning, "LEARNING_RATE", 3e-3)  # for a network of a few thousand weights
    monkeypatch.setattr(tuning, "EPOCHS", 10)
    rows = [(Pair(f"who {i}", Passage("p", "", 9 * "az"[i % 2])), bool(i % 2)) for i in range(64)]
    tuning.tune(config.change(device="cpu"), rows, tmp_path / "whole", premise_first=False)
    assert not pairs.is_head(tmp_path / "whole")
    scores = pairs.load_rate(tmp_path / "whole", False)([pair for pair, _ in rows])
    assert ((scores > 0.5) == [right for _, right in rows]).all()


def test_rare_pairs_weigh_as_much_as_frequent_ones_when_an_encoder_is_tuned(config, tmp_path, monkeypatch):
    from covrag_lite.related import tuning

    monkeypatch.setattr(tuning, "LEARNING_RATE", 3e-3)
    monkeypatch.setattr(tuning, "EPOCHS", 10)
    pair = Pair("who", Passage("p", "", "az"))
    tuning.tune(config.change(device="cpu"), [(pair, i % 10 == 0) for i in range(160)], tmp_path / "whole", False)
    assert pairs.load_rate(tmp_path / "whole", False)([pair])[0] == pytest.approx(
        0.5, abs=0.15
    )  # nothing tells them apart


def test_a_tuned_encoder_is_validated_and_fits_thresholds_like_a_head(config):
    report = heads.train(config.change(tune="whole", device="cpu"), "evaluator")
    folder = Path(config.training.adapters_out) / "evaluator"
    about = pairs.read_about(folder)
    assert (about["tune"], "head" in about, len(about["thresholds"])) == ("whole", False, 2)
    assert report.score.iloc[0] == "evaluator"


def test_a_classifier_scores_equal_pairs_once_and_a_pair_alike_in_any_batch(tiny_encoder, tmp_path, monkeypatch):
    from transformers import BertForSequenceClassification

    build_classifier(tmp_path / "whole", tiny_encoder, ["relevant"])
    read, forward = [], BertForSequenceClassification.forward

    def counted(self, input_ids, **rest):
        read.append(len(input_ids))
        return forward(self, input_ids, **rest)

    monkeypatch.setattr(BertForSequenceClassification, "forward", counted)
    monkeypatch.setattr(pairs, "BATCH", 2)
    rate = pairs.load_classifier(tmp_path / "whole", False)
    some = [Pair("who?", Passage("p", "", "a" * n)) for n in (9, 3, 3, 5, 9)]
    scores = rate(some)
    assert read == [2, 1]  # three different pairs, two a batch
    assert scores[0] == scores[4] and scores[1] == scores[2] != scores[3]
    assert scores[3] == pytest.approx(rate([some[3]])[0], abs=1e-6)
    assert len(rate([])) == 0
