"""Systems that nobody would use: they tell what CoV-RAG's gain is owed to (notebooks/table5.ipynb)."""

from collections.abc import Sequence
from dataclasses import replace

from covrag_lite.records import Passage, Prediction, Question, Verdict
from covrag_lite.systems.chain import cov_rag
from covrag_lite.systems.tools import Tools, by_revision, never


def verify_only(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Answer and verify, but search nothing again: how often verdicts parse when they are written freely."""
    return cov_rag(questions, replace(tools, sigma=never, max_rounds=2))


def shuffled(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """CoV-RAG that searches as often and at the same places, but for another question."""

    def verify(x: Sequence[str], k: Sequence[Sequence[Passage]], y: Sequence[str]) -> list[Verdict]:
        return shuffle_revisions(tools.verify(x, k, y))

    return cov_rag(questions, replace(tools, verify=verify, sigma=by_revision, max_rounds=2))


def shuffle_revisions(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Hand every revised question on to the next question that has one."""
    places = [i for i, verdict in enumerate(verdicts) if verdict.revised_question]
    givers = dict(zip(places, [*places[1:], *places[:1]]))
    made = list(verdicts)
    for place, giver in givers.items():
        made[place] = replace(verdicts[place], revised_question=verdicts[giver].revised_question)
    return made
