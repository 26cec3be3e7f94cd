"""Table 4: where to revise (Section 4.3 of the paper), and what a rewriter does to the search."""

from collections.abc import Sequence

import pandas as pd

from covrag_lite import metrics
from covrag_lite.records import Prediction
from covrag_lite.runs.outcomes import to_frame
from covrag_lite.runs.recorded import Recorded
from covrag_lite.tables import Table, accuracy

POSITIONS = ("CoV-RAG-S", "Start-Revise trained", "CoV-RAG")  # no revision, one before retrieval, one after the answer


def build(predictions: Sequence[Prediction], run: Recorded) -> Table:
    """Table 4."""
    return accuracy.build("table4", to_frame(predictions), run, facts(predictions))


def facts(predictions: Sequence[Prediction]) -> dict[str, str]:
    """What a rewriter before retrieval does to the questions."""
    made = {}
    for system in dict.fromkeys(p.system for p in predictions if p.system.startswith("Start-Revise")):
        own = [p for p in predictions if p.system == system]
        rewritten = sum(p.rounds[0].query != p.question.question for p in own)
        counts = {"rewritten": rewritten, "off the question": off_question(own)}
        made |= {f"{system} {name}": str(count) for name, count in counts.items() if count is not None}
    return made


def off_question(predictions: Sequence[Prediction]) -> int | None:
    """How many rewrites have no long word of their question, as those that repeat the instruction; None without any."""
    pairs = [(p.question.question, p.rounds[0].query) for p in predictions if p.question.question]
    if all(query == question for question, query in pairs):
        return None
    words = [[set(metrics.normalise(text).split()) for text in pair] for pair in pairs]
    return sum(not any(len(word) > 3 for word in question & query) for question, query in words)


def drift(predictions: Sequence[Prediction]) -> pd.DataFrame:
    """The first three questions that find a gold passage as asked, and lose it by being rewritten."""
    before = {p.question.id: _gold(p) for p in predictions if p.system == "CoV-RAG-S"}
    rows = []
    for p in predictions:
        rewritten = p.rounds[0].query
        is_new = p.system == "Start-Revise trained" and rewritten != p.question.question
        if is_new and before.get(p.question.id) and not _gold(p):
            rows.append((p.question.question, rewritten))
    return pd.DataFrame(rows, columns=["question, found as asked", "rewritten, found no more"]).head(3)


def _gold(prediction: Prediction) -> bool | None:
    return metrics.holds_gold(prediction.rounds[0].passages, prediction.question.gold_passages)
