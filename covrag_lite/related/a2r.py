"""A²R: Ask, Assess, and Refine (Lee et al. 2023): metrics, not the model itself, say what is wrong with an answer.

What differs from the paper: correctness needs the gold answer, so at test time its place is taken by whether the
passages together entail the answer; an answer that is good enough is not refined at all (the paper checks after a
refinement); each refinement sees the last answer and feedback (its equation 4), and the last one is the output, where
equation 5 reads the whole history once more; the model writes greedily. Thresholds are ours, since it names none.
"""

from collections.abc import Sequence
from dataclasses import replace

from covrag_lite.records import Prediction, Question, Round
from covrag_lite.related.citing import Quality, assess
from covrag_lite.tools import Tools

ENOUGH = 0.8  # the mean of the aspects from which on an answer stays as it is


def a2r(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Answer, assess by support and citations, turn the scores into feedback, refine, at most K times."""
    aids = tools.aids
    x = [question.question for question in questions]  # Require: x, evidence e, K
    rounds = [[first] for first in tools.read(x, x)]  # 1: Y0 = M(p_init, x, e)
    e = [one.passages for (one,) in rounds]
    open_ = list(range(len(x)))
    for _ in range(aids.refinements):  # 2: for t = 0 to K - 1
        x_, e_ = [x[i] for i in open_], [e[i] for i in open_]
        qualities = assess(x_, e_, [rounds[i][-1].answer for i in open_], aids.entail)  # 3: S_t
        for i, quality in zip(open_, qualities):
            rounds[i][-1] = replace(rounds[i][-1], note=describe(quality))
        left = [(i, quality.scores()) for i, quality in zip(open_, qualities) if not is_enough(quality)]  # 6, 7
        open_ = [i for i, _ in left]
        x_, e_ = [x[i] for i in open_], [e[i] for i in open_]
        y_ = [rounds[i][-1].answer for i in open_]
        f = aids.feedback(x_, e_, y_, [scores for _, scores in left])  # 4: F_t = M(p_fb, S_t, x, e, Y_t)
        y_ = aids.refine(x_, e_, y_, f)  # 5: Y_t+1 = M(p_refine, x, e, Y_t, F_t)
        for i, said, answer in zip(open_, f, y_):
            last = rounds[i][-1]
            rounds[i][-1] = replace(last, note=f"{last.note}; feedback: {said}")
            rounds[i].append(Round(x[i], e[i], answer))
    return [Prediction(one, tools.name, tuple(r)) for one, r in zip(questions, rounds)]  # 9: the refined output


def is_enough(quality: Quality) -> bool:
    """The stopping condition: the average over the aspects."""
    scores = quality.scores().values()
    return sum(scores) / len(scores) >= ENOUGH


def describe(quality: Quality) -> str:
    """The assessment in a line."""
    return ", ".join(f"{name} {100 * value:.0f}" for name, value in quality.scores().items())
