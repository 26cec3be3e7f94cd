"""Features of a question and a passage: what CRAG's evaluator and the entailment proxy look at.

They are cosines of vectors from a frozen sentence encoder, and shares of words and letters that two
texts have in common.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from covrag_lite import metrics
from covrag_lite.engine.weights import find_encoder
from covrag_lite.metrics import normalise
from covrag_lite.records import Passage
from covrag_lite.retrieval.dense import load_encoder

SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9\"'(])")
LETTERS = 3  # length of the letter sequences that are compared; names may be misspelt
# Encoder -> text -> its vector; the same passages and questions are scored many times.
VECTORS: dict[str, dict[str, np.ndarray]] = defaultdict(dict)


@dataclass(frozen=True)
class Pair:
    """A question and a passage; for entailment also the statement that the passage may entail."""

    question: str
    passage: Passage
    statement: str = ""

    @property
    def claim(self) -> str:
        """The question; for entailment followed by the answer, as ALCE does for short answers."""
        return f"{self.question} {self.statement}".strip()

    @property
    def evidence(self) -> str:
        """The title and the text of the passage."""
        return f"{self.passage.title} {self.passage.text}".strip()

    @cached_property
    def sentence(self) -> str:
        """The first sentence of the passage that contains the statement, or ""."""
        if not self.statement:
            return ""
        for sentence in SENTENCE_END.split(self.passage.text):
            if metrics.score(sentence, [self.statement], "whole"):
                return sentence
        return ""


def compute_features(encoder: str, pairs: Sequence[Pair]) -> pd.DataFrame:
    """Return the features of pairs: one row per pair, one column per feature."""
    texts: list[str] = []
    for pair in pairs:
        texts += [pair.question, pair.passage.title, pair.evidence]
    for pair in pairs:
        if pair.sentence:
            texts += [pair.sentence, pair.claim]
    vectors = load_vectors(encoder, texts)
    return pd.DataFrame([describe(pair, vectors) for pair in pairs], dtype=np.float32)


def load_vectors(encoder: str, texts: Sequence[str]) -> Mapping[str, np.ndarray]:
    """Return the vectors of all texts seen so far, after encoding the new ones."""
    vectors = VECTORS[encoder]
    new = [text for text in dict.fromkeys(texts) if text not in vectors]
    if new:
        network = load_encoder(find_encoder(encoder))
        encoded = network.encode(new, normalize_embeddings=True, show_progress_bar=False)
        vectors.update(zip(new, encoded))
    return vectors


def describe(pair: Pair, vectors: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return a pair's features by their names."""
    question = vectors[pair.question]
    title = pair.passage.title
    passage_words = words_of(pair.evidence)
    question_words = words_of(pair.question)
    statement_words = words_of(pair.statement)
    cosine = question @ vectors[pair.evidence]
    contains_answer = float(bool(metrics.score(pair.evidence, [pair.statement], "whole")))
    sentence = vectors[pair.sentence] if pair.sentence else None
    return {
        "cosine": cosine,
        "cosine of the title": question @ vectors[title],
        "letters of the title": shared_part(letters_of(title), letters_of(pair.question)),
        "words of the title": shared_part(words_of(title), question_words),
        "words of the question": shared_part(question_words, passage_words),
        "words of the answer": shared_part(statement_words, passage_words),
        # What the answer adds to the question.
        "new words": shared_part(statement_words - question_words, passage_words),
        "answer": contains_answer,
        "answer and cosine": contains_answer * cosine,
        "cosine of its sentence": 0.0 if sentence is None else question @ sentence,
        "claim and sentence": 0.0 if sentence is None else vectors[pair.claim] @ sentence,
    }


def shared_part(part: set[str], whole: set[str]) -> float:
    """Return the share of `part` that is in `whole`."""
    return len(part & whole) / max(1, len(part))


def words_of(text: str) -> set[str]:
    """Return the normalised words of a text."""
    return set(normalise(text).split())


def letters_of(text: str) -> set[str]:
    """Return all sequences of three letters in a text."""
    spaced = f" {normalise(text)} "
    starts = range(len(spaced) - LETTERS + 1)
    return {spaced[start : start + LETTERS] for start in starts}
