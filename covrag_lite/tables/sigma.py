"""σ fitted on validation data: when to search again, by the scores the model expects and by its answer's likelihood.

The paper cross-validates thresholds on the written scores (its footnote 1). Ours are on expectations, which rank
answers where written scores hardly differ. Each family of rules is chosen on other questions than it is scored on.
"""

from collections.abc import Sequence
from itertools import product

import numpy as np
import pandas as pd

from covrag_lite import metrics
from covrag_lite.config import Config, resolve
from covrag_lite.method import by_fitted_thresholds, keep_likelier
from covrag_lite.records import Prediction
from covrag_lite.runs.manifest import save_manifest
from covrag_lite.runs.outcomes import outcome_of
from covrag_lite.runs.recorded import Recorded
from covrag_lite.tables import Table
from covrag_lite.tables.accuracy import share
from covrag_lite.tables.table5 import is_right

# What must lie below one of these; the first of each lets everything pass.
SCORES = (1.01, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
LIKELIHOODS = (0.01, -0.05, -0.1, -0.15, -0.2, -0.25, -0.3, -0.4, -0.5, -0.7, -1.0)
FAMILIES = {  # settings of `by_fitted_thresholds`: reference, correctness, likelihood
    "expected scores": list(product(SCORES, SCORES, LIKELIHOODS[:1])),
    "likelihood": list(product(SCORES[:1], SCORES[:1], LIKELIHOODS)),
    "expected scores and likelihood": list(product(SCORES, SCORES, LIKELIHOODS)),  # the last one is taken
}


def fit(config: Config, predictions: Sequence[Prediction]) -> pd.DataFrame | None:
    """Fit σ for the adapter `cov` on these predictions and keep it beside the adapter; None where it was not run."""
    own = [p for p in predictions if p.system == "CoV-RAG"]
    if not own:
        return None
    thresholds, rules = cross_validate_sigma(own)
    save_manifest(resolve(config.training.adapters_out) / "cov" / "sigma.json", thresholds)
    return rules


def build(predictions: Sequence[Prediction], run: Recorded) -> Table:
    """What each rule for σ gives on validation questions."""
    return Table("sigma", cross_validate_sigma(predictions)[1], digits=None)


def cross_validate_sigma(predictions: Sequence[Prediction], folds: int = 5) -> tuple[dict, pd.DataFrame]:
    """The thresholds that give CoV-RAG the best accuracy, and what each rule gives where it was not chosen.

    The predictions must be those of CoV-RAG that searched again wherever there was a revised question.
    """
    scored = [p for p in predictions if p.rounds[0].verdict and outcome_of(p).normalised is not None]
    first, last = (np.array([is_right(p, number) for p in scored], bool) for number in (0, -1))
    surer = np.array([is_right(p, keep_likelier(p.rounds)) for p in scored], bool)
    revised = np.array([p.revised for p in scored], bool)
    rows = [_row("never", first, first, 0), _row("revised question present", first, last, revised.sum())]
    for name, settings in FAMILIES.items():
        sigmas = [by_fitted_thresholds(*setting) for setting in settings]
        fires = revised & np.array([[sigma(p.rounds[0]) for p in scored] for sigma in sigmas])  # (settings, questions)
        outcome = np.where(fires, last, first)
        best = int(outcome.mean(1).argmax())  # the first of equals, which is the least strict
        rows.append(_row(f"{name}, held out", first, choose_held_out(outcome, folds), fires[best].sum()))
    thresholds = dict(zip(("reference", "correctness", "likelihood"), settings[best]))
    rows.append(_row("revised question present, the surer answer", first, surer, revised.sum()))
    return thresholds, pd.DataFrame(rows)


def choose_held_out(outcome: np.ndarray, folds: int) -> np.ndarray:
    """Each question's outcome under the setting that is best on the other folds: (settings, questions) to questions."""
    fold = np.arange(outcome.shape[1]) % folds
    made = np.zeros(outcome.shape[1], outcome.dtype)
    for number in range(folds):
        best = outcome[:, fold != number].mean(1).argmax()
        made[fold == number] = outcome[best, fold == number]
    return made


def _row(rule: str, first: np.ndarray, outcome: np.ndarray, searches: int) -> dict:
    """A rule's accuracy, and what it gained and lost beside never searching again."""
    gained, lost, p = metrics.mcnemar(first.tolist(), outcome.tolist())
    shares = {name: round(value, 1) for name, value in zip(("accuracy", "low", "high"), share(outcome))}
    counts = {"gained": gained, "lost": lost, "McNemar p": round(p, 4), "searches": int(searches)}
    return {"σ": rule, "n": len(outcome), **shares, **counts}
