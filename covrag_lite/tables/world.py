"""What the embedded world is like: what makes its questions fail, and what mends them."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pandas as pd

from covrag_lite.config import Config
from covrag_lite.data import load_passages, load_questions
from covrag_lite.metrics import holds_gold
from covrag_lite.records import Passage, Question, Search
from covrag_lite.retrieval import load_retriever
from covrag_lite.runs.outcomes import failure_of
from covrag_lite.systems import palette
from covrag_lite.tables import Table, pictures
from covrag_lite.tables.failures import FAILURES
from covrag_lite.tables.verifier import split_by

# Settings of the world's knobs that show what each does to retrieval.
KNOBS = {
    "misspelt": (0.0, 0.12, 0.3),
    "cut_off": (0.0, 0.07, 0.25),
    "vague": (0.0, 0.07, 0.25),
    "namesakes": (0.0, 0.12, 0.18),
    "synonyms": (0.0, 0.12, 0.18),
    "stale": (0.0, 0.1, 0.15),
    "contradicting": (0.0, 0.1, 0.15),
}


def build(config: Config) -> Table:
    """What each knob of the world does to retrieval."""
    effects = knob_effects(config)
    return Table("world", effects, plots={"png": partial(plot_knobs, effects)})


def failure_rates(questions: Sequence[Question], search: Search) -> pd.DataFrame:
    """How often a gold passage is found, and found first, by what makes a question fail: as asked, and as revised."""
    asked = search([q.question for q in questions])
    revised = search([q.clean_question or q.question for q in questions])
    frame = pd.DataFrame(
        {
            "failure": [failure_of(q.kind) for q in questions],
            "found": gold_found(questions, asked),
            "first": gold_found(questions, [found[:1] for found in asked]),
            "found, revised": gold_found(questions, revised),
            "first, revised": gold_found(questions, [found[:1] for found in revised]),
        }
    )
    rows = {}
    for name, part in split_by(frame, "failure", FAILURES):
        rows[name] = {"n": len(part), **(100 * part.drop(columns="failure").mean()).round(1)}
    return pd.DataFrame(rows).T.astype({"n": int})


def gold_found(questions: Sequence[Question], found: Sequence[Sequence[Passage]]) -> list[bool]:
    """Whether a gold passage is among the passages of each question."""
    return [bool(holds_gold(passages, q.gold_passages)) for q, passages in zip(questions, found)]


def show_failures(questions: Sequence[Question], search: Search) -> pd.DataFrame:
    """Of each kind of failure a question whose gold passage is missed, with what is found instead and what finds it."""
    rows = []
    asked = search([question.question for question in questions])
    for question, found, is_found in zip(questions, asked, gold_found(questions, asked)):
        name = failure_of(question.kind)
        if (name == "none") == is_found and name not in [row[0] for row in rows]:
            (revised,) = search([question.clean_question])
            place = next((i for i, p in enumerate(revised, 1) if p.id in question.gold_passages), None)
            titles = "; ".join(passage.title for passage in found[:3])
            rows.append((name, question.question, titles, question.clean_question, place))
    rows.sort(key=lambda row: FAILURES.index(row[0]))
    columns = ["failure", "question", "found first", "a question that finds it", "at place"]
    return pd.DataFrame(rows, columns=columns).set_index("failure")


def knob_effects(config: Config) -> pd.DataFrame:
    """The share of all test questions with a gold passage in the top k, with one knob turned at a time."""
    rows = []
    for knob, settings in KNOBS.items():
        for setting in settings:
            turned = config.change(n_questions=0, traps=(*config.world.traps, f"{knob} {setting}"))
            questions = load_questions(turned)
            search = load_retriever(config.retrieval, load_passages(turned))
            rates = failure_rates(questions, search).loc["all"]
            rows.append((knob, setting, rates["found"], rates["found, revised"]))
    return pd.DataFrame(rows, columns=["knob", "setting", "as asked", "revised"])


def plot_knobs(effects: pd.DataFrame, path: Path) -> "pictures.Figure":
    """What each knob of the world does to retrieval, as asked and as revised: one small panel a knob."""
    _, sns = pictures.style(1.1, "notebook")
    share = "gold passage in the top k (%)"
    rows = effects.melt(["knob", "setting"], ["as asked", "revised"], "query", share)
    colours = {"as asked": palette()["RAG"], "revised": palette()["CoV-RAG"]}
    lines = dict(kind="line", hue="query", style="query", markers=True, palette=colours)
    panels = dict(col="knob", col_wrap=4, height=3, facet_kws={"sharex": False})
    grid = sns.relplot(rows, x="setting", y=share, **lines, **panels)
    grid.set(ylim=(0, 105)).set_titles("{col_name}").set_axis_labels("share", "gold in top k (%)")
    return pictures.save_picture(grid.figure, path)
