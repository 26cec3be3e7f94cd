"""The heads of related systems: labels, thresholds, training, and where a head is found."""

import json
from functools import partial

import numpy as np
import pytest

from covrag_lite.config import Config
from covrag_lite.plugins.related import features, heads, train_heads
from covrag_lite.plugins.related.features import Pair
from covrag_lite.plugins.related.head_tables import head_table
from covrag_lite.plugins.related.heads import MissingHead, find_head, score_entailment
from covrag_lite.plugins.related.labelled_pairs import entailment_pairs, relevance_pairs
from covrag_lite.plugins.related.names import EVALUATOR, HEADS
from covrag_lite.plugins.related.thresholds import best_of_questions, fit_thresholds
from covrag_lite.plugins.related.train_heads import train
from covrag_lite.records import Passage, Question

# Labels. Passages p0 and p1 contain "Edith Marrow", p3 contains "71 kilometres".
WRITER = Question("q", "nq", "who wrote the copper lanterns", ("Edith Marrow",), ("p0",))


@pytest.fixture
def search(passages):
    """A search that returns the first three passages."""
    return lambda queries: [passages[:3] for _ in queries]


def label_of(pairs):
    """The labels by the passage's id."""
    return {pair.passage.id: label for pair, label in pairs}


def test_a_passage_is_relevant_if_it_is_gold_and_unlabelled_if_it_only_contains_the_answer(search):
    labels = label_of(relevance_pairs([WRITER], search))
    assert labels == {"p0": True, "p1": None, "p2": False}


def test_a_gold_passage_that_was_missed_is_added(search, passages):
    question = Question("r", "nq", "how long is it", ("71 kilometres",), ("p3",))
    labels = label_of(relevance_pairs([question], search, passages))
    assert labels == {"p0": False, "p1": False, "p2": False, "p3": True}


def test_without_gold_passages_those_with_the_answer_are_relevant(search):
    question = Question("s", "nq", "who", ("Edith Marrow",))
    labels = label_of(relevance_pairs([question], search))
    assert labels == {"p0": True, "p1": True, "p2": False}


@pytest.fixture
def entailment(search, passages):
    return entailment_pairs([WRITER], search, passages)


def test_the_gold_passage_entails_the_gold_answer(entailment):
    entailed = [(pair.passage.id, pair.statement) for pair, label in entailment if label]
    assert entailed == [("p0", "Edith Marrow")]


def test_a_passage_does_not_entail_another_name_in_it(entailment):
    wrong = [pair for pair, label in entailment if label is False and pair.passage.id == "p0"]
    assert [pair.statement for pair in wrong if pair.statement in pair.passage.text]


def test_no_wrong_answer_shares_a_word_with_the_gold_answer(entailment):
    wrong = [pair for pair, label in entailment if label is False and pair.passage.id == "p0"]
    assert not [pair for pair in wrong if "Marrow" in pair.statement]


# Thresholds.
BEST = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
IS_FOUND = [False, False, False, True, False, True, True, True]


def test_each_threshold_decides_as_many_questions_as_its_precision_allows():
    assert fit_thresholds(BEST, IS_FOUND, precision=0.9) == (0.4, 0.6)


def test_thresholds_that_cross_are_set_to_their_mean():
    assert fit_thresholds(BEST, IS_FOUND, precision=0.75) == (0.5, 0.5)  # of 0.6 and 0.4


def test_thresholds_that_cannot_be_precise_decide_nothing():
    reversed_labels = [not is_found for is_found in IS_FOUND]
    assert fit_thresholds(BEST, reversed_labels, precision=0.9) == (0.0, 1.01)


def test_a_question_whose_best_label_is_unknown_is_not_used_for_thresholds():
    labels = {"a1": True, "a2": None, "b1": None, "c1": False}
    pairs = [(Pair(name[0], Passage(name, "", "")), label) for name, label in labels.items()]
    scores = np.array([0.2, 0.9, 0.5, 0.3])
    assert best_of_questions(pairs, scores) == ([0.9, 0.3], [True, False])


# Training.


@pytest.fixture(scope="module")
def trained(tiny_encoder, tmp_path_factory):
    """The configuration of an evaluator, and the evaluator; it sees random vectors."""
    folder = str(tmp_path_factory.mktemp("heads"))
    small = {"n_passages": 1000, "n_world": (4, 400, 40), "n_learnt": 20, "k": 3}
    config = Config().change(
        encoder=str(tiny_encoder), adapters_out=folder, adapters=folder, **small
    )
    return config, train(config, EVALUATOR)


def test_an_evaluator_learns_even_from_random_vectors(trained):
    _, head = trained
    assert head["validation"][0]["AUROC"] > 0.7  # shared letters help


def test_an_evaluator_is_compared_with_simple_scores(trained):
    _, head = trained
    simple = [row["score"] for row in head["validation"][1:]]
    assert simple == ["cosine alone", "words of the question alone"]


def test_the_lower_threshold_is_not_above_the_upper(trained):
    lower, upper = trained[1]["thresholds"]
    assert 0 <= lower <= upper <= 1.01


def test_a_trained_head_is_found_for_its_data(trained):
    config, head = trained
    sha256 = find_head(config, EVALUATOR).pop("sha256")
    assert find_head(config, EVALUATOR) == json.loads(json.dumps(head)) | {"sha256": sha256}


def test_a_passage_about_the_question_scores_higher(trained):
    score = partial(heads.score_relevance, trained[1])
    town = Passage("p", "Aldermere", "Aldermere is a town.")
    river = Passage("q", "Stell", "A river.")
    ((of_town, of_river),) = score(["where is aldermere"], [[town, river]])
    assert of_town > of_river


def test_no_passages_have_no_scores(trained):
    assert heads.score_relevance(trained[1], ["who?"], [[]]) == [[]]


def test_a_head_refuses_an_encoder_with_other_weights(trained):
    head = trained[1] | {"encoder_sha256": "other"}
    with pytest.raises(ValueError, match="was trained on other weights of the encoder"):
        heads.score_pairs(head, [])


def test_a_missing_head_names_the_command_that_trains_it():
    command = "papermill notebooks/train_related.ipynb -p data other"
    with pytest.raises(MissingHead, match=f"was trained on 'other'; train it with: {command}"):
        find_head(Config().change(data="other"), EVALUATOR)


@pytest.mark.parametrize("name", HEADS)
def test_a_shipped_head_is_for_the_world_and_the_default_encoder(name):
    head = find_head(Config(), name)
    assert (head["data"], head["encoder"], head["kind"]) == ("world", "minilm", name)


@pytest.mark.parametrize("name", HEADS)
def test_a_shipped_head_separates_validation_pairs(name):
    assert find_head(Config(), name)["validation"][0]["AUROC"] > 0.85


@pytest.fixture
def numbered(monkeypatch):
    """Scores 0, 1, 2 … instead of a head's; the list of scored pairs."""
    pairs = []

    def score_pairs(head, new):
        pairs.extend(new)
        return np.arange(len(new))

    monkeypatch.setattr(heads, "score_pairs", score_pairs)
    return pairs


def test_scores_are_grouped_by_question(numbered, passages):
    k = [passages[:2], passages[:1]]
    assert score_entailment({}, ["when?", "who?"], k, ["1861", "Edith"]) == [[0, 1], [2]]


def test_each_passage_is_paired_with_its_question_and_statement(numbered, passages):
    score_entailment({}, ["when?", "who?"], [passages[:2], passages[:1]], ["1861", "Edith"])
    assert numbered == [
        Pair("when?", passages[0], "1861"),
        Pair("when?", passages[1], "1861"),
        Pair("who?", passages[0], "Edith"),
    ]


# The features of a pair, by hand, with vectors at 60° and 90° to that of the question.

PAIR = Pair(
    "when was Velm founded?", Passage("v", "Velm", "Velm was founded in 1861. It grew."), "1861"
)
VECTORS_OF_PAIR = {
    "when was Velm founded?": np.array([1.0, 0.0]),
    "Velm": np.array([0.0, 1.0]),
    "Velm Velm was founded in 1861. It grew.": np.array([0.5, 0.75**0.5]),
    "Velm was founded in 1861.": np.array([0.5, 0.75**0.5]),
    "when was Velm founded? 1861": np.array([0.0, 1.0]),
}


@pytest.mark.parametrize(
    "name, value",
    [
        ("cosine", 0.5),
        ("cosine of the title", 0.0),
        ("letters of the title", 1.0),  # all of "Velm" is in the question
        ("words of the title", 1.0),
        ("words of the question", 3 / 4),  # without "when"
        ("words of the answer", 1.0),
        ("new words", 1.0),
        ("answer", 1.0),
        ("answer and cosine", 0.5),
        ("cosine of its sentence", 0.5),
        ("claim and sentence", 0.75**0.5),
    ],
)
def test_a_feature_of_a_pair(name, value):
    assert features.describe(PAIR, VECTORS_OF_PAIR)[name] == pytest.approx(value)


def test_the_table_of_a_head_has_its_auroc_with_the_interval():
    row = {"score": "head", "n": 40, "majority (%)": 60.0, "right (%)": 72.5, "balanced (%)": None}
    table = head_table({"validation": [row | {"AUROC": 0.8, "low": 0.7, "high": 0.9}]})
    assert table.iloc[0].tolist() == ["head", 40, "60.0", "72.5", "–", "0.80 [0.70, 0.90]"]


@pytest.mark.parametrize(("n_learnt", "n_validation"), [(50, 10), (3, 1), (0, 0)])
def test_a_fifth_as_many_questions_validate_a_head_as_teach_it(n_learnt, n_validation, monkeypatch):
    asked = []
    monkeypatch.setattr(
        train_heads,
        "load_questions",
        lambda config: asked.append((config.data.split, config.data.n_questions)) or [],
    )
    monkeypatch.setattr(train_heads, "load_passages", lambda config: [])
    monkeypatch.setattr(train_heads, "load_retriever", lambda settings, passages: None)
    monkeypatch.setitem(train_heads.LABEL_PAIRS, EVALUATOR, lambda *sources: [])
    config = Config().change(n_learnt=n_learnt)
    train_heads.load_validation_pairs(config, EVALUATOR)
    assert asked == [("validation", n_validation)]


def test_the_balanced_accuracy_of_a_head_gives_both_labels_the_same_weight(monkeypatch):
    monkeypatch.setattr(train_heads, "SIMPLE", {"toy": ()})
    monkeypatch.setattr(train_heads, "compute_features", lambda encoder, pairs: {})
    pair = Pair("question", Passage("p", "", "text"), "statement")
    labelled = [(pair, True), (pair, True), (pair, True), (pair, False), (pair, None)]
    scores = np.array([0.9, 0.9, 0.1, 0.9, 0.9])  # two of three true pairs, and no false one
    (row,) = train_heads.validate({"kind": "toy", "encoder": ""}, labelled, scores)
    assert row["n"] == 4
    assert row["right (%)"] == 50.0
    assert row["balanced (%)"] == 33.333
