"""A²R, Ask, Assess and Refine (Lee et al. 2023), with citation quality measured as in ALCE.

Differences from that paper:

- Correctness needs the gold answer. At test time we use instead whether a passage entails the
  answer.
- A good first answer is not refined; the paper checks only after a refinement.
- Each refinement sees the last answer and its feedback (equation 4), and the last answer is the
  output; equation 5 reads the whole history.
- Decoding is greedy. The thresholds are ours, because the paper gives none.

The citations of an answer are the marks that it contains, such as "[2]". As in ALCE (Gao et al.
2023), the statement of a short answer is the question followed by the answer. Entailment is scored
for each passage separately, so a citation counts as correct if its passage entails the statement.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from covrag_lite.method import Tools
from covrag_lite.prompts import SEPARATOR, build_references
from covrag_lite.records import CITATION, Passage, Prediction, Question, Round
from covrag_lite.related.heads import Score

REFINEMENTS = 2  # K, the maximum number of refinements
ENOUGH = 0.8  # an answer whose mean over the aspects is at least this is not refined
ENTAILED = 0.5  # a passage entails a statement if it scores at least this
FEEDBACK_TOKENS = 60  # maximum length of the feedback
# The aspects, as shares from 0 to 1: statements that a passage entails, statements that a cited
# passage entails, and citations whose passage entails their statement; each with its advice.
ASPECTS = {
    "support": "say only what the references say",
    "citation recall": "put the mark of a reference, such as [1], behind every statement that it supports",
    "citation precision": "leave out marks of references that do not support the statement before them",
}
REFINE = f"Write the answer anew, in a few words, by this feedback.{SEPARATOR}Refined answer:"
LOW = 0.5  # an aspect below this gets feedback
STATEMENT_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])|(?<=\])\s+(?=[A-Z])")


def a2r(questions: Sequence[Question], tools: Tools) -> list[Prediction]:
    """Answer, assess support and citations, give feedback and refine, at most K times."""
    author = tools.related.author
    x = [question.question for question in questions]  # Require: x, evidence e, K
    rounds = [[first] for first in tools.read(x, x)]  # 1: Y0 = M(p_init, x, e)
    open_ = list(range(len(x)))
    for _ in range(REFINEMENTS):  # 2: for t = 0 to K - 1
        last = [rounds[i][-1] for i in open_]
        e, y = [one.passages for one in last], [one.answer for one in last]
        scores = {}
        for i, quality in zip(open_, assess([x[i] for i in open_], e, y, tools.related.entail)):  # 3: S_t
            # an answer without citations has precision 0
            scores[i] = {name: share or 0.0 for name, share in quality.items()}
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
    """Return each answer's share per aspect; the precision is None if nothing is cited."""
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
    """Split an answer into sentences without citations, each with the indices of cited passages."""
    made = []
    for sentence in STATEMENT_END.split(answer.strip()):
        said = " ".join(CITATION.sub("", sentence).split())
        marks = dict.fromkeys(int(mark) for mark in CITATION.findall(sentence))
        if any(letter.isalnum() for letter in said):
            made.append((said, [mark - 1 for mark in marks if 0 < mark <= n]))
    return made


def ask_feedback(scores: Mapping[str, float]) -> str:
    """Return the task of writing feedback: for each aspect its score and what to advise."""
    advice = []
    for name, wanted in ASPECTS.items():
        what = f"advise to {wanted}" if scores[name] < LOW else "say that it is satisfactory"
        advice.append(f"\n- {name}, score {100 * scores[name]:.0f}: {what}")
    return f"Give short feedback on the answer, by these scores from 0 to 100:{''.join(advice)}\nFeedback:"


def build_prompt(one: Round, task: str) -> str:
    """Return a prompt: references, question, answer and the task."""
    return SEPARATOR.join([build_references(one.passages), f"Question: {one.query}", f"Answer: {one.answer}", task])
