"""Labelled pairs to train and to validate the heads on; the labels come from the gold passages."""

import random
import re
from collections.abc import Callable, Sequence

from covrag_lite.metrics import holds_answer, normalise
from covrag_lite.oracle import supporting
from covrag_lite.plugins.related.features import Pair
from covrag_lite.plugins.related.names import ENTAILMENT, EVALUATOR
from covrag_lite.records import Passage, Question, Search

NAME = re.compile(r"[A-Z0-9][\w'-]*(?:\s[A-Z][\w'-]*)*")  # a name in a passage
SEED = 1  # of the wrong answers that are drawn

# The label is None for a passage that contains the answer but is not gold.
Labelled = list[tuple[Pair, bool | None]]


def relevance_pairs(
    questions: Sequence[Question], search: Search, corpus: Sequence[Passage] = ()
) -> Labelled:
    """Label each question's passages as relevant or not; gold ones that were missed are added."""
    by_id = {passage.id: passage for passage in corpus}
    pairs: Labelled = []
    results = search([question.question for question in questions])
    for question, passages in zip(questions, results):
        gold_numbers = set(supporting(question, passages))
        for number, passage in enumerate(passages, 1):
            is_gold = number in gold_numbers
            unclear = not is_gold and holds_answer([passage], question.answers, "whole")
            pairs.append((Pair(question.question, passage), None if unclear else is_gold))
        retrieved = {passage.id for passage in passages}
        for identity in question.gold_passages:
            if identity in by_id and identity not in retrieved:
                pairs.append((Pair(question.question, by_id[identity]), True))
    return pairs


def entailment_pairs(
    questions: Sequence[Question], search: Search, corpus: Sequence[Passage] = ()
) -> Labelled:
    """Label pairs for entailment: a supporting passage entails the gold answer, and no other."""
    rng = random.Random(SEED)
    by_text = {question.question: question for question in questions}
    pairs: Labelled = []
    for pair, is_gold in relevance_pairs(questions, search, corpus):
        question = by_text[pair.question]
        answers: list[tuple[str, bool | None]] = [(question.answers[0], is_gold)]
        names = NAME.findall(pair.passage.text)
        wrong_names = [name for name in names if not shares_word(name, question)]
        if wrong_names:  # a wrong answer from the same passage, as a reader might give it
            answers.append((rng.choice(wrong_names), False))
        if is_gold:
            wrong_answer = rng.choice(questions).answers[0]  # the gold answer of another question
            if not shares_word(wrong_answer, question):
                answers.append((wrong_answer, False))
        for answer, label in answers:
            pairs.append((Pair(pair.question, pair.passage, answer), label))
    return pairs


def shares_word(name: str, question: Question) -> bool:
    """Return whether a name shares a word with a gold answer or with the question."""
    words = normalise(" ".join((*question.answers, question.question))).split()
    return not set(normalise(name).split()).isdisjoint(words)


# Makes the labelled pairs of a head: questions, the search, the corpus.
LabelPairs = Callable[[Sequence[Question], Search, Sequence[Passage]], Labelled]
LABEL_PAIRS: dict[str, LabelPairs] = {EVALUATOR: relevance_pairs, ENTAILMENT: entailment_pairs}
