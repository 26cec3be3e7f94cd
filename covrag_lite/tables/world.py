"""The fictional world: what makes its questions fail, and which query would find the passage."""

from collections.abc import Sequence

import pandas as pd

from covrag_lite.metrics import holds_gold
from covrag_lite.records import Passage, Question, Search
from covrag_lite.tables.failures import FAILURES
from covrag_lite.tables.verifier import split_by


def failure_rates(questions: Sequence[Question], search: Search) -> pd.DataFrame:
    """Return how often a gold passage is found, in %, one row per obstacle.

    Each question is searched for as it is typed, and by the good query that the data set knows.
    """
    typed = search([question.question for question in questions])
    good = search([question.clean_question or question.question for question in questions])
    frame = pd.DataFrame({"failure": [question.failure for question in questions]})
    for end, results in (("", typed), (", good query", good)):
        first_results = [passages[:1] for passages in results]
        frame[f"found{end}"] = find_gold(questions, results)
        frame[f"found first{end}"] = find_gold(questions, first_results)
    rows = {}
    for name, part in split_by(frame, "failure", FAILURES):
        shares = 100 * part.drop(columns="failure").mean()
        rows[name] = {"questions": len(part), **shares.round(1)}
    return pd.DataFrame(rows).T.astype({"questions": int}).rename_axis("obstacle")


def find_gold(questions: Sequence[Question], results: Sequence[Sequence[Passage]]) -> list[bool]:
    """Return for each question whether a gold passage is among its passages."""
    pairs = zip(questions, results)
    return [bool(holds_gold(passages, question.gold_passages)) for question, passages in pairs]


def show_failures(questions: Sequence[Question], search: Search) -> pd.DataFrame:
    """Return one example per obstacle: a question that fails, and a query that finds its passage.

    The row "none" has a question without an obstacle, which finds its passage.
    """
    rows = {}
    results = search([question.question for question in questions])
    hits = find_gold(questions, results)
    for question, passages, is_hit in zip(questions, results, hits):
        is_example = is_hit == (question.failure == "none")
        if is_example and question.failure not in rows:
            rows[question.failure] = describe_failure(question, passages, search)
    ordered = [rows[name] for name in FAILURES if name in rows]
    columns = ["obstacle", "question", "top three passages", "good query", "gold at rank"]
    return pd.DataFrame(ordered, columns=columns).set_index("obstacle")


def describe_failure(question: Question, passages: Sequence[Passage], search: Search) -> dict:
    """Return a question, what it finds, and at which rank its good query finds the passage."""
    (good,) = search([question.clean_question])
    ranks = [rank for rank, passage in enumerate(good, 1) if passage.id in question.gold_passages]
    return {
        "obstacle": question.failure,
        "question": question.question,
        "top three passages": "; ".join(passage.title for passage in passages[:3]),
        "good query": question.clean_question,
        "gold at rank": ranks[0] if ranks else None,
    }
