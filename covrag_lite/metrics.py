"""Evaluation of predictions: accuracy and retrieval, intervals, paired tests, and AUROC.

There are three accuracies. `raw` is the rule of WebGLM's own code: the answer contains a gold
string, case-sensitive. `normalised` is what the paper's text describes: capitals and punctuation do
not count. `whole` is ours: as normalised, but the gold answer must occur as whole words, because
the "2" in "1829" is not an answer. Punctuation separates words, so "2,400" differs from "2400".
"""

import string
from collections import Counter
from collections.abc import Sequence
from functools import cache, lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaincinv
from scipy.stats import binom, binomtest, norm, rankdata

from covrag_lite.records import CITATION, Passage

METRICS = ("raw", "normalised", "whole")

# Accuracy and retrieval.

_PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation + "’‘“”–—…", " "))


@lru_cache(maxsize=1 << 16)  # several systems retrieve the same passages
def normalise(text: str) -> str:
    """Return the text in lower case, without citations and punctuation, with single spaces."""
    without_citations = CITATION.sub(" ", text)
    words = without_citations.lower().translate(_PUNCTUATION).split()
    return " ".join(words)


def at_most_twice(text: str) -> list[str]:
    """Return the words of a text, without the third and later occurrences of a word.

    Capitals and punctuation do not count; a word of punctuation only is always kept.
    """
    counts: Counter[str] = Counter()
    words = []
    for word in text.split():
        normalised = normalise(word)
        counts[normalised] += 1
        if counts[normalised] <= 2 or not normalised:
            words.append(word)
    return words


def is_defective(answers: Sequence[str]) -> bool:
    """Return whether all gold answers are empty after normalising, so no answer can be scored."""
    return not any(normalise(answer) for answer in answers)


def score(answer: str, answers: Sequence[str], metric: str) -> bool | None:
    """Return whether the answer is right; None if all gold answers are empty after normalising.

    The metric "raw" does not normalise, so it always gives True or False.
    """
    if metric not in METRICS:
        raise ValueError(f"metric {metric!r} is not known; use one of {', '.join(METRICS)}")
    if metric == "raw":
        return any(gold in answer for gold in answers if gold)
    return _contains(normalise(answer), answers, metric)


def _contains(text: str, answers: Sequence[str], metric: str) -> bool | None:
    """Return whether a normalised text contains a gold answer; None if these are defective."""
    if is_defective(answers):
        return None
    # A normalised text has single spaces. With spaces around both, only whole words match.
    edge = " " if metric == "whole" else ""
    padded = f"{edge}{text}{edge}"
    golds = [normalise(answer) for answer in answers]
    return any(f"{edge}{gold}{edge}" in padded for gold in golds if gold)


def holds_answer(
    passages: Sequence[Passage], answers: Sequence[str], metric: str = "normalised"
) -> bool | None:
    """Return whether one of the passages contains a gold answer: retrieval accuracy (Table 6)."""
    if is_defective(answers):
        return None
    texts = [normalise(f"{passage.title} {passage.text}") for passage in passages]
    return any(_contains(text, answers, metric) for text in texts)


def holds_gold(passages: Sequence[Passage], gold_passages: Sequence[str]) -> bool | None:
    """Return whether a gold passage is among the passages; None if the data names none."""
    if not gold_passages:
        return None
    return any(passage.id in gold_passages for passage in passages)


# Shares and their intervals.

Z = 1.959964  # half the width of a 95 % interval, in standard errors
Estimate = tuple[float, float, float]  # a value and its 95 % interval
UNKNOWN = (float("nan"), float("nan"), float("nan"))


@cache  # a table and its picture need the same intervals, and scipy also tests each share
def wilson(right: int, n: int) -> tuple[float, float]:
    """Return the 95 % Wilson interval of a share; it is valid at 0 % and at small n too."""
    if n == 0:
        return float("nan"), float("nan")
    interval = binomtest(right, n).proportion_ci(0.95, "wilson")
    return float(interval.low), float(interval.high)


def mean_interval(shares: Sequence[tuple[int, int]]) -> Estimate:
    """Return the plain mean of several sets' shares (the paper's Avg) with its interval.

    A share is (right, n). The interval combines the sets' Wilson intervals by MOVER, the "method of
    variance estimates recovery": it adds the squared distances from shares to interval ends.
    """
    values = np.array([right / n for right, n in shares])
    low, high = np.array([wilson(right, n) for right, n in shares]).T
    mean = float(values.mean())
    below = float(np.sqrt(((values - low) ** 2).sum())) / len(values)
    above = float(np.sqrt(((high - values) ** 2).sum())) / len(values)
    return mean, mean - below, mean + above


# Two systems on the same questions.


def mcnemar(a: Sequence[bool], b: Sequence[bool]) -> tuple[int, int, float]:
    """Return how many questions only b has right, how many only a, and the exact two-sided p."""
    gained = sum(b_right and not a_right for a_right, b_right in zip(a, b, strict=True))
    lost = sum(a_right and not b_right for a_right, b_right in zip(a, b, strict=True))
    return gained, lost, mcnemar_p(gained, lost)


def mcnemar_p(gained: int, lost: int) -> float:
    """Return the exact two-sided p of McNemar's test."""
    differing = gained + lost
    return float(binomtest(gained, differing).pvalue) if differing else 1.0


def adjust_p(p_values: Sequence[float]) -> list[float]:
    """Return p values corrected for several comparisons by Holm's method, in the same order."""
    by_size = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted = [1.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(by_size):
        remaining = len(p_values) - rank
        largest = max(largest, min(1.0, remaining * p_values[index]))
        adjusted[index] = largest
    return adjusted


def detectable_effect(
    gained: int, lost: int, n: int, power: float = 0.8, alpha: float = 0.05
) -> float:
    """Return the minimum detectable effect, in points, of McNemar's exact test on n questions.

    It assumes that as many questions differ as did; NaN if these are too few for any significant
    result. A system wins a differing question if only its answer is right.
    """
    differing = gained + lost
    # The test is significant if the worse system has at most this many wins.
    most_wins = binom.ppf(alpha / 2, differing, 0.5) - 1
    if most_wins < 0:
        return float("nan")
    # The larger the better system's share of wins, the likelier is a significant result. We need
    # the share for which its probability is `power`. The probability is a binomial distribution
    # function, which is a regularised incomplete beta function of the share; invert that.
    share = betaincinv(differing - most_wins, most_wins + 1, power)
    return float(100 * (2 * share - 1) * differing / n)


def paired_bootstrap(a: Sequence[float], b: Sequence[float]) -> Estimate:
    """Return the difference b − a with its 95 % percentile interval over resampled questions."""
    difference = np.asarray(b, float) - np.asarray(a, float)
    if len(difference) == 0:
        return UNKNOWN
    # The mean of a resample depends only on how often each distinct value is drawn.
    values, counts = np.unique(difference.round(9), return_counts=True)
    low, high = _exact_ends(values, counts) or _sampled_ends(values, counts)
    return float(difference.mean()), low, high


def _exact_ends(values: np.ndarray, counts: np.ndarray) -> tuple[float, float] | None:
    """Return the ends of the interval over all possible resamples: the same on every machine.

    None if the values have no common denominator. The mean of a resample is the sum of n draws,
    divided by n. The distribution of this sum is the n-fold convolution of one draw's distribution,
    so its Fourier transform is the n-th power of that of one draw.
    """
    n = int(counts.sum())
    denominator = _common_denominator(values)
    if denominator is None:
        return None
    numerators = (values * denominator).round().astype(int)
    smallest = numerators.min()
    largest_sum = n * (numerators.max() - smallest)  # every draw counts from the smallest numerator
    one_draw = np.zeros(largest_sum + 1)
    one_draw[numerators - smallest] = counts / n
    size = 1 << len(one_draw).bit_length()  # a longer power of two, so that no sum wraps around
    n_draws = np.fft.irfft(np.fft.rfft(one_draw, size) ** n)[: len(one_draw)]
    cumulative = n_draws.cumsum()
    low_sum = int(np.searchsorted(cumulative, 0.025))
    high_sum = int(np.searchsorted(cumulative, 0.975))
    low = float(low_sum / n + smallest) / denominator
    high = float(high_sum / n + smallest) / denominator
    return low, high


def _common_denominator(values: np.ndarray) -> int | None:
    """Return the smallest k up to 12 for which all values are multiples of 1/k, if there is one."""
    for k in range(1, 13):
        if np.allclose(values * k, (values * k).round(), atol=1e-7):
            return k
    return None


def _sampled_ends(
    values: np.ndarray, counts: np.ndarray, resamples: int = 10_000
) -> tuple[float, float]:
    """Return the ends of the interval over random resamples."""
    n = counts.sum()
    draws = np.random.default_rng(0).multinomial(n, counts / n, size=resamples)
    low, high = np.percentile(draws @ values / n, [2.5, 97.5])
    return float(low), float(high)


def mean_bootstrap(values: Sequence[float]) -> Estimate:
    """Return the mean over questions with its 95 % percentile interval."""
    return paired_bootstrap([0.0] * len(values), values)  # a mean is the difference from 0


FEW_PAIRS = 25  # differing questions below which a bootstrap interval is not credible


def paired_interval(a: Sequence[float], b: Sequence[float]) -> Estimate:
    """Return the difference b − a on the same questions with its 95 % interval."""
    return difference_interval(np.asarray(b, float) - np.asarray(a, float))


def difference_interval(differences: Sequence[float]) -> Estimate:
    """Return the mean of per-question differences with its 95 % interval.

    With at least `FEW_PAIRS` differing questions, it is a bootstrap interval. With fewer, that
    would mislead: if four questions are lost and none is gained, no resample contains a gain, and
    the interval excludes zero, although four coin flips prove nothing. We then use
    `few_pairs_interval`, which needs differences of −1, 0 and 1. Means over several seeds have
    other differences; with few of them, the interval is unknown (NaN).
    """
    values = np.asarray(differences, float)
    if len(values) == 0:
        return UNKNOWN
    differing = values[values != 0]
    if len(differing) >= FEW_PAIRS:
        return mean_bootstrap(differences)
    mean = float(values.mean())
    is_of_one_seed = np.isin(differing, (-1.0, 1.0)).all()
    if not is_of_one_seed:
        return mean, float("nan"), float("nan")
    gained = int((differing > 0).sum())
    lost = int((differing < 0).sum())
    low, high = few_pairs_interval(gained, lost, len(values))
    return mean, low, high


def few_pairs_interval(gained: int, lost: int, n: int) -> tuple[float, float]:
    """Return the 95 % interval of a paired difference in which few questions differ.

    It is the union of two intervals, each chosen for one property. Tango's score interval (1998)
    covers 95 % at small counts, because it treats the number of differing questions as uncertain
    too. The other follows from the Clopper-Pearson interval of the share of gains among differing
    questions; it contains zero exactly if McNemar's exact test is not significant.
    """
    low = _tango_end(gained, lost, n, -1)
    high = _tango_end(gained, lost, n, 1)
    differing = gained + lost
    if differing:
        share = binomtest(gained, differing).proportion_ci(0.95, "exact")
        low = min(low, (2 * share.low - 1) * differing / n)
        high = max(high, (2 * share.high - 1) * differing / n)
    return float(low), float(high)


def _tango_end(gained: int, lost: int, n: int, side: int) -> float:
    """Return the lower (side -1) or upper (side 1) end of Tango's score interval.

    There, the observed difference is 1.96 standard errors from the true difference.
    """

    def excess(difference: float) -> float:
        """Return the squared distance minus 1.96² variances; it is zero at an end."""
        # Given the true difference, the most likely share of losses solves
        # 2n·share² + linear·share + constant = 0.
        linear = -gained - lost + (2 * n - gained + lost) * difference
        constant = -lost * difference * (1 - difference)
        root = np.sqrt(max(0.0, linear**2 - 8 * n * constant))
        lost_share = (root - linear) / (4 * n)
        variance = n * (2 * lost_share + difference * (1 - difference))
        distance = gained - lost - n * difference
        return distance**2 - Z**2 * max(variance, 0.0)

    observed = (gained - lost) / n
    # If all questions are gained, or all lost, the interval ends at 1 or -1.
    if abs(observed) == 1 and side * observed > 0:
        return float(side)
    return float(brentq(excess, observed + side * 1e-7, side * (1 - 1e-9)))


# How well a score separates right answers from wrong ones.


def auroc(scores: Sequence[float], right: Sequence[bool]) -> Estimate:
    """Return how often a right answer scores above a wrong one, with its 95 % interval.

    Ties count half. The interval is DeLong's (1988).
    """
    share_below, share_above = _shares_ordered(scores, right)
    if len(share_below) == 0 or len(share_above) == 0:
        return UNKNOWN
    area = float(share_below.mean())
    half_width = Z * (_variance_of_mean(share_below) + _variance_of_mean(share_above)) ** 0.5
    return area, max(0.0, area - half_width), min(1.0, area + half_width)


def auroc_difference(
    first: Sequence[float], second: Sequence[float], right: Sequence[bool]
) -> tuple[Estimate, float]:
    """Return the AUROC of the second score minus that of the first, on the same answers, and p.

    Interval and two-sided p are DeLong's (1988) for two correlated areas.
    """
    below_first, above_first = _shares_ordered(first, right)
    below_second, above_second = _shares_ordered(second, right)
    below = below_second - below_first
    above = above_second - above_first
    if len(below) == 0 or len(above) == 0:
        return UNKNOWN, float("nan")
    difference = float(below.mean())
    error = (_variance_of_mean(below) + _variance_of_mean(above)) ** 0.5
    p = float(2 * norm.sf(abs(difference) / error)) if error else 1.0
    return (difference, difference - Z * error, difference + Z * error), p


def _shares_ordered(
    scores: Sequence[float], right: Sequence[bool]
) -> tuple[np.ndarray, np.ndarray]:
    """Return for each right answer the share of wrong ones that score below it, and for each wrong
    answer the share of right ones that score above it.
    """
    values = np.asarray(scores, float)
    is_right = np.asarray(right, bool)
    n_right = int(is_right.sum())
    n_wrong = int((~is_right).sum())
    if n_right == 0 or n_wrong == 0:
        return np.zeros(n_right), np.zeros(n_wrong)
    # An answer's rank among all answers minus its rank among its own kind is the number of answers
    # of the other kind below it.
    ranks = rankdata(values)
    wrong_below = ranks[is_right] - rankdata(values[is_right])
    right_below = ranks[~is_right] - rankdata(values[~is_right])
    return wrong_below / n_wrong, 1 - right_below / n_right


def _variance_of_mean(shares: np.ndarray) -> float:
    """Return the variance of the mean of these shares; a single share has none."""
    return float(shares.var(ddof=1)) / len(shares) if len(shares) > 1 else 0.0
