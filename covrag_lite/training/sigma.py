"""The thresholds of σ (the paper's footnote 1), fitted on validation data by cross-validation."""

from collections.abc import Sequence
from itertools import product

import numpy as np
import pandas as pd

from covrag_lite import metrics
from covrag_lite.config import Config, resolve
from covrag_lite.manifest import save_manifest
from covrag_lite.records import Prediction
from covrag_lite.systems.tools import by_thresholds

LOW = (1.01, 0.75, 0.5, 0.27, 0.1)  # a score must lie below one of these; the first lets every verdict pass
HIGH = (-0.01, 0.25, 0.5, 0.7, 0.9)  # bias must lie above one of these
NAMES = ("reference", "correctness", "truthfulness", "bias")


def fit(config: Config, predictions: Sequence[Prediction]) -> pd.DataFrame | None:
    """Fit σ for the adapter `cov` on these predictions and keep the thresholds beside it; None where it was not run."""
    own = [p for p in predictions if p.system == "CoV-RAG"]
    if not own:
        return None
    thresholds, rules = cross_validate_sigma(own)
    save_manifest(resolve(config.training.adapters_out) / "cov" / "sigma.json", thresholds)
    return rules


def cross_validate_sigma(predictions: Sequence[Prediction], folds: int = 5) -> tuple[dict, pd.DataFrame]:
    """The thresholds that give CoV-RAG the best accuracy, and what each rule gives where it was not chosen."""
    scored = [p for p in predictions if p.rounds[0].verdict and not metrics.is_defective(p.question.answers)]
    first = np.array([_right(p, 0) for p in scored])
    last = np.array([_right(p, -1) for p in scored])
    grid = [dict(zip(NAMES, values)) for values in product(LOW, LOW, LOW, HIGH)]
    fires = np.array([_fires(setting, scored) for setting in grid])  # (settings, questions)
    outcome = np.where(fires, last, first)
    held_out = choose_held_out(outcome, folds)
    best = int(outcome.mean(1).argmax())  # the first of equals, which is the least strict
    rules = {"never search again": first, "revised question present": last, "thresholds, held out": held_out}
    rows = []
    for name, values in rules.items():
        low, high = metrics.wilson(int(values.sum()), len(values))
        rows.append((name, len(values), 100 * values.mean(), 100 * low, 100 * high))
    searches = [0, int(sum(p.revised for p in scored)), int(fires[best].sum())]
    table = pd.DataFrame(rows, columns=["σ", "n", "accuracy", "low", "high"]).round(1)
    return grid[best], table.assign(searches=searches)


def choose_held_out(outcome: np.ndarray, folds: int) -> np.ndarray:
    """Each fold's outcomes under the setting that is best on the other folds: (settings, questions) to (questions)."""
    fold = np.arange(outcome.shape[1]) % folds
    parts = []
    for number in range(folds):
        best = outcome[:, fold != number].mean(1).argmax()
        parts.append(outcome[best, fold == number])
    return np.concatenate(parts)


def _right(prediction: Prediction, number: int) -> bool:
    return metrics.score(prediction.rounds[number].answer, prediction.question.answers, "normalised")


def _fires(setting: dict[str, float], predictions: Sequence[Prediction]) -> list[bool]:
    """Which questions these thresholds search again, of those that were."""
    sigma = by_thresholds(**setting)
    return [sigma(p.rounds[0].verdict) and p.revised for p in predictions]
