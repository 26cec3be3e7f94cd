"""What the embedded world is like: how often its questions find their passage, and what each of its knobs changes."""

from collections.abc import Mapping, Sequence

import pandas as pd

from covrag_lite.config import Config
from covrag_lite.data import load_passages, load_questions
from covrag_lite.metrics import holds_gold
from covrag_lite.records import Passage, Question, Search
from covrag_lite.retrieval import load_retriever

# Settings of the world's knobs that show what each does to retrieval.
KNOBS = {
    "misspelt": (0.0, 0.2, 0.5),
    "cut_off": (0.0, 0.1, 0.4),
    "vague": (0.0, 0.1, 0.4),
    "distractors": (0.0, 0.25, 0.5),
    "stale": (0.0, 0.05, 0.2),
    "contradicting": (0.0, 0.03, 0.2),
    "unanswerable": (0.0, 0.2),
}


def retrieval_rates(questions: Sequence[Question], search: Search) -> pd.DataFrame:
    """How often a gold passage is found, set by set: as asked, if well put or broken, and in the clean wording."""
    frame = pd.DataFrame(
        {
            "dataset": [q.dataset for q in questions],
            "broken": ["+" in q.kind or q.kind == "two-hop" for q in questions],
            "asked": _gold_found(questions, search([q.question for q in questions])),
            "clean": _gold_found(questions, search([q.clean_question or q.question for q in questions])),
        }
    )
    rows = {}
    for dataset, part in [*frame.groupby("dataset", sort=False), ("all", frame)]:
        broken = part[part.broken]
        rows[dataset] = {
            "n": len(part),
            "as asked": part.asked.mean(),
            "well-put questions": part[~part.broken].asked.mean(),
            "broken or two-hop": broken.asked.mean(),
            "these, in clean wording": broken.clean.mean(),
        }
    table = pd.DataFrame(rows).T
    return (100 * table.drop(columns="n")).round(1).assign(n=table.n.astype(int))


def _gold_found(questions: Sequence[Question], found: Sequence[Sequence[Passage]]) -> list[bool]:
    return [bool(holds_gold(passages, q.gold_passages)) for q, passages in zip(questions, found)]


def knob_effects(config: Config, knobs: Mapping[str, Sequence[float]] = KNOBS) -> pd.DataFrame:
    """The share of all test questions with a gold passage in the top k, with one knob turned at a time."""
    rows = []
    for knob, settings in knobs.items():
        for setting in settings:
            turned = config.change(n_questions=0, **{knob: setting})
            questions = load_questions(turned)
            search = load_retriever(config.retrieval, load_passages(turned))
            rates = retrieval_rates(questions, search).loc["all"]
            clean = _gold_found(questions, search([q.clean_question or q.question for q in questions]))
            share = 100 * sum(clean) / len(questions)
            rows.append({"knob": knob, "setting": setting, "as asked": rates["as asked"], "clean wording": share})
    return pd.DataFrame(rows)
