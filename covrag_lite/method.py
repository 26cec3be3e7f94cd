"""Algorithm 1 of the paper (Section 2.2), and the systems it is compared with (Tables 2 and 4).

A system is a function that takes a batch of questions and its `Tools`. Each stage (retrieve,
answer, verify, revise) runs once over all questions that need it. Algorithm 1 comes first; the
rules that it applies and the tools that it calls are defined below it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from covrag_lite.records import Passage, Prediction, Question, Round, Search, Verdict

# The functions that a system calls. The comments say what each takes -> what it returns.
Passages = Sequence[Passage]
# questions, the passages of each -> answers
Answer = Callable[[Sequence[str], Sequence[Passages]], list[str]]
# questions, the passages of each, their answers -> verdicts
Verify = Callable[[Sequence[str], Sequence[Passages], Sequence[str]], list[Verdict]]
# a task of `prompts.QUESTION_ONLY`, questions -> texts
Write = Callable[[str, Sequence[str]], list[str]]
# questions, the passages of each -> mean log-probabilities of the answers' tokens
Likelihoods = Callable[[Sequence[str], Sequence[Passages]], list[float | None]]
# a verified round -> search again?
Sigma = Callable[[Round], bool]
# all rounds of a question -> the index of the round whose answer is returned
Keep = Callable[[Sequence[Round]], int]


def cov_rag(questions: Sequence[Question], tools: "Tools") -> list[Prediction]:
    """Retrieve, answer, verify; if σ holds, search with the revised question and answer again.

    Numbered comments are the lines of Algorithm 1. There x is the question, k its references and ŷ
    the answer. A verdict contains s_k, the score of the references; s_ŷ, the scores of the answer;
    n, the judgment; and x′, the revised question.
    """
    x = [question.question for question in questions]  # 1: Input: x
    # 2, 3: R retrieves references k = [k1, …, k5], M predicts an answer ŷ given (x, k)
    rounds = [[first] for first in tools.search_and_answer(x, x)]  # the rounds of each question
    unverified = list(range(len(x)))  # indices of the questions whose last answer is not verified

    def verify_last_rounds(indices: list[int]) -> None:
        # 4: M predicts (s_k, s_ŷ, n, x′) given (x, k, ŷ)
        last_rounds = [rounds[i][-1] for i in indices]
        verified_rounds = tools.add_verdicts([x[i] for i in indices], last_rounds)
        for i, verified_round in zip(indices, verified_rounds):
            rounds[i][-1] = verified_round

    for _ in range(tools.max_rounds - 1):  # once in the paper; further rounds are our extension
        verify_last_rounds(unverified)
        # 5, 6: if σ(s_k, s_ŷ, n, x′)
        flagged = [i for i in unverified if tools.sigma(rounds[i][-1])]
        revised = [rounds[i][-1].revised_question for i in flagged]
        # 7, 8: R re-retrieves k′ given the revised question x′, M re-predicts ŷ′ given (x, k′)
        new_rounds = tools.search_and_answer(revised, [x[i] for i in flagged])
        for i, new_round in zip(flagged, new_rounds):
            rounds[i].append(new_round)
        unverified = flagged  # only these have a new answer
    if tools.verifies_last:  # for our rule `keep_combined`, which needs all verdicts
        verify_last_rounds(unverified)
    # 9, 10: update ŷ = ŷ′, unless a `keep` rule of ours returns to ŷ
    # 11: return ŷ
    return [
        Prediction(question, tools.name, tuple(its_rounds), kept=tools.keep(its_rounds))
        for question, its_rounds in zip(questions, rounds)
    ]


# σ: the rule that decides, from a verified round, whether to search again.


def by_revision(last_round: Round) -> bool:
    """σ, the paper's default: search again if there is a revised question."""
    return bool(last_round.revised_question)


def by_thresholds(last_round: Round) -> bool:
    """σ with the paper's cross-validated thresholds (footnote 1), which save searches.

    All four conditions must hold. The footnote does not say whether all or any must; in the
    worked example of the paper's Table 15, all do.
    """
    verdict = last_round.required_verdict
    if not verdict.parsed or verdict.judgment != "false" or not verdict.revised_question:
        return False
    return (
        written_score(verdict, "reference_correctness") < 0.27
        and written_score(verdict, "correctness") < 0.26
        and written_score(verdict, "bias") > 0.7
        and written_score(verdict, "truthfulness") < 0.92
    )


def written_score(verdict: Verdict, name: str) -> float:
    """Return a score as the verifier wrote it; an error if its verdicts have no scores."""
    score = getattr(verdict, name)
    if score is None:
        raise ValueError("sigma = 'thresholds' needs a verifier that writes scores; use 'revision'")
    return score


def by_fitted_thresholds(
    reference: float = 1.01, correctness: float = 1.01, likelihood: float = 0.01
) -> Sigma:
    """Return a σ with thresholds for two expected scores and the likelihood. Ours.

    It searches with the revised question if all three are below their thresholds; an unknown value
    counts as below. We use expected scores because written ones are nearly always the highest or
    the lowest value, which hardly ranks answers. By default, all thresholds are above the largest
    possible value (1 for a score, 0 for a mean log-probability): nothing is blocked, and every
    revised question is searched.
    """

    def sigma(last_round: Round) -> bool:
        verdict = last_round.required_verdict
        return (
            bool(last_round.revised_question)
            and is_below(expected_score(verdict, "reference_correctness"), reference)
            and is_below(expected_score(verdict, "correctness"), correctness)
            and is_below(last_round.likelihood, likelihood)
        )

    return sigma


def is_below(value: float | None, threshold: float) -> bool:
    """Return whether a value is below a threshold; an unknown value counts as below."""
    return value is None or value < threshold


def expected_score(verdict: Verdict, name: str) -> float | None:
    """Return the expectation of a score if its probabilities are known, else the written score."""
    probabilities = verdict.probabilities or {}
    return probabilities.get(name, getattr(verdict, name))


# The rules that choose the answer to return. Each returns the index of a round.


def keep_last(rounds: Sequence[Round]) -> int:
    """Choose the last answer, as in the paper (line 9 of Algorithm 1)."""
    return len(rounds) - 1


def keep_likelier(rounds: Sequence[Round]) -> int:
    """Choose the answer with the highest likelihood given its passages. Ours."""
    return keep_highest([candidate.likelihood for candidate in rounds])


def keep_combined(rounds: Sequence[Round]) -> int:
    """Choose the answer with the highest combined score (parameter value "weighed"). Ours."""
    return keep_highest([combined_score(candidate) for candidate in rounds])


def keep_highest(values: Sequence[float | None]) -> int:
    """Return the index of the highest value; if several are equal, of the last of them.

    If any value is unknown, return the last index.
    """
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return len(values) - 1
    highest = max(known)
    return max(i for i, value in enumerate(known) if value == highest)


VERIFIER_WEIGHT = 3  # fixed in results/real/plan.md


def combined_score(candidate: Round) -> float | None:
    """Return likelihood + 3 × verifier score; None if one of them is unknown."""
    if candidate.verdict is None or candidate.likelihood is None:
        return None
    verifier = verifier_score(candidate.verdict)
    if verifier is None:
        return None
    return candidate.likelihood + VERIFIER_WEIGHT * verifier


def verifier_score(verdict: Verdict) -> float | None:
    """Return how far the verifier trusts the answer: the expected correctness.

    For a verdict without scores ("w/o chain", Table 5), it is the probability of an empty revised
    question. There, an empty one means that the answer is true.
    """
    correctness = expected_score(verdict, "correctness")
    if correctness is not None:
        return correctness
    return (verdict.probabilities or {}).get("empty")


# What a system works with.


def unknown_likelihoods(x: Sequence[str], k: Sequence[Passages]) -> list[float | None]:
    """Return unknown likelihoods, for a model that does not report any."""
    return [None] * len(x)


def cannot_verify(x: Sequence[str], k: Sequence[Passages], y: Sequence[str]) -> list[Verdict]:
    """Raise an error: the system has no verifier."""
    raise ValueError("this system has no verifier")


def cannot_search_deeper(queries: Sequence[str]) -> list[list[Passage]]:
    """Raise an error: the system has no search for deeper passages."""
    raise ValueError("this system has no search for deeper passages")


def cannot_write(task: str, x: Sequence[str]) -> list[str]:
    """Raise an error: the system has no model that writes other texts."""
    raise ValueError("this system has no model that writes texts other than answers")


@dataclass(frozen=True)
class Tools:
    """The functions and rules that a system may use.

    Functions take and return a whole batch; the rules σ and `keep` take the rounds of one question.

    As in Algorithm 1, x are questions, k the passages of each, and y the answers.

    Example, with scripted functions in place of a retriever and a model:
        >>> passage = Passage("p1", "Emma", "Emma is a novel by Jane Austen.")
        >>> tools = Tools("demo", lambda queries: [[passage]] * len(queries),
        ...               lambda x, k: ["Jane Austen [1]"] * len(x))
        >>> rag([Question("q1", "demo", "Who wrote Emma?", ("Jane Austen",))], tools)[0].answer
        'Jane Austen [1]'
    """

    name: str  # the system's name, for its predictions
    search: Search  # queries -> k passages each
    answer: Answer
    verify: Verify = cannot_verify
    # queries -> the k passages after those of `search`
    search_deeper: Search = cannot_search_deeper
    write_from_question: Write = cannot_write
    likelihoods: Likelihoods = unknown_likelihoods
    sigma: Sigma = by_revision
    keep: Keep = keep_last
    max_rounds: int = 2  # the paper retrieves again at most once
    # Is the answer after the last search verified too? The paper does not need that verdict.
    verifies_last: bool = False

    def search_and_answer(self, queries: Sequence[str], x: Sequence[str]) -> list[Round]:
        """Search for the queries and answer the questions from the passages found."""
        k = self.search(queries)
        y = self.answer(x, k)
        likelihoods = self.likelihoods(x, k)
        return [
            Round(query, tuple(passages), answer, likelihood=likelihood)
            for query, passages, answer, likelihood in zip(queries, k, y, likelihoods)
        ]

    def add_verdicts(self, x: Sequence[str], rounds: Sequence[Round]) -> list[Round]:
        """Verify the answer of each round; return the rounds with their verdicts."""
        k = [answered.passages for answered in rounds]
        y = [answered.answer for answered in rounds]
        verdicts = self.verify(x, k, y)
        return [replace(answered, verdict=verdict) for answered, verdict in zip(rounds, verdicts)]


# The systems that the paper compares with CoV-RAG.


def rag(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Retrieve and answer once (lines 1 to 3).

    With the CoV-RAG model this is its first answer, which the paper calls CoV-RAG-S.
    """
    return cov_rag(questions, replace(tools, max_rounds=1, verifies_last=False))


def start_revise(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Rewrite the question before the first search: Start-Revise (Table 4).

    Rewrite-Retrieve-Read (RRR) works in the same way.
    """
    x = [question.question for question in questions]
    rewritten = tools.write_from_question("rewrite", x)
    # If the rewritten question is empty, search with the original one.
    queries = [new or original for new, original in zip(rewritten, x)]
    rounds = tools.search_and_answer(queries, x)
    return [
        Prediction(question, tools.name, (only_round,))
        for question, only_round in zip(questions, rounds)
    ]


def closed_book(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Answer without retrieval, from the model's own knowledge."""
    x = [question.question for question in questions]
    y = tools.write_from_question("closed-book", x)
    rounds = [Round(query="", passages=(), answer=answer) for answer in y]
    return [
        Prediction(question, tools.name, (only_round,))
        for question, only_round in zip(questions, rounds)
    ]
