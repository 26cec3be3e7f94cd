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
from covrag_lite.labels import format_p
from covrag_lite.method import by_fitted_thresholds, keep_likelier
from covrag_lite.records import Prediction
from covrag_lite.runs.manifest import save_manifest
from covrag_lite.runs.outcomes import outcome_of
from covrag_lite.runs.recorded import Recorded
from covrag_lite.tables import Table
from covrag_lite.tables.accuracy import share
from covrag_lite.tables.table5 import is_right

# Search again only below these thresholds; the first of each never prevents a search.
SCORES = (1.01, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
LIKELIHOODS = (0.01, -0.05, -0.1, -0.15, -0.2, -0.25, -0.3, -0.4, -0.5, -0.7, -1.0)
FAMILIES = {  # settings of `by_fitted_thresholds`: reference, correctness, likelihood
    "expected scores": list(product(SCORES, SCORES, LIKELIHOODS[:1])),
    "likelihood": list(product(SCORES[:1], SCORES[:1], LIKELIHOODS)),
    # The thresholds that are saved with the adapter are of this last family.
    "expected scores and likelihood": list(product(SCORES, SCORES, LIKELIHOODS)),
}
RULES = {  # how `rule_table` calls the recorded rules
    "never": "never",
    "revised question present": "for every revised question (the paper)",
    "expected scores, held out": "if expected scores are low",
    "likelihood, held out": "if the likelihood is low",
    "expected scores and likelihood, held out": "if both are low",
    "revised question present, the surer answer": "for every revised question; higher-likelihood answer",
}


def fit(config: Config, predictions: Sequence[Prediction]) -> pd.DataFrame | None:
    """Fit σ for the adapter `cov` and save it with the adapter; None if CoV-RAG was not run."""
    cov = [p for p in predictions if p.system == "CoV-RAG"]
    if not cov:
        return None
    thresholds, rules = cross_validate_sigma(cov)
    save_manifest(resolve(config.training.adapters_out) / "cov" / "sigma.json", thresholds)
    return rules


def build(predictions: Sequence[Prediction], run: Recorded) -> Table:
    """What each rule for σ gives on validation questions."""
    return Table("sigma", cross_validate_sigma(predictions)[1], digits=None)


def rule_table(rules: pd.DataFrame) -> pd.DataFrame:
    """The rules of `cross_validate_sigma` as people read them, against never searching again."""
    cells = zip(rules.accuracy, rules.low, rules.high)
    table = pd.DataFrame({"search again": rules["σ"].replace(RULES)})
    table["right % [95 % interval]"] = ["{:.1f} [{:.1f}, {:.1f}]".format(*cell) for cell in cells]
    table = table.join(rules[["gained", "lost"]])
    table["McNemar p"] = rules["McNemar p"].map(format_p)
    return table.assign(searches=rules.searches)


def cross_validate_sigma(
    predictions: Sequence[Prediction],
    folds: int = 5,
) -> tuple[dict, pd.DataFrame]:
    """The thresholds with the best accuracy, and what each rule gives on held-out questions.

    The predictions must be CoV-RAG's, searched again wherever there was a revised question.
    """
    judged = [p for p in predictions if p.rounds[0].verdict]
    scored = [p for p in judged if outcome_of(p).normalised is not None]
    first, last = (np.array([is_right(p, number) for p in scored], bool) for number in (0, -1))
    likelier = np.array([is_right(p, keep_likelier(p.rounds)) for p in scored], bool)
    revised = np.array([p.revised for p in scored], bool)
    rows = [_row("never", first, first, 0)]
    rows.append(_row("revised question present", first, last, revised.sum()))
    for name, settings in FAMILIES.items():
        sigmas = [by_fitted_thresholds(*setting) for setting in settings]
        fires = np.array([[sigma(p.rounds[0]) for p in scored] for sigma in sigmas])
        fires &= revised  # (settings, questions)
        outcome = np.where(fires, last, first)
        best = int(outcome.mean(1).argmax())  # the first of equals, which is the least strict
        held_out = choose_held_out(outcome, folds)
        rows.append(_row(f"{name}, held out", first, held_out, fires[best].sum()))
    thresholds = dict(zip(("reference", "correctness", "likelihood"), settings[best]))
    name = "revised question present, the surer answer"
    rows.append(_row(name, first, likelier, revised.sum()))
    return thresholds, pd.DataFrame(rows)


def choose_held_out(outcome: np.ndarray, folds: int) -> np.ndarray:
    """Each question's outcome under the setting that is best on the other folds.

    From (settings, questions) to (questions,).
    """
    fold = np.arange(outcome.shape[1]) % folds
    chosen = np.zeros(outcome.shape[1], outcome.dtype)
    for number in range(folds):
        best = outcome[:, fold != number].mean(1).argmax()
        chosen[fold == number] = outcome[best, fold == number]
    return chosen


def _row(rule: str, first: np.ndarray, outcome: np.ndarray, searches: int) -> dict:
    """A rule's accuracy, and what it gains and loses against never searching again."""
    gained, lost, p = metrics.mcnemar(first.tolist(), outcome.tolist())
    shares = zip(("accuracy", "low", "high"), share(outcome))
    shares = {name: round(value, 1) for name, value in shares}
    counts = {"gained": gained, "lost": lost, "McNemar p": round(p, 4), "searches": int(searches)}
    return {"σ": rule, "n": len(outcome), **shares, **counts}
