"""Control systems: variants of CoV-RAG that each change one part of it. They are not in the paper.

They show what CoV-RAG's gain is due to, and whether its verifier reads references and answers.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from covrag_lite.method import Passages, Tools, by_revision, cov_rag, unknown_likelihoods
from covrag_lite.records import Passage, Prediction, Question, Round, Verdict

Value = TypeVar("Value")


def verify_only(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Answer and verify, but never search again.

    Used with free decoding, to measure how often verdicts parse (Table 5, "Fmt").
    """

    def never(last: Round) -> bool:
        return False

    return cov_rag(questions, replace(tools, sigma=never, max_rounds=2))


def shuffled(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """CoV-RAG in which each second search uses the revised question of another question.

    The questions with a revised question are searched again, as in CoV-RAG with the default rule;
    only their revised questions are exchanged. A single one is not searched again.
    """

    def verify(x: Sequence[str], k: Sequence[Passages], y: Sequence[str]) -> list[Verdict]:
        verdicts = list(tools.verify(x, k, y))
        places = [i for i, verdict in enumerate(verdicts) if verdict.revised_question]
        revised = [verdicts[i].revised_question for i in places]
        others = rotate(revised) if len(revised) > 1 else [""] * len(revised)
        for place, other in zip(places, others):
            verdicts[place] = replace(verdicts[place], revised_question=other)
        return verdicts

    return cov_rag(questions, replace(tools, verify=verify, sigma=by_revision, max_rounds=2))


def read_on(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """CoV-RAG without revised questions: a second search reads the next k passages instead.

    The questions with a revised question are searched again, as in CoV-RAG with the default rule,
    each with its original wording.
    """

    def verify(x: Sequence[str], k: Sequence[Passages], y: Sequence[str]) -> list[Verdict]:
        verdicts = []
        for question, verdict in zip(x, tools.verify(x, k, y)):
            same = question if verdict.revised_question else ""
            verdicts.append(replace(verdict, revised_question=same))
        return verdicts

    searches = iter((tools.search, tools.search_deeper))

    def search(queries: Sequence[str]) -> list[list[Passage]]:
        return next(searches)(queries)

    changed = replace(tools, search=search, verify=verify, sigma=by_revision, max_rounds=2)
    return cov_rag(questions, changed)


def swap_references(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Verify each answer against another question's passages; a good verifier accepts none."""

    def verify(x: Sequence[str], k: Sequence[Passages], y: Sequence[str]) -> list[Verdict]:
        return tools.verify(x, rotate(k), y)

    return verify_only(questions, replace(tools, verify=verify))


def swap_answers(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Verify a different answer from the same set, if there is one; a good verifier rejects it."""

    def answer(x: Sequence[str], k: Sequence[Passages]) -> list[str]:
        answers = tools.answer(x, k)
        return [other_answer(i, answers, questions) for i in range(len(answers))]

    return verify_only(questions, replace(tools, answer=answer, likelihoods=unknown_likelihoods))


def other_answer(i: int, answers: Sequence[str], questions: Sequence[Question]) -> str:
    """Return the next different answer to a question of the same set; else the question's own."""
    following = [*range(i + 1, len(answers)), *range(i)]
    for other in following:
        same_set = questions[other].dataset == questions[i].dataset
        if same_set and answers[other] != answers[i]:
            return answers[other]
    return answers[i]


def rotate(values: Sequence[Value]) -> list[Value]:
    """Return the same values, each moved one place forward; the first becomes the last."""
    return [*values[1:], *values[:1]]
