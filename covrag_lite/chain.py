"""Algorithm 1 of the paper, and the systems it is compared with, each for a batch of questions.

The three things a system needs are handed in as functions, so that a test can script them:
    search(queries) -> one list of passages a query
    answer(question texts, their passages) -> answers
    verify(question texts, their passages, their answers) -> verdicts
Every stage runs once over the questions that need it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from covrag_lite.records import Prediction, Question, Round, Verdict

Search = Callable[[Sequence[str]], list]
Answer = Callable[[Sequence[str], Sequence], list[str]]
Verify = Callable[[Sequence[str], Sequence, Sequence[str]], list[Verdict]]
Sigma = Callable[[Verdict], bool]


def by_revision(verdict: Verdict) -> bool:
    """σ as the paper uses it by default: search again when there is a revised question."""
    return bool(verdict.revised_question)


def by_thresholds(
    reference: float = 0.27, correctness: float = 0.26, bias: float = 0.7, truthfulness: float = 0.92
) -> Sigma:
    """σ by the paper's cross-validated thresholds (its footnote 1), which spare searches: every one must be crossed.

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


def cov_rag(
    questions: Sequence[Question],
    search: Search,
    answer: Answer,
    verify: Verify,
    *,
    max_rounds: int = 2,
    sigma: Sigma = by_revision,
    name: str = "CoV-RAG",
) -> list[Prediction]:
    """Algorithm 1: retrieve, answer, verify, and where σ says so retrieve with the revised question and answer again."""
    x = [question.question for question in questions]  # 1  Input: x
    k = search(x)  # 2  R retrieves references k = [k1, …, k5]
    y = answer(x, k)  # 3  M predicts an answer ŷ given (x, k)
    rounds = [[Round(*first)] for first in zip(x, map(tuple, k), y)]
    open_ = list(range(len(x)))  # questions whose last answer is not yet verified
    for _ in range(max_rounds - 1):  # the paper: once; more rounds are our extension
        last = [rounds[i][-1] for i in open_]
        verdicts = verify(
            [x[i] for i in open_],  # 4  M predicts (s_k, s_ŷ, n, x′) given (x, k, ŷ)
            [r.passages for r in last],
            [r.answer for r in last],
        )
        for i, r, verdict in zip(open_, last, verdicts):
            rounds[i][-1] = Round(r.query, r.passages, r.answer, verdict)
        open_ = [i for i, verdict in zip(open_, verdicts) if sigma(verdict)]  # 5, 6  if σ(s_k, s_ŷ, n, x′)
        revised = [rounds[i][-1].verdict.revised_question for i in open_]
        k = search(revised)  # 7  R re-retrieves k′ given the new question x′
        y = answer([x[i] for i in open_], k)  # 8  M re-predicts ŷ′ given (x, k′): the first question
        for i, *again in zip(open_, revised, map(tuple, k), y):
            rounds[i].append(Round(*again))  # 9, 10  update ŷ = ŷ′
    return [Prediction(question, name, tuple(r)) for question, r in zip(questions, rounds)]  # 11  return ŷ


def rag(questions: Sequence[Question], search: Search, answer: Answer, *, name: str = "RAG") -> list[Prediction]:
    """Retrieve and answer once: lines 1 to 3. CoV-RAG-S is this with the CoV-RAG model."""
    return cov_rag(questions, search, answer, lambda *_: [], max_rounds=1, name=name)


def start_revise(
    questions: Sequence[Question],
    search: Search,
    answer: Answer,
    rewrite: Callable[[Sequence[str]], list[str]],
    *,
    name: str = "Start-Revise",
) -> list[Prediction]:
    """Rewrite-Retrieve-Read: rewrite before anything was retrieved, search with that, answer the first question."""
    x = [question.question for question in questions]
    queries = [new or old for new, old in zip(rewrite(x), x)]  # an empty rewrite searches as typed
    k = search(queries)
    y = answer(x, k)
    return [
        Prediction(*made)
        for made in zip(questions, [name] * len(x), [(Round(*r),) for r in zip(queries, map(tuple, k), y)])
    ]


def closed_book(
    questions: Sequence[Question], answer: Callable[[Sequence[str]], list[str]], *, name: str = "closed-book"
) -> list[Prediction]:
    """No retrieval: what the model knows by itself."""
    answers = answer([question.question for question in questions])
    return [Prediction(question, name, (Round("", (), text),)) for question, text in zip(questions, answers)]


def shuffle_revisions(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Every revised question handed to the next question that has one: as many searches at the same places, for something else."""
    places = [i for i, verdict in enumerate(verdicts) if verdict.revised_question]
    others = dict(zip(places, [*places[1:], *places[:1]]))
    return [
        replace(verdict, revised_question=verdicts[others[i]].revised_question) if i in others else verdict
        for i, verdict in enumerate(verdicts)
    ]
