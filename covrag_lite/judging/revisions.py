"""A served judge's view of revisions, beside what Table 5 counts.

The judge is asked whether the time was right to put a question anew, and whether the new question helps.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from covrag_lite import metrics, prompts
from covrag_lite.config import Config
from covrag_lite.engine.endpoint import PREFIX, Endpoint
from covrag_lite.judging import agreement
from covrag_lite.judging.ballots import ask, parse_object
from covrag_lite.records import Prediction
from covrag_lite.runs.journal import Journal
from covrag_lite.runs.outcomes import to_frame
from covrag_lite.tables.table5 import CHAINS, cut, revisions

COLUMNS = ["system", "judge", "n", "right", "low", "high", "unreadable", "counted", "same", "κ"]


def build_request(prediction: Prediction) -> str:
    """What a judge is asked about one question: its first round, the gold answer, and the new question, if any."""
    first = prediction.rounds[0]
    return "\n".join(
        [
            "You examine a verifier. It has seen a question, references and an answer, "
            "and could put the question anew for a second search.",
            "timing: was it right to put it anew, or to leave it? "
            "It is right where the answer is wrong and the references cannot answer the question.",
            "content: would a search with the new question find references that answer the first one? "
            "false where there is no new question.",
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
    body = parse_object(text)
    given = [body.get("timing"), body.get("content")]
    return all(given) if all(type(one) is bool for one in given) else None


def judge_revisions(config: Config, predictions: Sequence[Prediction]) -> pd.DataFrame:
    """For each system and served judge the share of revisions it holds for right, and how far the count agrees with it.

    The frame is empty where no served judge is named.
    """
    journal = Journal(config.journal())
    served = [name for name in config.judging.judges if name.startswith(PREFIX)]
    answered = {prediction.system for prediction in predictions}
    rows = []
    for system in CHAINS:
        if system not in answered or not served:
            continue
        made = {}
        for prediction in predictions:
            if prediction.system == system and not metrics.is_defective(prediction.question.answers):
                made[prediction.question.id] = cut(prediction, 2)
        counted = revisions(to_frame(list(made.values())))
        requests = [build_request(made[i]) for i in counted.id]
        for name in served:
            endpoint = Endpoint(replace(config.model, model=name))
            replies = ask("judge-revision", requests, endpoint, journal)
            rows.append((system, name, *_compare(replies, counted.good)))
    return pd.DataFrame(rows, columns=COLUMNS).round(2)


def _compare(replies: Sequence[str], good: Sequence[bool]) -> tuple:
    """The columns of the frame from n on, of one judge's replies and of what is counted of the same revisions."""
    views = [parse_reply(reply) for reply in replies]
    readable = [(view, counted) for view, counted in zip(views, good) if view is not None]
    n = len(readable)
    held, counted = np.array(readable, int).reshape(-1, 2).T
    right = low = high = same = float("nan")
    if n:
        right = held.mean()
        low, high = metrics.wilson(int(held.sum()), n)
        same = (held == counted).mean()
    k, _, _ = agreement.kappa(held[:, None], counted[:, None])
    return n, 100 * right, 100 * low, 100 * high, len(replies) - n, 100 * np.mean(good), 100 * same, k
