"""Comparisons on the questions whose answer is in the corpus."""

import pandas as pd
import pytest
from toy import PASSAGES, QUESTIONS

from covrag_lite.config import Retrieval
from covrag_lite.retrieval import load_retriever
from covrag_lite.systems.names import EXPANSION, RAG_TRAINED
from covrag_lite.tables import answerable

Q1, Q2 = QUESTIONS[:2]


@pytest.fixture
def search():
    return load_retriever(Retrieval(k=2), list(PASSAGES.values()))


def test_a_question_is_answerable_if_its_answer_finds_a_passage_with_it(search):
    assert answerable.find_answerable([Q1], search) == [Q1]


def test_a_question_whose_answer_is_in_no_passage_is_not_answerable(search):
    unknown = Q1.__class__("q9", "one", "who sank the lamp", ("Agnes Vale",))
    assert answerable.find_answerable([unknown], search) == []


def test_ids_are_loaded_as_they_were_saved(tmp_path):
    answerable.save_ids(tmp_path / "ids.xz", [Q1, Q2])
    assert answerable.load_ids(tmp_path / "ids.xz") == {("one", "q1"), ("one", "q2")}


def frame_of(outcomes):
    """A frame of two systems: by question id, whether each of them is right."""
    rows = []
    for name, (baseline, expanded) in outcomes.items():
        for system, right in ((RAG_TRAINED, baseline), (EXPANSION, expanded)):
            rows.append(
                {
                    "system": system,
                    "dataset": "one",
                    "id": name,
                    "whole": right,
                    "likelihood": -1.0,
                    "kept_likelihood": -1.0,
                    "words_first": baseline,
                }
            )
    return pd.DataFrame(rows)


# Of 60 questions, 40 are answerable; expansion gains 30 of these and loses 10 of the others.
GAINED = {f"a{i}": (False, i < 30) for i in range(40)}
LOST = {f"b{i}": (i < 10, False) for i in range(20)}
IDS = {("one", name) for name in GAINED}


@pytest.fixture
def table():
    return answerable.build({"1": frame_of(GAINED | LOST)}, {}, IDS)


def test_the_gain_on_answerable_questions_is_theirs_alone(table):
    row = table.rows[table.rows.questions == "answerable"].iloc[0]
    assert (row.n, row.difference) == (40, 75.0)


def test_the_gain_on_the_other_questions_is_separate(table):
    row = table.rows[table.rows.questions == "other"].iloc[0]
    assert (row.n, row.difference) == (20, -50.0)


def test_facts_count_the_answerable_questions(table):
    assert table.facts["n answerable"] == "40"
    assert table.facts["share answerable"] == "67"
    assert table.facts["found by the first search"] == "0"
