"""The annotator that knows gold answers and passages (the paper asked GPT-4): verdicts by rules."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from covrag_lite import metrics
from covrag_lite.prompts import parse_verdict, render_verdict
from covrag_lite.records import CITATION, Passage, Question, Search, Verdict
from covrag_lite.training.spoiling import is_repetitive


@dataclass(frozen=True)
class Example:
    """A question, what was retrieved for it, an answer, and what the annotator says of it."""

    question: Question
    passages: tuple[Passage, ...]
    answer: str
    kind: str  # where it comes from
    verdict: Verdict | None = None


def supporting(question: Question, passages: Sequence[Passage]) -> list[int]:
    """The numbers of the references that state the answer: the gold ones where known, else those with its words."""
    if question.gold_passages:
        return [i for i, p in enumerate(passages, 1) if p.id in question.gold_passages]
    return [i for i, p in enumerate(passages, 1) if metrics.score(p.text, question.answers, "normalised")]


def is_right(answer: str, question: Question) -> bool:
    """Right by the normalised rule; a gold answer of whole sentences must share most of its words instead."""
    gold = metrics.normalise(question.answers[0]).split()
    if len(gold) <= 12:
        return bool(metrics.score(answer, question.answers, "normalised"))
    said = metrics.normalise(answer).split()
    shared = len(set(gold) & set(said))
    return bool(shared) and 2 * shared / (len(set(gold)) + len(set(said))) >= 0.5


def judge(one: Example, search: Search) -> Verdict:
    """The oracle's verdict by the criteria of the paper's Table 1."""
    right_places = supporting(one.question, one.passages)
    cited = [int(mark) for mark in CITATION.findall(one.answer)]
    citation = sum(mark in right_places for mark in cited) / len(cited) if cited else 0.0
    right = is_right(one.answer, one.question)
    repetitive = is_repetitive(one.answer)
    grounded = is_grounded(one.answer, one.passages) or right and bool(right_places)
    true = right and not repetitive and citation >= 0.5
    scores = (
        0.95 if right_places else 0.05,
        0.95 if right else 0.05,
        round(0.05 + 0.9 * citation, 2),
        0.35 if repetitive else 0.95 if right else 0.45 if grounded else 0.15,
        0.05 if grounded and right else 0.55 if grounded else 0.95,
        0.05 if repetitive else 0.95 if len(one.answer.split()) <= 30 else 0.5,
    )
    revised = "" if true or right_places else better_question(one.question, one.passages, search)
    return parse_verdict(render_verdict(scores, "true" if true else "false", revised))


def is_grounded(answer: str, passages: Sequence[Passage]) -> bool:
    """Do the answer's words stand in a passage, one after the other?"""
    said = metrics.normalise(answer)
    return bool(said) and any(said in metrics.normalise(passage.text) for passage in passages)


def better_question(question: Question, passages: Sequence[Passage], search: Search) -> str:
    """The well-put question, if the retriever finds with it what it did not find before; else nothing."""
    candidate = question.clean_question
    if not candidate or candidate == question.question:
        return ""
    if question.kind == "two-hop":  # the second step can be asked for only once the first one was found
        seen = set(metrics.normalise(" ".join([question.question, *(p.text for p in passages)])).split())
        names = re.findall(r"[A-Z]\w+", candidate)[1:]
        if not all(metrics.normalise(name) in seen for name in names):
            return ""
    return candidate if supporting(question, search([candidate])[0]) else ""


def annotate(examples: Sequence[Example], search: Search) -> list[Example]:
    """Every example with the oracle's verdict."""
    return [replace(one, verdict=judge(one, search)) for one in examples]
