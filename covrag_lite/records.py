"""The records of a run: question, passage, sample, verdict, round and prediction.

Field names are the same in memory, in files and in data frames. A `Verdict` has the fields of the
paper's Table 1; a `Prediction` contains the rounds of Algorithm 1.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

SCORES = ("reference_correctness", "correctness", "citation_accuracy", "truthfulness", "bias", "conciseness")
CITATION = re.compile(r"\[(\d+)\]")  # a citation in an answer, e.g. [2]


@dataclass(frozen=True)
class Question:
    """One question of a test, validation or training set."""

    id: str
    dataset: str  # its question set, e.g. "nq", or "search" in the fictional world
    question: str  # as the user typed it, including misspellings
    answers: tuple[str, ...]  # the gold answers; any of them counts as right
    gold_passages: tuple[str, ...] = ()  # ids of the passages that state the answer, if known
    clean_question: str = ""  # the same question in clear, complete wording, if known
    kind: str = ""  # fact asked for and difficulty, e.g. "author+misspelt"; no model sees it


@dataclass(frozen=True)
class Passage:
    """One passage of the corpus; the paper calls a retrieved passage a reference."""

    id: str
    title: str
    text: str


Search = Callable[[Sequence[str]], list[list[Passage]]]  # a retriever: queries -> k passages each


@dataclass(frozen=True)
class Sample:
    """One training sample; its target is split into the parts in which it is decoded."""

    id: str
    task: str  # "answer" or "verify"
    prompt: str
    target: tuple[str, ...]
    unfinished: bool = False  # the rest of the target is unknown, so no end-of-text is learnt


@dataclass(frozen=True)
class Verdict:
    """The verification of one answer: the fields of the paper's Table 1, in its order."""

    reference_correctness: float | None
    correctness: float | None
    citation_accuracy: float | None
    truthfulness: float | None
    bias: float | None
    conciseness: float | None
    judgment: str  # "true", "false" or "unclear"; "" if the text did not parse
    revised_question: str  # "" if no revision is needed
    parsed: bool
    text: str  # what the model wrote, so that it can be parsed again
    # Only for forced decoding: P(judgment is "true"), P(revised question is empty) under "empty",
    # and the expectation of each score.
    probabilities: dict[str, float] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Round:
    """One round of retrieve, answer and, if required, verify."""

    query: str  # the search query; "" if nothing was searched (closed-book)
    passages: tuple[Passage, ...]
    answer: str
    verdict: Verdict | None = None
    # Mean log-probability of the answer's tokens, if the model reports it.
    likelihood: float | None = field(default=None, compare=False)
    note: str = ""  # one line on what a related system did, e.g. CRAG's action or A²R's feedback
    outcome: object = field(default=None, compare=False)  # recorded Outcome, if the data is missing


@dataclass(frozen=True)
class Prediction:
    """One question answered by one system, with all rounds."""

    question: Question
    system: str
    rounds: tuple[Round, ...]
    backbone: str = ""  # the model, with its adapter
    kept: int = -1  # index of the round whose answer is returned; -1 is the last round

    @property
    def final(self) -> Round:
        """The round whose answer is returned."""
        return self.rounds[self.kept]

    @property
    def answer(self) -> str:
        return self.final.answer

    @property
    def revised(self) -> bool:
        return len(self.rounds) > 1


def digest(items: Iterable[Question | Passage | Sample]) -> str:
    """Return a hash of the records that a run used; a manifest stores it as the data's version."""
    if hasattr(items, "sha256"):  # a corpus on disk has its own hash
        return items.sha256
    whole = hashlib.sha256()
    for item in items:
        whole.update(repr(item).encode())
    return whole.hexdigest()[:16]
