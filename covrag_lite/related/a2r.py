"""A²R: Ask, Assess, and Refine (Lee et al. 2023), and the citation quality by which it assesses, as in ALCE.

What differs from the paper: correctness needs the gold answer, so at test time its place is taken by whether one of the
passages entails the answer; an answer that is good enough is not refined at all (the paper checks after a
refinement); each refinement sees the last answer and feedback (its equation 4), and the last one is the output, where
equation 5 reads the whole history once more; the model writes greedily. Thresholds are ours, since it names none.

An answer cites by the marks that it writes itself, "[2]"; one without marks cites nothing. As ALCE (Gao et al. 2023)
does with short answers, a statement is the question with what the answer says of it. Entailment is told passage by
passage, so that a citation is needed, as ALCE's precision asks, just where it entails its statement.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from covrag_lite.method import Tools
from covrag_lite.prompts import SEPARATOR, build_references
from covrag_lite.records import CITATION, Passage, Prediction, Question, Round
from covrag_lite.related.heads import Score

REFINEMENTS = 2  # K
ENOUGH = 0.8  # the mean of the aspects from which on an answer stays as it is
ENTAILED = 0.5  # from this on a passage entails a statement
FEEDBACK_TOKENS = 60
# What is assessed, in shares from 0 to 1: statements that a passage entails, statements that one of their citations
# entails, citations that entail their statement; and what to advise, in our own words.
ASPECTS = {
    "support": "say only what the references say",
    "citation recall": "put the mark of a reference, such as [1], behind every statement that it supports",
    "citation precision": "leave out marks of references that do not support the statement before them",
}
REFINE = f"Write the answer anew, in a few words, by this feedback.{SEPARATOR}Refined answer:"
LOW = 0.5  # below it an aspect wants feedback
STATEMENT_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])|(?<=\])\s+(?=[A-Z])")


def a2r(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Answer, assess by support and citations, turn the scores into feedback, refine, at most K times."""
    author = tools.related.author
    x = [question.question for question in questions]  # Require: x, evidence e, K
    rounds = [[first] for first in tools.read(x, x)]  # 1: Y0 = M(p_init, x, e)
    open_ = list(range(len(x)))
    for _ in range(REFINEMENTS):  # 2: for t = 0 to K - 1
        last = [rounds[i][-1] for i in open_]
        e, y = [one.passages for one in last], [one.answer for one in last]
        scores = {}
        for i, quality in zip(open_, assess([x[i] for i in open_], e, y, tools.related.entail)):  # 3: S_t
            scores[i] = {name: share or 0.0 for name, share in quality.items()}  # nothing cited, nothing cited rightly
            note = ", ".join(f"{name} {100 * share:.0f}" for name, share in scores[i].items())
            rounds[i][-1] = replace(rounds[i][-1], note=note)
        # 6, 7: the stopping condition, on the average over the aspects
        open_ = [i for i in open_ if sum(scores[i].values()) / len(ASPECTS) < ENOUGH]
        asked = [build_prompt(rounds[i][-1], ask_feedback(scores[i])) for i in open_]
        f = author.write("feedback", asked, FEEDBACK_TOKENS)  # 4: F_t = M(p_fb, S_t, x, e, Y_t)
        asked = [build_prompt(rounds[i][-1], f"Feedback: {said}{SEPARATOR}{REFINE}") for i, said in zip(open_, f)]
        y = author.write("refine", asked, author.settings.max_answer_tokens)  # 5: Y_t+1 = M(p_refine, x, e, Y_t, F_t)
        for i, said, answer in zip(open_, f, y):
            one = rounds[i][-1]
            rounds[i][-1] = replace(one, note=f"{one.note}; feedback: {said}")
            rounds[i].append(Round(x[i], one.passages, answer))
    return [Prediction(one, tools.name, tuple(r)) for one, r in zip(questions, rounds)]  # 9: the refined output


def assess(x: Sequence[str], k: Sequence[Sequence[Passage]], y: Sequence[str], entail: Score) -> list[dict]:
    """Each answer's shares by aspect, in one call of `entail`; no precision where nothing is cited."""
    statements = [(i, said, cited) for i, answer in enumerate(y) for said, cited in read_statements(answer, len(k[i]))]
    scores = entail([x[i] for i, *_ in statements], [k[i] for i, *_ in statements], [said for _, said, _ in statements])
    holds = [{name: [] for name in ASPECTS} for _ in y]
    for (i, _, cited), own in zip(statements, scores):
        entailed = [score >= ENTAILED for score in own]
        holds[i]["support"].append(any(entailed))
        holds[i]["citation recall"].append(any(entailed[place] for place in cited))
        holds[i]["citation precision"] += [entailed[place] for place in cited]
    none = dict.fromkeys(ASPECTS, 0.0) | {"citation precision": None}
    return [{name: sum(own) / len(own) if own else none[name] for name, own in one.items()} for one in holds]


def read_statements(answer: str, n: int) -> list[tuple[str, list[int]]]:
    """The answer's sentences without their marks, each with the places of what it cites among n passages."""
    made = []
    for sentence in STATEMENT_END.split(answer.strip()):
        said = " ".join(CITATION.sub("", sentence).split())
        marks = dict.fromkeys(int(mark) for mark in CITATION.findall(sentence))
        if any(letter.isalnum() for letter in said):
            made.append((said, [mark - 1 for mark in marks if 0 < mark <= n]))
    return made


def ask_feedback(scores: Mapping[str, float]) -> str:
    """The task of feedback in words: by its score, what to advise on each aspect or that it is well."""
    advice = []
    for name, wanted in ASPECTS.items():
        what = f"advise to {wanted}" if scores[name] < LOW else "say that it is satisfactory"
        advice.append(f"\n- {name}, score {100 * scores[name]:.0f}: {what}")
    return f"Give short feedback on the answer, by these scores from 0 to 100:{''.join(advice)}\nFeedback:"


def build_prompt(one: Round, task: str) -> str:
    """References, question and answer, and the task."""
    return SEPARATOR.join([build_references(one.passages), f"Question: {one.query}", f"Answer: {one.answer}", task])
