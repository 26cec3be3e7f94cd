"""The fictional world: data generated from a seed, without downloads or pretrained knowledge.

Its four sets have the form, not the content, of the paper's: search queries (Natural Questions),
entity questions (WebQuestions), complex questions (Mintaka) and quiz questions (TriviaQA).
entities.py builds the entities, passages.py describes them and makes well-worded questions fail,
questions.py writes the questions, and world.toml contains all words and sentences.
"""

from bisect import bisect_right
from collections import Counter
from functools import lru_cache
from itertools import chain, count, islice

from covrag_lite.config import Config, World
from covrag_lite.data.world.entities import KINDS, TRAPS, entity, indices, rng_for
from covrag_lite.data.world.passages import CROWD, assign, count_before, crowd, entry
from covrag_lite.data.world.questions import (
    Ask,
    Crowds,
    Described,
    Main,
    choose_defects,
    in_turn,
    list_asks,
    word,
)
from covrag_lite.records import Passage, Question

DATASETS = ("search", "entity", "complex", "quiz")
SPLITS = ("test", "train", "validation")  # in the order of the parameter `n_world`
# The split of ten successive districts. Splits share no district, so they share no entity.
SPLIT_OF = (
    "test",
    "train",
    "train",
    "test",
    "validation",
    "train",
    "test",
    "train",
    "train",
    "train",
)
PLACES = sum(spec["count"] for spec in KINDS.values())  # entities per district
DEFECTS = ("misspelt", "cut_off", "vague")
# Larger shares of trapped questions would need more entities than a district has.
MOST_OF_ONE = 0.25
MOST_OF_ALL = 0.6


def sets(config: Config, split: str) -> tuple[str, ...]:
    """Return the names of the four sets, in the order of the paper's sets."""
    return DATASETS


def passages(config: Config) -> list[Passage]:
    """Build the whole corpus, district by district."""
    world = config.world
    _check(world)
    every = chain.from_iterable(_district(world, district)[0] for district in count())
    return list(islice(every, world.n_passages))


def questions(config: Config, split: str, dataset: str) -> list[Question]:
    """Build the questions of one set: sample them from the split's districts, then word them."""
    world = config.world
    _check(world)
    if dataset not in DATASETS:
        names = ", ".join(DATASETS)
        raise ValueError(f"dataset {dataset!r} is not part of the world; use some of {names}")
    asks = _choose(world, split, dataset, _count(world, split, dataset))
    rng = rng_for(world.seed, split, dataset)
    rng.shuffle(asks)
    defects = choose_defects(world, asks, rng)
    worded = []
    for number, (ask, defect) in enumerate(zip(asks, defects)):
        identity = f"world{world.seed}-{dataset}-{split}-{number:04d}"
        worded.append(word(ask, identity, dataset, defect))
    return worded


def _count(world: World, split: str, dataset: str) -> int:
    """Return the number of questions of a set."""
    total = world.n_world[SPLITS.index(split)]
    if split == "test":
        return total
    # For training and validation, the four sets share one total.
    place = DATASETS.index(dataset)
    return total * (place + 1) // 4 - total * place // 4


def _check(world: World) -> None:
    """Raise an error if there can be no such world."""
    n = world.n_world
    if len(n) != 3 or min(n) < 0:
        raise ValueError(
            f"n_world is {n}, but must be three numbers of 0 or more: test, train and validation"
        )
    if not 1000 <= world.n_passages <= 10**6:
        raise ValueError(
            f"n_passages is {world.n_passages:,}, but must be between 1,000 and 1,000,000"
        )
    shares = world.shares
    if min(shares.values()) < 0:
        raise ValueError(f"traps are {shares}, but shares must be 0 or more")
    trapped = [shares[spec["share"]] for spec in TRAPS.values()]
    if max(trapped) > MOST_OF_ONE or round(sum(trapped), 9) > MOST_OF_ALL:
        raise ValueError(
            f"traps are {shares}, but one may be at most {MOST_OF_ONE}, and all except {DEFECTS} "
            f"together at most {MOST_OF_ALL}; lower one"
        )
    if round(sum(shares.values()), 9) > 1:
        raise ValueError(f"traps are {shares}, but their sum may be at most 1; lower one")


@lru_cache(maxsize=64)  # enough for the default world
def _district(world: World, district: int) -> tuple[list[Passage], Main, Crowds]:
    """Build a district: its passages, shuffled, its entities, and its passages in crowds."""
    rng = rng_for(world.seed, district, "district")
    things = []
    for kind in KINDS:
        things += [entity(world.seed, kind, index) for index in indices(kind, district)]
    trapped = assign(world, district, things)
    texts = []  # title and text, the entity, its trap, and whether the passage is in the crowd
    for thing in things:
        trap = trapped.get(thing.key)
        texts.append((*entry(thing, trap, rng), thing, trap, False))
        if trap:
            for title, text, account in crowd(world.seed, thing, trap, rng):
                texts.append((title, text, account, trap, True))
    rng.shuffle(texts)
    passages: list[Passage] = []
    main: Main = {}
    crowds: Crowds = {}
    for number, (title, text, thing, trap, in_crowd) in enumerate(texts):
        identity = f"world{world.seed}-{district:05d}-{number:02d}"
        passages.append(Passage(identity, title, text))
        if thing is None:
            continue
        described = Described(thing, identity, trap)
        if in_crowd:
            crowds.setdefault(thing.key, []).append(described)
        else:
            main[thing.key] = described
    return passages, main, crowds


def _choose(world: World, split: str, dataset: str, size: int) -> list[Ask]:
    """Choose `size` questions of a split, in turn from its districts or from a sample of them.

    Each trap gets its share, as far as possible.
    """

    def passages_before(district: int) -> int:
        return district * PLACES + CROWD * sum(
            count_before(world, trap, district) for trap in TRAPS
        )

    districts = range(world.n_passages // PLACES + 1)
    # The number of districts that are completely in the corpus.
    n_whole = bisect_right(districts, world.n_passages, key=passages_before) - 1
    homes = [d for d in range(n_whole) if SPLIT_OF[d % len(SPLIT_OF)] == split]
    if len(homes) > size:
        homes = rng_for(world.seed, split, dataset, "homes").sample(homes, size)
    pools = []
    for home in homes:
        _, main, crowds = _district(world, home)
        rng = rng_for(world.seed, home, "asks")
        pools.append(list_asks(world, main, crowds, dataset, rng))
    chosen = []
    for trap, spec in TRAPS.items():
        trapped = in_turn([[ask for ask in pool if ask.failure == trap] for pool in pools])
        chosen += trapped[: round(size * world.shares[spec["share"]])]
    plain = in_turn([[ask for ask in pool if ask.failure not in TRAPS] for pool in pools])
    possible = len(chosen) + len(plain)
    if possible < size:
        requested = f"{size} {dataset} questions are requested for the {split} split"
        cure = "raise n_passages or lower n_world"
        raise ValueError(f"{requested}, but {world.n_passages} passages give {possible}; {cure}")
    return chosen + _alike(plain, chosen, size - len(chosen))


def _alike(plain: list[Ask], trapped: list[Ask], size: int) -> list[Ask]:
    """Choose plain questions, as far as possible about the same facts as the trapped ones.

    So the fact that is asked does not reveal a trap.
    """
    wanted = Counter((ask.kind, ask.label) for ask in trapped)
    left = {fact: round(size * n / len(trapped)) for fact, n in wanted.items()}
    alike = []
    others = []
    for ask in plain:
        fact = (ask.kind, ask.label)
        if left.get(fact):
            alike.append(ask)
        else:
            others.append(ask)
        left[fact] = max(0, left.get(fact, 0) - 1)
    return (alike + others)[:size]
