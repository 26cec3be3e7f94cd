"""Two verifiers of one reader: which answers count, what their searches find, and the verdict."""

import json
from types import SimpleNamespace

import pytest

from covrag_lite.config import Config
from covrag_lite.prompts import DIRECT, parse_verdict
from covrag_lite.records import Passage, Prediction, Question, Round
from covrag_lite.systems import names
from covrag_lite.tables import informed
from covrag_lite.tables.informed import BOTH_REVISE, GUESSED, INFORMED, LAST, LIKELIER, VERIFIERS

CITY = Passage("p1", "City", "Paris and Rome are cities.")
SEA = Passage("p2", "Sea", "The sea is deep.")
GUESS, KNOWING = VERIFIERS[GUESSED], VERIFIERS[INFORMED]


def verdict(revised, score):
    return parse_verdict(json.dumps({"4": revised}), DIRECT, {"empty": score})


def answered(system, gold, *rounds, kept=0):
    """A prediction whose rounds are (answer, likelihood, passages, revised question, score)."""
    question = Question(f"q {gold}", "nq", f"which city is {gold}", (gold,))
    made = []
    for answer, likelihood, passages, revised, score in rounds:
        judged = verdict(revised, score) if score is not None else None
        made.append(Round("query", passages, answer, verdict=judged, likelihood=likelihood))
    return Prediction(question, system, tuple(made), kept=kept)


def verified(gold, *rounds, kept=0):
    return answered(informed.SYSTEM, gold, *rounds, kept=kept)


def plain(system, gold, answer):
    return answered(system, gold, (answer, -0.1, (SEA,), "", None))


WRONG_FIRST = ("Bonn", -0.5, (SEA,), "which city? guess", 0.2)
RIGHT_FIRST = ("Rome", -0.2, (CITY,), "", 0.9)
PARTS = {
    GUESSED: [
        *[plain(names.RAG_TRAINED, gold, "Bonn") for gold in ("Paris", "Rome", "Oslo")],
        *[plain(names.EXPANSION, gold, "Paris") for gold in ("Paris", "Rome", "Oslo")],
        verified("Paris", WRONG_FIRST, ("Bern", -0.1, (SEA,), "", 0.5), kept=1),
        verified("Rome", RIGHT_FIRST),
        verified("Oslo", WRONG_FIRST, ("Bern", -0.9, (SEA,), "", 0.1)),
    ],
    INFORMED: [
        verified("Paris", WRONG_FIRST, ("Paris", -0.9, (CITY,), "", 0.9), kept=1),
        verified("Rome", RIGHT_FIRST),
        verified("Oslo", WRONG_FIRST, ("Oslo", -0.9, (SEA,), "", 0.1)),
    ],
}


@pytest.fixture
def table():
    return informed.build(PARTS, SimpleNamespace(config=Config().change(training_seed=10)))


def counts(table, before, after):
    row = table.rows.set_index(["from", "to"]).loc[(before, after)]
    return row[["n", "gained", "lost"]].tolist()


def test_the_answer_that_was_kept_counts(table):
    assert counts(table, GUESS, KNOWING) == [3, 1, 0]


def test_by_the_last_answer_every_second_answer_counts(table):
    assert counts(table, GUESS + LAST, KNOWING + LAST) == [3, 2, 0]


def test_by_likelihood_an_unlikely_second_answer_does_not_count(table):
    assert counts(table, GUESS + LIKELIER, KNOWING + LIKELIER) == [3, 0, 0]


def test_the_planned_differences_are_corrected_for_two(table):
    assert list(table.part("Planned")["p, Holm"]) == ["1.000", "1.000"]


def test_a_question_that_one_verifier_did_not_get_is_left_out():
    parts = PARTS | {INFORMED: PARTS[INFORMED][1:]}
    assert len(informed.join_outcomes(parts)) == 2


def test_searches_are_compared_where_both_revise(table):
    rows = table.part("second search").set_index(["verifier", "questions"])
    assert rows.loc[(GUESS, BOTH_REVISE), ["n", "in the last, %"]].tolist() == ["2", "0.0"]
    assert rows.loc[(KNOWING, BOTH_REVISE), ["n", "in the last, %"]].tolist() == ["2", "50.0"]
