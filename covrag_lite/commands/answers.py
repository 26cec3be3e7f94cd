"""The answers of an evaluation, one row per question and system: shown in a terminal and as CSV."""

from collections.abc import Sequence

import pandas as pd

from covrag_lite.commands import screen
from covrag_lite.method import expected_score
from covrag_lite.records import CITATION, Prediction, Round
from covrag_lite.runs.frame import outcome_of

COLUMNS = ("question", "gold", "answer", "source", "right", "verifier")
SHARES = (20, 12, 18, 14, 6, 14)  # of the width of a table
RESULTS = {True: "right", False: "wrong", None: "not scored"}
JUDGMENTS = {"true": "accepted", "false": "rejected", "unclear": "undecided"}
NO_VERDICT = "–"


def answer_table(predictions: Sequence[Prediction]) -> pd.DataFrame:
    """Return the rows of answers.csv."""
    return pd.DataFrame([describe_answer(prediction) for prediction in predictions])


def describe_answer(prediction: Prediction) -> dict[str, object]:
    """Return one row: question, answers, source, result, and what the verifier did."""
    question = prediction.question
    first = prediction.rounds[0]
    verdict = first.verdict
    is_right = outcome_of(prediction, prediction.kept).normalised
    return {
        "system": prediction.system,
        "id": question.id,
        "question": question.question,
        "gold": " | ".join(question.answers),
        "answer": screen.separate_citations(prediction.answer),
        "source": describe_sources(prediction.final),
        "right": RESULTS[is_right],
        "verifier": describe_verifier(prediction),
        "first_answer": screen.separate_citations(first.answer),
        "judgment": verdict.judgment if verdict else "",
        "expected_correctness": expected_score(verdict, "correctness") if verdict else None,
        "revised_question": verdict.revised_question if verdict else "",
    }


def describe_sources(step: Round) -> str:
    """Return the titles of the passages that an answer cites."""
    numbers = sorted({int(number) for number in CITATION.findall(step.answer)})
    titles = [step.passages[n - 1].title for n in numbers if 1 <= n <= len(step.passages)]
    return "; ".join(dict.fromkeys(titles)) or "none cited"


def describe_verifier(prediction: Prediction) -> str:
    """Return what the verifier did, such as "rejected; searched again: still wrong"."""
    verdict = prediction.rounds[0].verdict
    if verdict is None:
        return NO_VERDICT
    judgment = JUDGMENTS.get(verdict.judgment, "no judgment")
    if not prediction.revised:
        return judgment
    last = len(prediction.rounds) - 1
    before = RESULTS[outcome_of(prediction, 0).normalised]
    after = RESULTS[outcome_of(prediction, last).normalised]
    change = f"still {after}" if before == after else f"{before} before, {after} now"
    return f"{judgment}; searched again: {change}"


def show_answers(rows: pd.DataFrame, system: str) -> str:
    """Return the answers of one system as a table for a terminal."""
    shown = rows[rows.system == system][list(COLUMNS)]
    return screen.table(COLUMNS, shown.values.tolist(), SHARES)
