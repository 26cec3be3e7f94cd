"""The fictional world: what makes its questions fail, and which query would find the passage."""

from collections.abc import Sequence

import pandas as pd

from covrag_lite.metrics import holds_gold
from covrag_lite.records import Passage, Question, Search
from covrag_lite.runs.outcomes import failure_of
from covrag_lite.tables.verifier import FAILURES, split_by


def failure_rates(questions: Sequence[Question], search: Search) -> pd.DataFrame:
    """Return how often a gold passage is found, in %, one row per obstacle.

    Each question is searched for as it is typed, and by the good query that the data set knows.
    """
    typed = search([q.question for q in questions])
    good = search([q.clean_question or q.question for q in questions])
    frame = pd.DataFrame({"failure": [failure_of(q.kind) for q in questions]})
    for end, results in (("", typed), (", good query", good)):
        frame[f"found{end}"] = gold_found(questions, results)
        frame[f"found first{end}"] = gold_found(questions, [passages[:1] for passages in results])
    rows = {}
    for name, part in split_by(frame, "failure", FAILURES):
        shares = 100 * part.drop(columns="failure").mean()
        rows[name] = {"questions": len(part), **shares.round(1)}
    return pd.DataFrame(rows).T.astype({"questions": int}).rename_axis("obstacle")


def gold_found(questions: Sequence[Question], results: Sequence[Sequence[Passage]]) -> list[bool]:
    """Return for each question whether a gold passage is among its passages."""
    pairs = zip(questions, results)
    return [bool(holds_gold(passages, question.gold_passages)) for question, passages in pairs]


def show_failures(questions: Sequence[Question], search: Search) -> pd.DataFrame:
    """Return one example per obstacle: a question that fails, and a query that finds its passage.

    The row "none" has a question without an obstacle, which finds its passage.
    """
    rows = {}
    results = search([question.question for question in questions])
    for question, passages, hit in zip(questions, results, gold_found(questions, results)):
        name = failure_of(question.kind)
        if (name == "none") != hit or name in rows:
            continue
        (good,) = search([question.clean_question])
        gold = question.gold_passages
        rank = next((i for i, passage in enumerate(good, 1) if passage.id in gold), None)
        titles = "; ".join(passage.title for passage in passages[:3])
        rows[name] = (name, question.question, titles, question.clean_question, rank)
    columns = ["obstacle", "question", "top three passages", "good query", "gold at rank"]
    ordered = [rows[name] for name in FAILURES if name in rows]
    return pd.DataFrame(ordered, columns=columns).set_index("obstacle")
