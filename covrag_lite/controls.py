"""Control systems: variants of CoV-RAG that each change one part of it. They are not in the paper.

They show what CoV-RAG's gain is due to, and whether its verifier reads references and answers.
"""

from collections.abc import Sequence
from dataclasses import replace

from covrag_lite.method import Passages, Tools, by_revision, cov_rag, know_none
from covrag_lite.records import Prediction, Question, Verdict


def verify_only(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Answer and verify, but never search again.

    Used with free decoding, to measure how often verdicts parse (Table 5, "Fmt").
    """
    return cov_rag(questions, replace(tools, sigma=lambda one: False, max_rounds=2))


def shuffled(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """CoV-RAG in which each second search uses the revised question of another question.

    The same questions are searched again as in CoV-RAG; only their revised questions are exchanged.
    """

    def verify(x: Sequence[str], k: Sequence[Passages], y: Sequence[str]) -> list[Verdict]:
        verdicts = list(tools.verify(x, k, y))
        places = [i for i, verdict in enumerate(verdicts) if verdict.revised_question]
        revised = [verdicts[i].revised_question for i in places]
        for place, other in zip(places, [*revised[1:], *revised[:1]]):
            verdicts[place] = replace(verdicts[place], revised_question=other)
        return verdicts

    return cov_rag(questions, replace(tools, verify=verify, sigma=by_revision, max_rounds=2))


def read_on(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """CoV-RAG without revised questions: a second search reads the next k passages instead.

    The same questions are searched again as in CoV-RAG, each with its original wording.
    """

    def verify(x: Sequence[str], k: Sequence[Passages], y: Sequence[str]) -> list[Verdict]:
        verdicts = zip(x, tools.verify(x, k, y))
        return [replace(one, revised_question=question if one.revised_question else "") for question, one in verdicts]

    searches = iter((tools.search, tools.search_on))
    mine = replace(tools, search=lambda queries: next(searches)(queries), verify=verify)
    return cov_rag(questions, replace(mine, sigma=by_revision, max_rounds=2))


def swap_references(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Verify each answer against another question's passages; a good verifier accepts none."""
    return verify_only(questions, replace(tools, verify=lambda x, k, y: tools.verify(x, [*k[1:], *k[:1]], y)))


def swap_answers(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Verify a different answer from the same set, if there is one; a good verifier rejects it."""

    def answer(x: Sequence[str], k: Sequence[Passages]) -> list[str]:
        answers, made = tools.answer(x, k), []
        for place, own in enumerate(answers):
            others = [*range(place + 1, len(answers)), *range(place)]
            of_set = [i for i in others if questions[i].dataset == questions[place].dataset]
            made.append(next((answers[i] for i in of_set if answers[i] != own), own))
        return made

    return verify_only(questions, replace(tools, answer=answer, likelihoods=know_none))
