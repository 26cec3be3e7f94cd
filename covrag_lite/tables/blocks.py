"""Several answers to one question, from deeper passages: which of them should be returned?

The reader gives one answer per block of five passages of a longer ranking, and the verifier scores
each answer. The table compares rules that choose among the first 2 and 4 of these answers. It also
compares them with the same number of reads spent on query expansion and on a second reader.
results/real/plan.md says what was fixed before the run. A run is in <backbone>/blocks/seed-<n>; the
first seed reads blocks, and the next one, if there is one, is the second reader.
"""

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from covrag_lite import metrics
from covrag_lite.method import VERIFIER_WEIGHT, combined_score, verifier_score
from covrag_lite.records import Prediction
from covrag_lite.runs.frame import KEY, outcome_of
from covrag_lite.systems import names
from covrag_lite.tables.comparisons.differences import (
    difference_over_seeds,
    facts_by_seed,
    format_comparisons,
    format_corrected,
)
from covrag_lite.tables.comparisons.pairs import ALL_SETS
from covrag_lite.tables.planned import judge_gain
from covrag_lite.tables.table import Table
from covrag_lite.tables.verifier import format_area

NUMBERS = (2, 4)  # of blocks among which an answer is chosen
NEEDED = 1.0  # points over the likelihood, fixed in results/real/plan.md
FIRST = "block 1"  # the passages that a system without deeper passages reads
EXPANDED = "expanded query"
# Other ways to read as often as with this number of blocks.
OTHER_READS = {
    2: ("2 reads, query expansion", "2 reads, two readers"),
    4: ("4 reads, query expansion and two readers",),
}
# A rule returns the answer with the highest value in the first of these columns, of ties in the
# next one, and then the first answer.
RULES = {
    "likelihood": ["likelihood"],
    "both": ["both"],
    "verifier": ["score"],
    "vote": ["votes", "likelihood"],
    "oracle": ["right"],
}
PLANNED_RULES = ("likelihood", "both")
SCORES = ("likelihood", "score", "both")

# The headings of the parts.
ACCURACY = "Accuracy by rule, in %"
CHOICE = "The verifier's choice among blocks, in points"
DEPTH = "More blocks, in points"
READS = "The same number of reads, in points"
EXPLORATORY = "Other rules, in points (exploratory)"
CHOSEN = "Which block the returned answer is from, in % (exploratory)"
JUDGED = "How well scores separate right from wrong answers"

NOTES = (
    "Accuracy: a gold answer occurs in the answer as whole words.",
    f"Both: the likelihood plus {VERIFIER_WEIGHT} times the verifier's score. Vote: the most "
    "frequent answer, of ties the one with the highest likelihood. Oracle: right if any of the "
    "answers is right; no system could know it.",
    "The comparison that counts is the verifier's choice among 4 blocks. The verifier gains about "
    f"{NEEDED:g} point or more if the difference is at least {NEEDED:g} and its interval is above "
    "zero; it gains less if the interval's upper end is below that.",
    "p, Holm: corrected for both numbers of blocks. The plan has a third, ten, which was not run.",
    "Two readers: those of the seed that is shown and of the next one, with the same verifier.",
    "A verdict reads its passages once more, so a verified answer costs about two reads.",
    "Gained and lost count questions. Detectable: the minimum detectable effect at 80 % power, in "
    "points.",
)

# The systems whose answers the table reads.
ANSWERING = (names.TWO_ADAPTERS_NO_CHAIN_BLOCKS, names.EXPANSION_COMBINED)
# One row per question and source: right (0 or 1), likelihood, score, both, and the answer. A source
# is what was read and by whom, such as "8 block 2": the seed of the reader, and the passages.
Answers = pd.DataFrame


def list_answers(seed: str, predictions: Sequence[Prediction]) -> Answers:
    """Return the answers of all rounds, without those that cannot be scored."""
    rows = []
    for prediction in predictions:
        if prediction.system not in ANSWERING:
            allowed = " and ".join(ANSWERING)
            raise ValueError(f"blocks cannot read {prediction.system!r}, only {allowed}")
        for number, answered in enumerate(prediction.rounds):
            right = outcome_of(prediction, number).whole
            if right is None:
                continue
            is_expanded = prediction.system == names.EXPANSION_COMBINED and number > 0
            passages = EXPANDED if is_expanded else f"block {number + 1}"
            verdict = answered.verdict
            rows.append(
                {
                    "dataset": prediction.question.dataset,
                    "id": prediction.question.id,
                    "source": f"{seed} {passages}",
                    "answer": metrics.normalise(answered.answer),
                    "right": float(right),
                    "likelihood": answered.likelihood,
                    "score": verifier_score(verdict) if verdict else None,
                    "both": combined_score(answered),
                }
            )
    # Query expansion reads the first block too.
    answers = pd.DataFrame(rows).drop_duplicates([*KEY, "source"])
    return answers.astype(dict.fromkeys(SCORES, float))


def choose(answers: Answers, sources: Sequence[str], rule: str) -> Answers:
    """Return the answer that a rule chooses for each question, of those from these sources.

    A question is left out if it lacks one of the answers, or a value that the rule needs.
    """
    candidates = answers[answers.source.isin(sources)]
    votes = candidates.groupby([*KEY, "answer"]).source.transform("size")
    candidates = candidates.assign(votes=votes).dropna(subset=RULES[rule])
    is_complete = candidates.groupby(KEY).source.transform("size") == len(sources)
    ordered = candidates[is_complete].sort_values(RULES[rule], ascending=False, kind="stable")
    return ordered.drop_duplicates(KEY).set_index(KEY).sort_index()


def list_sources(seeds: Sequence[str]) -> dict[str, list[str]]:
    """List the ways to get several answers, with the sources of these answers."""
    reader, *others = seeds
    ways = {}
    for number in NUMBERS:
        ways[f"{number} blocks"] = [f"{reader} block {block + 1}" for block in range(number)]
    ways[OTHER_READS[2][0]] = [f"{reader} {FIRST}", f"{reader} {EXPANDED}"]
    for second_reader in others[:1]:
        readers = (reader, second_reader)
        ways[OTHER_READS[2][1]] = [f"{seed} {FIRST}" for seed in readers]
        ways[OTHER_READS[4][0]] = [
            *(f"{seed} {FIRST}" for seed in readers),
            *(f"{seed} {EXPANDED}" for seed in readers),
        ]
    return ways


def choose_all(answers: Answers, seeds: Sequence[str]) -> dict[str, Answers]:
    """Return the chosen answers by way and rule, such as "4 blocks, both"."""
    chosen = {FIRST: choose(answers, [f"{seeds[0]} {FIRST}"], "likelihood")}
    for way, sources in list_sources(seeds).items():
        for rule in RULES if "blocks" in way else PLANNED_RULES:
            chosen[f"{way}, {rule}"] = choose(answers, sources, rule)
    return {name: rows for name, rows in chosen.items() if len(rows)}


def list_pairs() -> dict[str, list[tuple[str, str]]]:
    """List which choices are compared, by heading; the baseline comes first."""
    pairs: dict[str, list[tuple[str, str]]] = {CHOICE: [], DEPTH: [], READS: [], EXPLORATORY: []}
    for number in NUMBERS:
        likelihood, both, *exploratory = (f"{number} blocks, {rule}" for rule in RULES)
        pairs[CHOICE].append((likelihood, both))
        pairs[DEPTH] += [(FIRST, likelihood), (FIRST, both)]
        for way in OTHER_READS[number]:
            pairs[READS] += [
                (f"{way}, likelihood", likelihood),
                (f"{way}, both", both),
                (f"{way}, likelihood", both),
            ]
        for choice in exploratory:
            pairs[EXPLORATORY] += [(likelihood, choice), (FIRST, choice)]
    return pairs


def build_seeds(answers: Mapping[str, Answers]) -> Table:
    """Build the table from the answers of all seeds."""
    seeds = list(answers)
    every_answer = pd.concat(answers.values(), ignore_index=True)
    chosen = choose_all(every_answer, seeds)
    right = pd.DataFrame({name: rows.right for name, rows in chosen.items()})
    accuracies = pd.DataFrame(accuracy_rows(right, seeds[0]))
    parts = {ACCURACY: accuracies}
    # An accuracy is a fact without an ending, as a difference is.
    facts = facts_by_seed("", accuracies.rename(columns={"accuracy": "difference"}))
    compared = []
    for heading, pairs in list_pairs().items():
        rows = compare(right, pairs, seeds[0])
        if len(rows):
            compared.append(rows)
            if heading == CHOICE:
                facts |= facts_of_verdict(rows)
            written = format_corrected if heading == CHOICE else format_comparisons
            parts[heading] = written(rows.assign(n=rows.n.map("{:,}".format)))
            facts |= facts_by_seed("", parts[heading])
    parts[CHOSEN] = pd.DataFrame(origin_rows(chosen, seeds[0]))
    facts |= facts_by_seed("source of", parts[CHOSEN])
    parts[JUDGED] = pd.DataFrame(judge_rows(every_answer))
    facts |= facts_by_seed("judge of", parts[JUDGED])
    return Table("blocks", pd.concat(compared), parts, NOTES, facts, digits=4)


def accuracy_rows(right: pd.DataFrame, seed: str) -> Iterator[dict[str, str]]:
    """Return the accuracy of every choice."""
    for name in right:
        outcomes = right[name].dropna()
        accuracy = f"{100 * outcomes.mean():.1f}"
        yield {"rule": name, "seed": seed, "accuracy": accuracy, "n": f"{len(outcomes):,}"}


def compare(right: pd.DataFrame, pairs: Sequence[tuple[str, str]], seed: str) -> pd.DataFrame:
    """Compare these choices, each pair on the questions of both."""
    rows = []
    for before, after in pairs:
        if before in right and after in right:
            sides = right[[before, after]].dropna()
            rows.append(difference_over_seeds(before, after, ALL_SETS, seed, [sides]))
    return pd.DataFrame(rows)


def facts_of_verdict(rows: pd.DataFrame) -> dict[str, str]:
    """Return what the plan calls the result of the comparison that counts."""
    facts = {}
    for row in rows[rows.to == f"{max(NUMBERS)} blocks, both"].to_dict("records"):
        name = f"{row['from']} → {row['to']} {row['seed']} verdict"
        facts[name] = judge_gain(row["difference"], row["low"], row["high"], NEEDED)
    return facts


def origin_rows(chosen: Mapping[str, Answers], seed: str) -> Iterator[dict[str, str]]:
    """Return from which block the planned rules take their answers."""
    for number in NUMBERS:
        for rule in PLANNED_RULES:
            name = f"{number} blocks, {rule}"
            if name not in chosen:
                continue
            shares = chosen[name].source.value_counts(normalize=True)
            row = {"rule": name, "seed": seed}
            for block in range(1, max(NUMBERS) + 1):
                share = shares.get(f"{seed} block {block}", 0)
                row[f"block {block}"] = f"{100 * share:.0f}" if block <= number else ""
            yield row


def judge_rows(answers: Answers) -> Iterator[dict[str, str]]:
    """Return the AUROC of each score, one row per source, of its verified answers."""
    for source, rows in answers.dropna(subset=["both"]).groupby("source"):
        seed, _, passages = str(source).partition(" ")
        right = rows.right.astype(bool)
        yield {
            "answers from": passages,
            "seed": seed,
            "n": f"{len(rows):,}",
            "right": f"{100 * right.mean():.1f}",
            "AUROC": format_area(rows.score, right, "{:.3f}"),
            "AUROC of the likelihood": format_area(rows.likelihood, right, "{:.3f}"),
            "AUROC of both": format_area(rows.both, right, "{:.3f}"),
        }
