"""The annotator that knows gold answers and passages (the paper asked GPT-4): verdicts by rules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from covrag_lite import metrics
from covrag_lite.corruption import is_repetitive
from covrag_lite.prompts import parse_verdict, render_verdict
from covrag_lite.records import CITATION, Passage, Question, Search, Verdict


@dataclass(frozen=True)
class Example:
    """A question, what was retrieved for it, an answer, and what the annotator says of it."""

    question: Question
    passages: tuple[Passage, ...]
    answer: str
    kind: str  # where it comes from
    verdict: Verdict | None = None

    @property
    def lacks_revision(self) -> bool:
        """Is the answer wrong for want of a passage, and no better question known?"""
        wrong = self.verdict.judgment != "true" and not self.verdict.revised_question
        return wrong and not supporting(self.question, self.passages)


def supporting(question: Question, passages: Sequence[Passage]) -> list[int]:
    """The numbers of the references that state the answer: the gold ones where known, else those with its words."""
    if question.gold_passages:
        return [i for i, p in enumerate(passages, 1) if p.id in question.gold_passages]
    return [i for i, p in enumerate(passages, 1) if metrics.holds_answer([p], question.answers, "whole")]


def is_right(answer: str, question: Question) -> bool:
    """Right in whole words; a gold answer of whole sentences must share most of its words instead."""
    gold = metrics.normalise(question.answers[0]).split()
    if len(gold) <= 12:
        return bool(metrics.score(answer, question.answers, "whole"))
    said = metrics.normalise(answer).split()
    shared = len(set(gold) & set(said))
    return bool(shared) and 2 * shared / (len(set(gold)) + len(set(said))) >= 0.5


def is_grounded(answer: str, passages: Sequence[Passage]) -> bool:
    """Do the answer's words stand in a passage, one after the other?"""
    said = metrics.normalise(answer)
    return bool(said) and any(said in metrics.normalise(passage.text) for passage in passages)


def judge(one: Example, revised: str) -> Verdict:
    """The oracle's verdict by the criteria of the paper's Table 1; a right answer, or one that could be read, stays.

    The judgment is about the answer alone. Where its citations point has a score of its own.
    """
    right_places = supporting(one.question, one.passages)
    cited = [int(mark) for mark in CITATION.findall(one.answer)]
    citation = sum(mark in right_places for mark in cited) / len(cited) if cited else 0.0
    right = is_right(one.answer, one.question)
    repetitive = is_repetitive(one.answer)
    grounded = is_grounded(one.answer, one.passages) or right and bool(right_places)
    true = right and not repetitive
    scores = (
        0.95 if right_places else 0.05,
        0.95 if right else 0.05,
        round(0.05 + 0.9 * citation, 2),
        0.35 if repetitive else 0.95 if right else 0.45 if grounded else 0.15,
        0.05 if grounded and right else 0.55 if grounded else 0.95,
        0.05 if repetitive else 0.95 if len(one.answer.split()) <= 30 else 0.5,
    )
    keeps = true or bool(right_places)
    return parse_verdict(render_verdict(scores, "true" if true else "false", "" if keeps else revised))


def annotate(examples: Sequence[Example], revisions: Mapping[str, str], search: Search | None = None) -> list[Example]:
    """Every example with the oracle's verdict; `revisions` has better questions by the text that was asked."""
    return [replace(one, verdict=judge(one, revisions.get(one.question.question, ""))) for one in examples]
