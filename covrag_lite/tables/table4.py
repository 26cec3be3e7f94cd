"""Table 4: where to revise (Section 4.3 of the paper), and what a rewriter does to the search."""

from collections.abc import Sequence

import pandas as pd

from covrag_lite import metrics
from covrag_lite.records import Prediction
from covrag_lite.runs.outcomes import to_frame
from covrag_lite.runs.recorded import Recorded, load_or_outcomes
from covrag_lite.tables import Table, accuracy, failures

POSITIONS = ("CoV-RAG-S", "Start-Revise trained", "CoV-RAG")  # no revision, one before retrieval, one after the answer

load = load_or_outcomes


def build(predictions: Sequence[Prediction], run: Recorded) -> Table:
    """Table 4."""
    frame = to_frame(predictions)
    return accuracy.build("table4", frame, run, failures.facts(frame) | facts(predictions))


def facts(predictions: Sequence[Prediction]) -> dict[str, str]:
    """What a rewriter before retrieval does to the questions."""
    made = {}
    for system in rewriting_systems(predictions):
        own = [p for p in predictions if p.system == system]
        changed = [p.question for p in own if p.rounds[0].query != p.question.question]
        made[f"{system} rewritten"] = str(len(changed))
        made[f"{system} rewritten broken wording"] = str(sum("+" in question.kind for question in changed))
        counts = off_question(predictions, system)
        if counts:
            made[f"{system} off the question"] = str(counts[0])
    return made


def rewriting_systems(predictions: Sequence[Prediction]) -> list[str]:
    """The systems that rewrite the question before they search."""
    return list(dict.fromkeys(p.system for p in predictions if p.system.startswith("Start-Revise")))


def off_question(predictions: Sequence[Prediction], system: str) -> tuple[int, int] | None:
    """How many rewritten questions share no word of over three letters with theirs, of how many; None if none changed
    or the questions are not at hand.

    Such a rewrite has failed: a small model repeats the instruction instead.
    """
    pairs = [
        (p.question.question, p.rounds[0].query) for p in predictions if p.system == system and p.question.question
    ]
    if all(query == question for question, query in pairs):
        return None
    return sum(not _long_words(question) & _long_words(query) for question, query in pairs), len(pairs)


def _long_words(text: str) -> set[str]:
    return {word for word in metrics.normalise(text).split() if len(word) > 3}


def drift(predictions: Sequence[Prediction], system: str = "Start-Revise trained", examples: int = 3) -> pd.DataFrame:
    """Questions that find a gold passage as asked, and lose it by being rewritten."""
    before = {p.question.id: _gold(p) for p in predictions if p.system == "CoV-RAG-S"}
    rows = []
    for p in predictions:
        rewritten = p.rounds[0].query
        if p.system == system and rewritten != p.question.question and before.get(p.question.id) and not _gold(p):
            rows.append((p.question.question, rewritten))
    return pd.DataFrame(rows, columns=["question, found as asked", "rewritten, found no more"]).head(examples)


def _gold(prediction: Prediction) -> bool | None:
    return metrics.holds_gold(prediction.rounds[0].passages, prediction.question.gold_passages)
