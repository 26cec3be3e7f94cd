"""Seeing what the verifier did: recorded predictions as one page, to be filtered by what came of the verdict.

The page is HTML with its own script and data (browse.js, browse.css) and also works in a notebook saved as HTML.
Texts travel as data and are only ever set as text: nothing in a title or an answer can become markup.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from covrag_lite import metrics
from covrag_lite.config import Config
from covrag_lite.records import SCORES, Prediction, Round
from covrag_lite.runs import recorded
from covrag_lite.runs.outcomes import to_frame
from covrag_lite.runs.redaction import MARK
from covrag_lite.systems import palette
from covrag_lite.tables.accuracy import in_order
from covrag_lite.tables.labels import label_of_set

# What can come of a verdict; a question may be of several kinds, or of none.
OUTCOMES = {
    "helped": "wrong before the revision, right after it",
    "hurt": "right before the revision, wrong after it",
    "wrongly doubted": "the first answer is right and judged “false”",
    "wrongly trusted": "the first answer is wrong and judged “true”",
}
UNDRAWN = "The predictions are drawn by a script: run this cell, or trust the notebook."
HERE = Path(__file__).parent


def load_ways(run: recorded.Recorded | None, asked: Config) -> tuple[list[Prediction], pd.DataFrame]:
    """A recorded run's predictions, with the texts of the data that is asked for where they are known, and outcomes."""
    if run is None:
        raise ValueError("there is no recorded run of this model and data; set record to a folder of results/")
    if asked.data.data == "world":
        predictions = recorded.load_or_outcomes(run)
    else:
        predictions = recorded.load(run, run.config.change(data=asked.data.data, corpus=asked.data.corpus))
    return predictions, to_frame(predictions)


def mark_outcomes(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with a column for each of OUTCOMES: is the question of that kind?"""
    known = frame.normalised.notna() & frame.first_normalised.notna()
    before, after = (known & frame[name].eq(True) for name in ("first_normalised", "normalised"))
    return frame.assign(
        **{
            "helped": frame.revised & known & ~before & after,
            "hurt": frame.revised & before & ~after,
            "wrongly doubted": before & frame.judgment.eq("false"),
            "wrongly trusted": known & ~before & frame.judgment.eq("true"),
        }
    )


def count_outcomes(frame: pd.DataFrame) -> pd.DataFrame:
    """How many questions of each system are of each kind."""
    groups = mark_outcomes(frame).groupby("system")
    table = groups[list(OUTCOMES)].sum().assign(judged=groups.verdicts.agg(lambda n: (n > 0).sum()))
    table.insert(0, "questions", groups.size())
    return table.loc[in_order(table.index), ["questions", "judged", *OUTCOMES]]


def page(predictions: Sequence[Prediction], frame: pd.DataFrame, title: str) -> str:
    """The page, with everything that it shows inside it."""
    data = json.dumps(describe(predictions, frame, title), ensure_ascii=False, separators=(",", ":"))
    data = MARK.sub("⟨the question⟩", data)  # where a question is not at hand
    data = data.replace("<", "\\u003c")  # so that no text can end the script element that holds the data
    style, script = ((HERE / f"browse.{end}").read_text() for end in ("css", "js"))
    name = "ways-" + hashlib.sha256(data.encode()).hexdigest()[:12]  # several pages may stand in one notebook
    return (
        # The attribute keeps JupyterLab from taking what is typed into the page for its own shortcuts.
        f'<div id="{name}" data-lm-suppress-shortcuts="true"><p>{UNDRAWN}</p></div>\n'
        f'<script type="application/json" id="{name}-data">{data}</script>\n'
        f'<script>\n{script}\nshowWays("{name}", {json.dumps(style)});\n</script>'
    )


def describe(predictions: Sequence[Prediction], frame: pd.DataFrame, title: str) -> dict:
    """What the page shows: each question and passage once, and a way for each prediction."""
    rows = mark_outcomes(frame).to_dict("records")
    questions = {p.question.id: p.question for p in predictions}
    passages = {passage.id: passage for p in predictions for one in p.rounds for passage in one.passages}
    systems = in_order({p.system for p in predictions})
    return {
        "title": title,
        "texts": any(question.question for question in questions.values()),
        "outcomes": OUTCOMES,
        "scores": SCORES,
        "systems": {name: palette()[name] for name in systems},
        "sets": {name: label_of_set(name) for name in dict.fromkeys(p.question.dataset for p in predictions)},
        "questions": {identity: asdict(question) for identity, question in questions.items()},
        "passages": {identity: [passage.title, passage.text] for identity, passage in passages.items()},
        "ways": [_way(p, row) for p, row in zip(predictions, rows, strict=True)],
    }


def _way(p: Prediction, row: dict) -> dict:
    """One prediction: what came of it, and its rounds, the first and the last right or wrong where that is known."""
    words = {True: "right", False: "wrong"}
    right = [words.get(row["first_normalised"]), *[None] * (len(p.rounds) - 2), words.get(row["normalised"])]
    return {
        "system": p.system,
        "id": p.question.id,
        "outcomes": [name for name in OUTCOMES if row[name]],
        "rounds": [_round(one, p.question.answers, word) for one, word in zip(p.rounds, right[-len(p.rounds) :])],
    }


def _round(one: Round, asked: Sequence[str], right: str | None) -> dict:
    """One round, with the gold answers that were `asked` for."""
    said = one.verdict and asdict(one.verdict)
    if said and said["parsed"]:
        said["text"] = ""  # what the model wrote is shown only where it could not be read
    return {
        "query": one.query,
        "passages": [passage.id for passage in one.passages],
        # Which passages hold an answer; it cannot be told where the texts are not at hand.
        "holds": [i for i, k in enumerate(one.passages) if asked and metrics.holds_answer([k], asked)],
        "answer": one.answer,
        "right": right,
        "verdict": said,
    }
