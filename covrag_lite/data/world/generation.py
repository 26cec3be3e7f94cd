"""The embedded data: a fictional world made from a seed, so nothing is downloaded and no pretrained knowledge leaks.

It stands in for the paper's corpus and its four question sets. Notebooks and tests call `passages` and `questions`;
what there is stands in entities.py, how it is described in telling.py, what makes well-put questions fail in traps.py,
what is asked in questions.py, how it is typed in wording.py, and all words and sentences in world.toml.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import count, islice, zip_longest

from covrag_lite import config
from covrag_lite.data.world import questions as world_questions
from covrag_lite.data.world import traps, wording
from covrag_lite.data.world.entities import KINDS, Entity, entity, rng_for
from covrag_lite.data.world.questions import Ask, Main
from covrag_lite.records import Passage, Question

DATASETS = ("search", "entity", "complex", "quiz")
SPLITS = ("test", "validation", "train")

# Ten districts in a row: whole districts go to a split, so no two splits ask about the same entity.
SPLIT_OF = ("test", "train", "train", "test", "validation", "train", "test", "train", "train", "train")
DISTRICT = [(kind, k) for kind, spec in KINDS.items() for k in range(spec["count"])]
DEFECTS = ("misspelt", "cut_off", "vague")
KNOBS = tuple(knob for knob, _, _ in traps.TRAPS.values())
# Larger shares of trapped questions would need more entities of some kinds than a district has.
MOST_OF_ONE, MOST_OF_ALL = 0.25, 0.6


@dataclass(frozen=True)
class Entry:
    """A passage, the entity it tells of, where that can be asked for, the trap there, and whether it is part of it."""

    passage: Passage
    entity: Entity | None = None
    trap: traps.Trap | None = None
    crowd: bool = False


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
    defects = wording.defects(world, asks, rng)
    return [
        wording.word(ask, f"world{world.seed}-{dataset}-{split}-{i:04d}", dataset, defect)
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
    """So many asks of a split, taken in turn from its districts; of a large world only some districts are visited.

    Each trap has its share, as far as the districts have asks for it.
    """
    homes = [d for d in range(_full_districts(world)) if SPLIT_OF[d % len(SPLIT_OF)] == split]
    if len(homes) > size:
        homes = rng_for(world.seed, split, dataset, "homes").sample(homes, size)
    pools = [_asks(world, home, dataset, unknown) for home in homes]
    chosen = []
    for trap, (knob, _, _) in traps.TRAPS.items():
        trapped = _in_turn([[ask for ask in pool if ask.failure == trap] for pool in pools])
        chosen += trapped[: 0 if unknown else round(size * getattr(world, knob))]
    plain = _in_turn([[ask for ask in pool if ask.failure not in traps.TRAPS] for pool in pools])
    possible = len(chosen) + len(plain)
    if possible < size:
        raise ValueError(
            f"{size} {dataset} questions asked for the {split} split, but {world.n_passages} passages give {possible}: "
            f"raise n_passages or ask for fewer"
        )
    return chosen + _alike(plain, chosen, size - len(chosen))


def _alike(plain: list[Ask], trapped: list[Ask], size: int) -> list[Ask]:
    """So many plain asks, as far as there are about the same facts as the trapped ones: what is asked tells nothing."""
    wanted = Counter((ask.kind, ask.label) for ask in trapped)
    left = {fact: round(size * n / len(trapped)) for fact, n in wanted.items()}
    first, rest = [], []
    for ask in plain:
        fact = (ask.kind, ask.label)
        (first if left.get(fact) else rest).append(ask)
        left[fact] = max(0, left.get(fact, 0) - 1)
    return (first + rest)[:size]


def _in_turn(pools: list[list[Ask]]) -> list[Ask]:
    """The first of each pool, then the second of each, and so on."""
    return [ask for turn in zip_longest(*pools) for ask in turn if ask]


def _asks(world: config.World, district: int, dataset: str, unknown: bool) -> list[Ask]:
    """What one district can be asked in one of the sets."""
    entries = [entry for entry in _district(world, district) if entry.entity]
    main: Main = {}
    for entry in entries:
        if not entry.crowd:
            main[entry.entity.kind, entry.entity.index] = (entry.entity, entry.passage.id, entry.trap)
    accounts = [(entry.entity, entry.passage.id, entry.trap) for entry in entries if entry.crowd]
    rng = rng_for(world.seed, district, "asks")
    if unknown:
        asks = world_questions.unknowns(main)
        rng.shuffle(asks)
        return asks[DATASETS.index(dataset) :: len(DATASETS)]
    if dataset == "complex":
        return world_questions.composed(world, main, rng)
    asks = world_questions.single(world, main, rng) + world_questions.accounts(accounts, rng)
    rng.shuffle(asks)
    return asks[("search", "entity", "quiz").index(dataset) :: 3]


def _check(world: config.World) -> None:
    for name in (*DEFECTS, *KNOBS, "unanswerable"):
        if not 0 <= getattr(world, name) <= 1:
            raise ValueError(f"{name} is a share and must lie between 0 and 1, not {getattr(world, name)}")
    for name in ("n_test", "n_train", "n_validation"):
        if getattr(world, name) < 0:
            raise ValueError(f"{name} must be 0 or more, not {getattr(world, name)}")
    if not 1000 <= world.n_passages <= 1_000_000:
        raise ValueError(f"n_passages must lie between 1,000 and 1,000,000, not {world.n_passages:,}")
    trapped = [getattr(world, name) for name in KNOBS]
    if max(trapped) > MOST_OF_ONE or round(sum(trapped), 9) > MOST_OF_ALL:
        raise ValueError(
            f"{', '.join(KNOBS)} are {', '.join(map(str, trapped))}, but each may be at most {MOST_OF_ONE} and all "
            f"together {MOST_OF_ALL}: lower one"
        )
    broken = sum(getattr(world, name) for name in DEFECTS)
    if round(broken + sum(trapped), 9) > 1:
        raise ValueError(
            f"misspelt, cut_off and vague make {broken:.2f}, over {1 - sum(trapped):.2f}: "
            f"a question has at most one defect, and one that is trapped has none"
        )


def _before(world: config.World, district: int) -> int:
    """How many passages the districts before this one hold."""
    return district * len(DISTRICT) + traps.passages_before(world, district)


def _full_districts(world: config.World) -> int:
    """How many districts lie in the corpus as a whole."""
    return bisect_right(range(world.n_passages // len(DISTRICT) + 1), world.n_passages, key=partial(_before, world)) - 1


@lru_cache(maxsize=64)  # the default world fits, a large one streams through
def _district(world: config.World, district: int) -> list[Entry]:
    """All passages of a district in a shuffled order: its main entries and the crowds around some of them."""
    rng = rng_for(world.seed, district, "district")
    main = [entity(world.seed, kind, district * KINDS[kind]["count"] + k) for kind, k in DISTRICT]
    trapped = traps.assign(world, district, main)
    texts = []  # title, text and the rest of an Entry
    for thing in main:
        trap = trapped.get((thing.kind, thing.index))
        texts.append((*traps.entry(thing, trap, rng), thing, trap))
        for one in traps.crowd(world, thing, trap, rng) if trap else []:
            texts.append((one.title, one.text, one.thing, trap, True))
    rng.shuffle(texts)
    return [
        Entry(Passage(f"world{world.seed}-{district:05d}-{i:02d}", *text[:2]), *text[2:])
        for i, text in enumerate(texts)
    ]
