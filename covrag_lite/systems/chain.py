"""Algorithm 1 of the paper, for a batch of questions: every stage runs once over the questions that need it."""

from collections.abc import Sequence
from dataclasses import replace

from covrag_lite.records import Prediction, Question, Round
from covrag_lite.systems.tools import Tools


def cov_rag(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Retrieve, answer and verify; where σ says so, retrieve with the revised question and answer again."""
    x = [question.question for question in questions]  # 1: Input: x
    k = tools.search(x)  # 2: R retrieves references k = [k1, …, k5]
    y = tools.answer(x, k)  # 3: M predicts an answer ŷ given (x, k)
    rounds = [[Round(*first)] for first in zip(x, map(tuple, k), y)]
    open_ = list(range(len(x)))  # the questions whose last answer is not verified yet
    for _ in range(tools.max_rounds - 1):  # once in the paper; further rounds are our extension
        last = [rounds[i][-1] for i in open_]
        verdicts = tools.verify(  # 4: M predicts (s_k, s_ŷ, n, x′) given (x, k, ŷ)
            [x[i] for i in open_], [one.passages for one in last], [one.answer for one in last]
        )
        for i, one, verdict in zip(open_, last, verdicts):
            rounds[i][-1] = replace(one, verdict=verdict)
        open_ = [i for i, verdict in zip(open_, verdicts) if tools.sigma(verdict)]  # 5, 6: if σ(s_k, s_ŷ, n, x′)
        revised = [rounds[i][-1].verdict.revised_question for i in open_]
        k = tools.search(revised)  # 7: R re-retrieves k′ given the revised question x′
        y = tools.answer([x[i] for i in open_], k)  # 8: M re-predicts ŷ′ given (x, k′), for the first question
        for i, *again in zip(open_, revised, map(tuple, k), y):
            rounds[i].append(Round(*again))  # 9, 10: update ŷ = ŷ′
    return [Prediction(one, tools.name, tuple(r)) for one, r in zip(questions, rounds)]  # 11: return ŷ
