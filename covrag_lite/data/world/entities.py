"""The entities of the fictional world: people, towns, rivers, books and so on.

Each is computed from the seed, its kind and its number. A district has a fixed number of each kind,
and its entities mention only each other, so the whole world need not be in memory. All words come
from world.toml.
"""

import math
import random
import re
import tomllib
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path

import numpy as np

VOCABULARY = tomllib.loads(Path(__file__).with_name("world.toml").read_text(encoding="utf-8"))
KINDS = VOCABULARY["kind"]
WORDS = VOCABULARY["words"]
TRAPS = VOCABULARY["trap"]

BEFORE_VOWEL = re.compile(r"\b([Aa]) (?=[aeiouAEIOU])")
ARTICLE = re.compile(r"^(the|The|a|an) ")
SLOT = re.compile(r"\{(\w+)\}")
AFAR = 3  # districts between an entity and others with the same or a similar name


@dataclass(frozen=True)
class Entity:
    """One entity, with every value that a sentence may mention."""

    kind: str
    index: int
    slots: dict[str, str]
    refs: dict[str, tuple[str, int]]  # slot -> kind and index of the entity in it

    @property
    def key(self) -> tuple[str, int]:
        return self.kind, self.index


def rng_for(*key: object) -> random.Random:
    """Return a generator that gives the same numbers for the same key on every machine."""
    return random.Random(":".join(map(str, key)))


def fill(pattern: str, slots: dict[str, str]) -> str:
    """Fill a pattern, write "an" before a vowel, and begin with a capital letter."""
    text = BEFORE_VOWEL.sub(r"\1n ", pattern.format_map(slots))
    return text[0].upper() + text[1:]


@cache
def _shuffle_of(seed: int, kind: str, size: int) -> tuple[int, int]:
    """Return step and start of i -> (step * i + start) mod size, a permutation of range(size)."""
    rng = rng_for(seed, kind, "names")
    step = rng.randrange(1, size)
    while math.gcd(step, size) != 1:
        step = rng.randrange(1, size)
    return step, rng.randrange(size)


def _digits(number: int, lists: list[list[str]]) -> tuple[int, ...]:
    """Convert a number to one position in each list of words; no two numbers give the same."""
    return np.unravel_index(number, [len(words) for words in lists], order="F")


@lru_cache(maxsize=4096)
def name_slots(seed: int, kind: str, index: int, alias: bool = False) -> dict[str, str]:
    """Return the name of an entity and its parts, from the digits of its shuffled index.

    If a part has a synonym, a coin decides which of the two words the corpus uses; `alias` gives
    the other one. When all names are used, further words make them longer.
    """
    named = KINDS[kind].get("names", kind)
    spec = KINDS[named]
    lists = [WORDS[name] for name in spec["parts"].values()]
    further = [WORDS[name] for name in spec["more"]["lists"]]
    size = math.prod(map(len, lists))
    swapped = (rng_for(seed, named, index, "alias").random() < 0.5) != alias
    round_, index = divmod(index, size)
    step, start = _shuffle_of(seed, named, size)
    slots = {"more": ""}
    if round_:
        longer = [words[digit] for words, digit in zip(further, _digits(round_ - 1, further))]
        slots["more"] = spec["more"]["form"].format(" ".join(longer))
    digits = _digits((step * index + start) % size, lists)
    for (part, name), digit in zip(spec["parts"].items(), digits):
        has_other_word = part == spec.get("alias") and swapped
        slots[part] = WORDS[f"{name}_alias" if has_other_word else name][digit]
        if part == "first":
            slots |= VOCABULARY["pronouns"]["women" if 2 * digit < len(WORDS[name]) else "men"]
    slots["name"] = spec["name"].format_map(slots)
    slots["title"] = KINDS[kind].get("title", spec["name"]).format_map(slots).removeprefix("the ")
    slots["short"] = spec.get("short", spec["name"]).format_map(slots)
    return slots


def indices(kind: str, district: int) -> range:
    """Return the indices of a district's entities of one kind."""
    count = KINDS[kind]["count"]
    return range(district * count, (district + 1) * count)


def values_of(seed: int, kind: str, district: int, k: int, rng: random.Random) -> tuple[dict, dict]:
    """Return the facts of the k-th entity of its kind in a district, and the entities in them."""
    spec = KINDS[kind]
    epithet = {}
    if "roles" in spec:
        pair = rng.choice(epithets(spec["roles"][k : k + 1]))
        epithet = with_epithet(kind, pair, rng)
    refs = {
        slot: (other, rng.choice(indices(other, district)))
        for slot, other in spec.get("refs", {}).items()
    }
    slots = {}
    for slot, pattern in spec.get("draw", {}).items():
        slots[slot] = SLOT.sub(lambda name: rng.choice(WORDS[name[1]]), pattern)
    slots |= {slot: f"{rng.randint(*span):,}" for slot, span in spec.get("numbers", {}).items()}
    slots |= {slot: str(rng.randint(*span)) for slot, span in spec.get("years", {}).items()}
    for slot, (first, *span) in spec.get("later", {}).items():
        slots[slot] = str(int(slots[first]) + rng.randint(*span))
    if "works" in spec:
        refs["work"] = (spec["works"][k], indices(spec["works"][k], district)[k % 2])
    if "made_by" in spec:
        maker = entity(seed, "person", indices("person", district)[spec["made_by"]["first"] + k])
        refs[spec["made_by"]["slot"]] = maker.key
        slots["year"] = str(int(maker.slots["born"]) + rng.randint(24, 58))
    for slot, (other, fact, sign) in spec.get("most", {}).items():
        rivals = [entity(seed, other, index) for index in indices(other, district)]
        refs[slot] = max(rivals, key=lambda rival: sign * number(rival, fact)).key
    slots |= epithet
    slots |= {f"{slot}_short": ARTICLE.sub("", value) for slot, value in slots.items()}
    for slot, (other, index) in refs.items():
        named = name_slots(seed, other, index)
        slots |= {slot: named["name"], f"{slot}_short": named["short"]}
    return slots, refs


def epithets(roles: list[str]) -> list[tuple[str, str]]:
    """Return the epithets in these lists, each with its synonym; they distinguish namesakes."""
    pairs: list[tuple[str, str]] = []
    for name in dict.fromkeys(roles):
        pairs += zip(WORDS[name], WORDS[f"{name}_alias"])
    return pairs


def with_epithet(kind: str, pair: tuple[str, str], rng: random.Random) -> dict[str, str]:
    """Return the slots of an epithet; a coin decides which of its two words the corpus uses."""
    shown, other = pair if rng.random() < 0.5 else pair[::-1]
    return {KINDS[kind]["epithet"]: shown, "epithet": shown, "epithet_alias": other}


def number(thing: Entity, fact: str) -> int:
    """Return a fact of an entity as a number."""
    return int(thing.slots[fact].replace(",", ""))


@lru_cache(maxsize=4096)
def entity(seed: int, kind: str, index: int) -> Entity:
    """Return an entity of the world."""
    values, refs = values_of(
        seed, kind, *divmod(index, KINDS[kind]["count"]), rng_for(seed, kind, index)
    )
    return Entity(kind, index, name_slots(seed, kind, index) | values, refs)


def _elsewhere(seed: int, thing: Entity, number: int, rng: random.Random) -> dict[str, str]:
    """Return the facts of an entity of the same kind in a later district."""
    district, k = divmod(thing.index, KINDS[thing.kind]["count"])
    return values_of(seed, thing.kind, district + AFAR + number, k, rng)[0]


def twin(seed: int, thing: Entity, number: int) -> Entity:
    """Return another entity whose name is similar to the synonym of this one's name."""
    slots = dict(name_slots(seed, *thing.key, alias=True))
    slots["name"] = KINDS[thing.kind]["twins"][number].format_map(slots)
    slots["title"] = slots["name"].removeprefix("the ")
    if "last" in slots:
        slots["last"] = slots["name"].split()[-1]
    slots |= _elsewhere(seed, thing, number, rng_for(seed, *thing.key, "twin", number))
    slots.pop("work", None)  # the work's own passage stays true
    return replace(thing, slots=slots)


def namesake(seed: int, thing: Entity, number: int) -> Entity:
    """Return another entity with the same name and its own epithet."""
    of_thing = {thing.slots["epithet"], thing.slots["epithet_alias"]}
    others = [pair for pair in epithets(KINDS[thing.kind]["roles"]) if of_thing.isdisjoint(pair)]
    pair = rng_for(seed, *thing.key, "namesakes").sample(others, number + 1)[number]
    key = (seed, *thing.key, "namesake", number)
    slots = name_slots(seed, *thing.key) | _elsewhere(seed, thing, number, rng_for(*key))
    slots |= with_epithet(thing.kind, pair, rng_for(*key))
    slots.pop("work", None)
    return replace(thing, slots=slots | {"title": TRAPS["namesake"]["title"].format_map(slots)})


def mistake(seed: int, thing: Entity, facts: list[str], number: int, rng: random.Random) -> Entity:
    """Return the entity as described by an unreliable passage: with other values of some facts."""
    slots = dict(thing.slots)
    while any(slots[fact] == thing.slots[fact] for fact in facts):
        values = _elsewhere(seed, thing, number, rng)
        for fact in facts:
            if slots[fact] == thing.slots[fact]:
                slots |= {fact: values[fact], f"{fact}_short": values[f"{fact}_short"]}
    return replace(thing, slots=slots)
