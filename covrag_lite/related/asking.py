"""The further things that CoV-RAG's neighbours ask a model (`tasks`), each over a batch and through the journal."""

from collections.abc import Mapping, Sequence

from covrag_lite.records import Passage
from covrag_lite.related import prompts as tasks
from covrag_lite.task_model import TaskModel

PLAN_TOKENS = 24  # a sub-question
FEEDBACK_TOKENS = 60
YES_TOKENS = 2


def plan(author: TaskModel, most: int, x: Sequence[str], n: int) -> list[list[list[str]]]:
    """n sessions of sub-questions each: the likeliest one, or n samples; the question itself where none parses."""
    asked = [tasks.build_plan(one, most) for one in x]
    numbers = [None] if n == 1 else range(n)
    written = [author.write("plan", asked, most * PLAN_TOKENS, number) for number in numbers]
    return [[tasks.parse_plan(text, most) or [one] for text in texts] for one, *texts in zip(x, *written)]


def follow_up(author: TaskModel, x: Sequence[str], steps: Sequence[Sequence[tuple[str, str]]]) -> list[str]:
    """The next sub-question of each chain, "" where it is to end."""
    asked = [tasks.build_follow_up(*one) for one in zip(x, steps)]
    return [tasks.parse_follow_up(text) for text in author.write("follow-up", asked, PLAN_TOKENS)]


def is_relevant(author: TaskModel, x: Sequence[str], subs: Sequence[str]) -> list[bool]:
    """Whether each sub-question helps to answer its question."""
    asked = [tasks.build_relevant(*one) for one in zip(x, subs)]
    return [tasks.parse_relevant(text) for text in author.write("relevant", asked, YES_TOKENS)]


def give_feedback(
    author: TaskModel,
    x: Sequence[str],
    k: Sequence[Sequence[Passage]],
    y: Sequence[str],
    scores: Sequence[Mapping[str, float]],
) -> list[str]:
    """Feedback in words on each answer, from its scores."""
    asked = [tasks.build_feedback(*one) for one in zip(x, k, y, scores)]
    return author.write("feedback", asked, FEEDBACK_TOKENS)


def refine(
    author: TaskModel, x: Sequence[str], k: Sequence[Sequence[Passage]], y: Sequence[str], feedback: Sequence[str]
) -> list[str]:
    """Each answer written anew by its feedback."""
    asked = [tasks.build_refine(*one) for one in zip(x, k, y, feedback)]
    return author.write("refine", asked, author.settings.max_answer_tokens)
