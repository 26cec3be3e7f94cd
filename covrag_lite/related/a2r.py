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
from dataclasses import dataclass, replace

from covrag_lite.method import Tools
from covrag_lite.prompts import SEPARATOR, build_references
from covrag_lite.records import CITATION, Passage, Prediction, Question, Round
from covrag_lite.related.relevance import Entail
from covrag_lite.task_model import TaskModel

REFINEMENTS = 2  # K
ENOUGH = 0.8  # the mean of the aspects from which on an answer stays as it is
ENTAILED = 0.5  # from this on evidence entails a statement
FEEDBACK_TOKENS = 60
ASPECTS = {  # the prompts are in our own words
    "support": "say only what the references say",
    "citation recall": "put the mark of a reference, such as [1], behind every statement that it supports",
    "citation precision": "leave out marks of references that do not support the statement before them",
}
LOW = 0.5  # below it an aspect wants feedback
STATEMENT_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])|(?<=\])\s+(?=[A-Z])")


@dataclass(frozen=True)
class Quality:
    """How well an answer's statements stand on its passages; shares from 0 to 1."""

    support: float  # statements that all passages together entail
    recall: float  # statements that their own citations entail
    precision: float | None  # citations that are needed, or entail their statement alone; None where none is written

    def scores(self) -> dict[str, float]:
        """The three aspects by name; who cites nothing cites nothing rightly."""
        return {"support": self.support, "citation recall": self.recall, "citation precision": self.precision or 0.0}

    def __str__(self) -> str:
        return ", ".join(f"{name} {100 * value:.0f}" for name, value in self.scores().items())


def a2r(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Answer, assess by support and citations, turn the scores into feedback, refine, at most K times."""
    related = tools.related
    x = [question.question for question in questions]  # Require: x, evidence e, K
    rounds = [[first] for first in tools.read(x, x)]  # 1: Y0 = M(p_init, x, e)
    e = [one.passages for (one,) in rounds]
    open_ = list(range(len(x)))
    for _ in range(REFINEMENTS):  # 2: for t = 0 to K - 1
        x_, e_ = [x[i] for i in open_], [e[i] for i in open_]
        qualities = assess(x_, e_, [rounds[i][-1].answer for i in open_], related.entail)  # 3: S_t
        for i, quality in zip(open_, qualities):
            rounds[i][-1] = replace(rounds[i][-1], note=str(quality))
        left = [(i, quality.scores()) for i, quality in zip(open_, qualities) if not is_enough(quality)]  # 6, 7
        open_ = [i for i, _ in left]
        x_, e_ = [x[i] for i in open_], [e[i] for i in open_]
        y_ = [rounds[i][-1].answer for i in open_]
        f = related.feedback(x_, e_, y_, [scores for _, scores in left])  # 4: F_t = M(p_fb, S_t, x, e, Y_t)
        y_ = related.refine(x_, e_, y_, f)  # 5: Y_t+1 = M(p_refine, x, e, Y_t, F_t)
        for i, said, answer in zip(open_, f, y_):
            last = rounds[i][-1]
            rounds[i][-1] = replace(last, note=f"{last.note}; feedback: {said}")
            rounds[i].append(Round(x[i], e[i], answer))
    return [Prediction(one, tools.name, tuple(r)) for one, r in zip(questions, rounds)]  # 9: the refined output


def is_enough(quality: Quality) -> bool:
    """The stopping condition: the average over the aspects."""
    scores = quality.scores().values()
    return sum(scores) / len(scores) >= ENOUGH


def assess(x: Sequence[str], k: Sequence[Sequence[Passage]], y: Sequence[str], entail: Entail) -> list[Quality]:
    """The citation quality of each answer, in one call of `entail`."""
    asked: list[tuple[str, tuple[Passage, ...], str]] = []  # what must be known: question, evidence, statement
    for question, passages, answer in zip(x, k, y):
        for said, cited in read_statements(answer, passages):
            apart = [*((one,) for one in cited), *(without(one, cited) for one in cited)]
            asked += [(question, evidence, said) for evidence in (tuple(passages), cited, *apart) if evidence]
    asked = list(dict.fromkeys(asked))
    values = entail(*map(list, zip(*asked))) if asked else []
    known = {one: value >= ENTAILED for one, value in zip(asked, values)}
    return [_assess(question, passages, answer, known) for question, passages, answer in zip(x, k, y)]


def _assess(question: str, passages: Sequence[Passage], answer: str, known: dict) -> Quality:
    """One answer's quality, from what is known to entail what."""

    def holds(evidence: Sequence[Passage], said: str) -> bool:
        return known.get((question, tuple(evidence), said), False)  # nothing entails nothing

    statements = read_statements(answer, passages)
    if not statements:
        return Quality(0.0, 0.0, None)
    n, recalled, precise = len(statements), 0, []
    for said, cited in statements:
        whole = holds(cited, said)
        recalled += whole
        precise += [whole and (holds((one,), said) or not holds(without(one, cited), said)) for one in cited]
    supported = sum(holds(passages, said) for said, _ in statements)
    return Quality(supported / n, recalled / n, sum(precise) / len(precise) if precise else None)


def without(one: Passage, cited: Sequence[Passage]) -> tuple[Passage, ...]:
    """All citations of a statement but one."""
    return tuple(other for other in cited if other != one)


def read_statements(answer: str, passages: Sequence[Passage]) -> list[tuple[str, tuple[Passage, ...]]]:
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
