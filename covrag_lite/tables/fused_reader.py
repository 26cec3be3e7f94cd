"""Does query expansion gain less over a better first search, once a reader answers?

One reader answers the same questions over BM25 and over fused search, as RAG (trained) and with
query expansion. A run has one part per retriever, as in Table 6. Differences are paired by
question, in points of whole-word accuracy. results/real/plan.md says what was fixed before the run.
"""

from collections.abc import Iterator

import pandas as pd

from covrag_lite.data import load_passages, load_questions
from covrag_lite.runs.frame import outcome_table, to_frame
from covrag_lite.runs.recorded import Parts, Recorded, check_data, load_or_outcomes
from covrag_lite.systems import names
from covrag_lite.tables.comparisons.differences import (
    difference_over_seeds,
    format_comparisons,
    format_span,
)
from covrag_lite.tables.comparisons.pairs import ALL_SETS, METRIC
from covrag_lite.tables.facts import facts_of_rows
from covrag_lite.tables.intervals import share
from covrag_lite.tables.labels import label_of_set
from covrag_lite.tables.planned import MARGIN, judge_shrinking
from covrag_lite.tables.search_again import facts_of_comparisons
from covrag_lite.tables.table import Table
from covrag_lite.tables.table6 import load_outcomes, load_parts

BM25 = "BM25"
FUSED = "fused search"
RETRIEVERS = {"bm25": BM25, "fused": FUSED}  # by the parts of a run
RAG = "RAG (trained)"
EXPANSION = "query expansion"
SYSTEMS = {names.RAG_TRAINED: RAG, names.EXPANSION: EXPANSION}
GAIN = "gain"  # query expansion minus RAG (trained), of each question: -1, 0 or 1

NOTES = (
    f"Accuracy ({METRIC}): a gold answer occurs in the answer as whole words. Gain: query "
    "expansion minus RAG (trained), over the same search.",
    "Only questions that both systems answered over both searches are counted. Between gains, "
    '"from" and "to" are gains in points, and a question is gained if it gains more.',
    "Detectable: the minimum detectable effect at 80 % power, in points.",
    '"Shrinks" means that the whole interval of the difference of gains lies below zero. "Does not '
    f'shrink by more than {MARGIN} points" means that its lower end is above -{MARGIN}.',
)


def over(what: str, retriever: str) -> str:
    """Return the name of a system, or of the gain, over a retriever.

    >>> over(GAIN, BM25)
    'gain over BM25'
    """
    return f"{what} over {retriever}"


PLANNED = (over(GAIN, BM25), over(GAIN, FUSED))  # the comparison that counts
PAIRS = (
    PLANNED,
    (over(RAG, BM25), over(EXPANSION, BM25)),
    (over(RAG, FUSED), over(EXPANSION, FUSED)),
    (over(RAG, BM25), over(RAG, FUSED)),
    (over(RAG, FUSED), over(EXPANSION, BM25)),
)


def load(run: Recorded) -> Parts:
    """Load predictions by retriever; if their data is missing, only with recorded outcomes."""
    return load_or_outcomes(run, load_with_data, load_outcomes)


def load_with_data(run: Recorded) -> Parts:
    """Load predictions by retriever with their questions and passages."""
    questions = load_questions(run.config)
    passages = load_passages(run.config)
    check_data(run, run.config.retrieval.retrievers, questions=questions, passages=passages)
    return load_parts(run, questions, passages)


def build(parts: Parts, run: Recorded) -> Table:
    """Build the table from the predictions of both retrievers."""
    outcomes = join_outcomes(parts)
    accuracies = pd.DataFrame(measure_accuracies(outcomes))
    rows = pd.DataFrame([compare(outcomes, *pair) for pair in PAIRS])
    comparisons = format_rows(rows)
    by_set = pd.DataFrame(compare_gains_by_set(outcomes))
    verdict = judge_shrinking(rows.low[0], rows.high[0])
    readable = {
        "Accuracy in %": accuracies,
        "Paired differences, in points": comparisons,
        "Gain of query expansion by question set": by_set,
    }
    forms = {"": "{accuracy}", "interval": "{95 % interval}", "n": "{n}"}
    facts = facts_of_rows(accuracies, "{answers}", forms)
    facts |= facts_of_comparisons(comparisons)
    facts |= facts_of_rows(by_set, "{questions}")
    facts[f"{' → '.join(PLANNED)} verdict"] = verdict
    notes = [*NOTES, f"The gain over {FUSED} next to that over {BM25}: {verdict}."]
    return Table("fused_reader", rows, readable, notes, facts, digits=4)


def join_outcomes(parts: Parts) -> pd.DataFrame:
    """Return whether each question is answered correctly, and both gains, in one column each.

    Only questions that both systems answered over both retrievers are kept.
    """
    columns = {}
    for part, retriever in RETRIEVERS.items():
        right = outcome_table(to_frame(parts[part]), METRIC)
        for recorded, system in SYSTEMS.items():
            columns[over(system, retriever)] = right[recorded]
    outcomes = pd.concat(columns, axis=1, join="inner").dropna()
    for retriever in RETRIEVERS.values():
        gain = outcomes[over(EXPANSION, retriever)] - outcomes[over(RAG, retriever)]
        outcomes[over(GAIN, retriever)] = gain
    return outcomes


def measure_accuracies(outcomes: pd.DataFrame) -> Iterator[dict[str, str]]:
    """Return the accuracy of each system over each retriever."""
    for retriever in RETRIEVERS.values():
        for system in SYSTEMS.values():
            name = over(system, retriever)
            value, low, high = share(outcomes[name].tolist())
            yield {
                "answers": name,
                "n": f"{len(outcomes):,}",
                "accuracy": f"{value:.1f}",
                "95 % interval": f"[{low:.1f}, {high:.1f}]",
            }


def compare(outcomes: pd.DataFrame, before: str, after: str) -> dict:
    """Compare two columns by question; a difference of gains is between -2 and 2."""
    row = difference_over_seeds(before, after, ALL_SETS, "", [outcomes])
    del row["seed"]
    return row


def format_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Return comparisons as people read them."""
    table = format_comparisons(rows.assign(seed="", n=rows.n.map("{:,}".format)))
    return table.drop(columns="seed")


def compare_gains_by_set(outcomes: pd.DataFrame) -> Iterator[dict[str, str]]:
    """Return accuracies and gains over both retrievers, for all questions and for each set."""
    groups = {ALL_SETS: outcomes} | dict(list(outcomes.groupby(level="dataset", sort=False)))
    for name, of_set in groups.items():
        row = {"questions": label_of_set(name), "n": f"{len(of_set):,}"}
        for retriever in RETRIEVERS.values():
            row[over(RAG, retriever)] = f"{100 * of_set[over(RAG, retriever)].mean():.1f}"
            row[over(GAIN, retriever)] = f"{100 * of_set[over(GAIN, retriever)].mean():+.1f}"
        compared = compare(of_set, *PLANNED)
        row["difference of gains"] = f"{compared['difference']:+.1f}"
        row["95 % interval"] = format_span(compared["low"], compared["high"])
        yield row
