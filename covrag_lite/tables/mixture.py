"""What the mixture of answers and verdicts is worth: single models trained on several, beside plain readers.

A run lies in <backbone>/mixture/<arm>/seed-<n>: "again" and "half" are readers, trained once more on all answers and on
half of them; the others are single models, called by their parameter `mixture`. Differences are paired by question, in
points of accuracy in whole words; results/real/plan.md says which of them count.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from covrag_lite import metrics
from covrag_lite.tables import Table
from covrag_lite.tables.claim import METRIC, POOLED, facts_of_rows, judge_rows, search_rows, sign_flip, visible

MARGIN = 0.75  # points; two systems are equivalent if the whole interval of their difference lies within
READERS = {"again": "RAG trained again", "half": "RAG trained on half"}
RECORDED, AGAIN, HALF = "RAG trained", *READERS.values()
OTHERS = "mean of recorded readers"  # with the seeds that it is the mean of
LATER = ("4", "5", "6", "7")  # seeds whose readers were trained by later code than those of seeds 1 to 3
ANSWERS = {"CoV-RAG-S": "first answer", "CoV-RAG": "final answer"}

Arms = Mapping[tuple[str, str], pd.DataFrame]  # arm and seed -> its frame
Right = dict[str, dict[str, pd.Series]]  # a system -> a seed -> whether each question was answered rightly


def build_arms(arms: Arms, recorded: Mapping[str, pd.DataFrame]) -> Table:
    """Every arm that was run beside the recorded readers of the same backbone, by their seeds."""
    right = {RECORDED: {seed: outcomes(frame, RECORDED) for seed, frame in recorded.items()}}
    for (arm, seed), frame in arms.items():
        for system in frame.system.unique():
            name = READERS.get(arm) or f"{arm}, {ANSWERS[system]}"
            right.setdefault(name, {})[seed] = outcomes(frame, system)
    rows = pd.DataFrame(list(compare(right)))
    accuracy = [
        {"system": name, "seed": seed, "accuracy": f"{100 * one.mean():.2f}", "n": f"{len(one):,}"}
        for name, own in right.items()
        for seed, one in own.items()
    ]
    judged, searched = (
        pd.DataFrame([row | {"answers of": arm} for (arm, seed), frame in arms.items() for row in tell(frame, seed)])
        for tell in (judge_rows, search_rows)
    )
    parts = {"Accuracy": pd.DataFrame(accuracy), "Paired differences, in points": shown(rows)}
    facts = facts_of_rows("", parts["Accuracy"].rename(columns={"accuracy": "difference"})) | facts_of_rows(
        "", shown(rows)
    )
    for head, told in (("judge of", judged), ("search of", searched)):
        if len(told):
            parts["The judge of first answers" if "judge" in head else "The second search"] = told
            facts |= facts_of_rows(head, told)
    notes = [
        f"Accuracy is {METRIC}: a gold answer stands in the answer in whole words.",
        f"Equivalent: the whole 95 % interval lies within ±{MARGIN} points.",
        "Gained and lost count questions; of several seeds a question's mean counts.",
    ]
    return Table("mixture", rows, parts, notes, facts, digits=4)


def outcomes(frame: pd.DataFrame, system: str) -> pd.Series:
    """Whether each question was answered rightly; without those whose gold answer is defective."""
    own = frame[(frame.system == system) & frame[METRIC].notna()]
    return own.set_index(["dataset", "id"])[METRIC].astype(float)


def pairs(right: Right) -> Iterator[tuple[str, str]]:
    """What is compared, the one that the other is measured against first."""
    yield RECORDED, AGAIN
    yield AGAIN, HALF
    arms = dict.fromkeys(name.partition(", ")[0] for name in right if name not in (RECORDED, AGAIN, HALF))
    for arm in arms:
        first, final = (f"{arm}, {which}" for which in ANSWERS.values())
        yield from ((base, own) for base in (AGAIN, HALF, OTHERS, f"{OTHERS} 4–7") for own in (first, final))
        yield first, final
    yield from ((f"paper, {which}", f"{arm}, {which}") for arm in arms if arm != "paper" for which in ANSWERS.values())


def compare(right: Right) -> Iterator[dict]:
    """Every comparison whose sides were run, by seed and pooled; a base without that seed is the mean of its seeds."""
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
    """Each question's mean over seeds, of the questions that all of them have."""
    return pd.concat(list(own.values()), axis=1, join="inner").mean(axis=1) if own else pd.Series(dtype=float)


def difference(a: str, b: str, seed: str, base: pd.Series, own: pd.Series) -> dict:
    """One comparison on the questions that both sides answered."""
    means = (own - base).dropna().to_numpy()
    steps = 420 * means  # whole numbers: of the means of up to seven seeds the least common multiple
    value, low, high = (round(100 * one, 3) for one in metrics.mean_bootstrap(means))
    row = {"from": a, "to": b, "seed": seed, "n": len(means), "difference": value, "low": low, "high": high}
    row |= {"gained": int((means > 1e-9).sum()), "lost": int((means < -1e-9).sum())}
    p = sign_flip(np.round(steps) / np.gcd.reduce(np.round(steps).astype(int)) if means.any() else means)
    equivalent = -MARGIN <= low and high <= MARGIN
    return row | {"p": float(f"{p:.2g}"), "smallest_visible": round(visible(means), 3), "equivalent": equivalent}


def shown(rows: pd.DataFrame) -> pd.DataFrame:
    """Comparisons as people read them."""
    forms = {"comparison": "{from} → {to}", "seed": "{seed}", "n": "{n:,}", "difference": "{difference:+.1f}"}
    forms |= {"95 % interval": "[{low:+.1f}, {high:+.1f}]", "gained": "{gained}", "lost": "{lost}", "p": "{p}"}
    forms |= {"smallest visible": "{smallest_visible:.1f}", "equivalent": "{equivalent}"}
    told = rows.assign(
        p=[f"{p:.4f}" if p >= 0.0001 else "< 0.0001" for p in rows.p],
        equivalent=["yes" if one else "no" for one in rows.equivalent],
    )
    return pd.DataFrame([{name: form.format(**row) for name, form in forms.items()} for row in told.to_dict("records")])
