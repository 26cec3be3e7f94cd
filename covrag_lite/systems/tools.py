"""What a system is handed: functions over batches. A test scripts them; `evaluation` binds them to a model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from covrag_lite.records import Passage, Search, Verdict

Answer = Callable[[Sequence[str], Sequence[Sequence[Passage]]], list[str]]
Verify = Callable[[Sequence[str], Sequence[Sequence[Passage]], Sequence[str]], list[Verdict]]
Write = Callable[[Sequence[str]], list[str]]
Sigma = Callable[[Verdict], bool]


def by_revision(verdict: Verdict) -> bool:
    """σ as the paper uses it by default: search again when there is a revised question."""
    return bool(verdict.revised_question)


def by_thresholds(
    reference: float = 0.27, correctness: float = 0.26, bias: float = 0.7, truthfulness: float = 0.92
) -> Sigma:
    """σ by the paper's cross-validated thresholds (its footnote 1), which spare searches: all must be crossed.

    The footnote does not say "all" or "any"; the worked example of the paper's Table 15 crosses all of them.
    """

    def sigma(verdict: Verdict) -> bool:
        return (
            verdict.parsed
            and verdict.judgment == "false"
            and bool(verdict.revised_question)
            and verdict.reference_correctness < reference
            and verdict.correctness < correctness
            and verdict.bias > bias
            and verdict.truthfulness < truthfulness
        )

    return sigma


def never(verdict: Verdict) -> bool:
    """σ that verifies and leaves it at that."""
    return False


@dataclass(frozen=True)
class Tools:
    """The functions a system may call. Every one takes and returns a whole batch."""

    name: str  # of the system, for its predictions
    search: Search  # queries -> k passages each
    answer: Answer  # questions, their passages -> answers
    verify: Verify | None = None  # questions, their passages, their answers -> verdicts
    rewrite: Write | None = None  # questions -> questions for the search engine
    recall: Write | None = None  # questions -> answers without any passage
    sigma: Sigma = by_revision  # which verdicts lead to another search
    max_rounds: int = 2  # the paper retrieves again at most once
