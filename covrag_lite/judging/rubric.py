"""The rubric: rules in the place of a judge, one a criterion of the paper's Table 1, so that Table 3 can be made without a model.

They look for words and understand none: a proxy, and called so wherever its numbers are shown. `judges` applies them.
"""

import re
from collections.abc import Sequence

from bm25s.stopwords import STOPWORDS_EN

from covrag_lite import metrics
from covrag_lite.records import CITATION, Passage, Prediction
from covrag_lite.training.synthesis import is_repetitive

LIST_MARK = re.compile(r"^\s*\d+[.:)]\s", re.MULTILINE)  # a list's number claims nothing


def words(text: str) -> set[str]:
    """The content words of a text; all of its words where it has no others."""
    said = set(metrics.normalise(LIST_MARK.sub(" ", text)).split())
    return said - set(STOPWORDS_EN) or said


def claim(text: str, question: str) -> set[str]:
    """The content words a text adds to its question; all of them where it adds none, as in a choice between two names."""
    said = words(text)
    return said - words(question) or said


def supports(answer: str, question: str, references: Sequence[Passage]) -> list[bool]:
    """For every reference mark: does it exist, and does its passage hold every word claimed in the sentence it is put to?"""
    made = []
    for text, marks in re.findall(r"([^\[\]]*)((?:\[\d+\]\s*)+)", answer):
        said = claim(re.split(r"(?<=[.!?])\s", text.strip(" .,;:\n"))[-1], question)
        for place in map(int, CITATION.findall(marks)):
            made.append(
                bool(said)
                and 1 <= place <= len(references)
                and said <= words(f"{references[place - 1].title} {references[place - 1].text}")
            )
    return made


def rubric(prediction: Prediction, gold: Sequence[Passage]) -> dict[str, tuple[float | None, str]]:
    """A proxy of a judge: each criterion's score by a rule that only looks for words, and why. `gold` are the question's gold passages.

    The claim is what the answer's content words add to the question; an empty answer has the worst of every score.
    citation_accuracy: the share of the reference marks that exist and whose passage holds the whole claim of their sentence; 0 without marks.
    correctness: 1 where a gold answer stands in the answer, normalised; else 0; none where no gold answer survives normalising.
    truthfulness: the share of the claim that stands in the references the answer was written from.
    bias: the share of the claim that stands neither in the gold answers nor in the gold passages.
    conciseness: words of the longest gold answer against words of the answer, at most 1; 0 where a run of words comes three times in a row.
    """
    question, answer, references = prediction.question, prediction.answer, prediction.rounds[-1].passages
    length, said = len(metrics.normalise(answer).split()), claim(answer, question.question)
    marks = supports(answer, question.question, references)
    right = metrics.score(answer, question.answers, "normalised")
    text = lambda passages: " ".join(f"{p.title} {p.text}" for p in passages)
    shown = len(said & words(text(references)))
    strange = len(said - words(" ".join([*question.answers, text(gold)])))
    allowed = max(len(metrics.normalise(one).split()) for one in question.answers)
    repeats = is_repetitive(answer)
    return {
        "citation_accuracy": (
            sum(marks) / len(marks) if marks else 0.0,
            f"{sum(marks)} of {len(marks)} marks hold the claim",
        ),
        "correctness": (
            None if right is None else float(right),
            "gold cannot be compared" if right is None else f"gold answer {'found' if right else 'not found'}",
        ),
        "truthfulness": (shown / len(said) if said else 0.0, f"{shown} of {len(said)} claimed words in the references"),
        "bias": (strange / len(said) if said else 1.0, f"{strange} of {len(said)} claimed words not in gold"),
        "conciseness": (
            0.0 if repeats or not length else min(1.0, allowed / length),
            "repeats itself" if repeats else f"{length} words, gold has {allowed}",
        ),
    }
