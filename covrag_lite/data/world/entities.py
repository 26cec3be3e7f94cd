"""The people, towns, rivers, books … of the embedded world, each computed from the seed, its kind and its number.

A district holds a fixed number of each kind and its entities mention only one another, so passages and questions are
made without the whole world in memory. Words come from world.toml.
"""

import math
import random
import re
import tomllib
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

VOCABULARY = tomllib.loads(Path(__file__).with_name("world.toml").read_text(encoding="utf-8"))
KINDS = VOCABULARY["kind"]
WORDS = VOCABULARY["words"]
# Women first, so that the place in the list tells the pronoun; the aliases stand in the same order.
WORDS["first"] = WORDS["women"] + WORDS["men"]
WORDS["first_alias"] = WORDS["women_alias"] + WORDS["men_alias"]

BEFORE_VOWEL = re.compile(r"\b([Aa]) (?=[aeiouAEIOU])")
ARTICLE = re.compile(r"^(a|an|the) ")
LIST = re.compile(r"\{(\w+)\}")  # stands for a word of a list
AFAR = 3  # districts between an entity and those of its name or nearly its name


@dataclass(frozen=True)
class Entity:
    """One thing of the world with every value a sentence may mention."""

    kind: str
    index: int
    slots: dict[str, str]
    refs: dict[str, tuple[str, int]]  # slot -> kind and index of the entity it names


def rng_for(*key: object) -> random.Random:
    """The same random numbers for the same key, on every machine."""
    return random.Random(":".join(map(str, key)))


def fill(pattern: str, slots: dict[str, str]) -> str:
    """Fill a pattern, put "an" where it belongs and begin with a capital letter."""
    text = BEFORE_VOWEL.sub(r"\1n ", pattern.format_map(slots))
    return text[0].upper() + text[1:]


@cache
def _shuffle_of(seed: int, kind: str, size: int) -> tuple[int, int]:
    """Step and start of i -> (step * i + start) mod size, which visits every number below size once."""
    rng = rng_for(seed, kind, "names")
    step = rng.randrange(1, size)
    while math.gcd(step, size) != 1:
        step = rng.randrange(1, size)
    return step, rng.randrange(size)


@lru_cache(maxsize=4096)
def name_slots(seed: int, kind: str, index: int, alias: bool = False) -> dict[str, str]:
    """The name of an entity and its parts, by reading its shuffled index as digits over the word lists.

    Of a part that has a synonym a coin decides which of the two the corpus has; `alias` gives the other name.
    """
    named = KINDS[kind].get("names", kind)
    spec = KINDS[named]
    lists = [WORDS[words] for words in spec["parts"].values()]
    size = math.prod(map(len, lists))
    swapped = (rng_for(seed, named, index, "alias").random() < 0.5) != alias
    round_, index = divmod(index, size)
    step, start = _shuffle_of(seed, named, size)
    digits = (step * index + start) % size
    slots = {"more": _lengthening(spec["more"], round_)}
    for part, words in zip(spec["parts"], lists):
        digits, digit = divmod(digits, len(words))
        slots[part] = words[digit]
        if part == spec.get("alias") and swapped:
            slots[part] = WORDS[f"{spec['parts'][part]}_alias"][digit]
        if part == "first":
            he, his, him = ("she", "her", "her") if digit < len(WORDS["women"]) else ("he", "his", "him")
            slots |= {"It": he.capitalize(), "it": he, "its": his, "Its": his.capitalize(), "them": him}
    slots["name"] = spec["name"].format_map(slots)
    slots["title"] = KINDS[kind].get("title", spec["name"]).format_map(slots).removeprefix("the ")
    slots["short"] = spec.get("short", spec["name"]).format_map(slots)
    return slots


def _lengthening(more: dict, round_: int) -> str:
    """What tells the second and later users of a short name from the first."""
    if round_ == 0:
        return ""
    words, rest = [], round_ - 1
    for list_name in more["lists"]:
        rest, digit = divmod(rest, len(WORDS[list_name]))
        words.append(WORDS[list_name][digit])
    assert rest == 0, "the word lists hold a million passages' names"
    return more["form"].format(" ".join(words))


def values_of(seed: int, kind: str, district: int, k: int, rng: random.Random) -> tuple[dict, dict]:
    """The facts of the k-th entity of its kind in a district, and the entities they name."""
    spec = KINDS[kind]
    words = epithets(kind, k)
    own = with_epithet(kind, rng.choice(words), rng) if words else {}
    refs = {}
    for slot, other in spec.get("refs", {}).items():
        refs[slot] = (other, district * KINDS[other]["count"] + rng.randrange(KINDS[other]["count"]))
    slots = {}
    for slot, pattern in spec.get("draw", {}).items():
        slots[slot] = LIST.sub(lambda name: rng.choice(WORDS[name[1]]), pattern)
    slots |= {slot: f"{rng.randint(*span):,}" for slot, span in spec.get("numbers", {}).items()}
    slots |= {slot: str(rng.randint(*span)) for slot, span in spec.get("years", {}).items()}
    if kind == "person":
        slots["died"] = str(int(slots["born"]) + rng.randint(60, 88))
        refs["work"] = (spec["works"][k], district * KINDS[spec["works"][k]]["count"] + k % 2)
    if "made_by" in spec:
        maker = entity(seed, "person", district * KINDS["person"]["count"] + spec["made_by"]["first"] + k)
        refs[spec["made_by"]["slot"]] = ("person", maker.index)
        slots["year"] = str(int(maker.slots["born"]) + rng.randint(24, 58))
    if kind in ("region", "lands"):
        refs |= _superlatives(seed, kind, district)
    slots |= own
    for slot, value in list(slots.items()):
        slots[f"{slot}_short"] = ARTICLE.sub("", value)
    for slot, (other, index) in refs.items():
        named = name_slots(seed, other, index)
        slots[slot] = named["name"]
        slots[f"{slot}_short"] = named["short"]
    return slots, refs


def epithets(kind: str, k: int | None = None) -> list[tuple[str, str]]:
    """What may tell an entity from its namesakes, in two words each: all there is, or what suits the k-th of a kind."""
    slot = KINDS[kind].get("epithet")
    if slot is None:
        return []
    roles = KINDS[kind].get("roles", [slot])
    lists = [roles[k]] if k is not None and "roles" in KINDS[kind] else list(dict.fromkeys(roles))
    return [pair for name in lists for pair in zip(WORDS[name], WORDS[f"{name}_alias"])]


def with_epithet(kind: str, pair: tuple[str, str], rng: random.Random) -> dict[str, str]:
    """The slots of an epithet: a coin decides which of its two words the corpus has."""
    shown, other = pair if rng.random() < 0.5 else pair[::-1]
    return {KINDS[kind]["epithet"]: shown, "epithet": shown, "epithet_alias": other}


def _superlatives(seed: int, kind: str, district: int) -> dict[str, tuple[str, int]]:
    """The oldest and largest of a district's towns, or the longest of its rivers."""
    wanted = {"largest": ("town", "population", max), "oldest": ("town", "founded", min)}
    if kind == "lands":
        wanted = {"longest": ("river", "length", max)}
    found = {}
    for slot, (other, fact, best) in wanted.items():
        count = KINDS[other]["count"]
        rivals = [entity(seed, other, i) for i in range(district * count, district * count + count)]
        found[slot] = (other, best(rivals, key=lambda rival: number(rival, fact)).index)
    return found


def number(thing: Entity, fact: str) -> int:
    """A fact of an entity as a number."""
    return int(thing.slots[fact].replace(",", ""))


@lru_cache(maxsize=4096)
def entity(seed: int, kind: str, index: int) -> Entity:
    """An entity of the world."""
    district, k = divmod(index, KINDS[kind]["count"])
    values, refs = values_of(seed, kind, district, k, rng_for(seed, kind, index))
    return Entity(kind, index, name_slots(seed, kind, index) | values, refs)


def twin(seed: int, kind: str, index: int, number: int) -> Entity:
    """Something else, of nearly the name that an entity has in other words than the corpus's own."""
    slots = dict(name_slots(seed, kind, index, alias=True))
    slots["name"] = KINDS[kind]["twins"][number].format_map(slots)
    slots["title"] = slots["name"].removeprefix("the ")
    if "last" in slots:
        slots["last"] = slots["name"].split()[-1]
    return _elsewhere(seed, kind, index, slots, ("twin", number))


def namesake(seed: int, kind: str, index: int, number: int) -> Entity:
    """Another entity of the same name, with an epithet of its own."""
    thing = entity(seed, kind, index)
    own = {thing.slots["epithet"], thing.slots["epithet_alias"]}
    others = [pair for pair in epithets(kind) if own.isdisjoint(pair)]
    pair = rng_for(seed, kind, index, "namesakes").sample(others, number + 1)[number]
    made = _elsewhere(seed, kind, index, name_slots(seed, kind, index), ("namesake", number))
    slots = made.slots | with_epithet(kind, pair, rng_for(seed, kind, index, "namesake", number))
    return Entity(kind, index, slots | {"title": VOCABULARY["namesake"]["title"].format_map(slots)}, {})


def _elsewhere(seed: int, kind: str, index: int, names: dict[str, str], key: tuple[str, int]) -> Entity:
    """An entity of this name with the facts of one in a district farther on."""
    district, k = divmod(index, KINDS[kind]["count"])
    values, _ = values_of(seed, kind, district + AFAR + key[1], k, rng_for(seed, kind, index, *key))
    values.pop("work", None)  # what the work's own passage says stays true
    return Entity(kind, index, names | values, {})


def mistake(seed: int, thing: Entity, facts: list[str], number: int, rng: random.Random) -> Entity:
    """An entity as an unreliable passage has it: with other values of some facts."""
    district, k = divmod(thing.index, KINDS[thing.kind]["count"])
    slots = dict(thing.slots)
    while any(slots[fact] == thing.slots[fact] for fact in facts):
        values, _ = values_of(seed, thing.kind, district + AFAR + number, k, rng)
        for fact in facts:
            if slots[fact] == thing.slots[fact]:
                slots |= {fact: values[fact], f"{fact}_short": values[f"{fact}_short"]}
    return Entity(thing.kind, thing.index, slots, {})
