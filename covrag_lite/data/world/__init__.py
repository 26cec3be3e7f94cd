"""The embedded data: a fictional world made from a seed, with questions about it in four sets.

The sets mirror the paper's four in form, not in content: search queries (like Natural Questions), entity questions
(like WebQuestions), complex questions (like Mintaka) and quiz questions (like TriviaQA).
"""

from covrag_lite.config import Config
from covrag_lite.data.world import generation
from covrag_lite.records import Passage, Question


def sets(config: Config, split: str) -> tuple[str, ...]:
    """The names of the four sets, in the order of those of the paper that they mirror."""
    return generation.DATASETS


def questions(config: Config, split: str, dataset: str) -> list[Question]:
    """The questions of one set. No two splits ask about the same entity."""
    if dataset not in generation.DATASETS:
        raise ValueError(f"no dataset {dataset!r} in the world: choose some of {', '.join(generation.DATASETS)}")
    return generation.questions(config.world, split, dataset)


def passages(config: Config) -> list[Passage]:
    """The whole corpus."""
    return list(generation.passages(config.world))


def describe(config: Config, split: str, dataset: str) -> dict[str, object]:
    """Where a set comes from."""
    return {"source": f"generated from seed {config.world.seed}", "licence": "that of this code"}
