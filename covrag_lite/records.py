"""The values that travel through a run, with the same field names in memory, on disk and in a frame."""

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

SCORES = ("reference_correctness", "correctness", "citation_accuracy", "truthfulness", "bias", "conciseness")
CITATION = re.compile(r"\[(\d+)\]")  # a reference mark in an answer, e.g. [2]


@dataclass(frozen=True)
class Question:
    """One question of a test, validation or training set."""

    id: str
    dataset: str  # the set it belongs to: "nq" of a folder, "search" of the embedded world
    question: str  # as the user typed it, misspellings included
    answers: tuple[str, ...]  # any of these counts as right
    gold_passages: tuple[str, ...] = ()  # ids of the passages that state the answer, where known
    clean_question: str = ""  # the same question well put, where known
    kind: str = ""  # what is asked for, its trap or broken wording, as in "author+misspelt"; no model sees it


@dataclass(frozen=True)
class Passage:
    """One reference the retriever can return."""

    id: str
    title: str
    text: str


Search = Callable[[Sequence[str]], list[list[Passage]]]  # every retriever: queries -> k passages each


@dataclass(frozen=True)
class Sample:
    """One training sample of either task; the target is given in the parts in which it is tokenised and decoded."""

    id: str
    task: str  # "answer" or "verify"
    prompt: str
    target: tuple[str, ...]
    unfinished: bool = False  # the target would go on, but nobody knows how: no end is learnt


@dataclass(frozen=True)
class Verdict:
    """What the verification says of one answer: Table 1 of the paper, in its order."""

    reference_correctness: float | None
    correctness: float | None
    citation_accuracy: float | None
    truthfulness: float | None
    bias: float | None
    conciseness: float | None
    judgment: str  # "true", "false" or "unclear"; "" when the output did not parse
    revised_question: str  # "" when the answer stands
    parsed: bool
    text: str  # what the model wrote, kept so that it can be parsed again
    # Of a forced verdict: P("true") among the judgments, P("empty") of the revision, each score's expectation.
    probabilities: dict[str, float] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Round:
    """One pass of retrieve, answer and, where it was asked for, verify."""

    query: str  # what was searched for; "" when nothing was (closed-book)
    passages: tuple[Passage, ...]
    answer: str
    verdict: Verdict | None = None
    # The mean logarithmic probability of the answer's tokens, where the model tells it.
    likelihood: float | None = field(default=None, compare=False)
    note: str = ""  # what a system did or thought beside it, in a line: CRAG's action, A²R's scores and feedback
    outcome: object = field(default=None, compare=False)  # runs.outcomes.Outcome, where the data is not at hand


@dataclass(frozen=True)
class Prediction:
    """One question's whole journey through one system."""

    question: Question
    system: str
    rounds: tuple[Round, ...]
    backbone: str = ""  # the model it ran on, with its adapter
    kept: int = -1  # the round whose answer counts; an earlier one where a rule prefers it

    @property
    def final(self) -> Round:
        """The round whose answer counts."""
        return self.rounds[self.kept]

    @property
    def answer(self) -> str:
        return self.final.answer

    @property
    def revised(self) -> bool:
        return len(self.rounds) > 1


def digest(items: Iterable[Question | Passage | Sample]) -> str:
    """A hash of the very records a run used, for its manifest: the version of the data."""
    if hasattr(items, "sha256"):  # a corpus on disk knows its own
        return items.sha256
    whole = hashlib.sha256()
    for item in items:
        whole.update(repr(item).encode())
    return whole.hexdigest()[:16]
