"""What the fictional world is like: what makes its questions fail, and what mends them."""

from collections.abc import Sequence

import pandas as pd

from covrag_lite.metrics import holds_gold
from covrag_lite.records import Passage, Question, Search
from covrag_lite.runs.outcomes import failure_of
from covrag_lite.tables.verifier import FAILURES, split_by


def failure_rates(questions: Sequence[Question], search: Search) -> pd.DataFrame:
    """How often a gold passage is found, and found first, by what makes a question fail: as asked, and as revised."""
    asked = search([q.question for q in questions])
    revised = search([q.clean_question or q.question for q in questions])
    frame = pd.DataFrame({"failure": [failure_of(q.kind) for q in questions]})
    for end, found in (("", asked), (", revised", revised)):
        frame[f"found{end}"] = gold_found(questions, found)
        frame[f"first{end}"] = gold_found(questions, [passages[:1] for passages in found])
    rows = {}
    for name, part in split_by(frame, "failure", FAILURES):
        rows[name] = {"n": len(part), **(100 * part.drop(columns="failure").mean()).round(1)}
    return pd.DataFrame(rows).T.astype({"n": int})


def gold_found(questions: Sequence[Question], found: Sequence[Sequence[Passage]]) -> list[bool]:
    """Whether a gold passage is among the passages of each question."""
    return [bool(holds_gold(passages, q.gold_passages)) for q, passages in zip(questions, found)]


def show_failures(questions: Sequence[Question], search: Search) -> pd.DataFrame:
    """Of each kind of failure a question whose gold passage is missed, with what is found instead and what finds it."""
    rows = []
    asked = search([question.question for question in questions])
    for question, found, is_found in zip(questions, asked, gold_found(questions, asked)):
        name = failure_of(question.kind)
        if (name == "none") == is_found and name not in [row[0] for row in rows]:
            (revised,) = search([question.clean_question])
            place = next((i for i, p in enumerate(revised, 1) if p.id in question.gold_passages), None)
            titles = "; ".join(passage.title for passage in found[:3])
            rows.append((name, question.question, titles, question.clean_question, place))
    columns = ["failure", "question", "found first", "a question that finds it", "at place"]
    rows.sort(key=lambda row: FAILURES.index(row[0]))
    return pd.DataFrame(rows, columns=columns).set_index("failure")
