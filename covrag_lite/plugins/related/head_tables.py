"""How good the heads are: on validation pairs, and CRAG's evaluator next to our verifier."""

from collections.abc import Mapping

import pandas as pd

from covrag_lite import metrics
from covrag_lite.systems.names import COV_RAG
from covrag_lite.tables.intervals import with_interval

DECISION = 0.5  # a score of at least this counts as relevant, or as entailed
# The scores that are compared, and their columns.
COMPARED = {
    "CRAG's evaluator": "evaluator",
    "our judge's reference score": "expected_reference",
}


def compare_evaluators(frame: pd.DataFrame) -> pd.DataFrame:
    """CRAG's evaluator and our verifier's reference score: did the passages hold an answer?"""
    rounds = frame[frame.system == COV_RAG]
    truth = rounds.gold_first.where(rounds.gold_first.notna(), rounds.found_first)
    rows = []
    for name, column in COMPARED.items():
        is_scored = rounds[column].notna() & truth.notna()
        if not is_scored.any():
            continue
        holds_answer = truth[is_scored].astype(bool)
        values = rounds[column][is_scored].astype(float)
        correct = 100 * ((values >= DECISION) == holds_answer).mean()
        area = metrics.auroc(values, holds_answer)
        rows.append((name, len(values), 100 * holds_answer.mean(), correct, *area))
    columns = ["score", "n", "found (%)", "right (%)", "AUROC", "low", "high"]
    return pd.DataFrame(rows, columns=columns).round(2)


def evaluator_table(scores: pd.DataFrame) -> pd.DataFrame:
    """`compare_evaluators` as people read it."""
    table = scores[["score", "n"]].copy()
    table["answer found %"] = scores["found (%)"].map("{:.1f}".format)
    table["correct %"] = scores["right (%)"].map("{:.1f}".format)
    areas = zip(scores.AUROC, scores.low, scores.high)
    table["AUROC [95 % interval]"] = [with_interval("{:.2f}", *area) for area in areas]
    return table


def head_table(head: Mapping) -> pd.DataFrame:
    """How good a trained head is on validation pairs, next to simpler scores."""
    rows = []
    for row in head["validation"]:
        shares = [row[name] for name in ("majority (%)", "right (%)", "balanced (%)")]
        cells = ["–" if share is None else f"{share:.1f}" for share in shares]
        area = with_interval("{:.2f}", row["AUROC"], row["low"], row["high"])
        rows.append((row["score"], row["n"], *cells, area))
    shares = ["majority %", "correct %", "correct %, classes weighted equally"]
    return pd.DataFrame(rows, columns=["score", "pairs", *shares, "AUROC [95 % interval]"])
