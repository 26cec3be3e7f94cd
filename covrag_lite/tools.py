"""What a system is handed: functions over batches. A test scripts them; `evaluation` binds them to a model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from covrag_lite.records import Passage, Round, Search, Verdict

Answer = Callable[[Sequence[str], Sequence[Sequence[Passage]]], list[str]]
Verify = Callable[[Sequence[str], Sequence[Sequence[Passage]], Sequence[str]], list[Verdict]]
Write = Callable[[Sequence[str]], list[str]]
Likelihoods = Callable[[Sequence[str], Sequence[Sequence[Passage]]], list[float | None]]
Sigma = Callable[[Round], bool]
Keep = Callable[[Sequence[Round]], int]


def by_revision(one: Round) -> bool:
    """σ as the paper uses it by default: search again when there is a revised question."""
    return bool(one.verdict.revised_question)


def by_thresholds(
    reference: float = 0.27, correctness: float = 0.26, bias: float = 0.7, truthfulness: float = 0.92
) -> Sigma:
    """σ by the paper's cross-validated thresholds (its footnote 1), which spare searches: all must be crossed.

    The footnote does not say "all" or "any"; the worked example of the paper's Table 15 crosses all of them.
    """

    def sigma(one: Round) -> bool:
        verdict = one.verdict
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


def by_doubt(reference: float = 1.01, correctness: float = 1.01, likelihood: float = 0.01) -> Sigma:
    """σ by what the model expects of its scores, and by how likely it held its answer: all must lie below.

    Ours: the written scores are nearly always the highest or the lowest, their expectations rank. A likelihood that is
    not known stops nothing. The defaults hold nothing back.
    """

    def sigma(one: Round) -> bool:
        return (
            bool(one.verdict.revised_question)
            and (expect(one.verdict, "reference_correctness") or 0.0) < reference
            and (expect(one.verdict, "correctness") or 0.0) < correctness
            and (one.likelihood is None or one.likelihood < likelihood)
        )

    return sigma


def expect(verdict: Verdict, score: str) -> float | None:
    """The expectation of a score where the model told its probabilities, else the score as it was written."""
    return (verdict.probabilities or {}).get(score, getattr(verdict, score))


def never(one: Round) -> bool:
    """σ that verifies and leaves it at that."""
    return False


def keep_last(rounds: Sequence[Round]) -> int:
    """The last answer counts, as in the paper (line 9 of Algorithm 1)."""
    return -1


def keep_likelier(rounds: Sequence[Round]) -> int:
    """The answer counts that the model held for likelier given its passages; of equal ones the last. Ours."""
    if any(one.likelihood is None for one in rounds):
        return -1
    best = max(range(len(rounds)), key=lambda i: (rounds[i].likelihood, i))
    return -1 if best == len(rounds) - 1 else best


def know_none(x: Sequence[str], k: Sequence[Sequence[Passage]]) -> list[None]:
    """Likelihoods of a model that tells none."""
    return [None] * len(x)


@dataclass(frozen=True)
class Tools:
    """The functions a system may call. Every one takes and returns a whole batch."""

    name: str  # of the system, for its predictions
    search: Search  # queries -> k passages each
    answer: Answer  # questions, their passages -> answers
    verify: Verify | None = None  # questions, their passages, their answers -> verdicts
    rewrite: Write | None = None  # questions -> questions for the search engine
    recall: Write | None = None  # questions -> answers without any passage
    likelihoods: Likelihoods = know_none  # questions, their passages -> how likely the model held its answers
    sigma: Sigma = by_revision  # which verified rounds lead to another search
    keep: Keep = keep_last  # which round's answer counts
    max_rounds: int = 2  # the paper retrieves again at most once
    related: object = None  # what a system of related/ needs beside these

    def read(self, queries: Sequence[str], x: Sequence[str]) -> list[Round]:
        """Search for the queries and answer the questions from what is found."""
        k = self.search(queries)
        y = self.answer(x, k)
        return [
            Round(query, tuple(passages), answer, likelihood=likelihood)
            for query, passages, answer, likelihood in zip(queries, k, y, self.likelihoods(x, k))
        ]
