"""The embedded data: a fictional world made from a seed, so nothing is downloaded and no pretrained knowledge leaks.

Its four sets mirror the paper's in form, not in content: search queries (like Natural Questions), entity questions
(like WebQuestions), complex questions (like Mintaka) and quiz questions (like TriviaQA). entities.py has what there is,
passages.py how it is described and what makes well-put questions fail, questions.py what is asked and how it is typed,
and world.toml all words and sentences.
"""

from bisect import bisect_right
from collections import Counter
from functools import lru_cache
from itertools import chain, count, islice

from covrag_lite.config import Config, World
from covrag_lite.data.world.entities import KINDS, TRAPS, entity, indices, rng_for
from covrag_lite.data.world.passages import CROWD, assign, count_before, crowd, entry
from covrag_lite.data.world.questions import Ask, Crowds, Main, choose_defects, in_turn, list_asks, word
from covrag_lite.records import Passage, Question

DATASETS = ("search", "entity", "complex", "quiz")
# Ten districts in a row: whole districts go to a split, so no two splits ask about the same entity.
SPLIT_OF = ("test", "train", "train", "test", "validation", "train", "test", "train", "train", "train")
PLACES = sum(spec["count"] for spec in KINDS.values())  # entities of a district
DEFECTS = ("misspelt", "cut_off", "vague")
# Larger shares of trapped questions would need more entities of some kinds than a district has.
MOST_OF_ONE, MOST_OF_ALL = 0.25, 0.6


def sets(config: Config, split: str) -> tuple[str, ...]:
    """The names of the four sets, in the order of those of the paper that they mirror."""
    return DATASETS


def passages(config: Config) -> list[Passage]:
    """The whole corpus, district by district."""
    world = config.world
    _check(world)
    every = chain.from_iterable(_district(world, district)[0] for district in count())
    return list(islice(every, world.n_passages))


def questions(config: Config, split: str, dataset: str) -> list[Question]:
    """The questions of one set: asks drawn evenly from the split's districts, then worded, some of them badly."""
    world = config.world
    _check(world)
    if dataset not in DATASETS:
        raise ValueError(f"no dataset {dataset!r} in the world: choose some of {', '.join(DATASETS)}")
    total, place = world.n_world[("test", "train", "validation").index(split)], DATASETS.index(dataset)
    size = total if split == "test" else total * (place + 1) // 4 - total * place // 4  # beside testing four share one
    asks = _choose(world, split, dataset, size)
    rng = rng_for(world.seed, split, dataset)
    rng.shuffle(asks)
    return [
        word(ask, f"world{world.seed}-{dataset}-{split}-{i:04d}", dataset, defect)
        for i, (ask, defect) in enumerate(zip(asks, choose_defects(world, asks, rng)))
    ]


def _check(world: World) -> None:
    """Raise an error where no such world can be made."""
    shares, n = world.shares, world.n_world
    trapped = [shares[spec["share"]] for spec in TRAPS.values()]
    fits = max(trapped) <= MOST_OF_ONE and round(sum(trapped), 9) <= MOST_OF_ALL
    for holds, told in (
        (len(n) == 3 and min(n) >= 0, f"n_world is {n}, but must be three numbers of 0 or more, one a split"),
        (1000 <= world.n_passages <= 10**6, f"n_passages must lie between 1,000 and 1,000,000: {world.n_passages:,}"),
        (min(shares.values()) >= 0, f"traps are shares, from 0 on, and not {shares}"),
        (fits, f"each trap may have at most {MOST_OF_ONE}, all but {DEFECTS} together {MOST_OF_ALL}: lower one"),
        (round(sum(shares.values()), 9) <= 1, f"{shares} make more than 1, but a question has one defect"),
    ):
        if not holds:
            raise ValueError(told)


@lru_cache(maxsize=64)  # the default world fits, a large one streams through
def _district(world: World, district: int) -> tuple[list[Passage], Main, Crowds]:
    """A district's passages in a shuffled order, and what can be asked for: main entries, and accounts in crowds."""
    rng = rng_for(world.seed, district, "district")
    things = [entity(world.seed, kind, index) for kind in KINDS for index in indices(kind, district)]
    trapped = assign(world, district, things)
    texts = []  # title and text, the entity, the trap there, and whether the passage is part of it
    for thing in things:
        trap = trapped.get(thing.key)
        texts.append((*entry(thing, trap, rng), thing, trap, False))
        if trap:
            texts += [(*one, trap, True) for one in crowd(world.seed, thing, trap, rng)]
    rng.shuffle(texts)
    passages, main, crowds = [], {}, {}
    for i, (title, text, thing, trap, in_crowd) in enumerate(texts):
        passages.append(Passage(f"world{world.seed}-{district:05d}-{i:02d}", title, text))
        known = (thing, passages[-1].id, trap)
        if thing and in_crowd:
            crowds.setdefault(thing.key, []).append(known)
        elif thing:
            main[thing.key] = known
    return passages, main, crowds


def _choose(world: World, split: str, dataset: str, size: int) -> list[Ask]:
    """So many asks of a split, in turn from its districts, or some of very many; each trap has its share, if it can."""

    def passages_before(district: int) -> int:
        return district * PLACES + CROWD * sum(count_before(world, trap, district) for trap in TRAPS)

    districts = range(world.n_passages // PLACES + 1)
    n_whole = bisect_right(districts, world.n_passages, key=passages_before) - 1  # that lie in the corpus as a whole
    homes = [d for d in range(n_whole) if SPLIT_OF[d % len(SPLIT_OF)] == split]
    if len(homes) > size:
        homes = rng_for(world.seed, split, dataset, "homes").sample(homes, size)
    pools = []
    for home in homes:
        _, *there = _district(world, home)
        pools.append(list_asks(world, *there, dataset, rng_for(world.seed, home, "asks")))
    chosen = []
    for trap, spec in TRAPS.items():
        trapped = in_turn([[ask for ask in pool if ask.failure == trap] for pool in pools])
        chosen += trapped[: round(size * world.shares[spec["share"]])]
    plain = in_turn([[ask for ask in pool if ask.failure not in TRAPS] for pool in pools])
    possible = len(chosen) + len(plain)
    if possible < size:
        told = f"{world.n_passages} passages give {possible}: raise n_passages or ask for fewer"
        raise ValueError(f"{size} {dataset} questions asked for the {split} split, but {told}")
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
