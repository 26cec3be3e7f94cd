"""Errors made by hand (the paper's Section 2.3, its Tables 8 and 9): spoilt questions and spoilt answers."""

import random
from collections.abc import Sequence
from dataclasses import replace

from covrag_lite.metrics import normalise
from covrag_lite.records import CITATION, Question


def break_question(question: Question, rng: random.Random) -> Question:
    """The same question as a hurried user types it: letters swapped in its longest words, or the end missing."""
    words = question.question.rstrip("?. ").split()
    if rng.random() < 0.35 and len(words) > 4:
        words = words[: -rng.randint(1, 2)]
        words[-1] = words[-1][: max(3, len(words[-1]) * 2 // 3)]
    else:
        longest_first = sorted(range(len(words)), key=lambda i: -len(words[i]))
        for place in longest_first[: max(2, len(words) // 3)]:
            words[place] = _typo(words[place], rng)
    return replace(question, question=" ".join(words), clean_question=question.clean_question or question.question)


def _typo(word: str, rng: random.Random) -> str:
    if len(word) < 4:
        return word
    i = rng.randrange(1, len(word) - 2)
    swapped = word[:i] + word[i + 1] + word[i] + word[i + 2 :]
    missing = word[:i] + word[i + 1 :]
    doubled = word[:i] + word[i] + word[i:]
    return rng.choice([swapped, missing, doubled])


def repeat_words(answer: str, rng: random.Random) -> str:
    """A right answer spoilt by repetition (the paper's Table 9)."""
    body = CITATION.sub("", answer).strip()
    marks = "".join(f"[{n}]" for n in CITATION.findall(answer))
    last = body.split()[-1]
    stuttering = " ".join([body, *[last] * rng.randint(2, 4)])
    listing = ", ".join([body] * rng.randint(3, 4))
    return rng.choice([stuttering, listing]) + marks


def move_citations(answer: str, right: Sequence[int], n: int, rng: random.Random) -> str:
    """A right answer whose citations point elsewhere (the paper's Table 8)."""
    wrong = [i for i in range(1, n + 1) if i not in right]
    chosen = rng.sample(wrong, min(len(wrong), rng.randint(1, 2)))
    return CITATION.sub("", answer).strip() + "".join(f"[{i}]" for i in sorted(chosen))


def is_repetitive(answer: str) -> bool:
    """Does a word, or a run of words, come three times in a row?"""
    words = normalise(answer).split()
    for size in range(1, len(words) // 3 + 1):
        for start in range(len(words) - 3 * size + 1):
            first, second, third = (words[start + n * size : start + (n + 1) * size] for n in range(3))
            if first == second == third:
                return True
    return False
