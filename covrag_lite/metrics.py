"""What a prediction is worth: accuracy and retrieval, intervals, and paired tests. Pure functions, no state.

Two accuracies stand side by side because the field uses both: `raw` is WebGLM's own code (a gold string stands in
the answer, case and all), `normalised` is what the paper's text describes (capitals and punctuation do not count).
"""

import string
from collections.abc import Sequence

import numpy as np
from scipy.stats import binomtest

from covrag_lite.records import CITATION, Passage

METRICS = ("raw", "normalised")
_PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation + "’‘“”–—…", " "))


def normalise(text: str) -> str:
    """Lower case, reference marks and punctuation gone, white space collapsed."""
    return " ".join(CITATION.sub(" ", text).lower().translate(_PUNCTUATION).split())


def is_defective(answers: Sequence[str]) -> bool:
    """True where no gold answer survives normalising, so that the normalised accuracy cannot be told."""
    return not any(normalise(answer) for answer in answers)


def score(answer: str, answers: Sequence[str], metric: str) -> bool | None:
    """Is the answer right? None where the gold answers are defective under this metric: no score, rather than a wrong one."""
    if metric == "raw":
        return any(gold in answer for gold in answers if gold)
    if metric == "normalised":
        if is_defective(answers):
            return None
        text = normalise(answer)
        return any(gold in text for gold in map(normalise, answers) if gold)
    raise ValueError(f"metric {metric!r} is not known; use one of {', '.join(METRICS)}")


def holds_answer(passages: Sequence[Passage], answers: Sequence[str]) -> bool | None:
    """The paper's retrieval accuracy (Table 6): a gold answer stands in one of the passages."""
    return score(" ".join(f"{p.title} {p.text}" for p in passages), answers, "normalised")


def holds_gold(passages: Sequence[Passage], gold_passages: Sequence[str]) -> bool | None:
    """A gold passage is among the passages; None where the data names none."""
    return any(p.id in gold_passages for p in passages) if gold_passages else None


def wilson(right: int, n: int) -> tuple[float, float]:
    """The 95 % Wilson interval of a share; it keeps its meaning at 0 % and at small n."""
    if n == 0:
        return float("nan"), float("nan")
    interval = binomtest(right, n).proportion_ci(0.95, "wilson")
    return float(interval.low), float(interval.high)


def mean_interval(shares: Sequence[tuple[int, int]]) -> tuple[float, float, float]:
    """The plain mean of several sets' shares (the paper's Avg) with its interval, from the sets' Wilson intervals (MOVER)."""
    p = np.array([right / n for right, n in shares])
    low, high = np.array([wilson(right, n) for right, n in shares]).T
    m = float(p.mean())
    return m, m - float(np.sqrt(((p - low) ** 2).sum())) / len(p), m + float(np.sqrt(((high - p) ** 2).sum())) / len(p)


def mcnemar(a: Sequence[bool], b: Sequence[bool]) -> tuple[int, int, float]:
    """On the same questions: how many only b has right, how many only a has right, and the exact two-sided p."""
    gained = sum(y and not x for x, y in zip(a, b, strict=True))
    lost = sum(x and not y for x, y in zip(a, b, strict=True))
    return gained, lost, float(binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0


def paired_bootstrap(
    a: Sequence[bool], b: Sequence[bool], resamples: int = 10_000, seed: int = 0
) -> tuple[float, float, float]:
    """The difference b − a on the same questions, with its 95 % percentile interval over resampled questions."""
    difference = np.asarray(b, float) - np.asarray(a, float)
    n = len(difference)
    if n == 0:
        return float("nan"), float("nan"), float("nan")
    # A resample's sum depends only on how often each of the values -1, 0 and 1 is drawn: three counts, not n indices.
    values, counts = np.unique(difference, return_counts=True)
    means = np.random.default_rng(seed).multinomial(n, counts / n, size=resamples) @ values / n
    low, high = np.percentile(means, [2.5, 97.5])
    return float(difference.mean()), float(low), float(high)


def mean_bootstrap(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean over questions with its 95 % percentile interval: the difference from nothing at all."""
    return paired_bootstrap(np.zeros(len(values)), values)


def preferences(scores: np.ndarray) -> np.ndarray:
    """Who is better on each question: (questions, orders, systems) scores to (questions, systems, systems) values of 1, 0 and -1.

    One answer is better than another only if it scored higher in every order in which the judge saw them; else they tie.
    """
    signs = np.sign(scores[..., :, None] - scores[..., None, :])  # (questions, orders, systems, systems)
    return np.where((signs == signs[:, :1]).all(1), signs[:, 0], 0).astype(int)


def ranks(preferred: np.ndarray, ties: str) -> np.ndarray:
    """Each system's place on each question, 1 is the best: tied answers share the "best" of their places, or the "average"."""
    behind = (preferred < 0).sum(-1)
    if ties == "best":
        return 1 + behind
    if ties == "average":
        return 1 + behind + ((preferred == 0).sum(-1) - 1) / 2  # less 1: every answer ties with itself
    raise ValueError(f"ties {ties!r} is not known; use 'best' or 'average'")


def kappa(a: np.ndarray, b: np.ndarray, resamples: int = 2000, seed: int = 0) -> tuple[float, float, float]:
    """Cohen's κ of two raters who each said -1, 0 or 1, with its 95 % interval over resampled questions; rows are questions.

    Linear weights: to see a tie where the other sees a winner is half as wrong as to see the other winner.
    """
    levels = np.array([-1, 0, 1])
    both = ((a[..., None] == levels)[..., :, None] & (b[..., None] == levels)[..., None, :]).sum(
        1
    )  # (questions, 3, 3) counts
    n = len(both)
    if n == 0:
        return float("nan"), float("nan"), float("nan")
    drawn = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=resamples)
    tables = np.concatenate([both.sum(0)[None], np.tensordot(drawn, both, 1)]).astype(float)
    tables /= tables.sum((1, 2), keepdims=True)
    cost = abs(levels[:, None] - levels)
    seen = (tables * cost).sum((1, 2))
    chance = (tables.sum(2)[:, :, None] * tables.sum(1)[:, None, :] * cost).sum((1, 2))
    values = np.divide(
        chance - seen, chance, out=np.full(len(seen), np.nan), where=chance > 0
    )  # both say one thing only: κ is not defined
    low, high = np.nanpercentile(values[1:], [2.5, 97.5]) if chance[0] > 0 else (np.nan, np.nan)
    return float(values[0]), float(low), float(high)
