"""CRAG's two thresholds, fitted on validation questions.

If all scores of a question are below the first threshold, CRAG's action is Incorrect. If one score
reaches the second, it is Correct. In between it is Ambiguous.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from covrag_lite.plugins.related.labelled_pairs import Labelled

PRECISION = 0.9  # required of Correct, and of Incorrect, on validation questions
NEVER_LOWER = 0.0  # a lower threshold that no score is below
NEVER_UPPER = 1.01  # an upper threshold that no score reaches
UNCLEAR = 0.5  # stands for an unknown label, between irrelevant (0) and relevant (1)


def fit_thresholds(
    best: Sequence[float], is_found: Sequence[bool], precision: float = PRECISION
) -> tuple[float, float]:
    """Fit both thresholds, from each question's best score and whether a relevant passage is there.

    Each threshold decides the largest possible number of questions with at least this precision; if
    that cannot be reached, it decides none. If they cross, both are set to their mean.
    """
    scores = np.asarray(best, float)
    relevant = np.asarray(is_found, bool)
    lower = NEVER_LOWER
    upper = NEVER_UPPER
    for cut in np.unique(scores):
        below = scores < cut
        if below.any() and (~relevant[below]).mean() >= precision:
            lower = float(cut)
        if upper == NEVER_UPPER and relevant[~below].mean() >= precision:
            upper = float(cut)
    if lower > upper:
        lower = upper = (lower + upper) / 2
    return round(lower, 4), round(upper, 4)


def best_of_questions(labelled: Labelled, scores: np.ndarray) -> tuple[list[float], list[bool]]:
    """Return each question's best score, and whether a relevant passage was retrieved.

    Questions whose best label is unknown are dropped.
    """
    labels = [UNCLEAR if label is None else float(label) for _, label in labelled]
    questions = [pair.question for pair, _ in labelled]
    frame = pd.DataFrame({"question": questions, "best": scores, "label": labels})
    highest = frame.groupby("question", sort=False).max()
    highest = highest[highest.label != UNCLEAR]
    return highest.best.tolist(), (highest.label == 1).tolist()
