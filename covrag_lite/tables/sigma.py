"""σ, the rule that decides when to search again, with thresholds fitted on validation data.

The paper cross-validates thresholds on the written scores (its footnote 1). Ours are on the
expected scores and the answer's likelihood, because written scores hardly differ between answers.
Each family of rules is chosen on other questions than those it is scored on.
"""

from collections.abc import Sequence
from itertools import product

import numpy as np
import pandas as pd

from covrag_lite import metrics
from covrag_lite.config import Config, resolve
from covrag_lite.files import write_json
from covrag_lite.method import by_fitted_thresholds, keep_likelier
from covrag_lite.records import Prediction
from covrag_lite.runs.frame import is_round_right, outcome_of
from covrag_lite.runs.recorded import Recorded
from covrag_lite.systems import names
from covrag_lite.tables.intervals import share
from covrag_lite.tables.labels import format_p
from covrag_lite.tables.table import Table

# Search again only below these thresholds; the first of each never prevents a search.
SCORE_THRESHOLDS = (1.01, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
LIKELIHOOD_THRESHOLDS = (0.01, -0.05, -0.1, -0.15, -0.2, -0.25, -0.3, -0.4, -0.5, -0.7, -1.0)
ANY_SCORE = SCORE_THRESHOLDS[:1]
ANY_LIKELIHOOD = LIKELIHOOD_THRESHOLDS[:1]
SETTINGS = ("reference", "correctness", "likelihood")  # of `by_fitted_thresholds`
SAVED_FAMILY = "expected scores and likelihood"  # whose thresholds are saved with the adapter
FAMILIES = {  # a family of rules -> its settings
    "expected scores": list(product(SCORE_THRESHOLDS, SCORE_THRESHOLDS, ANY_LIKELIHOOD)),
    "likelihood": list(product(ANY_SCORE, ANY_SCORE, LIKELIHOOD_THRESHOLDS)),
    SAVED_FAMILY: list(product(SCORE_THRESHOLDS, SCORE_THRESHOLDS, LIKELIHOOD_THRESHOLDS)),
}
# The recorded names of the other rules.
NEVER = "never"
EVERY_REVISION = "revised question present"
SURER_ANSWER = "revised question present, the surer answer"
RULES = {  # how `format_rules` calls the rules
    NEVER: "never",
    EVERY_REVISION: "for every revised question (the paper)",
    "expected scores, held out": "if expected scores are low",
    "likelihood, held out": "if the likelihood is low",
    "expected scores and likelihood, held out": "if both are low",
    SURER_ANSWER: "for every revised question; higher-likelihood answer",
}


def build(predictions: Sequence[Prediction], run: Recorded) -> Table:
    """Build the table of what each rule for σ gives on validation questions."""
    _, rules = cross_validate_sigma(predictions)
    return Table("sigma", rules, digits=None)


def fit(config: Config, predictions: Sequence[Prediction]) -> pd.DataFrame | None:
    """Fit σ for the adapter `cov`, save it with the adapter, and return the rules in words.

    Nothing is fitted if CoV-RAG was not run; then None is returned.
    """
    cov = [p for p in predictions if p.system == names.COV_RAG]
    if not cov:
        return None
    thresholds, rules = cross_validate_sigma(cov)
    write_json(resolve(config.training.adapters_out) / "cov" / "sigma.json", thresholds)
    return format_rules(rules)


def cross_validate_sigma(
    predictions: Sequence[Prediction], folds: int = 5
) -> tuple[dict, pd.DataFrame]:
    """Return the thresholds with the best accuracy, and what rules give on held-out questions.

    The predictions must be CoV-RAG's, searched again wherever there was a revised question.
    """
    scored = []
    for prediction in predictions:
        if prediction.rounds[0].verdict and outcome_of(prediction).normalised is not None:
            scored.append(prediction)
    first = np.array([is_round_right(p, 0) for p in scored], bool)
    last = np.array([is_round_right(p, -1) for p in scored], bool)
    likelier = np.array([is_round_right(p, keep_likelier(p.rounds)) for p in scored], bool)
    revised = np.array([p.revised for p in scored], bool)
    rows = [_rule_row(NEVER, first, first, 0)]
    rows.append(_rule_row(EVERY_REVISION, first, last, revised.sum()))
    best_settings = {}
    for family, settings in FAMILIES.items():
        searches = revised & fires(settings, scored)  # (settings, questions)
        outcome = np.where(searches, last, first)
        best = int(outcome.mean(1).argmax())  # the first of equals, which is the least strict
        best_settings[family] = dict(zip(SETTINGS, settings[best]))
        held_out = choose_held_out(outcome, folds)
        rows.append(_rule_row(f"{family}, held out", first, held_out, searches[best].sum()))
    rows.append(_rule_row(SURER_ANSWER, first, likelier, revised.sum()))
    return best_settings[SAVED_FAMILY], pd.DataFrame(rows)


def fires(settings: Sequence[tuple], predictions: Sequence[Prediction]) -> np.ndarray:
    """Return whether σ asks for a second search, by setting and question."""
    decisions = []
    for setting in settings:
        sigma = by_fitted_thresholds(*setting)
        decisions.append([sigma(p.rounds[0]) for p in predictions])
    return np.array(decisions, bool)


def choose_held_out(outcome: np.ndarray, folds: int) -> np.ndarray:
    """Return each question's outcome under the setting that is best on the other folds.

    From (settings, questions) to (questions,).
    """
    fold = np.arange(outcome.shape[1]) % folds
    held_out = np.zeros(outcome.shape[1], outcome.dtype)
    for number in range(folds):
        best = outcome[:, fold != number].mean(1).argmax()
        held_out[fold == number] = outcome[best, fold == number]
    return held_out


def _rule_row(rule: str, first: np.ndarray, outcome: np.ndarray, searches: int) -> dict:
    """Return a rule's accuracy, and what it gains and loses against never searching again."""
    gained, lost, p = metrics.mcnemar(first.tolist(), outcome.tolist())
    accuracy, low, high = share(outcome)
    return {
        "σ": rule,
        "n": len(outcome),
        "accuracy": round(accuracy, 1),
        "low": round(low, 1),
        "high": round(high, 1),
        "gained": gained,
        "lost": lost,
        "McNemar p": round(p, 4),
        "searches": int(searches),
    }


def format_rules(rules: pd.DataFrame) -> pd.DataFrame:
    """Return the rules as people read them, compared with never searching again."""
    cells = []
    for row in rules.itertuples():
        cells.append(f"{row.accuracy:.1f} [{row.low:.1f}, {row.high:.1f}]")
    table = pd.DataFrame({"search again": rules["σ"].replace(RULES)})
    table["right % [95 % interval]"] = cells
    table = table.join(rules[["gained", "lost"]])
    table["McNemar p"] = rules["McNemar p"].map(format_p)
    return table.assign(searches=rules.searches)
