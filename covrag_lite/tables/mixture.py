"""Single models trained on several mixtures of answers and verdicts, next to answer-only readers.

A run is in <backbone>/mixture/<arm>/seed-<n>. The arms "again" and "half" are readers, trained on
all answers and on half of them; the others are single models, named by their parameter `mixture`.
Differences are paired by question, in points of whole-word accuracy. results/real/plan.md says
which of them were fixed before the run.
"""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pandas as pd
from scipy import stats

from covrag_lite.runs.frame import outcome_table
from covrag_lite.systems import names
from covrag_lite.tables.comparisons.differences import (
    detectable_difference,
    estimate,
    facts_by_seed,
    format_comparisons,
    format_span,
    round_p,
    sign_flip_p,
)
from covrag_lite.tables.comparisons.first_answers import judge_rows, search_rows
from covrag_lite.tables.comparisons.pairs import ALL_SETS, METRIC, POOLED
from covrag_lite.tables.labels import format_p, with_labels
from covrag_lite.tables.planned import MARGIN, is_equivalent
from covrag_lite.tables.table import Table

RECORDED = names.RAG_TRAINED
AGAIN = "RAG trained again"
HALF = "RAG trained on half"
READER_ARMS = {"again": AGAIN, "half": HALF}
# Baselines: the mean of the recorded readers, and of those that were trained with later code than
# the readers of seeds 1 to 3.
MEAN_READER = "mean of recorded readers"
LATER_MEAN_READER = "mean of recorded readers 4–7"
LATER_SEEDS = ("4", "5", "6", "7")
# The readers that were recorded when the comparisons were planned. Later ones are left out.
READER_SEEDS = ("1", "2", "3", *LATER_SEEDS)
ANSWERS = {names.COV_RAG_S: "first answer", names.COV_RAG: "final answer"}
PAPER_ARM = "paper"
PAPER_FORM = f"{PAPER_ARM}, {ANSWERS[names.COV_RAG]}"  # the paper's mixture and its final answer
ZERO = 1e-9  # a mean of seeds that is closer to 0 differs from it only by rounding
COMMON_STEP = 420  # of means over 1 to 7 seeds: the least common multiple of these numbers
NOTES = (
    f"Accuracy ({METRIC}): a gold answer occurs in the answer as whole words.",
    f"Equivalent: the whole 95 % interval lies within ±{MARGIN} points.",
    "Gained and lost count questions; over several seeds, by the question's mean.",
)

Arms = Mapping[tuple[str, str], pd.DataFrame]  # arm and seed -> its frame
BySeed = Mapping[str, pd.Series]  # seed -> whether each question was answered correctly
Outcomes = dict[str, dict[str, pd.Series]]  # system -> seed -> the same


def build_arms(arms: Arms, recorded: Mapping[str, pd.DataFrame]) -> Table:
    """Build the table of all arms, next to the recorded readers of the same backbone (by seed)."""
    outcomes = outcomes_by_system(arms, recorded)
    rows = pd.DataFrame(list(compare_all(outcomes)))
    differences = format_differences(rows)
    accuracies = accuracy_rows(outcomes)
    parts = {
        "Accuracy": with_labels(accuracies),
        "Paired differences, in points": with_labels(differences),
    }
    # An accuracy is a fact without an ending, as a difference is.
    facts = facts_by_seed("", accuracies.rename(columns={"accuracy": "difference"}))
    facts |= facts_by_seed("", differences)
    by_set = pd.DataFrame(list(compare_by_set(outcomes)))
    if len(by_set):
        differences_by_set = format_differences(by_set)
        parts["The paper's form by question set, in points"] = with_labels(differences_by_set)
        facts |= facts_by_seed("", differences_by_set)
    for prefix, heading, table in (
        (
            "across seeds",
            "Differences with training runs as random, in points (post hoc)",
            compare_runs(outcomes),
        ),
        (
            "judge of",
            "How well the verifier judges first answers",
            rows_of_arms(judge_rows, arms),
        ),
        ("search of", "The second search", rows_of_arms(search_rows, arms)),
    ):
        if len(table):
            parts[heading] = with_labels(table)
            facts |= facts_by_seed(prefix, table)
    return Table("mixture", rows, parts, NOTES, facts, digits=4)


def outcomes_by_system(arms: Arms, recorded: Mapping[str, pd.DataFrame]) -> Outcomes:
    """Return the outcomes of the recorded readers, and of each arm's reader or its two answers."""
    outcomes = {RECORDED: {}}
    for seed, frame in recorded.items():
        if seed in READER_SEEDS:
            outcomes[RECORDED][seed] = outcome_table(frame, METRIC)[RECORDED].dropna()
    for (arm, seed), frame in arms.items():
        right = outcome_table(frame, METRIC)
        for system in frame.system.unique():
            name = READER_ARMS.get(arm) or f"{arm}, {ANSWERS[system]}"
            outcomes.setdefault(name, {})[seed] = right[system].dropna()
    return outcomes


def accuracy_rows(outcomes: Outcomes) -> pd.DataFrame:
    """Return the accuracy of each system and seed, as people read it."""
    rows = []
    for system, by_seed in outcomes.items():
        for seed, right in by_seed.items():
            accuracy = f"{100 * right.mean():.2f}"
            row = {"system": system, "seed": seed, "accuracy": accuracy, "n": f"{len(right):,}"}
            rows.append(row)
    return pd.DataFrame(rows)


def rows_of_arms(
    make_rows: Callable[[pd.DataFrame, str], Iterator[dict]], arms: Arms
) -> pd.DataFrame:
    """Return the rows of all arms and seeds in one table, named by their arms."""
    rows = []
    for (arm, seed), frame in arms.items():
        rows += [row | {"answers of": arm} for row in make_rows(frame, seed)]
    return pd.DataFrame(rows)


def compare_runs(outcomes: Outcomes) -> pd.DataFrame:
    """Compare the accuracies of training runs with those of the recorded readers, by Welch's test.

    Paired intervals count the questions as random and the training runs as given. Here the training
    runs are random.
    """
    readers = accuracies_of(outcomes[RECORDED])
    rows = []
    for system, by_seed in outcomes.items():
        runs = accuracies_of(by_seed)
        if system == RECORDED or min(len(runs), len(readers)) < 2:
            continue
        test = stats.ttest_ind(runs, readers, equal_var=False)
        rows.append(
            {
                "comparison": f"{RECORDED} → {system}",
                "seed": POOLED,
                "runs": f"{len(readers)} and {len(runs)}",
                "from, sd": f"{np.std(readers, ddof=1):.2f}",
                "to, sd": f"{np.std(runs, ddof=1):.2f}",
                "difference": f"{np.mean(runs) - np.mean(readers):+.1f}",
                "95 % interval": format_span(*test.confidence_interval()),
                "p": format_p(test.pvalue),
            }
        )
    return pd.DataFrame(rows)


def accuracies_of(by_seed: BySeed) -> list[float]:
    """Return the accuracy of each seed, in %."""
    return [100 * right.mean() for right in by_seed.values()]


def list_pairs(systems: list[str]) -> Iterator[tuple[str, str]]:
    """List which of these systems are compared; the baseline comes first."""
    yield RECORDED, AGAIN
    yield AGAIN, HALF
    readers = (RECORDED, AGAIN, HALF)
    of_arms = [system for system in systems if system not in readers]
    arms = list(dict.fromkeys(system.partition(", ")[0] for system in of_arms))
    first, final = ANSWERS.values()
    for arm in arms:
        for baseline in (AGAIN, HALF, MEAN_READER, LATER_MEAN_READER):
            yield baseline, f"{arm}, {first}"
            yield baseline, f"{arm}, {final}"
        yield f"{arm}, {first}", f"{arm}, {final}"
    for arm in arms:
        if arm != PAPER_ARM:
            yield f"{PAPER_ARM}, {first}", f"{arm}, {first}"
            yield f"{PAPER_ARM}, {final}", f"{arm}, {final}"


def compare_all(outcomes: Outcomes) -> Iterator[dict]:
    """Return every comparison whose sides were run, by seed and pooled."""
    with_means = outcomes | {MEAN_READER: {"": mean_of_seeds(outcomes[RECORDED])}}
    later = {seed: outcomes[RECORDED][seed] for seed in outcomes[RECORDED] if seed in LATER_SEEDS}
    if later:
        with_means[LATER_MEAN_READER] = {"": mean_of_seeds(later)}
    for before, after in list_pairs(list(outcomes)):
        baselines = with_means.get(before)
        systems = with_means.get(after)
        if not baselines or not systems:
            continue
        paired = pair_seeds(baselines, systems)
        for seed, right in systems.items():
            yield difference(before, after, seed, paired[seed], right)
        if len(systems) > 1:
            pooled = (mean_of_seeds(paired), mean_of_seeds(systems))
            yield difference(before, after, POOLED, *pooled)


def pair_seeds(baselines: BySeed, systems: BySeed) -> dict[str, pd.Series]:
    """Return the baseline of each seed of a system; one that lacks it has the mean of its seeds."""
    paired = {}
    for seed in systems:
        has_seed = seed in baselines
        paired[seed] = baselines[seed] if has_seed else mean_of_seeds(baselines)
    return paired


def compare_by_set(outcomes: Outcomes) -> Iterator[dict]:
    """Compare the paper's form with its baseline on each question set, pooled over seeds."""
    baselines = outcomes.get(AGAIN)
    systems = outcomes.get(PAPER_FORM)
    if not baselines or not systems:
        return
    before = mean_of_seeds(pair_seeds(baselines, systems))
    after = mean_of_seeds(systems)
    for dataset in before.index.unique("dataset"):
        sides = (before.xs(dataset, level="dataset"), after.xs(dataset, level="dataset"))
        yield difference(AGAIN, PAPER_FORM, POOLED, *sides) | {"set": dataset}


def mean_of_seeds(by_seed: BySeed) -> pd.Series:
    """Return each question's mean over seeds, for the questions that all of them have."""
    if not by_seed:
        return pd.Series(dtype=float)
    return pd.concat(list(by_seed.values()), axis=1, join="inner").mean(axis=1)


def difference(before: str, after: str, seed: str, baseline: pd.Series, system: pd.Series) -> dict:
    """Compare two systems on the questions that both answered.

    Several seeds are given as means of each question, which may be over different numbers of seeds;
    `differences.difference_over_seeds` compares two systems seed by seed.
    """
    sides = pd.concat([baseline, system], axis=1, join="inner", keys=["from", "to"]).dropna()
    means = (sides["to"] - sides["from"]).to_numpy()
    row = {"from": before, "to": after, "seed": seed, "n": len(means)}
    row["accuracy_from"] = round(100 * sides["from"].mean(), 3)
    row["accuracy_to"] = round(100 * sides["to"].mean(), 3)
    row |= estimate(means)
    row["gained"] = int((means > ZERO).sum())
    row["lost"] = int((means < -ZERO).sum())
    row["p"] = round_p(sign_flip_p(to_steps(means)))
    row["smallest_visible"] = round(detectable_difference(means), 3)
    row["equivalent"] = is_equivalent(row["low"], row["high"])
    return row


def to_steps(means: np.ndarray) -> np.ndarray:
    """Return differences of means over up to seven seeds as whole numbers of their common step."""
    if not means.any():
        return means
    steps = np.round(COMMON_STEP * means)
    return steps / np.gcd.reduce(steps.astype(int))


def format_differences(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the comparisons as people read them, and whether the systems are equivalent."""
    written = rows.assign(n=rows.n.map("{:,}".format))
    if "set" not in rows:
        written["set"] = ALL_SETS
    table = format_comparisons(written)
    return table.assign(equivalent=["yes" if value else "no" for value in rows.equivalent])
