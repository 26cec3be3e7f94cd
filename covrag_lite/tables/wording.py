"""Rules that see how a question is worded and nothing else: what a judge must beat before it can be said to read."""

import math
from collections import Counter
from collections.abc import Sequence

from covrag_lite.records import Question
from covrag_lite.retrieval.bm25 import tokenise
from covrag_lite.runs.outcomes import form_of


def majority(right: Sequence[bool]) -> float:
    """How often the more frequent of the two outcomes is guessed rightly."""
    return max(sum(right), len(right) - sum(right)) / len(right)


def form_rule(questions: Sequence[Question], right: Sequence[bool]) -> float:
    """How often a rule is right that sees how each question is put and knows which outcome is usual there."""
    forms = [form_of(question.kind) for question in questions]
    counts = Counter(zip(forms, right))
    return sum(max(counts[form, True], counts[form, False]) for form in set(forms)) / len(right)


def word_rule(
    learnt: Sequence[Question], outcomes: Sequence[bool], questions: Sequence[Question], right: Sequence[bool]
) -> float:
    """How often naive Bayes is right that has learnt from other questions which words, and which form, go with what."""
    seen = {outcome: Counter() for outcome in (True, False)}
    n = Counter(outcomes)
    for words, outcome in zip(map(_features, learnt), outcomes):
        seen[outcome].update(words)

    def weigh(words: set[str], outcome: bool) -> float:
        weights = (math.log((seen[outcome][word] + 0.5) / (n[outcome] + 1)) for word in sorted(words))
        return math.log(n[outcome] + 1) + sum(weights)

    guesses = [weigh(words, True) > weigh(words, False) for words in map(_features, questions)]
    return sum(guess == bool(one) for guess, one in zip(guesses, right)) / len(right)


def _features(question: Question) -> set[str]:
    """A question's stems, its form, about how long it is, and whether it ends as a question does."""
    text = question.question
    end = "with a mark" if text.endswith("?") else "without a mark"
    return {*tokenise([text])[0], form_of(question.kind), f"{len(text.split()) // 3} words", end}
