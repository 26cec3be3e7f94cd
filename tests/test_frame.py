"""The frame of the toy's predictions: what was found and answered, first and last."""

import pandas as pd
import pytest
from toy import TEXTS

from covrag_lite.runs.frame import check_frame, outcome_table

COLUMNS = {  # of CoV-RAG, from q1 to q7
    "gold_first": (True, False, True, True, None, None, False),
    "gold_last": (True, True, True, False, None, None, True),
    "found_first": (True, True, True, True, True, None, False),
    "found_last": (True, True, True, False, True, None, True),
    "words_first": (True, True, True, True, False, None, False),
    "words_last": (True, True, True, False, False, None, True),
    "first_normalised": (True, False, True, True, True, None, False),
    "normalised": (True, True, True, False, True, None, True),
    "first_whole": (True, False, True, True, False, None, False),
    "whole": (True, True, True, False, False, None, True),
    "raw": (True, True, True, False, True, False, False),
    "revised": (False, True, False, True, False, False, True),
    "judgment": ("true", "false", "unclear", "false", "true", "false", "false"),
    "expected_correctness": (0.95, 0.3, 0.6, 0.2, 0.7, 0.1, 0.25),
    "expected_reference": (0.9, 0.2, 0.7, 0.4, 0.8, 0.1, 0.3),
    "unrevised": (0.97, 0.1, 0.8, 0.3, 0.9, 0.6, 0.2),
    "verifier_score": (0.95, 0.3, 0.6, 0.2, 0.7, 0.1, 0.25),  # the expected correctness
    "likelihood": (-0.1, -0.9, -0.2, -0.3, -0.5, -0.6, -0.8),  # of the first answers
    "verdicts": (1,) * 7,
    "unparsed": (0,) * 7,
    "form": ("well put", "broken wording", *["well put"] * 5),
}


def rows_of(frame, system):
    return frame[frame.system == system].set_index("id")


@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_of_the_frame(frame, column):
    values = []
    for value in rows_of(frame, "CoV-RAG")[column]:
        values.append(None if pd.isna(value) else value)
    assert tuple(values) == COLUMNS[column]


def test_the_questions_are_in_their_order(frame):
    assert rows_of(frame, "CoV-RAG").index.tolist() == list(TEXTS)


def test_without_scores_the_verifier_score_is_the_chance_that_nothing_is_revised(frame):
    rows = rows_of(frame, "CoV-RAG w/o chain")
    assert rows.expected_correctness.isna().all()
    assert rows.verifier_score.tolist() == rows.unrevised.tolist()


def test_a_system_that_does_not_verify_has_no_verifier_score(frame):
    assert rows_of(frame, "RAG trained").verifier_score.isna().all()


@pytest.mark.parametrize("column", ["normalised", "gold_kept"])
def test_the_returned_answer_is_the_one_that_is_kept(frame, column):
    assert rows_of(frame, "CoV-RAG, likelier answer").loc["q4", column]


def test_the_passages_of_the_last_search_count_even_if_an_earlier_answer_is_kept(frame):
    assert not rows_of(frame, "CoV-RAG, likelier answer").loc["q4", "gold_last"]


def test_a_complete_frame_passes(frame):
    check_frame(frame, 7)


def test_a_frame_that_lost_a_question_is_refused(frame):
    with pytest.raises(AssertionError):
        check_frame(frame[1:], 7)


def test_a_frame_with_a_question_twice_is_refused(frame):
    with pytest.raises(AssertionError):
        check_frame(frame.assign(id=frame.id.replace("q2", "q1")), 7)


def test_a_forced_verdict_that_did_not_parse_is_refused(frame):
    with pytest.raises(AssertionError):
        check_frame(frame.assign(unparsed=1), 7)


# Outcomes of questions (rows) and systems (columns).


@pytest.fixture
def outcomes():
    """Two systems; only one of them answered q1 and q3, and the answer to q3 cannot be scored."""
    rows = [
        ("RAG", "webq", "q2", True),
        ("RAG", "nq", "q1", False),
        ("RAG", "nq", "q3", None),
        ("CoV-RAG", "webq", "q2", False),
    ]
    frame = pd.DataFrame(rows, columns=["system", "dataset", "id", "whole"])
    return outcome_table(frame, "whole")


def test_an_outcome_is_one_or_zero(outcomes):
    assert outcomes.loc[("webq", "q2")].to_dict() == {"RAG": 1.0, "CoV-RAG": 0.0}


def test_an_answer_that_a_system_lacks_has_no_outcome(outcomes):
    assert outcomes["CoV-RAG"].isna().tolist() == [False, True]


def test_questions_that_can_be_scored_keep_their_order(outcomes):
    assert outcomes.index.tolist() == [("webq", "q2"), ("nq", "q1")]
