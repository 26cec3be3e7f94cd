"""Answers by what stands in the way of a question, and what limits a system."""

from dataclasses import replace

import pytest
from toy import QUESTIONS

from covrag_lite.tables.failures import bounds, failure_table
from covrag_lite.tables.verifier_parts import split_failures

COLUMNS = ["n", "first", "caught", "doubted", "revised", "mended", "last", "gain"]


@pytest.mark.parametrize(
    "kind, failure",
    [
        ("", "none"),
        ("author", "none"),
        ("author/namesake", "namesake"),
        ("author+misspelt", "broken wording"),
        ("two-hop", "two-hop"),
    ],
)
def test_the_kind_of_a_question_says_why_a_search_may_fail(kind, failure):
    assert replace(QUESTIONS[0], kind=kind).failure == failure


@pytest.mark.parametrize(
    "obstacle, row",
    [
        ("all", [6, "66.7", "2 of 2", "1 of 4", 3, "2 of 2", "83.3", "+1 of 6"]),
        ("none", [5, "80.0", "1 of 1", "1 of 4", 2, "1 of 1", "80.0", "+0 of 5"]),
        ("broken wording", [1, "0.0", "1 of 1", "0 of 0", 1, "1 of 1", "100.0", "+1 of 1"]),
    ],
)
def test_answers_are_counted_by_obstacle(frame, obstacle, row):
    table = failure_table(frame).set_index("questions")
    assert table.loc[obstacle, COLUMNS].tolist() == row


@pytest.mark.parametrize("column", ["caught", "doubted"])
def test_a_verdict_that_did_not_parse_judges_nothing(frame, column):
    table = failure_table(frame.assign(judgment=""))
    assert set(table[column]) == {"0 of 0"}


def test_obstacles_have_names_that_people_read(frame):
    answers, verdicts = split_failures(failure_table(frame)).values()
    assert answers.questions.tolist() == ["all", "no obstacle", "broken wording"]
    assert verdicts.questions.equals(answers.questions)


@pytest.mark.parametrize(
    "name, value",
    [
        ("answer as it is", 250 / 3),
        ("answer perfect reader of the first passages", 250 / 3),
        ("answer where they hold none", 0.0),
    ],
)
def test_accuracy_under_a_counterfactual(frame, name, value):
    assert bounds(frame)[name] == pytest.approx(value)


@pytest.mark.parametrize(
    "cause, share",
    [("misread", 0), ("searched away", 100), ("not found, trusted", 0), ("not found twice", 0)],
)
def test_the_only_wrong_answer_was_searched_away(frame, cause, share):
    assert bounds(frame)[f"{cause} share"] == share  # q4


def test_the_causes_of_wrong_answers_add_up_to_all_of_them(frame):
    shares = [value for name, value in bounds(frame).items() if name.endswith(" share")]
    assert sum(shares) == pytest.approx(100)
