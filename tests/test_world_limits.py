"""The limits of the fictional world: which worlds are possible, how many questions and names."""

import math

import pytest

from covrag_lite.config import Config
from covrag_lite.data import world
from covrag_lite.data.world import entities, in_turn
from covrag_lite.data.world.entities import KINDS, WORDS


@pytest.mark.parametrize(
    "parameters",
    [
        {"n_passages": 1000},
        {"n_passages": 10**6},
        {"n_world": (0, 0, 0)},
        {"traps": ("misspelt 0",)},
        {"traps": ("stale 0.25",)},
        {"traps": ("stale 0.2", "contradicting 0.2", "synonyms 0.1", "namesakes 0.1")},
        {
            "traps": (
                *("stale 0.2", "contradicting 0.2", "synonyms 0.1", "namesakes 0.1"),
                *("misspelt 0.2", "cut_off 0.1", "vague 0.1"),
            )
        },
    ],
)
def test_a_world_at_a_limit_is_possible(parameters):
    world._check(Config().change(**parameters).world)


@pytest.mark.parametrize(
    "parameters",
    [
        {"n_passages": 10**6 + 1},
        {"n_world": (1, 1, -1)},
        {"n_world": (1, 1, 1, 1)},
        {"traps": ("stale 0.26",)},
        {"traps": ("stale 0.2", "contradicting 0.2", "synonyms 0.11", "namesakes 0.1")},
    ],
)
def test_a_world_beyond_a_limit_is_refused(parameters):
    with pytest.raises(ValueError, match="n_passages|n_world|traps"):
        world._check(Config().change(**parameters).world)


@pytest.mark.parametrize(
    ("split", "sizes"),
    [("test", [11] * 4), ("train", [2, 3, 2, 3]), ("validation", [0, 1, 0, 1])],
)
def test_the_sets_share_the_training_and_validation_questions_alone(split, sizes):
    config = Config().change(n_world=(11, 10, 2))
    assert [world._count(config.world, split, name) for name in world.DATASETS] == sizes


@pytest.mark.parametrize("kind", KINDS)
def test_names_get_longer_and_stay_distinct_when_all_are_used(kind):
    spec = KINDS[KINDS[kind].get("names", kind)]
    n_names = math.prod(len(WORDS[name]) for name in spec["parts"].values())
    first = entities.name_slots(1, kind, 5)
    further = [entities.name_slots(1, kind, n_names * times + 5) for times in (1, 2)]
    assert first["more"] == ""
    assert all(slots["more"] for slots in further)
    assert len({slots["name"] for slots in (first, *further)}) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_longer_name_has_the_first_of_the_further_words(kind):
    spec = KINDS[KINDS[kind].get("names", kind)]
    n_names = math.prod(len(WORDS[name]) for name in spec["parts"].values())
    words = " ".join(WORDS[name][0] for name in spec["more"]["lists"])
    assert entities.name_slots(1, kind, n_names - 1)["more"] == ""
    assert entities.name_slots(1, kind, n_names)["more"] == spec["more"]["form"].format(words)


def test_a_pattern_is_filled_with_the_right_article_and_a_capital():
    assert entities.fill("a {x} and a {y}", {"x": "oak", "y": "tree"}) == "An oak and a tree"


def test_questions_are_taken_from_the_pools_in_turn():
    pools = [["a1", "a2", "a3"], ["b1"], ["c1", "c2"]]
    assert in_turn(pools) == ["a1", "b1", "c1", "a2", "c2", "a3"]
