"""Several answers to one question, from deeper passages: which of them should be returned?

The reader gives one answer per block of five passages of a longer ranking, and the verifier scores
each. The table compares rules that choose among the first 2, 4 and 10 of these answers, and the
same number of reads spent on a second reader or on query expansion. results/real/plan.md says what
was fixed before the run. A run is in <backbone>/blocks/seed-<n>.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import pandas as pd

from covrag_lite import metrics
from covrag_lite.method import VERIFIER_WEIGHT, verifier_score
from covrag_lite.records import CITATION, Prediction, Round
from covrag_lite.runs.frame import outcome_of
from covrag_lite.systems import names
from covrag_lite.tables.comparisons.differences import (
    difference,
    facts_by_seed,
    format_comparisons,
)
from covrag_lite.tables.comparisons.pairs import ALL_SETS
from covrag_lite.tables.labels import format_p
from covrag_lite.tables.table import Table

NUMBERS = (2, 4, 10)  # of blocks among which an answer is chosen
MARGIN = 1.0  # points: the verifier matters if it gains at least this much over the likelihood
KEY = ["dataset", "id"]
FIRST = "block 1"  # the passages that a system without deeper passages reads
EXPANDED = "expanded query"
# Each table of answers has one row per question and source: right, likelihood, score and answer.
# A source is what was read, such as "8 block 2": the seed of the reader, and the block.
Answers = pd.DataFrame
Choose = Callable[[Answers], "pd.Series[float]"]  # answers -> whether the chosen one is right

NOTES = (
    "Accuracy: a gold answer occurs in the answer as whole words.",
    f"Both: the likelihood plus {VERIFIER_WEIGHT} times the verifier's score. Vote: the most "
    "frequent answer, of ties the one with the highest likelihood. Oracle: right if any of the "
    "answers is right; no system could know it.",
    "Gained and lost count questions.",
)


def build_seeds(runs: Mapping[str, Sequence[Prediction]]) -> Table:
    """Build the table from the runs of all seeds."""
    answers = {seed: list_answers(seed, predictions) for seed, predictions in runs.items()}
    outcomes = {seed: choose_among_blocks(seed, table) for seed, table in answers.items()}
    rules = pd.DataFrame(accuracy_rows(outcomes))
    rows = pd.DataFrame(compare_rules(outcomes))
    reads = compare_reads(answers)
    parts = {
        "Accuracy by rule, in %": rules,
        "Paired differences on the same questions, in points": format_rows(rows),
        "The same number of reads, spent in other ways": format_rows(reads),
        "Which block the answer is from, in %": chosen_blocks(answers),
    }
    facts = facts_by_seed("", rules.rename(columns={"accuracy": "difference"}))
    for table in (rows, reads):
        if len(table):
            facts |= facts_by_seed("", format_rows(table))
    parts = {heading: part for heading, part in parts.items() if len(part)}
    return Table("blocks", rows, parts, NOTES, facts, digits=4)


# The answers, from the records.


def list_answers(seed: str, predictions: Sequence[Prediction]) -> Answers:
    """Return the answers of all rounds, one row per question and source."""
    rows = []
    for prediction in predictions:
        is_expanded = prediction.system == names.EXPANSION_COMBINED
        for number, answered in enumerate(prediction.rounds):
            right = outcome_of(prediction, number).whole
            if right is None or is_expanded and number == 0:  # the first block once more
                continue
            source = EXPANDED if is_expanded else f"block {number + 1}"
            rows.append(
                {
                    "dataset": prediction.question.dataset,
                    "id": prediction.question.id,
                    "source": f"{seed} {source}",
                    "right": float(right),
                    "likelihood": answered.likelihood,
                    "score": score_of(answered),
                    "answer": metrics.normalise(CITATION.sub("", answered.answer)),
                }
            )
    return pd.DataFrame(rows)


def score_of(answered: Round) -> float | None:
    """Return the verifier's score of an answer; None if it was not verified."""
    return verifier_score(answered.verdict) if answered.verdict else None


def select(answers: Answers, sources: Sequence[str]) -> Answers:
    """Return the answers from these sources, of the questions that have all of them."""
    chosen = answers[answers.source.isin(sources)]
    is_complete = chosen.groupby(KEY).source.transform("nunique") == len(sources)
    return chosen[is_complete]


# The rules. Each returns, by question, whether the chosen answer is right.


def best_of(answers: Answers, value: pd.Series) -> pd.DataFrame:
    """Return each question's row with the highest value; of ties the first source."""
    order = answers.assign(value=value).sort_values("value", ascending=False, kind="stable")
    return order.drop_duplicates(KEY).set_index(KEY).sort_index()


def by_likelihood(answers: Answers) -> pd.DataFrame:
    """Choose the answer with the highest likelihood."""
    return best_of(answers, answers.likelihood)


def by_verifier(answers: Answers) -> pd.DataFrame:
    """Choose the answer that the verifier trusts most."""
    return best_of(answers, answers.score)


def by_both(answers: Answers) -> pd.DataFrame:
    """Choose the answer with the highest combined score."""
    return best_of(answers, answers.likelihood + VERIFIER_WEIGHT * answers.score)


def by_vote(answers: Answers) -> pd.DataFrame:
    """Choose the most frequent answer; of ties the one with the highest likelihood."""
    votes = answers.groupby([*KEY, "answer"]).source.transform("size")
    # A likelihood is a mean log-probability: below 0, and rarely below -20.
    return best_of(answers, votes + answers.likelihood.clip(lower=-100) / 1000)


def by_oracle(answers: Answers) -> pd.DataFrame:
    """Choose a right answer if there is one."""
    return best_of(answers, answers.right)


RULES = {
    "likelihood": by_likelihood,
    "verifier": by_verifier,
    "both": by_both,
    "vote": by_vote,
    "oracle": by_oracle,
}
NEEDS_VERDICTS = ("verifier", "both")


def choose_among_blocks(seed: str, answers: Answers) -> pd.DataFrame:
    """Return whether each rule is right, one column per number of blocks and rule.

    A question has a value only if all its answers, and for some rules all verdicts, are there.
    """
    of_first = answers[answers.source == f"{seed} {FIRST}"]
    columns = {FIRST: of_first.set_index(KEY).right}
    for number in NUMBERS:
        sources = [f"{seed} block {block}" for block in range(1, number + 1)]
        columns |= choose_among(answers, sources, f"{number} blocks")
    return pd.DataFrame(columns)


def choose_among(
    answers: Answers, sources: Sequence[str], name: str, rules: Sequence[str] = tuple(RULES)
) -> dict[str, pd.Series]:
    """Return whether each rule is right among the answers from these sources."""
    chosen = select(answers, sources)
    verified = chosen[chosen.groupby(KEY).score.transform(lambda scores: scores.notna().all())]
    columns = {}
    for rule in rules:
        usable = verified if rule in NEEDS_VERDICTS else chosen
        if len(usable):
            columns[f"{name}, {rule}"] = RULES[rule](usable).right
    return columns


# What is compared.


def accuracy_rows(outcomes: Mapping[str, pd.DataFrame]) -> Iterator[dict]:
    """Return the accuracy of every rule and seed."""
    for seed, table in outcomes.items():
        for name in table:
            right = table[name].dropna()
            accuracy = f"{100 * right.mean():.1f}"
            yield {"rule": name, "seed": seed, "accuracy": accuracy, "n": f"{len(right):,}"}


def list_pairs() -> Iterator[tuple[str, str]]:
    """List which rules are compared; the comparison that counts is "both" among 4 blocks."""
    for number in NUMBERS:
        name = f"{number} blocks"
        for rule in ("both", "verifier", "vote", "oracle"):
            yield f"{name}, likelihood", f"{name}, {rule}"
        yield FIRST, f"{name}, likelihood"
        yield FIRST, f"{name}, both"
    yield "4 blocks, both", "10 blocks, likelihood"


def compare_rules(outcomes: Mapping[str, pd.DataFrame]) -> Iterator[dict]:
    """Compare pairs of rules on the questions of both, by seed."""
    for before, after in list_pairs():
        for seed, table in outcomes.items():
            if before in table and after in table:
                sides = table[[before, after]].dropna()
                yield difference(before, after, ALL_SETS, seed, [sides])


def compare_reads(answers: Mapping[str, Answers]) -> pd.DataFrame:
    """Compare blocks of the first seed with other ways to spend as many reads."""
    seeds = list(answers)
    if len(seeds) < 2:
        return pd.DataFrame()
    first, second = seeds[:2]
    every = pd.concat([answers[first], answers[second]])
    ways = {  # number of reads -> the ways to spend them
        2: {
            "2 blocks": [f"{first} block 1", f"{first} block 2"],
            "2 reads, second reader": [f"{first} block 1", f"{second} block 1"],
            "2 reads, expansion": [f"{first} block 1", f"{first} {EXPANDED}"],
        },
        4: {
            "4 blocks": [f"{first} block {block}" for block in (1, 2, 3, 4)],
            "4 reads, second reader": [
                f"{seed} block {block}" for seed in (first, second) for block in (1, 2)
            ],
            "4 reads, expansion and second reader": [
                f"{seed} {source}" for seed in (first, second) for source in (FIRST, EXPANDED)
            ],
        },
    }
    rows = []
    for of_number in ways.values():
        columns = {}
        for name, sources in of_number.items():
            columns |= choose_among(every, sources, name, ("likelihood", "both"))
        table = pd.DataFrame(columns).dropna()
        blocks, *others = of_number
        for other in others:
            for rule in ("likelihood", "both"):
                before, after = f"{other}, {rule}", f"{blocks}, {rule}"
                if before in table and after in table:
                    seed = f"{first}, {second}"
                    rows.append(difference(before, after, ALL_SETS, seed, [table]))
    return pd.DataFrame(rows)


def chosen_blocks(answers: Mapping[str, Answers]) -> pd.DataFrame:
    """Return from which block each rule takes its answer, for the largest number of blocks."""
    rows = []
    for seed, table in answers.items():
        for number in NUMBERS:
            sources = [f"{seed} block {block}" for block in range(1, number + 1)]
            chosen = select(table, sources)
            if chosen.empty or chosen.score.isna().all():
                continue
            verified = chosen[chosen.groupby(KEY).score.transform(lambda s: s.notna().all())]
            for rule in ("likelihood", "both"):
                shares = RULES[rule](verified).source.value_counts(normalize=True)
                row = {"blocks": number, "rule": rule, "seed": seed}
                for block, source in enumerate(sources, 1):
                    row[f"{block}"] = f"{100 * shares.get(source, 0):.0f}"
                rows.append(row)
    return pd.DataFrame(rows).fillna("")


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values corrected for their number by Holm's method, in the same order."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected = [0.0] * len(p_values)
    highest = 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, p_values[i] * (len(p_values) - rank)))
        corrected[i] = highest
    return corrected


def format_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Return comparisons as people read them, with p corrected where several test one question."""
    if not len(rows):
        return pd.DataFrame()
    table = format_comparisons(rows.assign(n=rows.n.map("{:,}".format)))
    tested = [f"{number} blocks, both" for number in NUMBERS]
    is_tested = rows["to"].isin(tested) & rows["from"].str.endswith("likelihood")
    for _, of_seed in rows[is_tested].groupby("seed"):
        table.loc[of_seed.index, "p, Holm"] = [format_p(p) for p in holm(list(of_seed.p))]
    return table.fillna("")
