"""The judge beside those that know less, and one that is fitted on other questions than it judges."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from covrag_lite.tables import verifier
from covrag_lite.tables.verifier import SCORES, fitted_judgments


def make_frame(rows):
    """A frame from (form, first right, judgment, expected correctness, likelihood) of each question."""
    columns = ["form", "first_normalised", "judgment", "expected_correctness", "likelihood"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.assign(system="CoV-RAG", dataset="search", id=[f"q{i}" for i in range(len(rows))])


@pytest.fixture
def speller():
    """A judge that looks at the spelling alone: right on most questions, and blind on well-put ones."""
    broken = [("broken wording", i == 0, "false", 0.1, -1.0 - i) for i in range(5)]
    well_put = [("well put", i > 0, "true", 0.9, -0.1 * i) for i in range(5)]
    return make_frame(broken + well_put)


def test_a_judge_of_spelling_is_no_better_than_the_rule_that_sees_the_wording_alone(speller):
    table = verifier.judge_table(speller).set_index("questions")
    assert table.loc["all", "judge"].startswith("80.0") and table.loc["all", "wording"] == "80.0"
    assert table.loc["all", "majority"] == "50.0"  # beside the majority alone it would look good
    assert table.loc["well put", "caught"] == "0 of 1" and table.loc["broken wording", "caught"] == "4 of 4"
    assert table.loc["well put", "AUROC"].startswith("0.50")


def make_rows(n, seed, told):
    """n answers of two sets, hard and easy; their scores tell the truth `told` standard deviations apart."""
    random = np.random.default_rng(seed)
    dataset = np.where(np.arange(n) % 2, "hard", "easy")
    right = random.random(n) < np.where(dataset == "hard", 0.2, 0.7)
    scores = {name: told * right + random.normal(size=n) for name in SCORES}
    return pd.DataFrame({"id": [f"q{i:04}" for i in range(n)], "dataset": dataset, "right": right, **scores})


def test_no_question_is_judged_by_weights_that_were_fitted_on_it():
    random = np.random.default_rng(2)
    rows = make_rows(40, 2, 0.0).assign(dataset=[f"set {i}" for i in range(40)], right=random.random(40) < 0.5)
    inputs = np.column_stack([rows[["expected_correctness", "likelihood"]], np.eye(40)])
    leaky = LogisticRegression(fit_intercept=False).fit(inputs, rows.right).predict(inputs) == rows.right
    honest = fitted_judgments(rows) == rows.right  # a set of its own for every question: all else is learnt by heart
    assert leaky.mean() > 0.9 and honest.mean() < 0.7


def test_an_answer_without_scores_is_not_judged():
    rows = make_rows(100, 4, 1.0)
    rows.loc[3, "likelihood"] = np.nan
    judged = fitted_judgments(rows)
    assert judged.isna().tolist() == [i == 3 for i in range(100)]
    silent = rows.assign(expected_correctness=np.nan)
    assert fitted_judgments(silent).isna().all() and not fitted_judgments(silent, ["likelihood"])[:3].isna().any()
