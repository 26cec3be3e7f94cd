"""A judge's view of revisions, beside what `ablation.revisions` counts (Table 5): was the time right, and does the new question help?"""

import json
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from covrag_lite import metrics, prompts
from covrag_lite.config import Config, resolve
from covrag_lite.evaluation import to_frame
from covrag_lite.journal import Journal
from covrag_lite.judging.judges import ask
from covrag_lite.model.endpoint import PREFIX, Endpoint
from covrag_lite.records import Prediction
from covrag_lite.report.ablation import CHAINS, cut, revisions

COLUMNS = ["system", "judge", "n", "right", "low", "high", "unreadable", "counted", "same", "κ"]


def build_request(prediction: Prediction) -> str:
    """One question as it stood after its first answer, the gold answer, and the revised question, or that there is none."""
    first = prediction.rounds[0]
    return "\n".join(
        [
            "You examine a verifier. It has seen a question, references and an answer, and could put the question anew for a second search.",
            "timing: was it right to put it anew, or to leave it? It is right where the answer is wrong and the references cannot answer the question.",
            "content: would a search with the new question find references that answer the first one? false where there is no new question.",
            f"Question: {prediction.question.question}",
            prompts.build_references(first.passages),
            f"Answer: {first.answer}",
            f"Gold answer: {' | '.join(prediction.question.answers)}",
            f"New question: {first.verdict.revised_question or 'none'}",
            'Write one JSON object in this form, and nothing else:\n{"timing": true, "content": true}',
        ]
    )


def parse_reply(text: str) -> bool | None:
    """Whether both were right, or None where the reply cannot be read."""
    match = re.search(r"\{.*?\}", text, re.DOTALL)
    try:
        body = json.loads(match[0]) if match else {}
    except json.JSONDecodeError:
        return None
    given = [body.get(name) for name in ("timing", "content")]
    return all(given) if all(type(one) is bool for one in given) else None


def judge_revisions(config: Config, predictions: Sequence[Prediction]) -> pd.DataFrame:
    """The share of revisions that each served judge holds for right, and how far it agrees with what is counted; empty where none is named."""
    rows, journal = [], Journal(resolve(config.run.runs) / config.run.name / "journal.jsonl")
    served = [name for name in config.judging.judges if name.startswith(PREFIX)]
    for system in [system for system in CHAINS if served and any(p.system == system for p in predictions)]:
        made = {
            p.question.id: cut(p, 2)
            for p in predictions
            if p.system == system and not metrics.is_defective(p.question.answers)
        }
        counted = revisions(to_frame(list(made.values())))
        for name in served:
            replies = ask(
                "judge-revision",
                [build_request(made[i]) for i in counted.id],
                Endpoint(replace(config.model, model=name)),
                journal,
            )
            views = [(view, good) for view, good in zip(map(parse_reply, replies), counted.good) if view is not None]
            held, good = np.array(views, int).reshape(-1, 2).T
            n = len(views)
            share = (
                [100 * value for value in (held.mean(), *metrics.wilson(int(held.sum()), n))]
                if n
                else [float("nan")] * 3
            )
            rows.append(
                (
                    system,
                    name,
                    n,
                    *share,
                    len(replies) - n,
                    100 * counted.good.mean(),
                    100 * (held == good).mean() if n else float("nan"),
                    metrics.kappa(held[:, None], good[:, None])[0],
                )
            )
    return pd.DataFrame(rows, columns=COLUMNS).round(2)
