"""What CRAG, A²R and FaVe ask a model: prompts in our own words, how they are read, each over a batch by `TaskModel`.

What a model writes that cannot be read is no plan, no follow-up and no "yes".
"""

import re
from collections.abc import Mapping, Sequence

from covrag_lite.prompts import SEPARATOR, build_references
from covrag_lite.records import Passage
from covrag_lite.task_model import TaskModel

SUB_QUESTIONS = 3  # the most of a plan or a chain; our questions have one or two steps
PLAN_TOKENS = 24  # a sub-question
FEEDBACK_TOKENS = 60
YES_TOKENS = 2
NUMBERED = re.compile(r"^\s*(?:\[\d+\]|\d+[.)]|[-*•])\s*(.+)$")
END = "[END]"
ASPECTS = {
    "support": "say only what the references say",
    "citation recall": "put the mark of a reference, such as [1], behind every statement that it supports",
    "citation precision": "leave out marks of references that do not support the statement before them",
}
LOW = 0.5  # below it an aspect wants feedback
# The demonstrations: small models repeat them, and what is repeated is no sub-question of another question.
RIVERS = ("How long is the Danube?", "How long is the Rhine?")
TOLSTOY = ("When was Tolstoy born?", "When did War and Peace appear?")


def build_plan(question: str) -> str:
    """FaVe's session generation: a numbered list of sub-questions, before anything is answered."""
    return (
        f"Split the question into at most {SUB_QUESTIONS} simple questions to search for, one a line, numbered.\n"
        f"Question: Which is longer, the Danube or the Rhine?\n"
        f"[1] {RIVERS[0]}\n[2] {RIVERS[1]}\n"
        f"Question: {question}"
    )


def parse_plan(text: str) -> list[str]:
    """The sub-questions of a plan, each once; none where no line is numbered, or only the demonstration came back."""
    found = [match[1].strip() for match in map(NUMBERED.match, text.splitlines()) if match]
    asked = [line for line in found if any(letter.isalnum() for letter in line) and line not in RIVERS]
    return list(dict.fromkeys(asked))[:SUB_QUESTIONS]


def build_follow_up(question: str, steps: Sequence[tuple[str, str]]) -> str:
    """CoQ's next sub-question, from what was asked and answered so far."""
    done = "".join(f"Search: {asked}\nOutput: {said}\n" for asked, said in steps)
    return (
        f"Answer a question by simple searches, one after the other. Write the next search, a short question, "
        f"or {END} when the outputs answer the question.\n"
        f"Question: How old was Tolstoy when War and Peace appeared?\n"
        f"Search: {TOLSTOY[0]}\nOutput: 1828\nSearch: {TOLSTOY[1]}\nOutput: 1869\n"
        f"Search: {END}\n"
        f"Question: {question}\n{done}Search:"
    )


def parse_follow_up(text: str) -> str:
    """The first line of what was written; nothing where the chain is to end."""
    line = text.strip().split("\n")[0].removeprefix("Search:").strip()
    ends = END in line.upper() or line in TOLSTOY or not any(letter.isalnum() for letter in line)
    return "" if ends else line


def build_relevant(question: str, sub_question: str) -> str:
    """FaVe's internal feedback: would this sub-question help?"""
    return (
        "Does the sub-question help to answer the question? Say Yes or No.\n"
        f"Question: Which is longer, the Danube or the Rhine?\nSub-question: {RIVERS[1]}\nHelps: Yes\n"
        f"Question: Who painted the Mona Lisa?\nSub-question: {RIVERS[1]}\nHelps: No\n"
        f"Question: {question}\nSub-question: {sub_question}\nHelps:"
    )


def build_feedback(question: str, passages: Sequence[Passage], answer: str, scores: Mapping[str, float]) -> str:
    """A²R's feedback prompt: the scores, and for each aspect what to advise or that it is well."""
    advice = []
    for name, wanted in ASPECTS.items():
        what = f"advise to {wanted}" if scores[name] < LOW else "say that it is satisfactory"
        advice.append(f"- {name}, score {100 * scores[name]:.0f}: {what}")
    return (
        f"{build_references(passages)}{SEPARATOR}Question: {question}{SEPARATOR}Answer: {answer}{SEPARATOR}"
        "Give short feedback on the answer, by these scores from 0 to 100:\n" + "\n".join(advice) + "\nFeedback:"
    )


def build_refine(question: str, passages: Sequence[Passage], answer: str, feedback: str) -> str:
    """A²R's refinement prompt."""
    return (
        f"{build_references(passages)}{SEPARATOR}Question: {question}{SEPARATOR}Answer: {answer}{SEPARATOR}"
        f"Feedback: {feedback}{SEPARATOR}Write the answer anew, in a few words, by this feedback.{SEPARATOR}"
        "Refined answer:"
    )


def plan(author: TaskModel, x: Sequence[str], n: int) -> list[list[list[str]]]:
    """n sessions of sub-questions each: the likeliest one, or n samples; the question itself where none parses."""
    asked = [build_plan(one) for one in x]
    numbers = [None] if n == 1 else range(n)
    written = [author.write("plan", asked, SUB_QUESTIONS * PLAN_TOKENS, number) for number in numbers]
    return [[parse_plan(text) or [one] for text in texts] for one, *texts in zip(x, *written)]


def follow_up(author: TaskModel, x: Sequence[str], steps: Sequence[Sequence[tuple[str, str]]]) -> list[str]:
    """The next sub-question of each chain, "" where it is to end."""
    asked = [build_follow_up(*one) for one in zip(x, steps)]
    return [parse_follow_up(text) for text in author.write("follow-up", asked, PLAN_TOKENS)]


def is_relevant(author: TaskModel, x: Sequence[str], subs: Sequence[str]) -> list[bool]:
    """Whether each sub-question helps to answer its question; what is neither yes nor no counts as no, as in FaVe."""
    asked = [build_relevant(*one) for one in zip(x, subs)]
    return [text.strip().lower().startswith("yes") for text in author.write("relevant", asked, YES_TOKENS)]


def feedback(
    author: TaskModel, x: Sequence[str], k: Sequence[Sequence[Passage]], y: Sequence[str], scores: Sequence[Mapping]
) -> list[str]:
    """Feedback in words on each answer, from its scores."""
    return author.write("feedback", [build_feedback(*one) for one in zip(x, k, y, scores)], FEEDBACK_TOKENS)


def refine(
    author: TaskModel, x: Sequence[str], k: Sequence[Sequence[Passage]], y: Sequence[str], advice: Sequence[str]
) -> list[str]:
    """Each answer written anew by its feedback."""
    asked = [build_refine(*one) for one in zip(x, k, y, advice)]
    return author.write("refine", asked, author.settings.max_answer_tokens)
