"""Parts of the related systems by hand: labels, features, heads, costs and cells of their table."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from toy_related import BORN, LONG, WRITER, Script, ids

from covrag_lite.config import ROOT, Config
from covrag_lite.plugins.related import a2r as a2rs
from covrag_lite.plugins.related import features, heads, qualities, table, train_heads
from covrag_lite.plugins.related import labelled_pairs as labels
from covrag_lite.plugins.related.answer_quality import (
    CITATION_PRECISION,
    CITATION_RECALL,
    SUPPORT,
    assess,
    claim_recall,
    read_claims,
)
from covrag_lite.plugins.related.coq import coq
from covrag_lite.plugins.related.crag import crag, recompose
from covrag_lite.plugins.related.fave import fave, is_relevant
from covrag_lite.plugins.related.features import Pair
from covrag_lite.plugins.related.head_tables import compare_evaluators, evaluator_table
from covrag_lite.plugins.related.meter import Meter
from covrag_lite.plugins.related.search_session import write_sessions
from covrag_lite.plugins.related.sub_questions import conclude, search_documents
from covrag_lite.plugins.related.thresholds import fit_thresholds
from covrag_lite.records import Passage, Prediction, Question, Round
from covrag_lite.systems.names import COV_RAG

GOLD = Question("q", "nq", WRITER, ("Edith Marrow",), ("p0",))


@pytest.fixture
def search(passages):
    """A search that returns the first three passages."""
    return lambda queries: [passages[:3] for _ in queries]


# Labelled pairs.


def test_a_gold_passage_that_was_retrieved_is_not_added_again(search, passages):
    pairs = labels.relevance_pairs([GOLD], search, passages)
    assert [pair.passage.id for pair, _ in pairs] == ["p0", "p1", "p2"]


def test_a_gold_passage_that_the_corpus_lacks_is_not_added(search, passages):
    question = Question("r", "nq", "where?", ("here",), ("p9",))
    assert len(labels.relevance_pairs([question], search, passages)) == 3


def test_an_answer_within_a_longer_word_leaves_a_passage_irrelevant(search, passages):
    question = Question("r", "nq", "who?", ("Stone",), ("p0",))  # p1 names Stonebridge
    by_id = {pair.passage.id: label for pair, label in labels.relevance_pairs([question], search)}
    assert by_id == {"p0": True, "p1": False, "p2": False}


def test_the_only_other_name_of_a_passage_is_a_wrong_answer(search):
    pairs = labels.entailment_pairs([GOLD], search)
    of_gold = [(pair.statement, label) for pair, label in pairs if pair.passage.id == "p0"]
    assert of_gold == [("Edith Marrow", True), ("1893", False)]


def test_a_passage_that_may_hold_the_answer_is_not_labelled_by_it(search):
    pairs = labels.entailment_pairs([GOLD], search)
    (label,) = [
        label
        for pair, label in pairs
        if (pair.passage.id, pair.statement) == ("p1", "Edith Marrow")
    ]
    assert label is None


def test_a_gold_passage_does_not_entail_the_answer_to_another_question(search):
    others = [Question(f"o{i}", "nq", f"{i}?", ("Leeds",), ("p5",)) for i in range(9)]
    pairs = labels.entailment_pairs([GOLD, *others], search)
    assert (Pair(WRITER, search([""])[0][0], "Leeds"), False) in pairs


@pytest.mark.parametrize(
    ("name", "is_shared"),
    [("Copper Kettle", True), ("Jane Marrow", True), ("Stonebridge", False), ("1893", False)],
)
def test_a_name_shares_words_with_the_answer_or_with_the_question(name, is_shared):
    assert labels.shares_word(name, GOLD) == is_shared


# Thresholds.


@pytest.mark.parametrize(
    ("is_found", "middle"),
    [([False, True, True], 0.2), ([False, True], 0.15)],  # of 0.3 and 0.1, of 0.2 and 0.1
)
def test_a_precision_that_is_just_reached_is_enough(is_found, middle):
    best = [0.1, 0.2, 0.3][: len(is_found)]
    assert fit_thresholds(best, is_found, 0.5) == (middle, middle)


# Features.


PAIR = Pair(
    "who is Voss of Velm", Passage("v", "Old Velm", "Velm is old. Ada Voss left. Ada came."), "Ada"
)


def test_the_sentence_of_a_statement_is_the_first_that_contains_it():
    assert PAIR.sentence == "Ada Voss left."


def test_without_a_statement_there_is_no_sentence():
    assert Pair("who?", PAIR.passage).sentence == ""


def test_a_statement_within_a_longer_word_has_no_sentence():
    assert Pair("who?", PAIR.passage, "ol").sentence == ""


@pytest.fixture
def described():
    """The features of a pair whose words are only partly shared."""
    pair = Pair("who is Voss of Velm", PAIR.passage, "Voss Toll")
    vectors = dict.fromkeys([pair.question, "Old Velm", pair.evidence], np.array([1.0, 0.0]))
    return features.describe(pair, vectors)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("words of the title", 1 / 2),  # Velm
        ("words of the question", 3 / 5),  # is, Voss, Velm
        ("words of the answer", 1 / 2),  # Voss
        ("new words", 0),  # Toll
        ("answer", 0),
        ("answer and cosine", 0),
        ("cosine of its sentence", 0),
        ("claim and sentence", 0),
    ],
)
def test_a_feature_is_the_share_of_words_in_common(described, name, value):
    assert described[name] == pytest.approx(value)


def test_letters_are_compared_in_threes_with_the_spaces_around_words():
    assert features.letters_of("B!") == {" b "}
    assert features.letters_of("Velm") == {" ve", "vel", "elm", "lm "}


def test_nothing_shares_nothing():
    assert features.shared_part(set(), {"a"}) == 0


def test_a_text_is_encoded_once(monkeypatch):
    encoded = []

    def encode(texts, **options):
        encoded.append(list(texts))
        return [np.zeros(2)] * len(texts)

    monkeypatch.setattr(features, "VECTORS", {"toy": {}})
    monkeypatch.setattr(features, "find_encoder", lambda name: name)
    monkeypatch.setattr(features, "load_encoder", lambda name: SimpleNamespace(encode=encode))
    features.load_vectors("toy", ["a", "b", "a"])
    vectors = features.load_vectors("toy", ["b", "c"])
    assert encoded == [["a", "b"], ["c"]]
    assert set(vectors) == {"a", "b", "c"}


# Heads.


def test_a_head_is_validated_against_the_more_frequent_label(monkeypatch):
    monkeypatch.setattr(train_heads, "SIMPLE", {"toy": ()})
    monkeypatch.setattr(train_heads, "compute_features", lambda encoder, pairs: {})
    labelled = [(PAIR, True), (PAIR, False), (PAIR, False), (PAIR, False)]
    scores = np.array([0.5, 0.6, 0.4, 0.1])  # a score of 0.5 counts as relevant
    (row,) = train_heads.validate({"kind": "toy", "encoder": ""}, labelled, scores)
    assert (row["majority (%)"], row["right (%)"]) == (75.0, 75.0)


def test_simple_scores_are_validated_on_the_certain_pairs(monkeypatch):
    cosines = {"a": 0.1, "b": 0.5, "c": 0.9}

    def compute_features(encoder, pairs):
        values = [cosines[pair.question] for pair in pairs]
        return {"cosine": values, "answer": [1 - value for value in values]}

    monkeypatch.setattr(train_heads, "compute_features", compute_features)
    pairs = [Pair(question, PAIR.passage) for question in cosines]
    labelled = list(zip(pairs, (False, None, True)))
    head = {"kind": "entailment", "encoder": ""}
    rows = train_heads.validate(head, labelled, np.array([0.2, 0.9, 0.8]))
    assert [(row["score"], row["n"], row["AUROC"]) for row in rows] == [
        ("entailment", 2, 1.0),
        ("cosine alone", 2, 1.0),
        ("answer alone", 2, 0.0),
    ]


def test_a_fitted_head_scores_the_middle_of_two_classes_one_half():
    values = pd.DataFrame({"cosine": [0.2, 0.6] + [0.4, 0.8] * 5})  # five times as many are true
    weights = train_heads.fit(values, np.array([False] * 2 + [True] * 10))
    assert weights["cosine"] > 0
    assert -weights["bias"] / weights["cosine"] == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("adapters", ["auto", "none"])
def test_without_own_adapters_the_heads_are_those_of_the_model(adapters):
    folder = heads.adapters_folder(Config().change(adapters=adapters))
    assert folder == ROOT / "results" / "adapters" / "smollm2-135m"


def test_heads_are_next_to_own_adapters(tmp_path):
    assert heads.adapters_folder(Config().change(adapters=str(tmp_path))) == tmp_path


def test_a_head_of_other_data_is_passed_over(tmp_path):
    place = tmp_path / "evaluator"
    place.mkdir()
    (place / "head.json").write_text('{"data": "other"}')
    found = heads.find_head(Config().change(adapters=str(tmp_path)), "evaluator")
    assert found["data"] == "world"  # the shipped one


# Two scores of the same passages.


@pytest.fixture
def scored():
    """Three questions of CoV-RAG, and one of another system; one has no named gold passage."""
    rows = [
        (COV_RAG, True, False, 0.5, 0.9),
        (COV_RAG, False, True, 0.6, 0.1),
        (COV_RAG, None, True, 0.9, np.nan),
        ("CRAG", True, True, 0.0, 0.0),
    ]
    columns = ["system", "gold_first", "found_first", "evaluator", "expected_reference"]
    return pd.DataFrame(rows, columns=columns)


def test_the_evaluator_is_right_where_the_first_search_found_a_gold_passage_or_an_answer(scored):
    row = compare_evaluators(scored).set_index("score").loc["CRAG's evaluator"]
    assert row[["n", "found (%)", "right (%)", "AUROC"]].tolist() == [3, 66.67, 66.67, 0.5]


def test_a_question_without_a_score_is_left_out(scored):
    row = compare_evaluators(scored).set_index("score").loc["our judge's reference score"]
    assert row[["n", "found (%)", "right (%)", "AUROC"]].tolist() == [2, 50, 100, 1]


def test_the_table_of_both_scores_has_each_in_its_column(scored):
    cells = evaluator_table(compare_evaluators(scored)).iloc[1]
    assert cells[["answer found %", "correct %"]].tolist() == ["50.0", "100.0"]
    assert cells["AUROC [95 % interval]"].startswith("1.00")


# What is measured of each answer.


def test_only_the_first_passages_of_cov_rag_are_scored_by_the_evaluator(monkeypatch, passages):
    entail = Script([]).entail
    monkeypatch.setattr(qualities, "score_entailment", lambda head, *words: entail(*words))
    monkeypatch.setattr(
        qualities,
        "score_relevance",
        lambda head, x, k: [[0.1 * int(passage.id[1:]) for passage in shown] for shown in k],
    )
    first = Round(WRITER, tuple(passages[1:4]), "Harrow[1][2]")
    last = Round(BORN, tuple(passages[4:6]), "Edith Marrow[1]")
    predictions = [
        Prediction(GOLD, COV_RAG, (first, last)),
        Prediction(GOLD, "CRAG", (first,)),
    ]
    rows = qualities.measure_qualities(predictions, {}, {})
    assert rows.evaluator.iloc[0] == pytest.approx(0.3)
    assert pd.isna(rows.evaluator.iloc[1])
    assert rows.words.tolist() == [2, 1]
    assert rows.citations.tolist() == [1, 2]
    assert rows.claim_recall.tolist() == [1.0, 0.0]


# Costs.


def test_parallel_samples_are_one_step():
    meter = Meter()
    for sample in (0, 1, 2, 3):
        meter.add([(100, 7)], sample)
    meter.add([(100, 7)], None)
    row = meter.row("FaVe", 2)
    assert (row["steps"], row["texts"], row["tokens read"], row["n"]) == (2, 2.5, 250.0, 2)


def test_costs_are_recorded_with_four_digits():
    meter = Meter()
    meter.add([(100_000, 1)], None)
    assert meter.row("RAG", 7)["tokens read"] == 14290


# The table.


def test_each_system_is_compared_with_cov_rag_and_rag_trained_with_each():
    pairs = table.pairs_of(["RAG trained", "CRAG", COV_RAG])
    assert pairs == [("RAG trained", COV_RAG), ("CRAG", COV_RAG), ("RAG trained", "CRAG")]


def cell(n, metric="accuracy"):
    row = SimpleNamespace(n=n, metric=metric, value=33.333, low=20.0, high=50.4)
    return table.format_cell(row)


def test_a_small_sample_is_a_count_and_a_large_one_has_an_interval():
    assert cell(table.SMALL_SAMPLE - 1) == f"{round((table.SMALL_SAMPLE - 1) / 3)} of " + str(
        table.SMALL_SAMPLE - 1
    )
    assert cell(table.SMALL_SAMPLE) == "33.3 [20–50]"


def test_a_quality_of_a_small_sample_is_no_count():
    assert cell(3, "supported") == "33"


def test_costs_that_were_not_recorded_are_dashes():
    frame = pd.DataFrame(
        {
            "system": ["CRAG", "CRAG", COV_RAG],
            "words": [1, 2, 4],
            "cost: searches": [1.2345, 1.2345, 2],
            "cost: tokens read": [1234.5, 1234.5, np.nan],
        }
    )
    rows = table.cost_table(frame).set_index("system")
    assert rows.loc["CRAG"].tolist() == ["1.5", "1.23", "1234"]
    assert rows.loc[COV_RAG].tolist() == ["4.0", "2", "–"]


# A²R: its limits.


def test_the_satisfaction_with_an_answer_is_the_mean_of_its_aspects():
    assert a2rs.mean({SUPPORT: 1.0, CITATION_RECALL: 0.5, CITATION_PRECISION: 0.0}) == 0.5


def test_an_aspect_of_one_half_gets_no_advice():
    scores = {SUPPORT: 0.5, CITATION_RECALL: 0.4}
    prompt = a2rs.build_feedback(Round("who?", (), "Edith"), scores)
    assert "support, score 50: say that it is satisfactory" in prompt
    assert "citation recall, score 40: advise to put the mark" in prompt


# CRAG: what is recorded and kept.


@pytest.fixture
def corrected(passages, questions):
    script = Script(passages, {(WRITER, "p0"): 0.9, (WRITER, "p1"): 0.3})
    script.texts = {"terms": lambda question, _: "terms"}
    return crag(questions[:1], script.tools())[0]


def test_the_note_of_crag_has_the_best_score_and_the_number_of_passages(corrected):
    note = "Correct: the best passage scores 0.90; 2 passages keep a strip"
    assert corrected.rounds[0].note == note


def test_crag_keeps_the_five_best_strips():
    strips = [Passage(f"p{i}", "", f"strip {i}") for i in range(7)]
    kept = recompose(strips, [0.5, 0.3, 0.8, 0.7, 0.2, 0.6, 0.9], 0.1)
    assert ids(kept) == ["p0", "p2", "p3", "p5", "p6"]


# Sub-questions.


def test_a_sub_question_keeps_its_two_best_documents_with_the_best_score(passages):
    script = Script(passages, {("a?", "p2"): 0.9, ("a?", "p1"): 0.5, ("a?", "p0"): 0.1})
    (ranked,) = search_documents(["a?"], script.tools())
    assert ids(ranked.documents) == ["p2", "p1"]
    assert ranked.top_score == 0.9


def test_a_sub_question_that_finds_nothing_scores_0():
    (ranked,) = search_documents(["a?"], Script([]).tools())
    assert (ranked.documents, ranked.top_score) == ((), 0.0)


def test_a_conclusion_has_its_note_and_each_document_once(passages, questions):
    steps = [Round("a?", (passages[0], passages[1]), "x"), Round("b?", (passages[1],), "y")]
    (prediction,) = conclude(questions[:1], [steps], ["session 1"], Script([]).tools())
    assert prediction.final.note == "session 1"
    assert ids(prediction.final.passages) == ["p0", "p1"]


# How long texts may be.


class Limits(Script):
    """An author that writes the same text to every prompt, and notes how long it may be."""

    def __init__(self, passages, text):
        super().__init__(passages)
        self.text = text
        self.limits = set()

    def write(self, stage, prompts, limit, sample=None):
        self.limits.add((stage, limit))
        return [self.text for _ in prompts]


def test_a_refined_answer_may_be_as_long_as_an_answer(passages, questions):
    author = Limits(passages, "x")
    a2rs.a2r(questions[:1], author.tools())
    assert ("refine", author.settings.max_answer_tokens) in author.limits


def test_a_plan_has_room_for_three_sub_questions(passages, questions):
    author = Limits(passages, "[END]")
    write_sessions(author, [LONG])
    coq(questions[:1], author.tools())
    limits = dict(author.limits)
    assert limits["plan"] == 3 * limits["follow-up"]


def test_a_relevance_reply_is_shorter_than_any_sub_question():
    author = Limits([], "yes")
    is_relevant(author, ["x?"], ["a?"])
    ((_, limit),) = author.limits
    assert 1 <= limit < 5


# Citation quality: its limits.


@pytest.mark.parametrize(("score", "is_supported"), [(0.5, 1.0), (0.49, 0.0)])
def test_a_statement_is_entailed_from_one_half(passages, score, is_supported):
    (shares,) = assess(["who?"], [passages[:1]], ["Edith[1]"], lambda x, k, y: [[score]])
    assert (shares[SUPPORT], shares[CITATION_RECALL]) == (is_supported, is_supported)


@pytest.mark.parametrize(("score", "recall"), [(0.5, 1.0), (0.49, 0.0)])
def test_a_claim_of_a_long_gold_answer_is_made_from_one_half(score, recall):
    question = Question("q", "eli5", "why?", ("word " * 13,))
    assert claim_recall([question], ["x"], lambda x, k, y: [[score] for _ in y]) == [recall]


@pytest.mark.parametrize(("n_words", "n_claims"), [(12, 0), (13, 1)])
def test_a_gold_answer_of_more_than_twelve_words_consists_of_claims(n_words, n_claims):
    assert len(read_claims("word[1] " * n_words)) == n_claims


def test_a_claim_has_no_citations():
    assert read_claims("word[1] " * 13) == [" ".join(["word"] * 13)]


def test_statements_are_assessed_with_the_question_and_passages_of_their_answer(passages):
    asked = []

    def entail(x, k, y):
        asked.extend(zip(x, map(ids, k), y))
        return [[1.0] * len(shown) for shown in k]

    assess(["a?", "b?"], [passages[:1], passages[1:3]], ["One. Two.", "Three"], entail)
    assert asked == [("a?", ["p0"], "One."), ("a?", ["p0"], "Two."), ("b?", ["p1", "p2"], "Three")]


# What systems record.


def test_crag_records_the_likelihood_of_each_answer(passages, questions):
    script = Script(passages, {(WRITER, "p0"): 0.9})
    script.texts = {"terms": lambda question, _: "terms"}
    tools = replace(
        script.tools(), likelihoods=lambda x, k: [-0.1 * (i + 1) for i in range(len(x))]
    )
    predictions = crag(questions[:2], tools)
    assert [prediction.final.likelihood for prediction in predictions] == [-0.1, -0.2]


def test_of_equally_good_sessions_the_first_is_answered(passages, questions):
    script = Script(passages)
    script.texts = {
        "plan": lambda prompt, sample: f"1. question {sample}",
        "relevant": lambda prompt, _: "Yes",
    }
    (prediction,) = fave(questions[:1], script.tools())
    assert prediction.rounds[0].query == "question 0"
    assert prediction.final.note == "session 1 of 8, quality 0.17"  # one of three is relevant


def test_a_chain_reads_the_answers_of_its_own_question_only(passages, questions):
    script = Script(passages, answers={"a?": "A", "b?": "B"})
    chains = {WRITER: ["a?", "a2?", "[END]"], BORN: ["b?", "b2?", "[END]"]}

    def write(prompt, _):
        last = prompt.rpartition("Question: ")[2]
        return chains[last.splitlines()[0]][last.count("Output")]

    script.texts = {"follow-up": write}
    coq(questions[:2], script.tools())
    ((prompts,), *_) = script.calls("follow-up")[1:]
    assert [prompt.splitlines()[-3:-1] for prompt in prompts] == [
        ["Search: a?", "Output: A"],
        ["Search: b?", "Output: B"],
    ]
    _, references = script.calls("answer")[1]
    assert [shown[-1].text for shown in references] == ["a? A", "b? B"]
