"""The embedded data: a fictional world made from a seed, so nothing is downloaded and no pretrained knowledge leaks.

It stands in for the paper's corpus and its four question sets. Notebooks and tests call `passages` and `questions`;
what there is and how it is described stands in entities.py, how it is asked in questions.py, and all
words and sentences in world.toml.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, islice
from random import Random

from covrag_lite import config
from covrag_lite.data.world import questions as world_questions
from covrag_lite.data.world.entities import KINDS, VOCABULARY, WORDS, Entity, claim, describe, entity, fill, rng_for
from covrag_lite.data.world.questions import Ask
from covrag_lite.records import Passage, Question

DATASETS = ("nq", "webq", "mintaka", "triviaqa")
SPLITS = ("test", "validation", "train")

# Ten districts in a row: whole districts go to a split, so no two splits ask about the same entity.
SPLIT_OF = ("test", "train", "train", "test", "validation", "train", "test", "train", "train", "train")
DISTRICT = [(kind, k) for kind, spec in KINDS.items() for k in range(spec["count"])]
MOST_EXTRAS = 0.7  # with a larger share of distractors and the like, too little is left to ask about
CROWD = 6  # nearly equal names come in crowds: one alone would not push an entity out of the first five passages
SHARES = ("misspelt", "cut_off", "vague", "distractors", "stale", "contradicting", "unanswerable")


@dataclass(frozen=True)
class Entry:
    """A passage and, where it is an entity's main entry, that entity."""

    passage: Passage
    entity: Entity | None


def passages(world: config.World) -> Iterator[Passage]:
    """Stream the corpus, district by district."""
    _check(world)
    every = (entry.passage for district in count() for entry in _district(world, district))
    return islice(every, world.n_passages)


def questions(world: config.World, split: str, dataset: str | None = None) -> list[Question]:
    """The questions of a split, of one of the four sets or of all."""
    _check(world)
    if split not in SPLITS:
        raise ValueError(f"no split {split!r} in the world: choose one of {', '.join(SPLITS)}")
    if dataset not in (None, *DATASETS):
        raise ValueError(f"no dataset {dataset!r} in the world: choose one of {', '.join(DATASETS)}, or None for all")
    wanted = DATASETS if dataset is None else (dataset,)
    return [question for name in wanted for question in _question_set(world, split, name)]


def _question_set(world: config.World, split: str, dataset: str) -> list[Question]:
    """One set: asks drawn evenly from the split's districts, then worded, some of them badly."""
    size = _set_size(world, split, dataset)
    n_unknown = round(size * world.unanswerable)
    asks = _choose(world, split, dataset, size - n_unknown)
    asks += _choose(world, split, dataset, n_unknown, unknown=True)
    rng = rng_for(world.seed, split, dataset)
    rng.shuffle(asks)
    defects = world_questions.defects(world, len(asks), rng.random())
    return [
        world_questions.word(ask, f"world{world.seed}-{dataset}-{split}-{i:04d}", dataset, defect)
        for i, (ask, defect) in enumerate(zip(asks, defects))
    ]


def _set_size(world: config.World, split: str, dataset: str) -> int:
    """How many questions a set has: in testing each has its own number, elsewhere the four share one."""
    if split == "test":
        return world.n_test
    total = world.n_train if split == "train" else world.n_validation
    place = DATASETS.index(dataset)
    return total * (place + 1) // 4 - total * place // 4


def _choose(world: config.World, split: str, dataset: str, size: int, unknown: bool = False) -> list[Ask]:
    """So many asks of a split, taken in turn from its districts; of a large world only some districts are visited."""
    homes = [d for d in range(_full_districts(world)) if SPLIT_OF[d % len(SPLIT_OF)] == split]
    if len(homes) > size:
        homes = rng_for(world.seed, split, dataset, "homes").sample(homes, size)
    pools = [_asks(world, home, dataset, unknown) for home in homes]
    possible = sum(map(len, pools))
    if possible < size:
        raise ValueError(
            f"{size} {dataset} questions asked for the {split} split, but {world.n_passages} passages give {possible}: "
            f"raise n_passages or ask for fewer"
        )
    depth = max(map(len, pools), default=0)
    in_turn = (pool[i] for i in range(depth) for pool in pools if i < len(pool))
    return list(islice(in_turn, size))


def _asks(world: config.World, district: int, dataset: str, unknown: bool) -> list[Ask]:
    """What one district can be asked in one of the sets."""
    main = {}
    for entry in _district(world, district):
        if entry.entity:
            main[entry.entity.kind, entry.entity.index] = (entry.entity, entry.passage.id)
    rng = rng_for(world.seed, district, "asks")
    if unknown:
        asks = world_questions.unknowns(main)
        rng.shuffle(asks)
        return asks[DATASETS.index(dataset) :: len(DATASETS)]
    if dataset == "mintaka":
        return world_questions.composed(main, rng)
    asks = world_questions.single(main)
    rng.shuffle(asks)
    return asks[("nq", "webq", "triviaqa").index(dataset) :: 3]


def _check(world: config.World) -> None:
    for name in SHARES:
        if not 0 <= getattr(world, name) <= 1:
            raise ValueError(f"{name} is a share and must lie between 0 and 1, not {getattr(world, name)}")
    for name in ("n_test", "n_train", "n_validation"):
        if getattr(world, name) < 0:
            raise ValueError(f"{name} must be 0 or more, not {getattr(world, name)}")
    if not 1000 <= world.n_passages <= 1_000_000:
        raise ValueError(f"n_passages must lie between 1,000 and 1,000,000, not {world.n_passages:,}")
    extras = world.distractors + world.stale + world.contradicting
    if round(extras, 9) > MOST_EXTRAS:
        raise ValueError(f"distractors, stale and contradicting make {extras:.2f}, over {MOST_EXTRAS}: lower one")
    broken = world.misspelt + world.cut_off + world.vague
    if round(broken, 9) > 1:
        raise ValueError(f"misspelt, cut_off and vague make {broken:.2f}, over 1: a question has at most one defect")


def _before(world: config.World, district: int) -> tuple[int, int, int]:
    """How many distractors, stale and contradicting passages the districts before this one hold."""
    shares = (world.distractors, world.stale, world.contradicting)
    main = district * len(DISTRICT)
    return tuple(int(main * share / (1 - sum(shares)) + 1e-9) for share in shares)


def _full_districts(world: config.World) -> int:
    """How many districts lie in the corpus as a whole."""
    extras = world.distractors + world.stale + world.contradicting
    guess = int(world.n_passages * (1 - extras) / len(DISTRICT)) + 1
    while guess * len(DISTRICT) + sum(_before(world, guess)) > world.n_passages:
        guess -= 1
    return guess


@lru_cache(maxsize=64)  # the default world fits, a large one streams through
def _district(world: config.World, district: int) -> list[Entry]:
    """All passages of a district in a shuffled order: its main entries and what makes them hard to find or to trust."""
    rng = rng_for(world.seed, district, "district")
    main = [entity(world.seed, kind, district * KINDS[kind]["count"] + k) for kind, k in DISTRICT]
    # title, text and, of a main entry, the entity
    texts = [(thing.slots["title"], describe(thing, rng), thing) for thing in main]
    n_twins, n_stale, n_disputed = (
        after - before for before, after in zip(_before(world, district), _before(world, district + 1))
    )
    for thing, turn in _in_turn(main, "twins", n_twins, rng, CROWD):
        twin = entity(world.seed, thing.kind, thing.index, (thing.index + turn) % len(KINDS[thing.kind]["twins"]))
        texts.append((twin.slots["title"], describe(twin, rng, mistaken_for=thing), None))
    for thing, turn in _in_turn(main, "stale", n_stale, rng):
        texts.append((*_outdated(world, thing, turn, rng), None))
    for thing, turn in _in_turn(main, "disputed", n_disputed, rng):
        texts.append((*_contradiction(world, thing, turn, rng), None))
    rng.shuffle(texts)
    return [
        Entry(Passage(f"world{world.seed}-{district:05d}-{i:02d}", title, text), thing)
        for i, (title, text, thing) in enumerate(texts)
    ]


def _in_turn(main: list[Entity], needs: str, size: int, rng: Random, crowd: int = 1) -> list[tuple[Entity, int]]:
    """Entities in a random order, `crowd` times each, with the number of times it has come up before."""
    able = [thing for thing in main if KINDS[thing.kind].get(needs)]
    rng.shuffle(able)
    turns = ((thing, turn) for first in count(0, crowd) for thing in able for turn in range(first, first + crowd))
    return list(islice(turns, size))


def _outdated(world: config.World, thing: Entity, turn: int, rng: Random) -> tuple[str, str]:
    """Title and text of a passage with a former value, dated after the thing came to be."""
    began = max(int(thing.slots.get(slot, 0)) for slot in ("year", "since", "founded"))
    when = max(began + 2, 1880 + 7 * thing.index % 60) + 5 * turn + rng.randrange(5)
    slots = thing.slots | {"when": str(when), "claim": claim(world.seed, thing, KINDS[thing.kind]["stale"], rng)}
    return VOCABULARY["stale"]["title"].format_map(slots), fill(rng.choice(VOCABULARY["stale"]["frame"]), slots)


def _contradiction(world: config.World, thing: Entity, turn: int, rng: Random) -> tuple[str, str]:
    """Title and text of a passage in which some almanac has it otherwise."""
    almanac = WORDS["almanacs"][(thing.index + turn) % len(WORDS["almanacs"])]
    slots = thing.slots | {"almanac": almanac, "claim": claim(world.seed, thing, KINDS[thing.kind]["disputed"], rng)}
    return VOCABULARY["disputed"]["title"].format_map(slots), fill(rng.choice(VOCABULARY["disputed"]["frame"]), slots)
