"""How systems, question sets and small numbers are written where people read them.

Files, facts and parameters keep the recorded names; every table and picture shows these labels.
"""

import math

import pandas as pd

SYSTEM_LABELS = {
    "closed-book": "No retrieval (untuned)",
    "RAG": "RAG (untuned)",
    "Start-Revise": "Rewrite first (untuned)",
    "CoV-RAG untrained": "CoV-RAG (untuned)",
    "RAG trained": "RAG (trained)",
    "CoV-RAG w/o chain": "CoV-RAG, no scores",
    "CoV-RAG-S": "CoV-RAG, first answer",
    "Start-Revise trained": "Rewrite first (trained)",
    "CoV-RAG thresholds": "CoV-RAG, thresholds",
    "CoV-RAG shuffled": "CoV-RAG, another question's search",
    "CoV-RAG": "CoV-RAG",
    "CoV-RAG, likelier answer": "CoV-RAG, higher likelihood",
    "CoV-RAG, two adapters": "Two adapters, last answer",
    "CoV-RAG, two adapters, likelier answer": "Two adapters, higher likelihood",
    "CoV-RAG, two adapters, weighed answer": "Two adapters, score-combined",
    "CoV-RAG, two adapters, another question's search": "Two adapters, another question's search",
    "CoV-RAG, two adapters, the next passages": "Two adapters, next five passages",
    "CoV-RAG w/o chain, two adapters": "Two adapters, no scores, last answer",
    "CoV-RAG w/o chain, two adapters, likelier answer": "Two adapters, no scores, higher likelihood",
    "CoV-RAG w/o chain, two adapters, weighed answer": "Two adapters, no scores, score-combined",
    "CoV-RAG w/o chain, two adapters, the next passages, likelier answer": (
        "Two adapters, no scores, next five passages"
    ),
    "RAG trained, every query expanded by guesses": "Query expansion",
    "RAG trained, every query expanded by guesses, weighed answer": "Query expansion + verifier choice",
    "RAG trained, every query expanded by its answer": "Query expansion by own answer",
    "RRR": "Rewrite-Retrieve-Read",
    "CoQ": "Chain of queries",
    "verify, swapped references": "Verifier, swapped passages",
    "verify, swapped answers": "Verifier, swapped answers",
    "CoV-RAG free": "CoV-RAG, free decoding",
    "CoV-RAG w/o chain free": "CoV-RAG, no scores, free decoding",
    # Computed from recorded answers by `claim`, not run as systems of their own.
    "queries expanded where the verifier doubts": "Query expansion where flagged",
    "queries expanded where answers are unlikely": "Query expansion where likelihood is low",
    "two readers, every query expanded": "Query expansion, two readers",
    "two plain readers, one search": "Two readers, one search",
    "two readers, one search": "Two readers, one search, score-combined",
    "two readers, the next passages": "Two readers, next five passages, score-combined",
    "two readers, two searches": "Two readers, two searches, score-combined",
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
    **{name: f"{name} questions" for name in ("entity", "complex", "quiz")},
    **{f"x_{name}": f"{label}, held out" for name, label in PUBLIC_SETS.items()},
    **{f"{name}_qa": f"{label}, DPR dev" for name, label in PUBLIC_SETS.items()},
    **PUBLIC_SETS,
    **{"x_squad": "SQuAD", "y_trec": "TREC", "y_2wiki": "2Wiki", "y_musique": "MuSiQue"},
    **{"search": "search queries", "average": "Average"},
}
SMALLEST_P = 0.001  # a smaller p is written as such
SMALL_SAMPLE = 30  # with fewer questions a table shows counts, not shares and intervals


def label_of(system: str) -> str:
    """How a system is called where people read it.

    >>> label_of("RAG trained, every query expanded by guesses")
    'Query expansion'
    """
    return SYSTEM_LABELS.get(system, system)


def label_of_set(dataset: str) -> str:
    """How a question set is called where people read it."""
    return SET_LABELS.get(dataset, dataset)


def label_comparison(comparison: str) -> str:
    """The comparison of two systems, "A → B", with their labels."""
    return " → ".join(label_of(system) for system in comparison.split(" → "))


def with_labels(table: pd.DataFrame) -> pd.DataFrame:
    """A table with labels for the recorded names in its index or its columns "system" and "comparison"."""
    if table.index.name == "system" or "system" in table.index.names:
        table = table.rename(index=label_of, level="system" if table.index.nlevels > 1 else None)
    for column, label in (("system", label_of), ("comparison", label_comparison)):
        if column in table:
            table = table.assign(**{column: table[column].map(label)})
    return table


def format_p(p: float) -> str:
    """A p value with three digits; a smaller one than can be shown is written as such."""
    return f"< {SMALLEST_P}" if p < SMALLEST_P else f"{p:.3f}"


def format_points(value: float) -> str:
    """A difference of shares in points, such as "+1.3"."""
    return f"{100 * value:+.1f}"


def format_interval(low: float, high: float) -> str:
    """The interval of a difference in points, such as "[+1.1, +1.5]"; a dash where there is none."""
    return "–" if math.isnan(low) else f"[{100 * low:+.1f}, {100 * high:+.1f}]"
