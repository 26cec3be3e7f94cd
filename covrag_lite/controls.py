"""Controls, systems that nobody would use: they tell what CoV-RAG's gain is owed to, and what its judge reads."""

from collections.abc import Sequence
from dataclasses import replace

from covrag_lite.method import Passages, Tools, by_revision, cov_rag, know_none
from covrag_lite.records import Prediction, Question, Verdict


def verify_only(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Answer and verify, but search nothing again: how often verdicts parse when they are written freely."""
    return cov_rag(questions, replace(tools, sigma=lambda one: False, max_rounds=2))


def shuffled(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """CoV-RAG that searches as often and at the same places, but for the next question that was revised."""

    def verify(x: Sequence[str], k: Sequence[Passages], y: Sequence[str]) -> list[Verdict]:
        verdicts = list(tools.verify(x, k, y))
        places = [i for i, verdict in enumerate(verdicts) if verdict.revised_question]
        revised = [verdicts[i].revised_question for i in places]
        for place, other in zip(places, [*revised[1:], *revised[:1]]):
            verdicts[place] = replace(verdicts[place], revised_question=other)
        return verdicts

    return cov_rag(questions, replace(tools, verify=verify, sigma=by_revision, max_rounds=2))


def read_on(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """CoV-RAG that revises nothing: where it would search again, it reads the next passages for the same question."""

    def verify(x: Sequence[str], k: Sequence[Passages], y: Sequence[str]) -> list[Verdict]:
        verdicts = zip(x, tools.verify(x, k, y))
        return [replace(one, revised_question=question if one.revised_question else "") for question, one in verdicts]

    searches = iter((tools.search, tools.search_on))
    mine = replace(tools, search=lambda queries: next(searches)(queries), verify=verify)
    return cov_rag(questions, replace(mine, sigma=by_revision, max_rounds=2))


def swap_references(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Verify by the passages of another question: a judge that reads these holds nothing for true."""
    return verify_only(questions, replace(tools, verify=lambda x, k, y: tools.verify(x, [*k[1:], *k[:1]], y)))


def swap_answers(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Verify the next other answer of the same set, where there is one: a judge that reads answers holds it false."""

    def answer(x: Sequence[str], k: Sequence[Passages]) -> list[str]:
        answers, made = tools.answer(x, k), []
        for place, own in enumerate(answers):
            others = [*range(place + 1, len(answers)), *range(place)]
            of_set = [i for i in others if questions[i].dataset == questions[place].dataset]
            made.append(next((answers[i] for i in of_set if answers[i] != own), own))
        return made

    return verify_only(questions, replace(tools, answer=answer, likelihoods=know_none))
