"""Recorded predictions to look at: one question step by step, and one page with all of them.

The page is HTML with its own script and data (browse.js, browse.css). It also works in a notebook
that was saved as HTML. Texts travel as data and are only set as text, so none can become markup.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd

from covrag_lite import metrics
from covrag_lite.config import Config
from covrag_lite.labels import label_of, label_of_set, with_labels
from covrag_lite.records import SCORES, Prediction, Question, Round
from covrag_lite.runs import recorded
from covrag_lite.runs.outcomes import outcome_of, to_frame
from covrag_lite.runs.redaction import MARK
from covrag_lite.systems import palette
from covrag_lite.tables.accuracy import in_order

# What can come of a verdict. A question may have several of these outcomes, or none.
OUTCOMES = {
    "helped": "wrong before the second search, right after it",
    "hurt": "right before the second search, wrong after it",
    "wrongly rejected": "the first answer is right, but judged “false”",
    "wrongly accepted": "the first answer is wrong, but judged “true”",
}
NOT_DRAWN = "A script draws this page: run the cell, or trust the notebook."
NO_TEXT = "⟨the question⟩"  # in place of a question whose text is not available
WORDS = {True: "right", False: "wrong"}
HERE = Path(__file__).parent


def load_recorded(
    run: recorded.Recorded | None,
    config: Config,
) -> tuple[list[Prediction], pd.DataFrame]:
    """Load a recorded run's predictions, with texts where the data is available, and outcomes."""
    if run is None:
        cure = "set record to a folder of results/"
        raise ValueError(f"there is no recorded run of this model and data; {cure}")
    if config.data.data == "world":
        predictions = recorded.load_or_outcomes(run)
    else:
        data = run.config.change(data=config.data.data, corpus=config.data.corpus)
        predictions = recorded.load(run, data)
    return predictions, to_frame(predictions)


def keep_verified(
    predictions: Sequence[Prediction], frame: pd.DataFrame, systems: Sequence[str]
) -> tuple[list[Prediction], pd.DataFrame]:
    """Keep those of these systems that wrote verdicts, and print which ones did not."""
    chosen = frame[frame.system.isin(systems)]
    verified = chosen.groupby("system").verdicts.sum() > 0
    names = set(verified[verified].index)
    if not names:
        present = "; ".join(in_order(frame[frame.verdicts > 0].system.unique()))
        wrong = f"none of the systems {', '.join(systems)} wrote a verdict in this record"
        raise ValueError(f"{wrong}; set systems to some of {present}")
    skipped = in_order(verified[~verified].index)
    if skipped:
        print("Not shown, because they write no verdict:", "; ".join(map(label_of, skipped)))
    kept = [prediction for prediction in predictions if prediction.system in names]
    return kept, frame[frame.system.isin(names)]


def find_recorded(config: Config, question: Question) -> list[Prediction]:
    """Find the recorded predictions for one question, one per system; none for other questions."""
    run = recorded.choose(config)
    predictions = recorded.load_or_outcomes(run) if run else []
    by_system = {p.system: p for p in predictions if p.question == question}
    return [by_system[system] for system in in_order(by_system)]


def show_prediction(prediction: Prediction) -> object:
    """Show a prediction step by step, under the label of its system."""
    from covrag_lite.runs.display import show  # loads widgets

    return show(replace(prediction, system=label_of(prediction.system)))


def compare_answers(predictions: Sequence[Prediction]) -> pd.DataFrame:
    """Return one row per system: its last query, its answer, and whether that is right."""
    rows = []
    for prediction in predictions:
        word = WORDS.get(outcome_of(prediction, prediction.kept).normalised, "not scored")
        searches = sum(bool(step.query) for step in prediction.rounds)
        query = prediction.rounds[-1].query or "–"
        rows.append((prediction.system, searches, query, prediction.answer, word))
    columns = ["system", "searches", "last query", "answer", "right?"]
    return with_labels(pd.DataFrame(rows, columns=columns)).set_index("system")


def mark_outcomes(frame: pd.DataFrame) -> pd.DataFrame:
    """Add one column per name of OUTCOMES: does the question have that outcome?"""
    scored = frame.normalised.notna() & frame.first_normalised.notna()
    before = scored & frame.first_normalised.eq(True)
    after = scored & frame.normalised.eq(True)
    return frame.assign(
        **{
            "helped": frame.revised & scored & ~before & after,
            "hurt": frame.revised & before & ~after,
            "wrongly rejected": before & frame.judgment.eq("false"),
            "wrongly accepted": scored & ~before & frame.judgment.eq("true"),
        }
    )


def count_outcomes(frame: pd.DataFrame) -> pd.DataFrame:
    """Count the questions of each system, its verdicts, and each outcome."""
    groups = mark_outcomes(frame).groupby("system")
    counts = groups[list(OUTCOMES)].sum()
    counts.insert(0, "questions", groups.size())
    counts.insert(1, "with a verdict", groups.verdicts.agg(lambda n: (n > 0).sum()))
    counts.insert(2, "searched again", groups.revised.sum())
    return counts.loc[in_order(counts.index)]


def first_of_each(predictions: Sequence[Prediction], frame: pd.DataFrame) -> pd.DataFrame:
    """Return the first question of each outcome in a few words: question, answers and revision."""
    marked = mark_outcomes(frame).reset_index(drop=True)
    rows = []
    for name in OUTCOMES:
        for number in marked.index[marked[name]][:1]:
            prediction = predictions[number]
            question, steps = prediction.question, prediction.rounds
            revised = MARK.sub(NO_TEXT, steps[0].verdict.revised_question) or "(none)"
            second = steps[-1].answer if prediction.revised else "–"
            texts = question.question or question.id, steps[0].answer, revised, second
            rows.append((name, *texts, " | ".join(question.answers)))
    columns = ["outcome", "question", "first answer", "revised question", "second answer", "gold"]
    return pd.DataFrame(rows, columns=columns).set_index("outcome")


def page(predictions: Sequence[Prediction], frame: pd.DataFrame, title: str) -> str:
    """Return the page as HTML, with all its data inside."""
    content = describe(predictions, frame, title)
    data = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    data = MARK.sub(NO_TEXT, data)
    data = data.replace("<", "\\u003c")  # so that no text can end the script element
    style, script = ((HERE / f"browse.{end}").read_text() for end in ("css", "js"))
    # The name is unique, because one notebook may contain several pages.
    name = "predictions-" + hashlib.sha256(data.encode()).hexdigest()[:12]
    return (
        # The attribute keeps JupyterLab from reading typed text as its own shortcuts.
        f'<div id="{name}" data-lm-suppress-shortcuts="true"><p>{NOT_DRAWN}</p></div>\n'
        f'<script type="application/json" id="{name}-data">{data}</script>\n'
        f'<script>\n{script}\nshowPredictions("{name}", {json.dumps(style)});\n</script>'
    )


def describe(predictions: Sequence[Prediction], frame: pd.DataFrame, title: str) -> dict:
    """Return the page's data: each question and passage once, and all predictions."""
    rows = mark_outcomes(frame).to_dict("records")
    questions = {p.question.id: p.question for p in predictions}
    steps = [step for p in predictions for step in p.rounds]
    passages = {passage.id: passage for step in steps for passage in step.passages}
    systems = in_order({p.system for p in predictions})
    sets = dict.fromkeys(p.question.dataset for p in predictions)
    return {
        "title": title,
        "texts": any(question.question for question in questions.values()),
        "outcomes": OUTCOMES,
        "scores": SCORES,
        "systems": {name: [label_of(name), palette().get(name, "#777777")] for name in systems},
        "sets": {name: label_of_set(name) for name in sets},
        "questions": {identity: asdict(question) for identity, question in questions.items()},
        "passages": {identity: [item.title, item.text] for identity, item in passages.items()},
        "predictions": [_prediction(p, row) for p, row in zip(predictions, rows, strict=True)],
    }


def _prediction(prediction: Prediction, row: dict) -> dict:
    """Return one prediction: its outcomes and its rounds, the first and last right or wrong."""
    steps, answers = prediction.rounds, prediction.question.answers
    between = [None] * (len(steps) - 2)
    words = [WORDS.get(row["first_normalised"]), *between, WORDS.get(row["normalised"])]
    words = words[-len(steps) :]
    return {
        "system": prediction.system,
        "id": prediction.question.id,
        "outcomes": [name for name in OUTCOMES if row[name]],
        "rounds": [_round(step, answers, word) for step, word in zip(steps, words)],
    }


def _round(step: Round, answers: Sequence[str], right: str | None) -> dict:
    """Return one round, compared with the gold answers."""
    verdict = step.verdict and asdict(step.verdict)
    if verdict and verdict["parsed"]:
        verdict["text"] = ""  # the raw text is shown only if it could not be parsed
    return {
        "query": step.query,
        "passages": [passage.id for passage in step.passages],
        # The passages that contain an answer; unknown where the texts are not available.
        "holds": [
            number
            for number, passage in enumerate(step.passages)
            if answers and metrics.holds_answer([passage], answers)
        ],
        "answer": step.answer,
        "right": right,
        "verdict": verdict,
    }
