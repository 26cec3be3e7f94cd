"""Search queries by a model that knows a passage, next to query expansion: who gains where."""

from types import SimpleNamespace

import pytest

from covrag_lite.config import Config
from covrag_lite.records import Passage, Prediction, Question, Round
from covrag_lite.runs.predictions import load_predictions, save_predictions
from covrag_lite.systems import names
from covrag_lite.tables import ceiling
from covrag_lite.tables.ceiling import CUT_OUT, WITH_QUERY, WITHOUT_CUT
from covrag_lite.tables.comparisons.pairs import ALL_SETS

ALONE, AFTER_QUESTION = ceiling.FORMS
CITY = Passage("p1", "City", "Paris, Rome and Oslo are cities.")
SEA = Passage("p2", "Sea", "The sea is deep.")
# The answer to each question is its last word. A query is None if no passage was available to the
# model that writes it. Each row: the note of the query, and which systems answer correctly.
CASES = {
    "q1": ("Paris", "", (1, 0, 1, 1)),
    "q2": ("Rome", CUT_OUT, (0, 0, 1, 0)),
    "q3": ("Oslo", None, (0, 1, 1, 1)),
    "q4": ("Bern", "", (0, 0, 1, 0)),
}


def predict_all():
    """The predictions of the four systems, system by system."""
    systems = (names.RAG_TRAINED, names.EXPANSION, ALONE, AFTER_QUESTION)
    predictions = []
    for place, system in enumerate(systems):
        for identity, (answer, note, right) in CASES.items():
            text = f"which city is number {identity}"
            question = Question(identity, "nq", text, (answer,))
            returned = answer if right[place] else "Bonn"
            rounds = [Round(text, (SEA,), returned if system == names.RAG_TRAINED else "Bonn")]
            has_query = system in ceiling.FORMS and note is not None
            if has_query:
                query = f"city of {identity}" if system == ALONE else f"{text} city of {identity}"
                rounds.append(Round(query, (CITY,), returned, note=note))
            elif system != names.RAG_TRAINED:
                rounds.append(Round(f"{text} a guess", (SEA,), returned))
            predictions.append(Prediction(question, system, tuple(rounds)))
    return predictions


@pytest.fixture
def predictions():
    return predict_all()


@pytest.fixture
def table(predictions):
    return ceiling.build(predictions, SimpleNamespace(config=Config().change(training_seed=8)))


def counts(table, before, after, questions=ALL_SETS):
    row = table.rows.set_index(["from", "to", "set"]).loc[(before, after, questions)]
    return row[["n", "gained", "lost"]].tolist()


def test_a_question_without_a_query_counts_with_its_expanded_one(table):
    # q3 is right in both, by the same answer.
    assert counts(table, names.EXPANSION, ALONE) == [4, 3, 0]


def test_a_question_with_its_expanded_query_has_no_query(predictions):
    assert ceiling.select_questions(predictions)[WITH_QUERY] == {"q1", "q2", "q4"}


def test_a_query_from_which_an_answer_was_cut_out_is_set_apart(predictions):
    assert ceiling.select_questions(predictions)[WITHOUT_CUT] == {"q1", "q4"}


def test_questions_with_a_query_are_also_compared_by_themselves(table):
    assert counts(table, names.EXPANSION, AFTER_QUESTION, WITH_QUERY) == [3, 1, 0]
    assert counts(table, names.EXPANSION, ALONE, WITHOUT_CUT) == [2, 2, 0]


def test_every_way_to_search_twice_is_compared_with_one_search(table):
    for system, expected in (
        (names.EXPANSION, [4, 1, 1]),
        (ALONE, [4, 3, 0]),
        (AFTER_QUESTION, [4, 1, 0]),
    ):
        assert counts(table, names.RAG_TRAINED, system) == expected


def test_records_without_the_data_have_the_same_questions_with_a_query(predictions, tmp_path):
    file = tmp_path / "ceiling.predictions.jsonl.xz"
    save_predictions(file, predictions)
    reloaded = load_predictions(file)
    assert ceiling.select_questions(reloaded) == ceiling.select_questions(predictions)


def test_records_without_the_data_give_the_same_table(predictions, table, tmp_path):
    file = tmp_path / "ceiling.predictions.jsonl.xz"
    save_predictions(file, predictions)
    run = SimpleNamespace(config=Config().change(training_seed=8))
    assert ceiling.build(load_predictions(file), run).files == table.files


def test_p_is_corrected_for_both_forms_of_the_query(table):
    # McNemar's p of three gains is 0.25, of one gain 1.
    part = table.parts[ceiling.PLANNED]
    assert part[["p", "p, Holm"]].values.tolist() == [["0.250", "0.500"], ["1.000", "1.000"]]


def test_only_the_two_planned_comparisons_are_corrected(table):
    assert len(table.parts[ceiling.PLANNED]) == 2
    assert "p, Holm" not in table.parts[ceiling.OTHERS]


def test_a_query_that_finds_an_answer_is_counted(table):
    # The passage about cities contains three of the four answers.
    facts = table.facts
    end = "8 passages with an answer, %"
    assert facts[f"search of {names.EXPANSION} {end}"] == "0.0"
    assert facts[f"search of {ALONE} {end}"] == "50.0"  # q3 keeps its expanded query
    assert facts[f"search of {ALONE} {WITH_QUERY} {end}"] == "66.7"


def test_queries_and_cuts_are_counted(table):
    names_of_counts = ("questions", "with a query", CUT_OUT)
    assert [table.facts[name] for name in names_of_counts] == ["4", "3", "1"]


def test_facts_have_the_recorded_names_and_rows_have_labels(table):
    name = f"{names.EXPANSION} → {ALONE} 8"
    assert table.facts[name] == "+75.0"
    assert table.facts[f"{name} p, Holm"] == "0.500"
    assert table.facts[f"{names.EXPANSION} → {ALONE} {WITHOUT_CUT} 8"] == "+100.0"
    comparison = table.parts[ceiling.PLANNED].comparison[0]
    assert comparison == "Query expansion → Query from a passage with the answer"


def test_without_a_cut_there_may_be_no_questions():
    predictions = [
        prediction for prediction in predict_all() if prediction.question.id in ("q2", "q3")
    ]
    run = SimpleNamespace(config=Config().change(training_seed=8))
    assert set(ceiling.build(predictions, run).rows.set) == {ALL_SETS, WITH_QUERY}
