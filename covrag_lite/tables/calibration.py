"""A fitted judge: what the verifier expects, how likely the answer was, and how hard its set is, weighed together.

The verdict's own word was learnt where as many answers are right as wrong; on a set where most are wrong it is too
trusting. A logistic fit mends that without another look at the answer. Every question is judged by weights that were
fitted on the other folds.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.optimize import minimize

SCORES = ("expected_correctness", "likelihood")
FOLDS = 5
DECAY = 1.0  # beside a question's weight of 1, on standardised scores


def fitted_judgments(rows: pd.DataFrame, names: Sequence[str] = SCORES) -> pd.Series:
    """For each row whether it is held for right by a fit on the other folds; none where a score is not known."""
    known = rows[rows[list(names)].notna().all(axis=1)]
    if known.right.nunique() < 2 or len(known) < 2 * FOLDS:
        return pd.Series(index=rows.index, dtype=object)
    scores = known[list(names)].astype(float)
    scores = (scores - scores.mean()) / scores.std().clip(lower=1e-9)
    inputs = np.column_stack([scores, pd.get_dummies(known.dataset).astype(float)])
    truth = known.right.to_numpy(bool)
    fold = known.id.rank(method="dense").to_numpy(int) % FOLDS
    judged = np.zeros(len(known), bool)
    for one in range(FOLDS):
        held = fold == one
        weights = fit_logistic(inputs[~held], truth[~held], DECAY, np.ones((~held).sum()))
        judged[held] = inputs[held] @ weights > 0
    return pd.Series(judged, index=known.index, dtype=object).reindex(rows.index)


def fit_logistic(inputs: np.ndarray, truth: np.ndarray, decay: np.ndarray | float, shares: np.ndarray) -> np.ndarray:
    """The weights of a logistic regression; `shares` are the rows' in the loss, `decay` pulls weights towards 0."""
    sign = np.where(truth, 1.0, -1.0)

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        margin = sign * (inputs @ weights)
        slope = inputs.T @ (-sign * shares / (1 + np.exp(margin)))
        return shares @ np.logaddexp(0, -margin) + (decay * weights) @ weights / 2, slope + decay * weights

    start, exactly = np.zeros(inputs.shape[1]), {"ftol": 1e-15, "gtol": 1e-9, "maxiter": 10_000}
    return minimize(loss, start, jac=True, method="L-BFGS-B", options=exactly).x
