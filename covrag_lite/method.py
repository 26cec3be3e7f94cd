"""Algorithm 1 of the paper, and the systems it is compared with (Tables 2 and 4).

A system is a function over a batch of questions and its `Tools`; every stage runs once over the questions that need it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from covrag_lite.records import Passage, Prediction, Question, Round, Search, Verdict

Passages = Sequence[Passage]
Answer = Callable[[Sequence[str], Sequence[Passages]], list[str]]
Verify = Callable[[Sequence[str], Sequence[Passages], Sequence[str]], list[Verdict]]
Write = Callable[[str, Sequence[str]], list[str]]
Likelihoods = Callable[[Sequence[str], Sequence[Passages]], list[float | None]]
Sigma = Callable[[Round], bool]
Keep = Callable[[Sequence[Round]], int]


def cov_rag(questions: Sequence[Question], tools: "Tools") -> list[Prediction]:
    """Retrieve, answer and verify; where σ says so, retrieve with the revised question and answer again."""
    x = [question.question for question in questions]  # 1: Input: x
    # 2, 3: R retrieves references k = [k1, …, k5], M predicts an answer ŷ given (x, k)
    rounds = [[first] for first in tools.read(x, x)]
    open_ = list(range(len(x)))  # the questions whose last answer is not verified yet

    def verify_open() -> None:  # 4: M predicts (s_k, s_ŷ, n, x′) given (x, k, ŷ)
        verified = tools.check([x[i] for i in open_], [rounds[i][-1] for i in open_])
        for i, one in zip(open_, verified):
            rounds[i][-1] = one

    for _ in range(tools.max_rounds - 1):  # once in the paper; further rounds are our extension
        verify_open()
        open_ = [i for i in open_ if tools.sigma(rounds[i][-1])]  # 5, 6: if σ(s_k, s_ŷ, n, x′)
        revised = [rounds[i][-1].verdict.revised_question for i in open_]
        # 7, 8: R re-retrieves k′ given the revised question x′, M re-predicts ŷ′ given (x, k′), for the first question
        for i, again in zip(open_, tools.read(revised, [x[i] for i in open_])):
            rounds[i].append(again)  # 9, 10: update ŷ = ŷ′, unless a rule of ours keeps ŷ
    if tools.verifies_last:  # for a rule of ours that compares verdicts
        verify_open()
    return [  # 11: return ŷ
        Prediction(one, tools.name, tuple(r), kept=tools.keep(r)) for one, r in zip(questions, rounds)
    ]


# σ: which verified rounds lead to another search.
def by_revision(one: Round) -> bool:
    """σ as the paper uses it by default: search again when there is a revised question."""
    return bool(one.verdict.revised_question)


def by_thresholds(one: Round) -> bool:
    """σ by the paper's cross-validated thresholds (its footnote 1), which spare searches: all must be crossed.

    The footnote does not say "all" or "any"; the worked example of the paper's Table 15 crosses all of them.
    """
    verdict = one.verdict
    return (
        verdict.parsed
        and verdict.judgment == "false"
        and bool(verdict.revised_question)
        and verdict.reference_correctness < 0.27
        and verdict.correctness < 0.26
        and verdict.bias > 0.7
        and verdict.truthfulness < 0.92
    )


def by_fitted_thresholds(reference: float = 1.01, correctness: float = 1.01, likelihood: float = 0.01) -> Sigma:
    """σ by the model's expected scores and by the likelihood of its answer: all must lie below. Ours.

    Written scores are nearly always the highest or the lowest; their expectations rank. An unknown likelihood stops
    nothing. The defaults hold nothing back.
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


# Which round's answer counts.
def keep_last(rounds: Sequence[Round]) -> int:
    """The last answer, as in the paper (line 9 of Algorithm 1)."""
    return -1


def keep_likelier(rounds: Sequence[Round]) -> int:
    """The answer that the model held for likelier given its passages; of equal ones the last. Ours."""
    return keep_highest([one.likelihood for one in rounds])


def keep_weighed(rounds: Sequence[Round]) -> int:
    """The answer that weighs most; of equal ones, or where a weight is not known, the last. Ours."""
    return keep_highest([weigh(one) for one in rounds])


def weigh(one: Round) -> float | None:
    """The sum of likelihood and three times the verifier's trust, as results/real/plan.md fixed it; None if unknown."""
    known = trust(one.verdict) if one.verdict else None
    return None if known is None or one.likelihood is None else one.likelihood + 3 * known


def trust(verdict: Verdict) -> float | None:
    """How surely an answer is held for right: its expected correctness; without a chain, the chance of no revision."""
    correctness = expect(verdict, "correctness")
    return (verdict.probabilities or {}).get("empty") if correctness is None else correctness


def keep_highest(values: Sequence[float | None]) -> int:
    """The place of the highest value, of equal ones the last; the last one's where a value is not known."""
    best = -1 if None in values else max(range(len(values)), key=lambda i: (values[i], i))
    return -1 if best == len(values) - 1 else best


def know_none(x: Sequence[str], k: Sequence[Passages]) -> list[None]:
    """Likelihoods of a model that tells none."""
    return [None] * len(x)


@dataclass(frozen=True)
class Tools:
    """The functions a system may call. Every one takes and returns a whole batch; a test scripts them."""

    name: str  # of the system, for its predictions
    search: Search  # queries -> k passages each
    answer: Answer  # questions, their passages -> answers
    verify: Verify | None = None  # questions, their passages, their answers -> verdicts
    search_on: Search | None = None  # queries -> the k passages after those
    write_alone: Write | None = None  # a task of prompts.ALONE, questions -> what the model writes without any passage
    likelihoods: Likelihoods = know_none  # questions, their passages -> how likely the model held its answers
    sigma: Sigma = by_revision
    keep: Keep = keep_last
    max_rounds: int = 2  # the paper retrieves again at most once
    verifies_last: bool = False  # the last answer too; the paper has no use for its verdict
    related: object = None  # what a system of related/ needs beside these

    def read(self, queries: Sequence[str], x: Sequence[str]) -> list[Round]:
        """Search for the queries and answer the questions from what is found."""
        k = self.search(queries)
        y = self.answer(x, k)
        return [
            Round(query, tuple(passages), answer, likelihood=likelihood)
            for query, passages, answer, likelihood in zip(queries, k, y, self.likelihoods(x, k))
        ]

    def check(self, x: Sequence[str], rounds: Sequence[Round]) -> list[Round]:
        """The same rounds with their verdicts."""
        verdicts = self.verify(x, [one.passages for one in rounds], [one.answer for one in rounds])
        return [replace(one, verdict=verdict) for one, verdict in zip(rounds, verdicts)]


# The systems that the paper compares CoV-RAG with.
def rag(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Retrieve and answer once: lines 1 to 3 of Algorithm 1. CoV-RAG-S is this with the CoV-RAG model."""
    return cov_rag(questions, replace(tools, max_rounds=1, verifies_last=False))


def start_revise(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Rewrite-Retrieve-Read: rewrite before anything was retrieved, search with that, answer the first question."""
    x = [question.question for question in questions]
    queries = [new or old for new, old in zip(tools.write_alone("rewrite", x), x)]  # an empty rewrite searches as typed
    return [Prediction(question, tools.name, (one,)) for question, one in zip(questions, tools.read(queries, x))]


def closed_book(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """No retrieval: what the model knows by itself."""
    answers = tools.write_alone("closed-book", [question.question for question in questions])
    return [Prediction(question, tools.name, (Round("", (), text),)) for question, text in zip(questions, answers)]
