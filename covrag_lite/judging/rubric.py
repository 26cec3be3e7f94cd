"""The rubric: rules in the place of a judge, so that Table 3 of the paper can be made without a model.

There is one rule for each criterion of the paper's Table 1. The rules look for words and understand none: they are a
proxy, and are called so wherever their numbers are shown.
"""

import re
from collections.abc import Sequence

from bm25s.stopwords import STOPWORDS_EN

from covrag_lite import metrics
from covrag_lite.records import CITATION, Passage, Prediction
from covrag_lite.synthesis import is_repetitive

PROXY = "rubric (proxy)"  # its name wherever its numbers are shown
LIST_MARK = re.compile(r"^\s*\d+[.:)]\s", re.MULTILINE)  # a list's number claims nothing
MARKED = re.compile(r"([^\[\]]*)((?:\[\d+\]\s*)+)")  # a text and the reference marks behind it
SENTENCE_END = re.compile(r"(?<=[.!?])\s")


def words(text: str) -> set[str]:
    """The content words of a text; all of its words where it has no others."""
    said = set(metrics.normalise(LIST_MARK.sub(" ", text)).split())
    return said - set(STOPWORDS_EN) or said


def claim(text: str, question: str) -> set[str]:
    """The content words that a text adds to its question; all of its own where it adds none.

    It adds none where the question gives two names to choose from and the text is one of them.
    """
    said = words(text)
    return said - words(question) or said


def supports(answer: str, question: str, references: Sequence[Passage]) -> list[bool]:
    """For every reference mark whether its passage exists and holds every word that its sentence claims."""
    held = []
    for text, marks in MARKED.findall(answer):
        sentence = SENTENCE_END.split(text.strip(" .,;:\n"))[-1]
        said = claim(sentence, question)
        for place in map(int, CITATION.findall(marks)):
            exists = 1 <= place <= len(references)
            held.append(exists and bool(said) and said <= words(_text_of(references[place - 1 : place])))
    return held


def _text_of(passages: Sequence[Passage]) -> str:
    return " ".join(f"{passage.title} {passage.text}" for passage in passages)


def rubric(prediction: Prediction, gold: Sequence[Passage]) -> dict[str, float | None]:
    """Each criterion's score; `gold` are the question's gold passages.

    The claim is what the answer's content words add to the question; an empty answer has the worst of every score.
    citation_accuracy: the share of the reference marks that exist and whose passage holds the whole claim of their
        sentence; 0 without marks.
    correctness: 1 where a gold answer stands in the answer, normalised, else 0; none where no gold answer survives
        normalising.
    truthfulness: the share of the claim that stands in the references the answer was written from.
    bias: the share of the claim that stands neither in the gold answers nor in the gold passages.
    conciseness: words of the longest gold answer against words of the answer, at most 1; 0 where a run of words comes
        three times in a row.
    """
    question = prediction.question
    answer = prediction.answer
    references = prediction.final.passages
    marks = supports(answer, question.question, references)
    right = metrics.score(answer, question.answers, "normalised")
    said = claim(answer, question.question)
    shown = len(said & words(_text_of(references)))
    strange = len(said - words(" ".join([*question.answers, _text_of(gold)])))
    length = len(metrics.normalise(answer).split())
    allowed = max(len(metrics.normalise(one).split()) for one in question.answers)
    return {
        "citation_accuracy": sum(marks) / len(marks) if marks else 0.0,
        "correctness": None if right is None else float(right),
        "truthfulness": shown / len(said) if said else 0.0,
        "bias": strange / len(said) if said else 1.0,
        "conciseness": min(1.0, allowed / length) if length and not is_repetitive(answer) else 0.0,
    }
