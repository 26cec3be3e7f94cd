"""Single models trained on several mixtures of answers and verdicts, next to readers that learn only answers.

A run is in <backbone>/mixture/<arm>/seed-<n>. The arms "again" and "half" are readers, trained on all answers and on
half of them; the others are single models, named by their parameter `mixture`. Differences are paired by question, in
points of whole-word accuracy. results/real/plan.md says which of them were fixed before the run.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd
from scipy import stats

from covrag_lite import metrics
from covrag_lite.labels import format_p
from covrag_lite.tables import Table, claim
from covrag_lite.tables.accuracy import with_labels
from covrag_lite.tables.claim import (
    METRIC,
    POOLED,
    facts_of_rows,
    format_span,
    judge_rows,
    search_rows,
    sign_flip,
    visible,
)

MARGIN = 0.75  # points: two systems are equivalent if the whole interval of their difference is within it
READERS = {"again": "RAG trained again", "half": "RAG trained on half"}
RECORDED, AGAIN, HALF = "RAG trained", *READERS.values()
OTHERS = "mean of recorded readers"
LATER = ("4", "5", "6", "7")  # seeds whose readers were trained with later code than those of seeds 1 to 3
ANSWERS = {"CoV-RAG-S": "first answer", "CoV-RAG": "final answer"}

Arms = Mapping[tuple[str, str], pd.DataFrame]  # arm and seed -> its frame
Right = dict[str, dict[str, pd.Series]]  # system -> seed -> whether each question was answered correctly


def build_arms(arms: Arms, recorded: Mapping[str, pd.DataFrame]) -> Table:
    """Build the table of all arms, next to the recorded readers of the same backbone (by seed)."""
    right = {RECORDED: {seed: outcomes(frame, RECORDED) for seed, frame in recorded.items()}}
    for (arm, seed), frame in arms.items():
        for system in frame.system.unique():
            name = READERS.get(arm) or f"{arm}, {ANSWERS[system]}"
            right.setdefault(name, {})[seed] = outcomes(frame, system)
    rows = pd.DataFrame(list(compare(right)))
    accuracy = pd.DataFrame(
        [
            {"system": name, "seed": seed, "accuracy": f"{100 * values.mean():.2f}", "n": f"{len(values):,}"}
            for name, by_seed in right.items()
            for seed, values in by_seed.items()
        ]
    )
    judged, searched = (
        pd.DataFrame([row | {"answers of": arm} for (arm, seed), frame in arms.items() for row in make(frame, seed)])
        for make in (judge_rows, search_rows)
    )
    parts = {"Accuracy": with_labels(accuracy), "Paired differences, in points": with_labels(shown(rows))}
    facts = facts_of_rows("", accuracy.rename(columns={"accuracy": "difference"})) | facts_of_rows("", shown(rows))
    further = {
        "across seeds": ("Differences with training runs as random, in points (post hoc)", across_seeds(right)),
        "judge of": ("How well the verifier judges first answers", judged),
        "search of": ("The second search", searched),
    }
    for head, (title, table) in further.items():
        if len(table):
            parts[title] = with_labels(table)
            facts |= facts_of_rows(head, table)
    notes = [
        f"Accuracy ({METRIC}): a gold answer occurs in the answer as whole words.",
        f"Equivalent: the whole 95 % interval lies within ±{MARGIN} points.",
        "Gained and lost count questions; over several seeds, by the question's mean.",
    ]
    return Table("mixture", rows, parts, notes, facts, digits=4)


def across_seeds(right: Right) -> pd.DataFrame:
    """Compare the accuracies of training runs with those of the recorded readers, by Welch's t-test.

    Paired intervals count the questions as random and the training runs as given. Here the training runs are random.
    """
    readers, made = [100 * values.mean() for values in right[RECORDED].values()], []
    for name, by_seed in right.items():
        runs = [100 * values.mean() for values in by_seed.values()]
        if name == RECORDED or min(len(runs), len(readers)) < 2:
            continue
        test = stats.ttest_ind(runs, readers, equal_var=False)
        row = {"comparison": f"{RECORDED} → {name}", "seed": POOLED, "runs": f"{len(readers)} and {len(runs)}"}
        row |= {"from, sd": f"{np.std(readers, ddof=1):.2f}", "to, sd": f"{np.std(runs, ddof=1):.2f}"}
        row |= {"difference": f"{np.mean(runs) - np.mean(readers):+.1f}"}
        row |= {"95 % interval": format_span(*test.confidence_interval()), "p": format_p(test.pvalue)}
        made.append(row)
    return pd.DataFrame(made)


def outcomes(frame: pd.DataFrame, system: str) -> pd.Series:
    """Return whether each question was answered correctly, without those that cannot be scored."""
    own = frame[(frame.system == system) & frame[METRIC].notna()]
    return own.set_index(["dataset", "id"])[METRIC].astype(float)


def pairs(right: Right) -> Iterator[tuple[str, str]]:
    """List what is compared; the baseline comes first."""
    yield RECORDED, AGAIN
    yield AGAIN, HALF
    arms = dict.fromkeys(name.partition(", ")[0] for name in right if name not in (RECORDED, AGAIN, HALF))
    for arm in arms:
        first, final = (f"{arm}, {which}" for which in ANSWERS.values())
        yield from ((base, own) for base in (AGAIN, HALF, OTHERS, f"{OTHERS} 4–7") for own in (first, final))
        yield first, final
    yield from ((f"paper, {which}", f"{arm}, {which}") for arm in arms if arm != "paper" for which in ANSWERS.values())


def compare(right: Right) -> Iterator[dict]:
    """Make every comparison whose sides were run, by seed and pooled.

    A baseline that lacks a seed is replaced by the mean of its seeds.
    """
    later = {seed: one for seed, one in right[RECORDED].items() if seed in LATER}
    known = right | {OTHERS: {"": mean(right[RECORDED])}} | ({f"{OTHERS} 4–7": {"": mean(later)}} if later else {})
    for a, b in pairs(right):
        base, own = known.get(a, {}), known.get(b, {})
        if base and own:
            bases = {seed: base[seed] if seed in base else mean(base) for seed in own}
            for seed, one in own.items():
                yield difference(a, b, seed, bases[seed], one)
            if len(own) > 1:
                yield difference(a, b, POOLED, mean(bases), mean(own))


def mean(own: Mapping[str, pd.Series]) -> pd.Series:
    """Return each question's mean over seeds, for the questions that all of them have."""
    return pd.concat(list(own.values()), axis=1, join="inner").mean(axis=1) if own else pd.Series(dtype=float)


def difference(a: str, b: str, seed: str, base: pd.Series, own: pd.Series) -> dict:
    """Compare two systems on the questions that both answered."""
    both = pd.concat([base, own], axis=1, join="inner", keys=[0, 1]).dropna()
    means = (both[1] - both[0]).to_numpy()
    steps = 420 * means  # whole numbers: 420 is the least common multiple of 1 to 7, the numbers of seeds
    value, low, high = (round(100 * number, 3) for number in metrics.difference_interval(means))
    row = {"from": a, "to": b, "seed": seed, "n": len(means)}
    row |= {"accuracy_from": round(100 * both[0].mean(), 3), "accuracy_to": round(100 * both[1].mean(), 3)}
    row |= {"difference": value, "low": low, "high": high}
    row |= {"gained": int((means > 1e-9).sum()), "lost": int((means < -1e-9).sum())}
    p = sign_flip(np.round(steps) / np.gcd.reduce(np.round(steps).astype(int)) if means.any() else means)
    equivalent = -MARGIN <= low and high <= MARGIN
    return row | {"p": float(f"{p:.2g}"), "smallest_visible": round(visible(means), 3), "equivalent": equivalent}


def shown(rows: pd.DataFrame) -> pd.DataFrame:
    """The comparisons as the claim shows them, and whether they are equivalent."""
    table = claim.shown(rows.assign(set=claim.EVERY, n=rows.n.map("{:,}".format)))
    return table.assign(equivalent=["yes" if value else "no" for value in rows.equivalent])
