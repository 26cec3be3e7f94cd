"""Table 4: where to revise (Section 4.3 of the paper), and what a rewriter does to the search."""

from collections.abc import Sequence

import pandas as pd

from covrag_lite import metrics
from covrag_lite.records import Prediction
from covrag_lite.runs.outcomes import outcome_of, to_frame
from covrag_lite.runs.recorded import Recorded
from covrag_lite.tables import Table, accuracy

POSITIONS = ("CoV-RAG-S", "Start-Revise trained", "CoV-RAG")  # no revision, one before retrieval, one after the answer


def build(predictions: Sequence[Prediction], run: Recorded) -> Table:
    """Table 4."""
    return accuracy.build("table4", to_frame(predictions), run, facts(predictions))


def facts(predictions: Sequence[Prediction]) -> dict[str, str]:
    """How many questions a rewriter before retrieval changes, and how many it loses, as where it repeats its prompt."""
    made = {}
    for system in dict.fromkeys(p.system for p in predictions if p.system.startswith("Start-Revise")):
        pairs = [(p.question.question, p.rounds[0].query) for p in predictions if p.system == system]
        made[f"{system} rewritten"] = str(sum(query != question for question, query in pairs))
        known = [pair for pair in pairs if pair[0]]
        if any(query != question for question, query in known):  # off it: with none of its long words
            words = [[set(metrics.normalise(text).split()) for text in pair] for pair in known]
            off = [not any(len(word) > 3 for word in question & query) for question, query in words]
            made[f"{system} off the question"] = str(sum(off))
    return made


def drift(predictions: Sequence[Prediction]) -> pd.DataFrame:
    """The first three questions that find a gold passage as asked, and lose it by being rewritten."""
    before = {p.question.id: outcome_of(p).gold for p in predictions if p.system == "CoV-RAG-S"}
    rows = []
    for p in predictions:
        rewritten = p.rounds[0].query
        is_new = p.system == "Start-Revise trained" and rewritten != p.question.question
        if is_new and before.get(p.question.id) and not outcome_of(p).gold:
            rows.append((p.question.question, rewritten))
    return pd.DataFrame(rows, columns=["question, found as asked", "rewritten, found no more"]).head(3)
