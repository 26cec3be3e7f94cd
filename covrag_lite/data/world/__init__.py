"""The embedded data: a fictional world made from a seed, with questions about it in four sets.

The sets mirror the paper's four in form, not in content: search queries (like Natural Questions), entity questions
(like WebQuestions), complex questions (like Mintaka) and quiz questions (like TriviaQA).
"""

from dataclasses import replace

from covrag_lite.config import Config
from covrag_lite.data.world import generation
from covrag_lite.records import Passage, Question

# Our name of each set -> the word that its ids and its random numbers are made from. Recorded runs know these words.
SETS = {"search": "nq", "entity": "webq", "complex": "mintaka", "quiz": "triviaqa"}


def sets(config: Config, split: str) -> tuple[str, ...]:
    """The names of the four sets, in the paper's order."""
    return tuple(SETS)


def questions(config: Config, split: str, dataset: str) -> list[Question]:
    """The questions of one set. No two splits ask about the same entity."""
    if dataset not in SETS:
        raise ValueError(f"no dataset {dataset!r} in the world: choose some of {', '.join(SETS)}")
    made = generation.questions(config.world, split, SETS[dataset])
    return [replace(question, dataset=dataset) for question in made]


def passages(config: Config) -> list[Passage]:
    """The whole corpus."""
    return list(generation.passages(config.world))


def describe(config: Config, split: str, dataset: str) -> dict[str, object]:
    """Where a set comes from."""
    return {"source": f"generated from seed {config.world.seed}", "licence": "that of this code"}
