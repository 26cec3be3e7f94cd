"""Predictions as a data frame: whether answers and retrieval were right, one row per prediction.

Every table is built from the frame of `to_frame`.
"""

from collections.abc import Sequence

import pandas as pd

from covrag_lite import metrics
from covrag_lite.method import combined_score, expected_score, verifier_score
from covrag_lite.records import Outcome, Prediction

KEY = ["dataset", "id"]  # the columns that identify a question
RETRIEVAL = ("gold", "found", "words")  # the fields of an outcome about retrieval


def outcome_of(prediction: Prediction, number: int = 0) -> Outcome:
    """Return the outcome of a round: scored if the data is available, else as recorded."""
    judged_round = prediction.rounds[number]
    question = prediction.question
    if judged_round.outcome:
        return judged_round.outcome
    right = {}
    for metric in metrics.METRICS:
        right[metric] = metrics.score(judged_round.answer, question.answers, metric)
    return Outcome(
        **right,
        gold=metrics.holds_gold(judged_round.passages, question.gold_passages),
        found=metrics.holds_answer(judged_round.passages, question.answers),
        words=metrics.holds_answer(judged_round.passages, question.answers, "whole"),
        parsed=judged_round.verdict.parsed if judged_round.verdict else None,
    )


def is_round_right(prediction: Prediction, number: int) -> bool:
    """Return whether the answer of a round is right after normalising."""
    return bool(outcome_of(prediction, number).normalised)


def to_frame(predictions: Sequence[Prediction]) -> pd.DataFrame:
    """Return a frame with one row per question and system."""
    return pd.DataFrame([_to_row(prediction) for prediction in predictions])


def outcome_table(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return whether each answer is right: one row per question, one column per system.

    A value is 1 or 0, and NaN if the system lacks an answer that can be scored. Questions keep
    their order.

    >>> rows = [("RAG", "nq", "q2", True), ("RAG", "nq", "q1", False), ("A", "nq", "q1", True)]
    >>> frame = pd.DataFrame(rows, columns=["system", "dataset", "id", "whole"])
    >>> outcome_table(frame, "whole")["RAG"].tolist()
    [1.0, 0.0]
    """
    scored = frame[frame[metric].notna()]
    table = scored.pivot(index=KEY, columns="system", values=metric).astype(float)
    questions = pd.MultiIndex.from_frame(scored[KEY].drop_duplicates())
    return table.reindex(questions)


def _to_row(prediction: Prediction) -> dict:
    """Return the row of one prediction: of its first answer and of the one that is returned.

    Columns that end in "_last" are about the passages of the last search. The returned answer may
    be that of an earlier one; columns that end in "_kept" are about its passages.
    """
    question = prediction.question
    first = prediction.rounds[0]
    kept = prediction.final
    of_first = outcome_of(prediction)
    of_kept = outcome_of(prediction, prediction.kept)
    of_last = outcome_of(prediction, len(prediction.rounds) - 1)
    row = {
        "system": prediction.system,
        "backbone": prediction.backbone,
        "dataset": question.dataset,
        "id": question.id,
        "form": question.form,
        "failure": question.failure,
    }
    for metric in metrics.METRICS:
        row[metric] = getattr(of_kept, metric)
    row["first_normalised"] = of_first.normalised
    row["first_whole"] = of_first.whole
    for name in RETRIEVAL:
        row[f"{name}_first"] = getattr(of_first, name)
        row[f"{name}_last"] = getattr(of_last, name)
        row[f"{name}_kept"] = getattr(of_kept, name)
    row |= _describe_verdicts(prediction)
    row["likelihood"] = first.likelihood
    row["kept_likelihood"] = kept.likelihood
    row["first_weight"] = combined_score(first)
    row["weight"] = combined_score(kept)
    row["revised"] = prediction.revised
    row["searched"] = bool(kept.query or kept.passages)
    return row


def _describe_verdicts(prediction: Prediction) -> dict:
    """Return the columns about verdicts: how many parsed, and what the first one says."""
    verdicts = [round_.verdict for round_ in prediction.rounds if round_.verdict]
    row = {
        "verdicts": len(verdicts),
        "unparsed": sum(not verdict.parsed for verdict in verdicts),
        "judgment": verdicts[0].judgment if verdicts else None,
        "expected_correctness": None,
        "expected_reference": None,
        "unrevised": None,
        "verifier_score": None,
    }
    if verdicts and verdicts[0].parsed:
        row["expected_correctness"] = expected_score(verdicts[0], "correctness")
        row["expected_reference"] = expected_score(verdicts[0], "reference_correctness")
        row["unrevised"] = (verdicts[0].probabilities or {}).get("empty")
        row["verifier_score"] = verifier_score(verdicts[0])
    return row


def check_frame(frame: pd.DataFrame, n: int, verdicts: str = "forced", by: str = "system") -> None:
    """Raise an error unless each group has each of n questions once and forced verdicts parsed."""
    sizes = frame.groupby(by).id.agg(["size", "nunique"])
    message = f"each group must have each of {n} questions once, but has {sizes.to_dict()}"
    assert sizes.eq(n).all(axis=None), message
    assert verdicts == "free" or frame.unparsed.sum() == 0, "a forced verdict did not parse"
