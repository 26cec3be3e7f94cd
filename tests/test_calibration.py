"""The fitted judge weighs what is known, set by set, and learns nothing from the question that it judges."""

import numpy as np
import pandas as pd

from covrag_lite.tables.verifier import DECAY, SCORES, fit_logistic, fitted_judgments


def make_rows(n, seed, told):
    """n answers of two sets, hard and easy; their scores tell the truth `told` standard deviations apart."""
    random = np.random.default_rng(seed)
    dataset = np.where(np.arange(n) % 2, "hard", "easy")
    right = random.random(n) < np.where(dataset == "hard", 0.2, 0.7)
    scores = {name: told * right + random.normal(size=n) for name in SCORES}
    return pd.DataFrame({"id": [f"q{i:04}" for i in range(n)], "dataset": dataset, "right": right, **scores})


def test_scores_that_tell_nothing_leave_each_sets_majority():
    rows = make_rows(2000, 1, 0.0)
    share = (fitted_judgments(rows) == rows.right).groupby(rows.dataset).mean()
    assert abs(share["hard"] - 0.8) < 0.03 and abs(share["easy"] - 0.7) < 0.03


def test_no_question_is_judged_by_weights_that_were_fitted_on_it():
    random = np.random.default_rng(2)
    rows = make_rows(40, 2, 0.0).assign(dataset=[f"set {i}" for i in range(40)], right=random.random(40) < 0.5)
    inputs = np.column_stack([rows[["expected_correctness", "likelihood"]], np.eye(40)])
    weights = fit_logistic(inputs, rows.right.to_numpy(), DECAY, np.ones(40))
    leaky = (inputs @ weights > 0) == rows.right
    honest = fitted_judgments(rows) == rows.right  # a set of its own for every question: all else is learnt by heart
    assert leaky.mean() > 0.9 and honest.mean() < 0.7


def test_an_answer_without_scores_is_not_judged():
    rows = make_rows(100, 4, 1.0)
    rows.loc[3, "likelihood"] = np.nan
    judged = fitted_judgments(rows)
    assert judged.isna().tolist() == [i == 3 for i in range(100)]
    silent = rows.assign(expected_correctness=np.nan)
    assert fitted_judgments(silent).isna().all() and not fitted_judgments(silent, ["likelihood"])[:3].isna().any()
