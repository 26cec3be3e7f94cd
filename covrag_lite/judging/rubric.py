"""The rubric: rules in place of a judge, so that Table 3 needs no model.

The rules compare words and do not understand them, so the rubric is called a proxy wherever its
numbers are shown.
"""

import re
from collections.abc import Sequence

from bm25s.stopwords import STOPWORDS_EN

from covrag_lite import metrics
from covrag_lite.judging.answers import Answers
from covrag_lite.judging.criteria import CriterionScores, build_verdict
from covrag_lite.oracle import is_repetitive
from covrag_lite.records import CITATION, Passage, Prediction

PROXY = "rubric (proxy)"  # the name of the rubric in tables and figures
STOP_WORDS = frozenset(STOPWORDS_EN)
LIST_MARK = re.compile(r"^\s*\d+[.:)]\s", re.MULTILINE)  # the number of a list item; not a claim
MARKED = re.compile(r"([^\[\]]*)((?:\[\d+\]\s*)+)")  # a text and the citations after it
SENTENCE_END = re.compile(r"(?<=[.!?])\s")


def judge_by_rubric(answers: Answers) -> list[dict]:
    """Judge all answers by the rubric; return one verdict per question."""
    passages = {passage.id: passage for passage in answers.passages}
    verdicts = []
    for question, group in zip(answers.questions, answers.groups):
        gold = [passages[name] for name in question.gold_passages if name in passages]
        scores = {system: score_answer(prediction, gold) for system, prediction in group.items()}
        verdicts.append(build_verdict(PROXY, question, scores))
    return verdicts


def score_answer(prediction: Prediction, gold: Sequence[Passage]) -> CriterionScores:
    """Return the score of each criterion; an empty answer gets the worst scores.

    `gold` are the question's gold passages.
    """
    question = prediction.question
    answer = prediction.answer
    claimed = claimed_words(answer, question.question)
    right = metrics.score(answer, question.answers, "normalised")
    return {
        "citation_accuracy": _citation_accuracy(prediction),
        "correctness": None if right is None else float(right),
        "truthfulness": _truthfulness(claimed, prediction.final.passages),
        "bias": _bias(claimed, question.answers, gold),
        "conciseness": _conciseness(answer, question.answers),
    }


def _citation_accuracy(prediction: Prediction) -> float:
    """Return the share of citations whose passage contains the whole claim of their sentence."""
    references = prediction.final.passages
    supported = citation_support(prediction.answer, prediction.question.question, references)
    return sum(supported) / len(supported) if supported else 0.0


def _truthfulness(claimed: set[str], references: Sequence[Passage]) -> float:
    """Return the share of the claimed words that are in the references behind the answer."""
    if not claimed:
        return 0.0
    return len(claimed & words_of_passages(references)) / len(claimed)


def _bias(claimed: set[str], gold_answers: Sequence[str], gold: Sequence[Passage]) -> float:
    """Return the share of the claimed words that are in no gold answer or gold passage."""
    if not claimed:
        return 1.0
    gold_words = content_words(" ".join([*gold_answers, text_of(gold)]))
    return len(claimed - gold_words) / len(claimed)


def _conciseness(answer: str, gold_answers: Sequence[str]) -> float:
    """Return the longest gold answer's length divided by the answer's length, at most 1."""
    length = len(metrics.normalise(answer).split())
    if length == 0 or is_repetitive(answer):
        return 0.0
    allowed = max(len(metrics.normalise(gold).split()) for gold in gold_answers)
    return min(1.0, allowed / length)


def citation_support(answer: str, question: str, references: Sequence[Passage]) -> list[bool]:
    """Return for each citation whether its passage contains every word that its sentence claims."""
    supported = []
    for text, marks in MARKED.findall(answer):
        sentence = SENTENCE_END.split(text.strip(" .,;:\n"))[-1]
        claimed = claimed_words(sentence, question)
        for mark in CITATION.findall(marks):
            supported.append(bool(claimed) and claimed <= words_of_reference(references, int(mark)))
    return supported


def words_of_reference(references: Sequence[Passage], number: int) -> set[str]:
    """Return the content words of a reference; numbers start at 1, others have no words."""
    if not 1 <= number <= len(references):
        return set()
    return words_of_passages([references[number - 1]])


def claimed_words(text: str, question: str) -> set[str]:
    """Return the content words that a text adds to its question, or all of them if it adds none.

    It adds none if, for example, the question names two options and the text is one of them.
    """
    words = content_words(text)
    return words - content_words(question) or words


def content_words(text: str) -> set[str]:
    """Return the content words of a text, or all its words if it has no content words."""
    words = set(metrics.normalise(LIST_MARK.sub(" ", text)).split())
    return words - STOP_WORDS or words


def words_of_passages(passages: Sequence[Passage]) -> set[str]:
    """Return the content words of passages and their titles."""
    return content_words(text_of(passages))


def text_of(passages: Sequence[Passage]) -> str:
    """Return the titles and texts of passages."""
    return " ".join(f"{passage.title} {passage.text}" for passage in passages)
