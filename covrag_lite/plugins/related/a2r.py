"""A²R, Ask, Assess and Refine (Lee et al. 2023): refine an answer by feedback from its metrics.

Implemented: Algorithm 1 with equations 1 (first answer), 2 (assessment), 3 (feedback), 4 (one
refinement) and 5 (the output reads the history of all answers and their feedback).

Every refinement reads the whole history. The first one has only Y0 and F0 to read, which is
equation 4; the last one is equation 5, so that with K = 2 the output is that of Algorithm 1. The
algorithm also writes a last refinement without the history, which it does not use; we do not.

Differences from that paper:

- Equation 2 compares with the gold answer: claim recall, exact match or recall of gold answers.
  That would show the gold answer to the system at test time. The assessment here uses what needs
  no gold answer: whether a passage entails the answer (footnote 4 of the paper suggests such
  metrics), citation recall and citation precision. Claim recall is measured only in the
  evaluation, see `answer_quality`.
- Entailment is judged by a small classifier on single passages, not by a large model (TRUE).
- A good answer is not refined. The paper checks its stopping condition only after a refinement.
- The scores in the feedback prompt, the thresholds and K are ours; the paper does not give the
  thresholds. Decoding is greedy; the paper samples.
- The first answer is written by the trained reader, feedback and refinements by the base model.
- Fluency (MAUVE) is not measured; the paper does not use it for feedback either.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from covrag_lite.plugins.related.answer_quality import (
    ASPECTS,
    CITATION_PRECISION,
    CITATION_RECALL,
    SUPPORT,
    assess,
)
from covrag_lite.plugins.related.tools import RelatedTools
from covrag_lite.prompts import SEPARATOR, build_references
from covrag_lite.records import Passage, Prediction, Question, Round

REFINEMENTS = 2  # K, the maximum number of refinements
GOOD_ENOUGH = 0.8  # an answer whose mean over the aspects is at least this is not refined
UNSATISFACTORY = 0.5  # an aspect below this gets advice
FEEDBACK_TOKENS = 60  # maximum length of the feedback
ADVICE = {
    SUPPORT: "say only what the references say",
    CITATION_RECALL: (
        "put the mark of a reference, such as [1], behind every statement that it supports"
    ),
    CITATION_PRECISION: (
        "leave out marks of references that do not support the statement before them"
    ),
}
SATISFACTORY = "say that it is satisfactory"
ASK_FEEDBACK = "Give short feedback on the answer, by these scores from 0 to 100:"
REFINE = f"Write the answer anew, in a few words, by this feedback.{SEPARATOR}Refined answer:"

AspectScores = Mapping[str, float]  # one per aspect, from 0 to 1


def a2r(questions: Sequence[Question], tools: RelatedTools) -> list[Prediction]:
    """Answer, assess support and citations, give feedback and refine, at most K times."""
    author = tools.author
    x = [question.question for question in questions]  # Require: x, evidence e, K
    # 1: Y_0 = M([p_init; x; e])
    rounds = [[first] for first in tools.search_and_answer(x, x)]
    feedback: list[list[str]] = [[] for _ in x]  # F_0, …, F_t of each question
    unfinished = list(range(len(x)))
    for _ in range(REFINEMENTS):  # 2: for t = 0 to K - 1
        scores = score_answers([rounds[i][-1] for i in unfinished], tools)  # 3: S_t
        for i, aspects in zip(unfinished, scores):
            rounds[i][-1] = replace(rounds[i][-1], note=describe_scores(aspects))
        # 6 to 8: the stopping condition, on the average over the aspects
        scores_of = dict(zip(unfinished, scores))
        unfinished = [i for i in unfinished if mean(scores_of[i]) < GOOD_ENOUGH]

        # 4: F_t = M([p_fb; S_t; x; e; Y_t])
        prompts = [build_feedback(rounds[i][-1], scores_of[i]) for i in unfinished]
        texts = author.write("feedback", prompts, FEEDBACK_TOKENS)
        for i, text in zip(unfinished, texts):
            feedback[i].append(text)
            last = rounds[i][-1]
            rounds[i][-1] = replace(last, note=f"{last.note}; feedback: {text}")

        # 5 and 9: Y_t+1 = M([p_refine; x; e; Y_0; F_0; …; Y_t; F_t])
        prompts = [build_refinement(rounds[i], feedback[i]) for i in unfinished]
        answers = author.write("refine", prompts, author.settings.max_answer_tokens)
        for i, answer in zip(unfinished, answers):
            rounds[i].append(Round(x[i], rounds[i][0].passages, answer))
    return [
        Prediction(question, tools.name, tuple(turns)) for question, turns in zip(questions, rounds)
    ]


def score_answers(last_rounds: Sequence[Round], tools: RelatedTools) -> list[AspectScores]:
    """Assess answers by every aspect; an answer without citations has precision 0."""
    qualities = assess(
        [last.query for last in last_rounds],
        [last.passages for last in last_rounds],
        [last.answer for last in last_rounds],
        tools.entail,
    )
    return [{name: quality[name] or 0.0 for name in ASPECTS} for quality in qualities]


def mean(scores: AspectScores) -> float:
    """Return the average over the aspects."""
    return sum(scores.values()) / len(scores)


def describe_scores(scores: AspectScores) -> str:
    """Return the scores as one line."""
    return ", ".join(f"{name} {100 * score:.0f}" for name, score in scores.items())


def build_feedback(last: Round, scores: AspectScores) -> str:
    """Return the prompt of the feedback: for each aspect its score and what to advise."""
    lines = []
    for name, score in scores.items():
        advice = f"advise to {ADVICE[name]}" if score < UNSATISFACTORY else SATISFACTORY
        lines.append(f"\n- {name}, score {100 * score:.0f}: {advice}")
    task = f"{ASK_FEEDBACK}{''.join(lines)}\nFeedback:"
    return SEPARATOR.join(
        [*build_evidence(last.query, last.passages), f"Answer: {last.answer}", task]
    )


def build_refinement(rounds: Sequence[Round], feedback: Sequence[str]) -> str:
    """Return the prompt of a refinement: the history of all answers, each with its feedback."""
    parts = build_evidence(rounds[0].query, rounds[0].passages)
    for past, text in zip(rounds, feedback, strict=True):
        parts += [f"Answer: {past.answer}", f"Feedback: {text}"]
    return SEPARATOR.join([*parts, REFINE])


def build_evidence(question: str, passages: Sequence[Passage]) -> list[str]:
    """Return how both prompts begin: the references and the question."""
    return [build_references(passages), f"Question: {question}"]
