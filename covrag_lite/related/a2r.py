"""A²R: Ask, Assess, and Refine (Lee et al. 2023), and the citation quality by which it assesses, as in ALCE.

What differs from the paper: correctness needs the gold answer, so at test time its place is taken by whether the
passages together entail the answer; an answer that is good enough is not refined at all (the paper checks after a
refinement); each refinement sees the last answer and feedback (its equation 4), and the last one is the output, where
equation 5 reads the whole history once more; the model writes greedily. Thresholds are ours, since it names none.

An answer cites by the marks that it writes itself, "[2]"; one without marks cites nothing. As ALCE (Gao et al. 2023)
does with short answers, a statement is the question with what the answer says of it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from covrag_lite.method import Tools
from covrag_lite.prompts import SEPARATOR, build_references
from covrag_lite.records import CITATION, Passage, Prediction, Question, Round
from covrag_lite.related.relevance import Entail
from covrag_lite.task_model import TaskModel

REFINEMENTS = 2  # K
ENOUGH = 0.8  # the mean of the aspects from which on an answer stays as it is
ENTAILED = 0.5  # from this on evidence entails a statement
FEEDBACK_TOKENS = 60
# What is assessed, in shares from 0 to 1: statements that all passages together entail, statements that their own
# citations entail, citations that are needed or entail their statement alone; and what to advise, in our own words.
ASPECTS = {
    "support": "say only what the references say",
    "citation recall": "put the mark of a reference, such as [1], behind every statement that it supports",
    "citation precision": "leave out marks of references that do not support the statement before them",
}
Quality = dict[str, float | None]  # the shares by aspect; no precision where nothing is cited
Statement = tuple[str, tuple[Passage, ...]]  # what is said, and what it cites
LOW = 0.5  # below it an aspect wants feedback
STATEMENT_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])|(?<=\])\s+(?=[A-Z])")


def a2r(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Answer, assess by support and citations, turn the scores into feedback, refine, at most K times."""
    related = tools.related
    x = [question.question for question in questions]  # Require: x, evidence e, K
    rounds = [[first] for first in tools.read(x, x)]  # 1: Y0 = M(p_init, x, e)
    e = [one.passages for (one,) in rounds]
    open_ = list(range(len(x)))
    for _ in range(REFINEMENTS):  # 2: for t = 0 to K - 1
        y = [rounds[i][-1].answer for i in open_]
        qualities = assess([x[i] for i in open_], [e[i] for i in open_], y, related.entail)  # 3: S_t
        # who cites nothing cites nothing rightly
        scores = {i: {name: share or 0.0 for name, share in one.items()} for i, one in zip(open_, qualities)}
        for i, own in scores.items():
            note = ", ".join(f"{name} {100 * share:.0f}" for name, share in own.items())
            rounds[i][-1] = replace(rounds[i][-1], note=note)
        open_ = [i for i in open_ if not is_enough(scores[i])]  # 6, 7
        x_, e_, y_ = [x[i] for i in open_], [e[i] for i in open_], [rounds[i][-1].answer for i in open_]
        f = related.feedback(x_, e_, y_, [scores[i] for i in open_])  # 4: F_t = M(p_fb, S_t, x, e, Y_t)
        y_ = related.refine(x_, e_, y_, f)  # 5: Y_t+1 = M(p_refine, x, e, Y_t, F_t)
        for i, said, answer in zip(open_, f, y_):
            last = rounds[i][-1]
            rounds[i][-1] = replace(last, note=f"{last.note}; feedback: {said}")
            rounds[i].append(Round(x[i], e[i], answer))
    return [Prediction(one, tools.name, tuple(r)) for one, r in zip(questions, rounds)]  # 9: the refined output


def is_enough(scores: Mapping[str, float]) -> bool:
    """The stopping condition: the average over the aspects."""
    return sum(scores.values()) / len(scores) >= ENOUGH


def assess(x: Sequence[str], k: Sequence[Sequence[Passage]], y: Sequence[str], entail: Entail) -> list[Quality]:
    """The citation quality of each answer, in one call of `entail`."""
    statements = [read_statements(answer, passages) for answer, passages in zip(y, k)]
    asked = {}  # what must be known: question, evidence, statement
    for question, passages, own in zip(x, k, statements):
        for said, cited in own:
            parts = [part for one in cited for part in ((one,), without(one, cited))]
            asked |= {(question, evidence, said): False for evidence in (tuple(passages), cited, *parts) if evidence}
    values = entail(*map(list, zip(*asked))) if asked else []
    entailed = {one for one, value in zip(asked, values) if value >= ENTAILED}
    return [_assess(*one, entailed) for one in zip(x, k, statements)]


def _assess(question: str, passages: Sequence[Passage], statements: Sequence[Statement], entailed: set) -> Quality:
    """One answer's quality, from what entails what."""
    support, recall, precision = [], [], []
    for said, cited in statements:

        def holds(evidence: tuple[Passage, ...], said: str = said) -> bool:
            return (question, evidence, said) in entailed

        support.append(holds(tuple(passages)))
        recall.append(holds(cited))
        precision += [recall[-1] and (holds((one,)) or not holds(without(one, cited))) for one in cited]
    shares = [sum(own) / len(own) if own else none for own, none in ((support, 0.0), (recall, 0.0), (precision, None))]
    return dict(zip(ASPECTS, shares))


def without(one: Passage, cited: Sequence[Passage]) -> tuple[Passage, ...]:
    """All citations of a statement but one."""
    return tuple(other for other in cited if other != one)


def read_statements(answer: str, passages: Sequence[Passage]) -> list[Statement]:
    """The answer's sentences without their marks, each with the passages that it cites."""
    made = []
    for sentence in STATEMENT_END.split(answer.strip()):
        said = " ".join(CITATION.sub("", sentence).split())
        marks = dict.fromkeys(int(mark) for mark in CITATION.findall(sentence))
        cited = tuple(passages[mark - 1] for mark in marks if 0 < mark <= len(passages))
        if any(letter.isalnum() for letter in said):
            made.append((said, cited))
    return made


def feedback(
    author: TaskModel, x: Sequence[str], k: Sequence[Sequence[Passage]], y: Sequence[str], scores: Sequence[Mapping]
) -> list[str]:
    """Feedback in words on each answer: by its scores, for each aspect what to advise or that it is well."""
    asked = []
    for question, passages, answer, own in zip(x, k, y, scores):
        advice = []
        for name, wanted in ASPECTS.items():
            what = f"advise to {wanted}" if own[name] < LOW else "say that it is satisfactory"
            advice.append(f"\n- {name}, score {100 * own[name]:.0f}: {what}")
        task = f"Give short feedback on the answer, by these scores from 0 to 100:{''.join(advice)}\nFeedback:"
        asked.append(build_prompt(question, passages, answer, task))
    return author.write("feedback", asked, FEEDBACK_TOKENS)


def refine(
    author: TaskModel, x: Sequence[str], k: Sequence[Sequence[Passage]], y: Sequence[str], advice: Sequence[str]
) -> list[str]:
    """Each answer written anew by its feedback."""
    task = f"Write the answer anew, in a few words, by this feedback.{SEPARATOR}Refined answer:"
    asked = [build_prompt(*one, f"Feedback: {said}{SEPARATOR}{task}") for *one, said in zip(x, k, y, advice)]
    return author.write("refine", asked, author.settings.max_answer_tokens)


def build_prompt(question: str, passages: Sequence[Passage], answer: str, task: str) -> str:
    """What both prompts begin with, and the task."""
    return SEPARATOR.join([build_references(passages), f"Question: {question}", f"Answer: {answer}", task])
