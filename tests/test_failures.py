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


def test_without_a_wrong_answer_every_cause_has_a_share_of_zero(frame):
    limits = bounds(frame.assign(normalised=True))
    assert [value for name, value in limits.items() if name.endswith(" share")] == [0] * 4


# One question per cause of a wrong last answer: found at first, found at last, searched again.
CAUSES = {
    "misread": (False, True, True),
    "searched away": (True, False, True),
    "not found, trusted": (False, False, False),
    "not found twice": (False, False, True),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_a_wrong_answer_has_one_cause(frame, cause):
    found_first, found_last, revised = CAUSES[cause]
    rows = frame[frame.system == "CoV-RAG"].assign(normalised=False, revised=revised)
    limits = bounds(rows.assign(found_first=found_first, found_kept=found_last))
    assert {name: limits[f"{name} share"] for name in CAUSES} == dict.fromkeys(CAUSES, 0) | {
        cause: 100
    }


@pytest.mark.parametrize(
    "case, value",
    [
        ("answer perfect judge, the better of two answers", 100.0),
        ("answer perfect reader of the last passages", 250 / 3),  # q4 lost its passage
        ("answer where the first passages hold one", 80.0),
    ],
)
def test_a_perfect_part_has_its_accuracy(frame, case, value):
    assert bounds(frame)[case] == pytest.approx(value)


def test_another_system_has_its_own_obstacles(frame):
    table = failure_table(frame, "RAG trained").set_index("questions")
    assert table.loc["all", ["n", "first", "revised", "gain"]].tolist() == [6, "33.3", 0, "+0 of 6"]


def test_a_missed_passage_counts_only_where_it_was_searched_again(frame):
    rows = frame[frame.system == "CoV-RAG"]
    rows = rows.assign(gold_first=False, gold_last=[True, True, False, True, None, None, False])
    table = failure_table(rows).set_index("questions")
    assert table.loc["all", "mended"] == "2 of 3"  # q2 and q4, not q7


def test_a_column_of_the_obstacles_is_shown_under_its_own_words(frame):
    answers, verdicts = split_failures(failure_table(frame)).values()
    assert answers.iloc[0].to_dict() == {
        **{"questions": "all", "n": 6, "first answer right %": "66.7"},
        **{"last answer right %": "83.3", "gain, points": "+1 of 6", "95 % interval": "–"},
    }
    assert verdicts.iloc[0].to_dict() == {
        **{"questions": "all", "wrong answers judged false": "2 of 2"},
        **{"right answers judged false": "1 of 4", "searched again": 3},
        **{"missed gold passage then found": "2 of 2"},
    }
