"""The records of a run: question, passage, source, sample, verdict, round, prediction and outcome.

Field names are the same in memory, in files and in data frames. A `Verdict` has the fields of the
paper's Table 1; a `Prediction` contains the rounds of Algorithm 1.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

SCORES = (
    "reference_correctness",
    "correctness",
    "citation_accuracy",
    "truthfulness",
    "bias",
    "conciseness",
)
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
    # In the fictional world, what makes the question hard: "<fact>[/<trap>][+<defect>]", such as
    # "author/stale+misspelt", or "two-hop". No model sees it.
    kind: str = ""

    @property
    def form(self) -> str:
        """How the question is worded: "broken wording", "two-hop", or else "well put"."""
        if "+" in self.kind:
            return "broken wording"
        return "two-hop" if self.kind == "two-hop" else "well put"

    @property
    def failure(self) -> str:
        """Why a search may fail: its form if that is not "well put", else its trap, else "none"."""
        if self.form != "well put":
            return self.form
        return self.kind.partition("/")[2] or "none"


@dataclass(frozen=True)
class Passage:
    """One passage of the corpus; the paper calls a retrieved passage a reference."""

    id: str
    title: str
    text: str


Search = Callable[[Sequence[str]], list[list[Passage]]]  # a retriever: queries -> k passages each


@dataclass(frozen=True)
class Source:
    """Training questions with their corpus, and two searches over it."""

    questions: list[Question]
    passages: Sequence[Passage]
    search: Search  # queries -> the k passages that a system sees
    # queries -> a longer ranking. Its first k passages are those of `search`; the later ones rarely
    # contain the answer. WebGLM-QA is an exception: there `search` returns the references that come
    # with a question, while `deep` ranks the references of all questions.
    deep: Search


@dataclass(frozen=True)
class Sample:
    """One training sample: a prompt, and the target that the model learns to write after it.

    The target is split into the parts in which decoding writes it; each is tokenised by itself.
    """

    id: str
    # The task, which decides in which loss the sample counts: "answer" or "verify". Rewriting a
    # question counts as "answer".
    task: str
    prompt: str
    target: tuple[str, ...]
    # Is the rest of the target unknown? Then the model learns no end of the text there.
    unfinished: bool = False


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
    # Known only if decoding is forced to follow the schema. Keys: "true" (the probability of this
    # judgment), "empty" (the probability that the revised question is empty), and the name of each
    # score (its expectation). Two verdicts with the same text are equal, whatever their
    # probabilities: these differ in their last digits between machines.
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
    # Only for a round read from a record without its gold answers or passages: the outcome that
    # was recorded, because it cannot be computed again.
    outcome: "Outcome | None" = field(default=None, compare=False)

    @property
    def required_verdict(self) -> Verdict:
        """The verdict; an error if the round has none."""
        if self.verdict is None:
            raise ValueError(f"the answer {self.answer!r} is not verified")
        return self.verdict

    @property
    def revised_question(self) -> str:
        """The revised question of a verified round; "" if there is none."""
        return self.required_verdict.revised_question


@dataclass(frozen=True)
class Outcome:
    """The outcome of one round.

    A field is None if the gold answer, gold passage or verdict that it needs does not exist.
    """

    # Is the answer right? One field for each of `metrics.METRICS`.
    raw: bool | None
    normalised: bool | None
    whole: bool | None
    # What did the search find?
    gold: bool | None  # a gold passage
    found: bool | None  # a passage that contains a gold answer, by the metric "normalised"
    words: bool | None  # a passage that contains a gold answer, by the metric "whole"
    # Did the verdict follow its schema?
    parsed: bool | None


@dataclass(frozen=True)
class Prediction:
    """One question answered by one system, with all rounds."""

    question: Question
    system: str
    rounds: tuple[Round, ...]
    backbone: str = ""  # the model, with its adapter
    kept: int = -1  # index of the round whose answer is returned; by default the last one

    def __post_init__(self) -> None:
        """Replace a negative `kept`, which counts from the end, by the index it stands for."""
        if self.kept < 0:
            # A frozen dataclass allows no plain assignment.
            object.__setattr__(self, "kept", len(self.rounds) + self.kept)

    @property
    def final(self) -> Round:
        """The round whose answer is returned."""
        return self.rounds[self.kept]

    @property
    def answer(self) -> str:
        return self.final.answer

    @property
    def revised(self) -> bool:
        """Whether there was a second round, whatever caused it."""
        return len(self.rounds) > 1


def digest(items: Iterable[Question | Passage | Sample]) -> str:
    """Return a hash of the records that a run used; a manifest stores it as the data's version."""
    if hasattr(items, "sha256"):  # a corpus on disk has its own hash
        return items.sha256
    hasher = hashlib.sha256()
    for item in items:
        hasher.update(repr(item).encode())
    return hasher.hexdigest()[:16]
