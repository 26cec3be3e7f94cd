"""Algorithm 1 of the paper (Section 2.2), and the systems it is compared with (Tables 2 and 4).

A system is a function that takes a batch of questions and its `Tools`. Each stage (retrieve,
answer, verify, revise) runs once over all questions that need it.
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
    """Retrieve, answer, verify; if σ says so, search with the revised question and answer again."""
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
        # 7, 8: R re-retrieves k′ given the revised question x′, M re-predicts ŷ′ given (x, k′)
        for i, again in zip(open_, tools.read(revised, [x[i] for i in open_])):
            rounds[i].append(again)  # 9, 10: update ŷ = ŷ′, unless a rule of ours keeps ŷ
    if tools.verifies_last:  # for our rule "weighed", which compares verdicts
        verify_open()
    return [  # 11: return ŷ
        Prediction(one, tools.name, tuple(r), kept=tools.keep(r)) for one, r in zip(questions, rounds)
    ]


# σ: the rule that decides, from a verified round, whether to search again.
def by_revision(one: Round) -> bool:
    """σ, the paper's default: search again if there is a revised question."""
    return bool(one.verdict.revised_question)


def by_thresholds(one: Round) -> bool:
    """σ with the paper's cross-validated thresholds (footnote 1), which save searches.

    All thresholds must be crossed. The footnote does not say whether all or any must be; in the
    worked example of the paper's Table 15, all are.
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
    """Return a σ that searches again if expected scores and likelihood are below thresholds. Ours.

    Written scores are nearly always the highest or the lowest one; their expectations rank answers.
    An unknown likelihood counts as below. The default thresholds allow every search.
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
    """Return the expectation of a score if its probabilities are known, else the written score."""
    return (verdict.probabilities or {}).get(score, getattr(verdict, score))


# The rules that choose the round whose answer is returned; -1 is the last round.
def keep_last(rounds: Sequence[Round]) -> int:
    """Choose the last answer, as in the paper (line 9 of Algorithm 1)."""
    return -1


def keep_likelier(rounds: Sequence[Round]) -> int:
    """Choose the answer with the highest likelihood given its passages; of ties the last. Ours."""
    return keep_highest([one.likelihood for one in rounds])


def keep_weighed(rounds: Sequence[Round]) -> int:
    """Choose the score-combined answer: of ties, or if a score is unknown, the last. Ours."""
    return keep_highest([weigh(one) for one in rounds])


def weigh(one: Round) -> float | None:
    """Return likelihood + 3 × verifier score (fixed in results/real/plan.md); None if unknown."""
    known = trust(one.verdict) if one.verdict else None
    return None if known is None or one.likelihood is None else one.likelihood + 3 * known


def trust(verdict: Verdict) -> float | None:
    """Return the verifier score: the expected correctness or, without scores, P(no revision)."""
    correctness = expect(verdict, "correctness")
    return (verdict.probabilities or {}).get("empty") if correctness is None else correctness


def keep_highest(values: Sequence[float | None]) -> int:
    """Return the index of the highest value; -1 (the last) for ties or if a value is unknown."""
    best = -1 if None in values else max(range(len(values)), key=lambda i: (values[i], i))
    return -1 if best == len(values) - 1 else best


def know_none(x: Sequence[str], k: Sequence[Passages]) -> list[None]:
    """Return unknown likelihoods, for a model that does not report any."""
    return [None] * len(x)


@dataclass(frozen=True)
class Tools:
    """The functions that a system may call. Each takes and returns a whole batch.

    Example, with scripted functions in place of a retriever and a model:
        >>> passage = Passage("p1", "Emma", "Emma is a novel by Jane Austen.")
        >>> tools = Tools("demo", lambda queries: [[passage]] * len(queries),
        ...               lambda x, k: ["Jane Austen [1]"] * len(x))
        >>> rag([Question("q1", "demo", "Who wrote Emma?", ("Jane Austen",))], tools)[0].answer
        'Jane Austen [1]'
    """

    name: str  # the system's name, for its predictions
    search: Search  # queries -> k passages each
    answer: Answer  # questions, their passages -> answers
    verify: Verify | None = None  # questions, their passages, their answers -> verdicts
    search_on: Search | None = None  # queries -> the next k passages after those of `search`
    write_alone: Write | None = None  # a task of prompts.ALONE, questions -> texts
    likelihoods: Likelihoods = know_none  # questions, their passages -> likelihoods of the answers
    sigma: Sigma = by_revision
    keep: Keep = keep_last
    max_rounds: int = 2  # the paper retrieves again at most once
    verifies_last: bool = False  # also verify the last answer; the paper does not need this verdict
    related: object = None  # the additional tools of a system in related/

    def read(self, queries: Sequence[str], x: Sequence[str]) -> list[Round]:
        """Search for the queries and answer the questions from the passages found."""
        k = self.search(queries)
        y = self.answer(x, k)
        return [
            Round(query, tuple(passages), answer, likelihood=likelihood)
            for query, passages, answer, likelihood in zip(queries, k, y, self.likelihoods(x, k))
        ]

    def check(self, x: Sequence[str], rounds: Sequence[Round]) -> list[Round]:
        """Return the same rounds with their verdicts."""
        verdicts = self.verify(x, [one.passages for one in rounds], [one.answer for one in rounds])
        return [replace(one, verdict=verdict) for one, verdict in zip(rounds, verdicts)]


# The systems that the paper compares with CoV-RAG.
def rag(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Retrieve and answer once (lines 1 to 3); with the CoV-RAG model this is CoV-RAG-S."""
    return cov_rag(questions, replace(tools, max_rounds=1, verifies_last=False))


def start_revise(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Rewrite the question before the first search: Start-Revise (Table 4), as in RRR."""
    x = [question.question for question in questions]
    # If the rewritten question is empty, search with the original one.
    queries = [new or old for new, old in zip(tools.write_alone("rewrite", x), x)]
    return [Prediction(question, tools.name, (one,)) for question, one in zip(questions, tools.read(queries, x))]


def closed_book(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Answer without retrieval, from the model's own knowledge."""
    answers = tools.write_alone("closed-book", [question.question for question in questions])
    return [Prediction(question, tools.name, (Round("", (), text),)) for question, text in zip(questions, answers)]
