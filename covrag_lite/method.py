"""Algorithm 1 of the paper, for a batch of questions: every stage runs once over the questions that need it."""

from collections.abc import Sequence
from dataclasses import replace

from covrag_lite.records import Prediction, Question
from covrag_lite.tools import Tools


def cov_rag(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Retrieve, answer and verify; where σ says so, retrieve with the revised question and answer again."""
    x = [question.question for question in questions]  # 1: Input: x
    # 2, 3: R retrieves references k = [k1, …, k5], M predicts an answer ŷ given (x, k)
    rounds = [[first] for first in tools.read(x, x)]
    open_ = list(range(len(x)))  # the questions whose last answer is not verified yet
    for _ in range(tools.max_rounds - 1):  # once in the paper; further rounds are our extension
        last = [rounds[i][-1] for i in open_]
        verdicts = tools.verify(  # 4: M predicts (s_k, s_ŷ, n, x′) given (x, k, ŷ)
            [x[i] for i in open_], [one.passages for one in last], [one.answer for one in last]
        )
        for i, one, verdict in zip(open_, last, verdicts):
            rounds[i][-1] = replace(one, verdict=verdict)
        open_ = [i for i in open_ if tools.sigma(rounds[i][-1])]  # 5, 6: if σ(s_k, s_ŷ, n, x′)
        revised = [rounds[i][-1].verdict.revised_question for i in open_]
        # 7, 8: R re-retrieves k′ given the revised question x′, M re-predicts ŷ′ given (x, k′), for the first question
        for i, again in zip(open_, tools.read(revised, [x[i] for i in open_])):
            rounds[i].append(again)  # 9, 10: update ŷ = ŷ′, unless a rule of ours keeps ŷ
    return [  # 11: return ŷ
        Prediction(one, tools.name, tuple(r), kept=tools.keep(r)) for one, r in zip(questions, rounds)
    ]
