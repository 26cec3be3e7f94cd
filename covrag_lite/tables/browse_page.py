"""One page with all recorded predictions of a run, as HTML with its own script and data.

The script is browse.js, the style browse.css. The page also works in a notebook that was saved as
HTML. Texts travel as data and are only set as text, so none can become markup.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from covrag_lite import metrics
from covrag_lite.records import SCORES, Prediction, Round
from covrag_lite.runs.redaction import MARK
from covrag_lite.systems import palette
from covrag_lite.tables.accuracy import in_order
from covrag_lite.tables.browse import NO_TEXT, OUTCOMES, WORDS, mark_outcomes
from covrag_lite.tables.labels import label_of, label_of_set
from covrag_lite.tables.pictures import OTHER

FOLDER = Path(__file__).parent  # of the script and the style
WITHOUT_SCRIPT = "A script draws this page: run the cell, or trust the notebook."


def build_page(predictions: Sequence[Prediction], frame: pd.DataFrame, title: str) -> str:
    """Return the page as HTML, with all its data inside."""
    content = build_data(predictions, frame, title)
    data = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    data = MARK.sub(NO_TEXT, data)
    data = data.replace("<", "\\u003c")  # so that no text can end the script element
    style = (FOLDER / "browse.css").read_text()
    script = (FOLDER / "browse.js").read_text()
    # The name is unique, because one notebook may contain several pages.
    name = "predictions-" + hashlib.sha256(data.encode()).hexdigest()[:12]
    return (
        # The attribute keeps JupyterLab from reading typed text as its own shortcuts.
        f'<div id="{name}" data-lm-suppress-shortcuts="true"><p>{WITHOUT_SCRIPT}</p></div>\n'
        f'<script type="application/json" id="{name}-data">{data}</script>\n'
        f'<script>\n{script}\nshowPredictions("{name}", {json.dumps(style)});\n</script>'
    )


def build_data(predictions: Sequence[Prediction], frame: pd.DataFrame, title: str) -> dict:
    """Return the page's data: each question and passage once, and all predictions."""
    questions = {}
    passages = {}
    for prediction in predictions:
        question = prediction.question
        questions[question.id] = asdict(question)
        for step in prediction.rounds:
            passages |= {passage.id: [passage.title, passage.text] for passage in step.passages}
    systems = in_order({prediction.system for prediction in predictions})
    rows = mark_outcomes(frame).to_dict("records")
    pairs = zip(predictions, rows, strict=True)
    return {
        "title": title,
        "texts": any(question["question"] for question in questions.values()),
        "outcomes": OUTCOMES,
        "scores": SCORES,
        "systems": {name: [label_of(name), palette().get(name, OTHER)] for name in systems},
        "sets": {row["dataset"]: label_of_set(row["dataset"]) for row in questions.values()},
        "questions": questions,
        "passages": passages,
        "predictions": [prediction_data(prediction, row) for prediction, row in pairs],
    }


def prediction_data(prediction: Prediction, row: dict) -> dict:
    """Return one prediction: its outcomes and its rounds, the first and last right or wrong."""
    steps = prediction.rounds
    words = [None] * len(steps)
    words[0] = WORDS.get(row["first_normalised"])
    words[-1] = WORDS.get(row["normalised"])
    answers = prediction.question.answers
    return {
        "system": prediction.system,
        "id": prediction.question.id,
        "outcomes": [outcome for outcome in OUTCOMES if row[outcome]],
        "rounds": [round_data(step, answers, word) for step, word in zip(steps, words)],
    }


def round_data(step: Round, answers: Sequence[str], word: str | None) -> dict:
    """Return one round, compared with the gold answers."""
    verdict = asdict(step.verdict) if step.verdict else None
    if verdict and verdict["parsed"]:
        verdict["text"] = ""  # the raw text is shown only if it could not be parsed
    return {
        "query": step.query,
        "passages": [passage.id for passage in step.passages],
        "holds": passages_with_answer(step, answers),
        "answer": step.answer,
        "right": word,
        "verdict": verdict,
    }


def passages_with_answer(step: Round, answers: Sequence[str]) -> list[int]:
    """Return the numbers of the passages that contain an answer; none without their texts."""
    if not answers:
        return []
    numbers = range(len(step.passages))
    return [n for n in numbers if metrics.holds_answer([step.passages[n]], answers)]
