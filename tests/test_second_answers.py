"""Rules that choose between a first and a second answer, applied to the toy's predictions.

Second answers of q2 and q7 help, that of q4 hurts.
"""

from dataclasses import replace

import pandas as pd
import pytest
from toy import LOW, write_verdict

from covrag_lite.prompts import parse_verdict
from covrag_lite.records import Round
from covrag_lite.tables.second_answers import (
    BETTER_OF_2,
    BETTER_OF_3,
    COLUMNS,
    CONTROL,
    LIKELIER_OF_2,
    NEVER,
    ORACLE,
    REPLACE_2,
    REPLACE_3,
    RULES,
    SHUFFLED,
    THRESHOLDS,
    better_verified,
    compare_rules,
    format_rules,
)


def judged(*verdicts):
    """Rounds with these judgments and correctness scores."""
    rounds = []
    for judgment, correctness in verdicts:
        text = write_verdict((0.5, correctness, *LOW[2:]), judgment, "why?")
        rounds.append(Round("", (), "", parse_verdict(text)))
    return tuple(rounds)


@pytest.fixture
def rules(predictions):
    return compare_rules(predictions).set_index("rule")


@pytest.mark.parametrize(
    "rule, row",
    [
        # n, accuracy, low, high, helped, hurt, left, searches
        (NEVER, [6, 66.7, 30.0, 90.3, 0, 0, 0, 0]),
        (REPLACE_2, [6, 83.3, 43.6, 97.0, 2, 1, 0, 3]),
        (LIKELIER_OF_2, [6, 100.0, 61.0, 100.0, 2, 0, 1, 3]),
        (THRESHOLDS, [6, 83.3, 43.6, 97.0, 1, 0, 0, 1]),
        (ORACLE, [6, 100.0, 61.0, 100.0, 2, 0, 1, 3]),
    ],
)
def test_a_rule_for_a_second_answer(rules, rule, row):
    assert rules.loc[rule].tolist() == row


def test_no_rule_that_chooses_between_two_answers_beats_the_oracle(rules):
    assert rules.accuracy.max() == rules.accuracy[ORACLE]


def test_second_answers_without_a_verdict_cannot_be_chosen_by_it(rules):
    assert BETTER_OF_2 not in rules.index


@pytest.mark.parametrize(
    "first, second, chosen",
    [
        (("unclear", 0.5), ("false", 0.5), 0),  # the better judgment
        (("false", 0.4), ("false", 0.3), 0),  # the higher correctness
        (("false", 0.5), ("false", 0.5), 1),  # of equals the last
    ],
)
def test_the_better_verified_answer_is_chosen(first, second, chosen):
    assert better_verified(judged(first, second)) == chosen


@pytest.fixture
def three_rounds(cov):
    """Two predictions of three rounds; the last answer of the second one is not verified."""
    rounds = (*judged(("false", 0.5), ("false", 0.5)), cov[0].rounds[0])
    unverified = (*rounds[:2], replace(rounds[2], verdict=None))
    return [
        replace(cov[0], rounds=rounds, kept=-1),
        replace(cov[0], rounds=unverified, kept=-1),
    ]


@pytest.mark.parametrize("rule", [BETTER_OF_2, REPLACE_3])
def test_three_rounds_allow_further_rules(three_rounds, rule):
    assert rule in set(compare_rules(three_rounds).rule)


def test_all_of_three_answers_must_be_verified_to_choose_by_verdict(three_rounds):
    assert BETTER_OF_3 not in set(compare_rules(three_rounds).rule)


def test_every_rule_has_a_name_that_people_read(predictions, cov):
    deep = [replace(p, rounds=(p.rounds[0],) * 3, kept=-1) for p in cov]
    rules = {*compare_rules(predictions).rule, *compare_rules(deep).rule}
    assert rules <= set(RULES)


def test_rules_of_a_small_sample_are_shown_as_counts(predictions):
    table = format_rules(compare_rules(predictions))
    assert table["right % [95 % interval]"][0] == "4 of 6"


def test_a_rule_with_three_rounds_counts_their_searches(three_rounds):
    rules = compare_rules(three_rounds).set_index("rule")
    assert rules.searches[[REPLACE_2, REPLACE_3]].tolist() == [2, 4]


def test_two_rounds_allow_no_rule_about_three(rules):
    assert REPLACE_3 not in rules.index


def test_without_a_likelihood_none_is_compared(cov):
    step = replace(cov[1].rounds[1], likelihood=None)
    rules = compare_rules([cov[0], replace(cov[1], rounds=(cov[1].rounds[0], step))])
    assert LIKELIER_OF_2 not in set(rules.rule)


def test_the_control_is_compared_with_its_own_first_answers(predictions, cov):
    control = [replace(prediction, system=CONTROL) for prediction in cov[:2]]
    rows = compare_rules([*predictions, *control]).set_index("rule")
    assert rows.loc[SHUFFLED, ["n", "helped", "hurt", "searches"]].tolist() == [2, 1, 0, 1]


def test_without_a_control_there_is_no_row_of_it(rules):
    assert SHUFFLED not in rules.index


def test_rules_of_many_questions_are_shown_with_intervals():
    row = (NEVER, 30, 50.04, 33.2, 66.8, 3, 2, 1, 6)
    table = format_rules(pd.DataFrame([row], columns=COLUMNS))
    assert table.iloc[0].tolist() == [
        *["first answer (never search again)", "50.0 [33.2, 66.8]", 3, 2, 1, 6]
    ]
    assert list(table)[2:] == ["helped", "hurt", "unchanged", "further searches"]


def test_the_best_of_three_verdicts_is_chosen():
    assert better_verified(judged(("false", 0.5), ("true", 0.1), ("unclear", 0.9))) == 1


def test_an_oracle_takes_the_first_answer_if_none_is_right(cov):
    wrong = replace(cov[1], rounds=(cov[1].rounds[0], cov[1].rounds[0]))
    row = compare_rules([wrong]).set_index("rule").loc[ORACLE]
    assert row[["accuracy", "helped", "hurt", "left"]].tolist() == [0, 0, 0, 1]


def test_the_best_of_three_answers_by_their_verdicts_is_compared(cov):
    right = cov[1].rounds[1]
    wrong = cov[1].rounds[0]
    verdicts = [turn.verdict for turn in judged(("false", 0.5), ("true", 0.5), ("unclear", 0.5))]
    answers = (wrong, right, wrong)
    rounds = tuple(replace(turn, verdict=verdict) for turn, verdict in zip(answers, verdicts))
    rules = compare_rules([replace(cov[1], rounds=rounds, kept=-1)]).set_index("rule")
    columns = ["accuracy", "helped", "left", "searches"]
    assert rules.loc[BETTER_OF_3, columns].tolist() == [100, 1, 0, 2]
    assert rules.loc[BETTER_OF_2, columns].tolist() == [100, 1, 0, 1]
    assert rules.loc[REPLACE_3, columns].tolist() == [0, 0, 1, 2]
    assert rules.loc[LIKELIER_OF_2, columns].tolist() == [100, 1, 0, 1]


def test_rules_are_in_the_order_in_which_people_read_them(predictions):
    rules = compare_rules(predictions).rule.tolist()
    assert rules == [NEVER, REPLACE_2, LIKELIER_OF_2, THRESHOLDS, ORACLE]


def test_a_third_answer_that_is_right_does_not_count_for_the_oracle_of_two(cov):
    wrong, right = cov[1].rounds
    late = replace(cov[1], rounds=(wrong, wrong, right), kept=-1)
    rules = compare_rules([late]).set_index("rule")
    assert rules.accuracy[[ORACLE, REPLACE_2, REPLACE_3]].tolist() == [0, 0, 100]


def test_a_third_answer_with_the_best_verdict_is_chosen_only_among_three(cov):
    wrong, right = cov[1].rounds
    verdicts = [turn.verdict for turn in judged(("false", 0.5), ("unclear", 0.5), ("true", 0.5))]
    answers = (wrong, wrong, right)
    rounds = tuple(replace(turn, verdict=verdict) for turn, verdict in zip(answers, verdicts))
    rules = compare_rules([replace(cov[1], rounds=rounds, kept=-1)]).set_index("rule")
    assert rules.accuracy[[BETTER_OF_2, BETTER_OF_3]].tolist() == [0, 100]
