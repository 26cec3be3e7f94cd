"""Fitted σ: q2 and q7 of the toy gain from a second search, q4 loses."""

import json
from dataclasses import replace

import numpy as np
import pytest
import toy

from covrag_lite.tables.sigma import (
    RULES,
    build,
    choose_held_out,
    cross_validate_sigma,
    fit,
    format_rules,
)


@pytest.fixture
def fitted(cov):
    return cross_validate_sigma(cov, folds=3)


def test_thresholds_are_fitted_on_all_questions(fitted):
    thresholds, _ = fitted
    # q4 is not searched again, because its likelihood of -0.3 is not below -0.3; it keeps its right
    # answer: 6 of 6. No threshold on scores does that, because q4 has the lowest correctness.
    assert thresholds == {"reference": 1.01, "correctness": 1.01, "likelihood": -0.3}


@pytest.mark.parametrize(
    "rule, row",
    [
        # n, accuracy, low, high, gained, lost, p, searches
        ("never", [6, 66.7, 30.0, 90.3, 0, 0, 1.0, 0]),
        ("revised question present", [6, 83.3, 43.6, 97.0, 2, 1, 1.0, 3]),
        # Without q4's fold, the loosest setting is as good as any, so q4 is lost (in sample: 100).
        ("expected scores and likelihood, held out", [6, 83.3, 43.6, 97.0, 2, 1, 1.0, 2]),
        ("revised question present, the surer answer", [6, 100.0, 61.0, 100.0, 2, 0, 0.5, 3]),
    ],
)
def test_a_rule_for_searching_again(fitted, rule, row):
    _, rules = fitted
    assert rules.set_index("σ").loc[rule].tolist() == row


def test_a_fold_is_scored_with_the_setting_that_is_best_on_the_others():
    outcome = np.array([[1, 0, 1, 0], [0, 1, 0, 1]])  # (settings, questions); two folds
    assert choose_held_out(outcome, 2).tolist() == [0, 0, 0, 0]


def test_every_rule_has_a_name_that_people_read(fitted):
    assert set(fitted[1]["σ"]) == set(RULES)


def test_a_tiny_p_is_written_as_an_inequality(fitted):
    rules = fitted[1].assign(**{"McNemar p": 0.0})
    assert set(format_rules(rules)["McNemar p"]) == {"< 0.001"}


def test_thresholds_are_saved_with_the_adapter_they_were_fitted_for(predictions, cov, tmp_path):
    config, _ = toy.stage(tmp_path, adapters_out=str(tmp_path))
    (tmp_path / "cov").mkdir()
    fit(config, predictions)
    saved = json.loads((tmp_path / "cov" / "sigma.json").read_text())
    assert saved == cross_validate_sigma(cov)[0]


def test_fitting_returns_the_rules_in_words(predictions, tmp_path):
    config, _ = toy.stage(tmp_path, adapters_out=str(tmp_path))
    (tmp_path / "cov").mkdir()
    assert set(fit(config, predictions)["search again"]) == set(RULES.values())


def test_nothing_is_fitted_without_cov_rag(tmp_path):
    config, _ = toy.stage(tmp_path, adapters_out=str(tmp_path))
    assert fit(config, []) is None


def test_rules_are_shown_next_to_never_searching_again(fitted):
    shown = format_rules(fitted[1])
    assert list(shown) == [
        *["search again", "right % [95 % interval]", "gained", "lost", "McNemar p", "searches"]
    ]
    assert shown.iloc[1].tolist() == [
        *["for every revised question (the paper)", "83.3 [43.6, 97.0]", 2, 1, "1.000", 3]
    ]


def test_answers_without_a_verdict_or_gold_answer_do_not_count(cov):
    unverified = replace(cov[0], rounds=(replace(cov[0].rounds[0], verdict=None),))
    _, rules = cross_validate_sigma([unverified, *cov[1:]], folds=3)
    assert set(rules.n) == {5}


def test_thresholds_are_fitted_on_cov_rag_alone(predictions, cov, tmp_path):
    for name, given in (("all", predictions), ("own", cov)):
        config, _ = toy.stage(tmp_path, adapters_out=str(tmp_path / name))
        (tmp_path / name / "cov").mkdir(parents=True)
        fit(config, given)
    saved = [(tmp_path / name / "cov" / "sigma.json").read_text() for name in ("all", "own")]
    assert saved[0] == saved[1]


def test_each_fold_is_held_out_in_turn():
    # Without the last fold (the third and the sixth question) both are right on two of four.
    outcome = np.array([[0, 1, 0, 1, 0, 1], [1, 0, 1, 0, 1, 1]])
    assert choose_held_out(outcome, 3).tolist() == [1, 0, 0, 0, 1, 1]


def test_the_table_of_rules_has_its_numbers_as_they_are(predictions, cov):
    table = build(cov, None)
    assert table.files["csv"].splitlines()[1].startswith("never,6,66.7,30.0,90.3,0,0,1.0,0")
