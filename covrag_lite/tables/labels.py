"""How systems, question sets and small numbers are written where people read them.

Files, facts and parameters keep the recorded names; every table and picture shows these labels.
"""

import math

import pandas as pd

from covrag_lite.systems import names
from covrag_lite.tables.comparisons import pairs

SYSTEM_LABELS = {
    names.CLOSED_BOOK: "No retrieval (untuned)",
    names.RAG: "RAG (untuned)",
    names.START_REVISE: "Rewrite first (untuned)",
    names.COV_RAG_UNTRAINED: "CoV-RAG (untuned)",
    names.RAG_TRAINED: "RAG (trained)",
    names.NO_CHAIN: "CoV-RAG, no scores",
    names.COV_RAG_S: "CoV-RAG, first answer",
    names.START_REVISE_TRAINED: "Rewrite first (trained)",
    names.COV_RAG_THRESHOLDS: "CoV-RAG, thresholds",
    names.COV_RAG_SHUFFLED: "CoV-RAG, another question's search",
    names.COV_RAG: "CoV-RAG",
    names.COV_RAG_LIKELIER: "CoV-RAG, higher likelihood",
    names.TWO_ADAPTERS: "Two adapters, last answer",
    names.TWO_ADAPTERS_LIKELIER: "Two adapters, higher likelihood",
    names.TWO_ADAPTERS_COMBINED: "Two adapters, score-combined",
    names.TWO_ADAPTERS_SHUFFLED: "Two adapters, another question's search",
    names.TWO_ADAPTERS_NEXT: "Two adapters, next five passages",
    names.TWO_ADAPTERS_NO_CHAIN: "Two adapters, no scores, last answer",
    names.TWO_ADAPTERS_NO_CHAIN_LIKELIER: "Two adapters, no scores, higher likelihood",
    names.TWO_ADAPTERS_NO_CHAIN_COMBINED: "Two adapters, no scores, score-combined",
    names.TWO_ADAPTERS_NO_CHAIN_NEXT: "Two adapters, no scores, next five passages",
    names.TWO_ADAPTERS_NO_CHAIN_BLOCKS: "Two adapters, no scores, blocks of passages",
    names.EXPANSION: "Query expansion",
    names.EXPANSION_COMBINED: "Query expansion + verifier choice",
    names.EXPANSION_BY_ANSWER: "Query expansion by own answer",
    names.INFORMED_QUERY: "Query from a passage with the answer",
    names.QUESTION_AND_INFORMED_QUERY: "Question + query from a passage with the answer",
    # The verifiers of `informed`.
    "revisions with guesses": "Revisions with guesses",
    "revisions with guesses, last answer": "Revisions with guesses, last answer",
    "revisions with guesses, higher likelihood": "Revisions with guesses, higher likelihood",
    "informed revisions": "Informed revisions",
    "informed revisions, last answer": "Informed revisions, last answer",
    "informed revisions, higher likelihood": "Informed revisions, higher likelihood",
    "RRR": "Rewrite-Retrieve-Read",
    "CoQ": "Chain of queries",
    "UoQ": "Union of queries",
    names.SWAPPED_REFERENCES: "Verifier, swapped passages",
    names.SWAPPED_ANSWERS: "Verifier, swapped answers",
    names.COV_RAG_FREE: "CoV-RAG, free decoding",
    names.NO_CHAIN_FREE: "CoV-RAG, no scores, free decoding",
    # Computed from recorded answers by `comparisons.baselines`, not run as systems of their own.
    pairs.EXPANSION_IF_FLAGGED: "Query expansion where flagged",
    pairs.EXPANSION_IF_UNLIKELY: "Query expansion where likelihood is low",
    pairs.TWO_EXPANDED_READERS: "Query expansion, two readers",
    pairs.TWO_EXPANDED_READERS_COMBINED: "Query expansion, two readers + verifier choice",
    pairs.ALL_EXPANDED_READERS: "Query expansion, all readers",
    pairs.TWO_PLAIN_READERS: "Two readers, one search",
    pairs.TWO_READERS_ONE_SEARCH: "Two readers, one search, score-combined",
    pairs.TWO_READERS_NEXT: "Two readers, next five passages, score-combined",
    pairs.TWO_READERS_TWO_SEARCHES: "Two readers, two searches, score-combined",
    # The single models and readers of `mixture`.
    "RAG trained again": "RAG (trained), repeated",
    "RAG trained on half": "RAG (trained), half of the answers",
    "paper, first answer": "CoV-RAG, paper's mixture, first answer",
    "paper, final answer": "CoV-RAG, paper's mixture, final answer",
    "paper+answers, first answer": "CoV-RAG, paper's verdicts and all answers, first answer",
    "paper+answers, final answer": "CoV-RAG, paper's verdicts and all answers, final answer",
    "mean of recorded readers": "Mean of seven readers",
    "mean of recorded readers 4–7": "Mean of readers 4 to 7",
}
PUBLIC_SETS = {"nq": "NQ", "webq": "WebQ", "mintaka": "Mintaka", "triviaqa": "TriviaQA"}
SET_LABELS = {
    "search": "search queries",
    "entity": "entity questions",
    "complex": "complex questions",
    "quiz": "quiz questions",
    **PUBLIC_SETS,
    "x_squad": "SQuAD",
    "y_trec": "TREC",
    "y_2wiki": "2Wiki",
    "y_musique": "MuSiQue",
    "average": "Average",
}
for _name, _label in PUBLIC_SETS.items():
    SET_LABELS[f"x_{_name}"] = f"{_label}, held out"
    SET_LABELS[f"{_name}_qa"] = f"{_label}, DPR dev"
# A judge that only shows that the path works is called so wherever its numbers are shown.
JUDGE_LABELS = {"endpoint:smollm2-135m": "SmolLM2-135M (rehearsal, no measurement)"}
SMALLEST_P = 0.001  # a smaller p is written as such
SMALL_SAMPLE = 30  # with fewer questions a table shows counts, not shares and intervals


def label_of(system: str) -> str:
    """Return how a system is called where people read it.

    >>> label_of("RAG trained, every query expanded by guesses")
    'Query expansion'
    """
    return SYSTEM_LABELS.get(system, system)


def label_of_set(dataset: str) -> str:
    """Return how a question set is called where people read it."""
    return SET_LABELS.get(dataset, dataset)


def label_of_comparison(comparison: str) -> str:
    """Return a comparison of two systems, "A → B", with their labels."""
    return " → ".join(label_of(system) for system in comparison.split(" → "))


def label_of_judge(judge: str) -> str:
    """Return how a judge is called where people read it."""
    return JUDGE_LABELS.get(judge, judge)


def with_labels(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with labels in its index or its columns system, comparison and judge."""
    if "system" in table.index.names:
        level = "system" if table.index.nlevels > 1 else None
        table = table.rename(index=label_of, level=level)
    labels = {"system": label_of, "comparison": label_of_comparison, "judge": label_of_judge}
    for column, label in labels.items():
        if column in table:
            table = table.assign(**{column: table[column].map(label)})
    return table


def format_p(p: float) -> str:
    """Return a p value with three digits, or as smaller than the smallest that is shown."""
    return f"< {SMALLEST_P}" if p < SMALLEST_P else f"{p:.3f}"


def format_points(value: float) -> str:
    """Return a difference of shares in points, such as "+1.3"."""
    return f"{100 * value:+.1f}"


def format_interval(low: float, high: float) -> str:
    """Return the interval of a difference in points, such as "[+1.1, +1.5]"; a dash without one."""
    return "–" if math.isnan(low) else f"[{100 * low:+.1f}, {100 * high:+.1f}]"
