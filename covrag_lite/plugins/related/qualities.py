"""What the related table shows of each prediction besides its outcome: length and citations."""

from collections.abc import Mapping, Sequence
from functools import partial

import pandas as pd

from covrag_lite.method import Passages
from covrag_lite.plugins.related.answer_quality import (
    ASPECTS,
    CLAIM_RECALL,
    assess,
    claim_recall,
    remove_citations,
)
from covrag_lite.plugins.related.heads import score_entailment, score_relevance
from covrag_lite.records import CITATION, Prediction
from covrag_lite.systems.names import COV_RAG


def measure_qualities(
    predictions: Sequence[Prediction], entailment: Mapping, evaluator: Mapping
) -> pd.DataFrame:
    """Measure each prediction with both heads.

    For CoV-RAG, the column "evaluator" is the score of the first search's best passage.
    """
    questions = [prediction.question for prediction in predictions]
    answers = [prediction.answer for prediction in predictions]
    systems = [prediction.system for prediction in predictions]
    x = [question.question for question in questions]
    k = [prediction.final.passages for prediction in predictions]
    entail = partial(score_entailment, entailment)
    aspects = assess(x, k, answers, entail)
    columns: dict[str, list] = {
        "system": systems,
        "id": [question.id for question in questions],
        "words": [count_words(answer) for answer in answers],
        "citations": [len(CITATION.findall(answer)) for answer in answers],
    }
    for name in ASPECTS:
        columns[as_column(name)] = [quality[name] for quality in aspects]
    columns[as_column(CLAIM_RECALL)] = claim_recall(questions, answers, entail)
    first_passages: list[Passages] = []
    for prediction in predictions:
        is_measured = prediction.system == COV_RAG
        first_passages.append(prediction.rounds[0].passages if is_measured else ())
    relevance = score_relevance(evaluator, x, first_passages)
    columns["evaluator"] = [max(scores, default=None) for scores in relevance]
    return pd.DataFrame(columns)


def count_words(answer: str) -> int:
    """Count the words of an answer without its citations."""
    return len(remove_citations(answer, " ").split())


def as_column(quality: str) -> str:
    """Return the column of a quality, as recorded files contain it."""
    return quality.replace(" ", "_")
