"""Paired differences between two systems on the same questions: computed, tested and written.

Pooled over seeds, a question counts once, by its mean: seeds repeat the training, not the question.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

import numpy as np
import pandas as pd

from covrag_lite import metrics
from covrag_lite.tables.comparisons.baselines import build_outcomes
from covrag_lite.tables.comparisons.pairs import (
    ALL_SETS,
    CHOSEN_BY_VERIFIER,
    COMPARISONS,
    FEW_VERDICTS,
    POOLED,
    SHARED_BY_PAIR,
)
from covrag_lite.tables.facts import facts_of
from covrag_lite.tables.labels import format_p, label_of_set

Z_95 = 1.96  # standard errors of a two-sided 5 % test
Z_80_POWER = 0.8416  # standard errors of 80 % power
LARGEST_STEP = 12  # differences are multiples of 1/k with k up to this, the means of k seeds
SMALLEST_P = 1e-12  # smaller ones are lost in rounding
FACT_ENDS = {"difference": "", "95 % interval": "interval", "detectable": "visible"}  # by column


def compare_systems(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return every comparison by seed and pooled, over all questions and by set."""
    outcomes = build_outcomes(frames)
    rows = []
    for before, after in COMPARISONS:
        tables = select_pair(outcomes, before, after)
        if tables:
            rows += _compare_pair(before, after, tables)
    return pd.DataFrame(rows)


def select_pair(
    outcomes: Mapping[str, pd.DataFrame], before: str, after: str
) -> dict[str, pd.DataFrame]:
    """Return two systems' outcomes on the questions of both, for every seed that ran both."""
    tables = {}
    for seed, table in outcomes.items():
        if before in table and after in table:
            tables[seed] = table[[before, after]].dropna()
    if {before, after} <= set(SHARED_BY_PAIR):
        return dict(list(tables.items())[::2])  # both seeds of a pair have the same outcomes
    return tables


def select_poolable(
    before: str, after: str, tables: Mapping[str, pd.DataFrame]
) -> dict[str, pd.DataFrame]:
    """Return the seeds that are pooled: the largest group with equally many questions.

    A seed that answered only a part of the questions would limit all others to this part. Seeds
    whose verifier learnt few verdicts are left out if there are others.
    """
    similar = {
        seed: table for seed, table in tables.items() if not has_few_verdicts(before, after, seed)
    }
    candidates = similar or tables
    sizes = Counter(len(table) for table in candidates.values())
    size = max(sizes, key=lambda n: (sizes[n], n))
    return {seed: table for seed, table in candidates.items() if len(table) == size}


def has_few_verdicts(before: str, after: str, seed: str) -> bool:
    """Return whether a verifier that learnt few verdicts chooses in this comparison."""
    return seed in FEW_VERDICTS and bool({before, after} & set(CHOSEN_BY_VERIFIER))


def _compare_pair(before: str, after: str, tables: Mapping[str, pd.DataFrame]) -> Iterator[dict]:
    """Compare two systems over all questions and by set, each by seed and then pooled."""
    sets = tables[min(tables)].index.unique("dataset")
    poolable = select_poolable(before, after, tables)
    for dataset in (ALL_SETS, *sets):
        of_set = tables
        if dataset != ALL_SETS:
            of_set = {
                seed: table[table.index.get_level_values("dataset") == dataset]
                for seed, table in tables.items()
            }
        for seed, table in of_set.items():
            if len(table):
                yield difference_over_seeds(before, after, dataset, seed, [table])
        if len(poolable) > 1:
            pooled = [of_set[seed] for seed in poolable]
            yield difference_over_seeds(before, after, dataset, POOLED, pooled)


def select_main(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of each comparison's main seed: pooled, or else the one with most questions.

    Of several with as many questions, the last one is taken. A seed whose verifier learnt few
    verdicts is taken only if there is no other.
    """
    overall = rows[rows.set == ALL_SETS]
    is_usual = [
        not has_few_verdicts(*key) for key in zip(overall["from"], overall.to, overall.seed)
    ]
    order = overall.assign(is_usual=is_usual, is_pooled=overall.seed == POOLED)
    order = order.sort_values(["is_usual", "is_pooled", "n"], kind="stable")
    main = order.groupby(["from", "to"], sort=False).seed.last()
    keys = pd.MultiIndex.from_frame(rows[["from", "to"]])
    return rows[rows.seed.to_numpy() == main.reindex(keys).to_numpy()]


def list_main_seeds(rows: pd.DataFrame) -> list[str]:
    """Return the seeds that the main row of one comparison over all questions counts."""
    main = select_main(rows).iloc[-1]
    if main.seed != POOLED:
        return [str(main.seed)]
    is_pooled = (rows.seed != POOLED) & (rows.n == main.n)
    return rows.seed[is_pooled].astype(str).tolist()


def difference_over_seeds(
    before: str, after: str, dataset: str, seed: str, tables: Sequence[pd.DataFrame]
) -> dict:
    """Return one comparison, on the questions that all of these seeds answered.

    There is one table per seed, with a column for each system. Gained and lost count answers.
    """
    common = reduce(pd.Index.intersection, (table.index for table in tables))
    by_seed = [(table[after] - table[before]).loc[common] for table in tables]
    differences = np.array(by_seed)  # (seeds, questions)
    means = differences.mean(axis=0)
    row = {"from": before, "to": after, "set": dataset, "seed": seed, "n": len(common)}
    for side, system in (("from", before), ("to", after)):
        accuracies = [table[system].loc[common].mean() for table in tables]
        row[f"accuracy_{side}"] = round(100 * np.mean(accuracies), 3)
    row |= estimate(means)
    row["gained"] = int((differences > 0).sum())
    row["lost"] = int((differences < 0).sum())
    row["p"] = round_p(sign_flip_p(means))
    row["smallest_visible"] = round(detectable_difference(means), 3)
    return row


def estimate(means: np.ndarray) -> dict[str, float]:
    """Return the mean difference and its interval in points, as columns of a comparison."""
    value, low, high = metrics.difference_interval(means)
    return {
        "difference": round(100 * value, 3),
        "low": round(100 * low, 3),
        "high": round(100 * high, 3),
    }


def round_p(p: float) -> float:
    """Round a p value to two significant digits."""
    return float(f"{p:.2g}")


def sign_flip_p(differences: np.ndarray) -> float:
    """Return the exact two-sided p of a paired difference.

    It is how often random signs of the questions' differences give as large a sum. With one seed
    this is McNemar's exact test; with several, a question's difference is its mean over them.
    """
    steps = to_whole_numbers(differences)
    observed = abs(steps.sum())
    sizes, counts = np.unique(np.abs(steps[steps != 0]), return_counts=True)
    if len(sizes) == 0:
        return 1.0
    # The distribution of the sum is the product of one transform per question.
    largest_sum = int((sizes * counts).sum())
    length = 1 << (2 * largest_sum + 1).bit_length()
    angles = 2 * np.pi * np.arange(length // 2 + 1) / length
    factors = [np.cos(size * angles) ** count for size, count in zip(sizes, counts)]
    chances = np.fft.irfft(np.prod(factors, axis=0), length)  # negative sums are at the end
    smaller = 0.0
    if observed:
        smaller = chances[:observed].sum() + chances[length - observed + 1 :].sum()
    return float(min(1.0, max(1 - smaller, SMALLEST_P)))


def to_whole_numbers(differences: np.ndarray) -> np.ndarray:
    """Return differences as whole numbers of their smallest step, such as a half or a third."""
    for step in range(1, LARGEST_STEP + 1):
        multiples = differences * step
        if np.allclose(multiples, multiples.round(), atol=1e-7):
            return multiples.round().astype(int)
    raise ValueError(f"differences are no means of at most {LARGEST_STEP} seeds' outcomes")


def detectable_difference(means: np.ndarray) -> float:
    """Return the minimum detectable effect, in points, at 80 % power and p < 0.05."""
    if set(np.unique(means)) <= {-1.0, 0.0, 1.0}:
        gained = int((means > 0).sum())
        lost = int((means < 0).sum())
        return metrics.detectable_effect(gained, lost, len(means))
    standard_error = means.std(ddof=1) / len(means) ** 0.5
    return float(100 * (Z_95 + Z_80_POWER) * standard_error)


def format_comparisons(rows: pd.DataFrame) -> pd.DataFrame:
    """Return comparisons as people read them; without the sets if all are over all questions."""
    effects = ["–" if pd.isna(value) else f"{value:.1f}" for value in rows.smallest_visible]
    table = pd.DataFrame(
        {
            "comparison": rows["from"] + " → " + rows.to,
            "set": rows.set.map(label_of_set),
            "seed": rows.seed,
            "n": rows.n,
            "from, %": rows.accuracy_from.map("{:.1f}".format),
            "to, %": rows.accuracy_to.map("{:.1f}".format),
            "difference": rows.difference.map("{:+.1f}".format),
            "95 % interval": [format_span(*ends) for ends in zip(rows.low, rows.high)],
            "gained": rows.gained,
            "lost": rows.lost,
            "p": rows.p.map(format_p),
            "detectable": effects,
        }
    )
    has_sets = (rows.set != ALL_SETS).any()
    return table if has_sets else table.drop(columns="set")


def format_corrected(rows: pd.DataFrame) -> pd.DataFrame:
    """Return comparisons of one seed as people read them, with p also corrected for all rows."""
    exact = [metrics.mcnemar_p(row.gained, row.lost) for row in rows.itertuples()]
    corrected = metrics.adjust_p(exact)
    return format_comparisons(rows).assign(**{"p, Holm": [format_p(p) for p in corrected]})


def format_span(low: float, high: float) -> str:
    """Return an interval in points; a dash where too few questions differ for one."""
    return "–" if pd.isna(low) else f"[{low:+.1f}, {high:+.1f}]"


def facts_by_seed(prefix: str, rows: pd.DataFrame) -> dict[str, str]:
    """Return every number of these rows as a fact.

    A fact's name has the prefix, the row's first column, its set (if any) and its seed.
    """
    facts = {}
    for row in rows.rename(columns=FACT_ENDS).to_dict("records"):
        words = (prefix, row.pop(rows.columns[0]), row.pop("set", ALL_SETS), row.pop("seed"))
        name = " ".join(word for word in words if word not in ("", ALL_SETS))
        facts |= facts_of(name, row)
    return facts
