"""A fitted judge: what the verifier expects, how likely the answer was, and how hard its set is, weighed together.

The verdict's own word was learnt where as many answers are right as wrong; on a set where most are wrong it is too
trusting. A logistic fit mends that without another look at the answer. Every question is judged by weights that were
fitted on the other folds.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from covrag_lite import metrics

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
        weights = metrics.fit_logistic(inputs[~held], truth[~held], DECAY, np.ones((~held).sum()))
        judged[held] = inputs[held] @ weights > 0
    return pd.Series(judged, index=known.index, dtype=object).reindex(rows.index)
