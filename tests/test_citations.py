"""Long cited answers: sets in the form of WebGLM-QA in a folder, and the table of citations."""

import json
from dataclasses import replace

import pandas as pd
import pytest
from conftest import write_jsonl

from covrag_lite import data
from covrag_lite.config import Config
from covrag_lite.records import Passage, Prediction, Question, Round
from covrag_lite.runs.recorded import Recorded
from covrag_lite.tables import citations
from covrag_lite.training.sources import load_sources

QUESTION = Question("q1", "nq", "where was Edith Marrow born?", ("Stonebridge",))
BORN = Passage("p1", "Edith Marrow", "She was born in Stonebridge.")
TOWN = Passage("p2", "Aldermere", "Aldermere is a town.")
NOVEL = Passage("p3", "Copper Lanterns", "It is a novel.")


def predict(answer, passages=(BORN, TOWN), system="RAG"):
    return Prediction(QUESTION, system, (Round(QUESTION.question, passages, answer),))


# Counts of one answer.


def test_a_mark_counts_as_supporting_if_its_passage_contains_the_answer():
    counted = citations.count(predict("In Stonebridge [1]. It is a town [2]."))
    assert (counted["cited"], counted["cited_supporting"]) == (2, 1)


def test_a_mark_that_points_nowhere_counts_as_cited():
    assert citations.count(predict("In Stonebridge [7]."))["cited"] == 1


def test_a_mark_that_is_repeated_counts_once():
    assert citations.count(predict("Stonebridge [1]. Yes [1]."))["cited"] == 1


def test_the_answer_must_be_in_the_passage_in_whole_words():
    longer = Passage("p4", "Stonebridgeton", "A village.")
    assert citations.count(predict("Stonebridge [1]", (longer,)))["supporting"] == 0


def test_the_round_whose_answer_is_returned_is_counted():
    rounds = (Round("a", (TOWN,), "Nowhere."), Round("b", (BORN,), "Stonebridge [1]."))
    assert citations.count(Prediction(QUESTION, "CoV-RAG", rounds))["cited_supporting"] == 1


def test_marks_are_not_words():
    assert citations.count(predict("In Stonebridge [1] [2]."))["words"] == 2


# The table.

ANSWERS = (
    predict("In Stonebridge [1][2]."),  # half of its marks are right
    predict("Stonebridge [1]."),
    predict("Nowhere.", (BORN,)),  # cites nothing, although it could
    predict("A novel [1].", (NOVEL,)),  # nothing to find
)


@pytest.fixture
def measures():
    return citations.measure_system(pd.DataFrame([citations.count(answer) for answer in ANSWERS]))


@pytest.mark.parametrize(
    "measure, n, value",
    [
        (citations.ACCURACY, 4, 50),
        (citations.CITING, 4, 75),
        (citations.PRECISION, 3, 50),  # of 1/2, 1 and 0
        (citations.RECALL, 3, 200 / 3),  # of the three with a passage that contains the answer
    ],
)
def test_each_measure_of_four_answers(measures, measure, n, value):
    assert measures[measure][:2] == pytest.approx((n, value))


def test_a_system_that_never_cites_has_no_precision(tmp_path):
    counts = pd.DataFrame([citations.count(predict("Stonebridge."))])
    table = citations.build(counts, Recorded(tmp_path, "citations", {}))
    assert table.part("citations")[citations.PRECISION].tolist() == ["–"]


def test_the_table_is_built_again_from_recorded_counts(tmp_path):
    run = Recorded(tmp_path, "table2", {"parameters": {}})
    recorded = citations.record(run, ANSWERS)
    again = citations.build(citations.load(recorded), recorded)
    counts = pd.DataFrame([citations.count(answer) for answer in ANSWERS])
    assert again.files == citations.build(counts, recorded).files


# Training questions with references of their own, in a folder.


@pytest.fixture
def config(tmp_path):
    """A folder with one set of cited answers, one of short answers, and a corpus."""
    row = {"question": "why?", "answer": "So [1].", "references": ["So it is.", "It is old."]}
    write_jsonl(tmp_path / "train_web.jsonl", [row, row | {"question": "how?"}])
    short = [{"id": f"s{i}", "question": f"who {i}?", "answers": ["a"]} for i in range(4)]
    write_jsonl(tmp_path / "train_nq.jsonl", short)
    write_jsonl(tmp_path / "nq.jsonl", [{"id": "t", "question": "what?", "answers": ["a"]}])
    passages = [{"id": f"p{i}", "title": "", "text": "text"} for i in range(2)]
    write_jsonl(tmp_path / "corpus.jsonl", passages)
    return Config().change(data=str(tmp_path), n_questions=0, n_train_questions=0, k=2)


def test_a_question_of_a_folder_finds_its_own_references(config):
    _, web = load_sources(config)
    (references,) = web.search(["how?"])
    assert [passage.text for passage in references] == ["So it is.", "It is old."]


def test_cited_questions_are_counted_as_training_questions(config):
    train = config.change(split="train", datasets=("web",))
    assert [question.answers for question in data.load_questions(train)] == [("So [1].",)] * 2


def test_cited_questions_are_not_held_out_for_validation(config):
    validation = data.load_questions(config.change(split="validation"))
    assert {question.dataset for question in validation} == {"nq"}


def test_a_row_without_an_answer_is_named_with_its_line(config, tmp_path):
    write_jsonl(tmp_path / "train_web.jsonl", [{"question": "why?", "references": ["a"]}])
    with pytest.raises(ValueError, match="train_web.jsonl, line 1: missing answer"):
        load_sources(config)


# What is recorded and shown.


def test_a_cell_has_its_interval_and_its_number_of_answers(tmp_path):
    counts = pd.DataFrame([citations.count(answer) for answer in ANSWERS])
    table = citations.build(counts, Recorded(tmp_path, "citations", {}))
    (row,) = table.part("citations").to_dict("records")
    assert row == {
        "system": "RAG (untuned)",
        "accuracy": "50.0 [15–85], n = 4",
        "answers that cite": "75.0 [30–95], n = 4",
        "citation precision": "50.0 [0–100], n = 3",
        "citation recall": "66.7 [21–94], n = 3",
        "words per answer": "1.5",
    }


def test_a_measure_of_citations_is_a_fact_with_its_interval(tmp_path):
    counts = pd.DataFrame([citations.count(answer) for answer in ANSWERS])
    facts = citations.build(counts, Recorded(tmp_path, "citations", {})).facts
    assert facts["RAG accuracy"] == "50.0"
    assert facts["RAG citation recall interval"] == "[21–94]"
    assert facts["RAG citation precision n"] == "3"


def test_systems_of_the_citations_are_in_the_order_of_a_tables_rows(tmp_path):
    answers = [predict("Stonebridge [1].", system=system) for system in ("CoV-RAG", "RAG")]
    counts = pd.DataFrame([citations.count(answer) for answer in answers])
    table = citations.build(counts, Recorded(tmp_path, "citations", {}))
    assert table.part("citations").system.tolist() == ["RAG (untuned)", "CoV-RAG"]
    assert table.notes == [citations.NOTE]


def test_an_answer_whose_gold_answer_cannot_be_compared_has_no_accuracy():
    counts = pd.DataFrame([citations.count(answer) for answer in ANSWERS])
    counts["right"] = [True, None, False, False]
    assert citations.measure_system(counts)[citations.ACCURACY][0] == 3


def test_an_answer_is_right_as_in_the_other_tables():
    counted = citations.count(predict("STONEBRIDGETON [1]"))
    assert counted["right"]  # normalised: capitals and what follows do not count
    assert (counted["system"], counted["id"]) == ("RAG", "q1")


def test_counts_are_recorded_in_the_same_bytes_at_any_time(tmp_path):
    run = Recorded(tmp_path, "table2", {"parameters": {}})
    content = citations.record(run, ANSWERS).file(citations.COUNTS).read_bytes()
    assert content[4:8] == bytes(4)  # the time in the header


def test_counts_are_recorded_with_the_manifest_of_their_run(tmp_path):
    run = Recorded(tmp_path, "table2", {"parameters": {"k": 7}})
    citations.record(run, ANSWERS)
    saved = json.loads((tmp_path / "citations.manifest.json").read_text())
    assert saved["parameters"] == {"k": 7}


def test_an_id_of_digits_stays_a_text(tmp_path):
    answers = [replace(ANSWERS[0], question=replace(QUESTION, id="007"))]
    recorded = citations.record(Recorded(tmp_path, "table2", {"parameters": {}}), answers)
    assert citations.load(recorded).id.tolist() == ["007"]
