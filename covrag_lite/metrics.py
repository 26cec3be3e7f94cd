"""What a prediction is worth: accuracy and retrieval, intervals, and paired tests. Pure functions, no state.

Three accuracies: `raw` is the rule of WebGLM's own code (the answer contains a gold string, case-sensitive),
`normalised` is what the paper's text describes (capitals and punctuation do not count), and `whole` is ours: as
normalised, but the gold answer must occur as whole words, because the "2" in "1829" is not an answer.
"""

import string
from collections import Counter
from collections.abc import Sequence
from functools import cache, lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaincinv
from scipy.stats import binom, binomtest, rankdata

from covrag_lite.records import CITATION, Passage

METRICS = ("raw", "normalised", "whole")
Z = 1.959964  # of a 95 % interval
FEW_PAIRS = 25  # differing questions below which a bootstrap interval is not credible
_PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation + "’‘“”–—…", " "))


@lru_cache(maxsize=1 << 16)  # systems see the same passages, and each is looked at by several rules
def normalise(text: str) -> str:
    """The text in lower case, without reference marks and punctuation, with single spaces."""
    unmarked = CITATION.sub(" ", text)
    words = unmarked.lower().translate(_PUNCTUATION).split()
    return " ".join(words)


def at_most_twice(text: str) -> list[str]:
    """The words of a text, none of them more than twice."""
    seen, kept = Counter(), []
    for word in text.split():
        plain = normalise(word)
        seen[plain] += 1
        if seen[plain] <= 2 or not plain:
            kept.append(word)
    return kept


def is_defective(answers: Sequence[str]) -> bool:
    """True where no gold answer survives normalising, so that the normalised accuracy is undefined."""
    return not any(normalise(answer) for answer in answers)


def score(answer: str, answers: Sequence[str], metric: str) -> bool | None:
    """Whether the answer is right; None where the gold answers are defective under this metric."""
    if metric not in METRICS:
        raise ValueError(f"metric {metric!r} is not known; use one of {', '.join(METRICS)}")
    if metric == "raw":
        return any(gold in answer for gold in answers if gold)
    return _holds(normalise(answer), answers, metric)


def _holds(said: str, answers: Sequence[str], metric: str) -> bool | None:
    if is_defective(answers):
        return None
    edge = " " if metric == "whole" else ""
    return any(f"{edge}{gold}{edge}" in f"{edge}{said}{edge}" for gold in map(normalise, answers) if gold)


def holds_answer(passages: Sequence[Passage], answers: Sequence[str], metric: str = "normalised") -> bool | None:
    """Whether one of the passages contains a gold answer: the paper's retrieval accuracy (Table 6)."""
    parts = [normalise(f"{passage.title} {passage.text}") for passage in passages]
    return _holds(" ".join(filter(None, parts)), answers, metric)


def holds_gold(passages: Sequence[Passage], gold_passages: Sequence[str]) -> bool | None:
    """Whether a gold passage is among the passages; None where the data names none."""
    return any(passage.id in gold_passages for passage in passages) if gold_passages else None


@cache  # a table and its picture ask for the same shares, and scipy tests each of them
def wilson(right: int, n: int) -> tuple[float, float]:
    """The 95 % Wilson interval of a share; it keeps its meaning at 0 % and at small n."""
    if n == 0:
        return float("nan"), float("nan")
    interval = binomtest(right, n).proportion_ci(0.95, "wilson")
    return float(interval.low), float(interval.high)


def mean_interval(shares: Sequence[tuple[int, int]]) -> tuple[float, float, float]:
    """The plain mean of several sets' shares (the paper's Avg) with its interval: MOVER over Wilson intervals."""
    p = np.array([right / n for right, n in shares])
    low, high = np.array([wilson(right, n) for right, n in shares]).T
    mean = float(p.mean())
    below = float(np.sqrt(((p - low) ** 2).sum())) / len(p)
    above = float(np.sqrt(((high - p) ** 2).sum())) / len(p)
    return mean, mean - below, mean + above


def mcnemar(a: Sequence[bool], b: Sequence[bool]) -> tuple[int, int, float]:
    """How many questions only b has right, how many only a has right, and the exact two-sided p."""
    gained = sum(y and not x for x, y in zip(a, b, strict=True))
    lost = sum(x and not y for x, y in zip(a, b, strict=True))
    p = float(binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0
    return gained, lost, p


def smallest_visible(gained: int, lost: int, n: int, power: float = 0.8, alpha: float = 0.05) -> float:
    """The smallest difference, in points, that McNemar's exact test on n questions shows with this power.

    It assumes the same number of differing questions; NaN where these are too few for any significant result.
    """
    differing = gained + lost
    fewest = binom.ppf(alpha / 2, differing, 0.5) - 1  # of one system's wins, the most at which p < alpha
    if fewest < 0:
        return float("nan")
    # The share of wins with which the other system wins at least the rest so often.
    share = betaincinv(differing - fewest, fewest + 1, power)
    return float(100 * (2 * share - 1) * differing / n)


def paired_bootstrap(a: Sequence[float], b: Sequence[float]) -> tuple[float, float, float]:
    """The difference b − a on the same questions, with its 95 % percentile interval over resampled questions."""
    difference = np.asarray(b, float) - np.asarray(a, float)
    n = len(difference)
    if n == 0:
        return float("nan"), float("nan"), float("nan")
    # A resample's sum depends only on how often each value is drawn: a few counts, not n indices.
    values, counts = np.unique(difference.round(9), return_counts=True)
    low, high = _exact_ends(values, counts) or _drawn_ends(values, counts)
    return float(difference.mean()), low, high


def _exact_ends(values: np.ndarray, counts: np.ndarray) -> tuple[float, float] | None:
    """Where the interval ends over all possible resamples, the same on every machine; only for multiples of 1/k.

    The sum of n draws is distributed as one draw folded n times with itself, which is a power of its transform.
    """
    n = int(counts.sum())
    step = next((k for k in range(1, 13) if np.allclose(values * k, (values * k).round(), atol=1e-7)), None)
    if step is None:
        return None
    places = (values * step).round().astype(int)
    first = places.min()
    one = np.zeros(n * (places.max() - first) + 1)
    one[places - first] = counts / n
    size = 1 << len(one).bit_length()
    sums = np.fft.irfft(np.fft.rfft(one, size) ** n, size)[: len(one)].cumsum()
    low, high = (int(np.searchsorted(sums, share)) for share in (0.025, 0.975))
    return float(low / n + first) / step, float(high / n + first) / step


def _drawn_ends(values: np.ndarray, counts: np.ndarray, resamples: int = 10_000) -> tuple[float, float]:
    """Where the interval ends over random resamples."""
    n = counts.sum()
    drawn = np.random.default_rng(0).multinomial(n, counts / n, size=resamples)
    low, high = np.percentile(drawn @ values / n, [2.5, 97.5])
    return float(low), float(high)


def mean_bootstrap(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean over questions with its 95 % percentile interval."""
    return paired_bootstrap(np.zeros(len(values)), values)  # a mean is the difference from 0


def difference_interval(differences: Sequence[float]) -> tuple[float, float, float]:
    """The mean of per-question differences with its 95 % interval.

    A bootstrap resamples the questions that were seen: with four losses and no gain it never sees a
    gain, and its interval excludes zero although four coin flips prove nothing. Below `FEW_PAIRS`
    differing questions the interval is therefore `few_pairs_interval`. It is unknown (NaN) where few
    questions differ in a mean over several seeds.
    """
    values = np.asarray(differences, float)
    differing = values[values != 0]
    if len(differing) >= FEW_PAIRS:
        return mean_bootstrap(values)
    mean = float(values.mean()) if len(values) else float("nan")
    if not len(values) or not np.isin(differing, (-1.0, 1.0)).all():
        return mean, float("nan"), float("nan")
    gained, lost = int((differing > 0).sum()), int((differing < 0).sum())
    return mean, *few_pairs_interval(gained, lost, len(values))


def few_pairs_interval(gained: int, lost: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a paired difference in which few questions differ: the union of two.

    Tango's score interval (1998) also asks how many questions might have differed, so it covers 95 %
    at small counts. The Clopper-Pearson interval of the share of gains among differing questions
    contains zero exactly where McNemar's exact test is not significant. Neither does both.
    """
    low, high = _tango_end(gained, lost, n, -1), _tango_end(gained, lost, n, 1)
    if gained + lost:
        share = binomtest(gained, gained + lost).proportion_ci(0.95, "exact")
        ends = [(2 * end - 1) * (gained + lost) / n for end in (share.low, share.high)]
        low, high = min(low, ends[0]), max(high, ends[1])
    return float(low), float(high)


def _tango_end(gained: int, lost: int, n: int, side: int) -> float:
    """The lower (-1) or upper (1) end of Tango's interval: where the score statistic is 1.96."""

    def excess(difference: float) -> float:
        linear = -gained - lost + (2 * n - gained + lost) * difference
        constant = -lost * difference * (1 - difference)
        lost_share = (np.sqrt(max(0.0, linear**2 - 8 * n * constant)) - linear) / (4 * n)  # most likely
        variance = n * (2 * lost_share + difference * (1 - difference))
        return (gained - lost - n * difference) ** 2 - Z**2 * max(variance, 0.0)

    observed = (gained - lost) / n
    if abs(observed) == 1 and side * observed > 0:
        return float(side)
    return float(brentq(excess, observed + side * 1e-7, side * (1 - 1e-9)))


def paired_interval(a: Sequence[float], b: Sequence[float]) -> tuple[float, float, float]:
    """The difference b − a on the same questions with its 95 % interval, as `difference_interval`."""
    return difference_interval(np.asarray(b, float) - np.asarray(a, float))


def auroc(scores: Sequence[float], right: Sequence[bool]) -> tuple[float, float, float]:
    """How often a right answer scores above a wrong one, ties counting half, with its 95 % interval (DeLong 1988)."""
    values, truth = np.asarray(scores, float), np.asarray(right, bool)
    n_right, n_wrong = int(truth.sum()), int((~truth).sum())
    if not n_right or not n_wrong:
        return float("nan"), float("nan"), float("nan")
    places = rankdata(values)
    # Of each right answer the share of wrong ones below it, and of each wrong one the share of right ones above it.
    below = (places[truth] - rankdata(values[truth])) / n_wrong
    above = 1 - (places[~truth] - rankdata(values[~truth])) / n_right
    area = float(below.mean())
    half = 1.96 * sum(part.var(ddof=1) / len(part) for part in (below, above) if len(part) > 1) ** 0.5
    return area, max(0.0, area - half), min(1.0, area + half)
