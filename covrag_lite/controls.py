"""Systems that nobody would use: they tell what CoV-RAG's gain is owed to (notebooks/table5.ipynb)."""

from collections.abc import Sequence
from dataclasses import replace

from covrag_lite.method import cov_rag
from covrag_lite.records import Passage, Prediction, Question, Verdict
from covrag_lite.tools import Tools, by_revision, know_none, never


def verify_only(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Answer and verify, but search nothing again: how often verdicts parse when they are written freely."""
    return cov_rag(questions, replace(tools, sigma=never, max_rounds=2))


def shuffled(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """CoV-RAG that searches as often and at the same places, but for another question."""

    def verify(x: Sequence[str], k: Sequence[Sequence[Passage]], y: Sequence[str]) -> list[Verdict]:
        return shuffle_revisions(tools.verify(x, k, y))

    return cov_rag(questions, replace(tools, verify=verify, sigma=by_revision, max_rounds=2))


def judge_other_references(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Answer, and verify by the passages of another question: a judge that reads these holds nothing for true."""

    def verify(x: Sequence[str], k: Sequence[Sequence[Passage]], y: Sequence[str]) -> list[Verdict]:
        return tools.verify(x, [*k[1:], *k[:1]], y)

    return verify_only(questions, replace(tools, verify=verify))


def judge_other_answers(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Verify the answer to another question of the same set: a judge that reads answers holds it for false."""

    def answer(x: Sequence[str], k: Sequence[Sequence[Passage]]) -> list[str]:
        return hand_on(tools.answer(x, k), [question.dataset for question in questions])

    return verify_only(questions, replace(tools, answer=answer, likelihoods=know_none))


def hand_on(answers: Sequence[str], sets: Sequence[str]) -> list[str]:
    """For every answer the next other one of its set; its own where there is none."""
    made = []
    for place, (own, name) in enumerate(zip(answers, sets)):
        following = [*range(place + 1, len(answers)), *range(place)]
        made.append(next((answers[i] for i in following if sets[i] == name and answers[i] != own), own))
    return made


def shuffle_revisions(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Hand every revised question on to the next question that has one."""
    places = [i for i, verdict in enumerate(verdicts) if verdict.revised_question]
    givers = dict(zip(places, [*places[1:], *places[:1]]))
    made = list(verdicts)
    for place, giver in givers.items():
        made[place] = replace(verdicts[place], revised_question=verdicts[giver].revised_question)
    return made
