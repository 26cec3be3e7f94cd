"""What several judges' scores say together (Table 3): preferences, ranks, and how far two judges agree."""

import numpy as np


def preferences(scores: np.ndarray) -> np.ndarray:
    """Whether one system's answer is better than another's (1), worse (-1), or neither (0), on each question.

    Scores are (questions, orders, systems), the values are (questions, systems, systems). One answer is better than
    another only if it scored higher in every order in which the judge saw them; else they tie.
    """
    signs = np.sign(scores[..., :, None] - scores[..., None, :])  # (questions, orders, systems, systems)
    first = signs[:, 0]
    agreed = (signs == signs[:, :1]).all(1)
    return np.where(agreed, first, 0).astype(int)


def ranks(preferred: np.ndarray, ties: str) -> np.ndarray:
    """Each system's place on each question, 1 for the best; ties share the "best" or the "average" of their places."""
    behind = (preferred < 0).sum(-1)
    if ties == "best":
        return 1 + behind
    if ties == "average":
        tied = (preferred == 0).sum(-1) - 1  # every answer ties with itself
        return 1 + behind + tied / 2
    raise ValueError(f"ties {ties!r} is not known; use 'best' or 'average'")


def kappa(a: np.ndarray, b: np.ndarray, resamples: int = 2000, seed: int = 0) -> tuple[float, float, float]:
    """Cohen's κ of two raters who each said -1, 0 or 1, with its 95 % interval over resampled questions.

    Rows are questions. Weights are linear: to see a tie where the other sees a winner is half as wrong as to see the
    other winner.
    """
    levels = np.array([-1, 0, 1])
    said_a = a[..., None] == levels
    said_b = b[..., None] == levels
    both = (said_a[..., :, None] & said_b[..., None, :]).sum(1)  # (questions, 3, 3) counts
    n = len(both)
    if n == 0:
        return float("nan"), float("nan"), float("nan")
    drawn = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=resamples)
    resampled = np.tensordot(drawn, both, 1)
    tables = np.concatenate([both.sum(0)[None], resampled]).astype(float)  # the real table first
    tables /= tables.sum((1, 2), keepdims=True)
    cost = abs(levels[:, None] - levels)
    seen = (tables * cost).sum((1, 2))
    share_a = tables.sum(2)
    share_b = tables.sum(1)
    chance = (share_a[:, :, None] * share_b[:, None, :] * cost).sum((1, 2))
    undefined = np.full(len(seen), np.nan)  # κ is not defined where both say one thing only
    values = np.divide(chance - seen, chance, out=undefined, where=chance > 0)
    low, high = np.nanpercentile(values[1:], [2.5, 97.5]) if chance[0] > 0 else (np.nan, np.nan)
    return float(values[0]), float(low), float(high)
