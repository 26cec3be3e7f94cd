"""Search sessions of FaVe and UoQ: a question split into sub-questions, before any is answered.

The prompt is the paper's Figure 9 in our own words. A plan that does not parse is ignored: the
question itself is then the only sub-question.
"""

import re
from collections.abc import Sequence

from covrag_lite.engine.task_model import TaskModel

MAX_SUB_QUESTIONS = 3  # N, at most, per session or chain; our questions have one or two steps
SUB_QUESTION_TOKENS = 24  # maximum length of a sub-question
NUMBERED = re.compile(r"^\s*(?:\[\d+\]|\d+[.)]|[-*•])\s*(.+)$")
# The example in the prompts. Small models copy it; a copied sub-question is dropped.
EXAMPLE_QUESTION = "Which is longer, the Danube or the Rhine?"
EXAMPLE_SUB_QUESTIONS = ("How long is the Danube?", "How long is the Rhine?")

Session = list[str]  # the sub-questions of one session


def write_sessions(author: TaskModel, x: Sequence[str], sample: int | None = None) -> list[Session]:
    """Write one session per question: greedily, or by sampling if `sample` is a number."""
    limit = MAX_SUB_QUESTIONS * SUB_QUESTION_TOKENS
    plans = author.write("plan", [build_plan(question) for question in x], limit, sample)
    return [parse_plan(plan) or [question] for question, plan in zip(x, plans)]


def build_plan(question: str) -> str:
    """Return the prompt of a session."""
    first, second = EXAMPLE_SUB_QUESTIONS
    return (
        f"Split the question into at most {MAX_SUB_QUESTIONS} simple questions to search for, "
        f"one a line, numbered.\n"
        f"Question: {EXAMPLE_QUESTION}\n"
        f"[1] {first}\n[2] {second}\n"
        f"Question: {question}"
    )


def parse_plan(text: str) -> Session:
    """Parse the distinct sub-questions of a plan; copies of the prompt's example are dropped."""
    sub_questions = []
    for match in map(NUMBERED.match, text.splitlines()):
        line = match[1].strip() if match else ""
        if any(letter.isalnum() for letter in line) and line not in EXAMPLE_SUB_QUESTIONS:
            sub_questions.append(line)
    return list(dict.fromkeys(sub_questions))[:MAX_SUB_QUESTIONS]
