"""The things of the embedded world: people, towns, rivers, books … each computed from the seed, its kind and its number.

A district holds a fixed number of each kind and its entities mention only one another, so world.py can stream
the corpus and world_questions.py can word questions without the whole world in memory. Words come from world.toml.
"""

import math
import random
import re
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

VOCABULARY = tomllib.loads(Path(__file__).with_name("world.toml").read_text(encoding="utf-8"))
KINDS = VOCABULARY["kind"]
WORDS = VOCABULARY["words"]
# Women first, so that the place in the list tells the pronoun; the twins stand in the same order.
WORDS["first"] = WORDS["women"] + WORDS["men"]
WORDS["first_twin"] = WORDS["women_twin"] + WORDS["men_twin"]

BEFORE_VOWEL = re.compile(r"\b([Aa]) (?=[aeiouAEIOU])")
ARTICLE = re.compile(r"^(a|an|the) ")
KIND_IN_NAME = re.compile(r" \((\w+)\)$")  # a twin of another kind, as in "The Copper Lanterns (inn)"


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


@lru_cache(maxsize=None)
def _shuffle_of(seed: int, kind: str, size: int) -> tuple[int, int]:
    """Step and start of i -> (step * i + start) mod size, which visits every number below size once."""
    rng = rng_for(seed, kind, "names")
    step = rng.randrange(1, size)
    while math.gcd(step, size) != 1:
        step = rng.randrange(1, size)
    return step, rng.randrange(size)


@lru_cache(maxsize=4096)
def name_slots(seed: int, kind: str, index: int, twin: int | None = None) -> dict[str, str]:
    """The name of an entity and its parts, by reading its shuffled index as digits over the word lists."""
    named = KINDS[kind].get("names", kind)
    spec = KINDS[named]
    lists = [WORDS[words] for words in spec["parts"].values()]
    size = math.prod(map(len, lists))
    round_, index = divmod(index, size)
    step, start = _shuffle_of(seed, named, size)
    digits = (step * index + start) % size
    slots = {"more": _lengthening(spec["more"], round_)}
    for part, words in zip(spec["parts"], lists):
        digits, digit = divmod(digits, len(words))
        slots[part] = words[digit]
        if f"{part}_twin" in WORDS:  # word lists of equal length, so that twins' names are as distinct as the originals'
            slots[f"{part}_twin"] = WORDS[f"{part}_twin"][digit]
        if part == "first":
            slots |= _pronouns(digit < len(WORDS["women"]))
    pattern = spec["name"] if twin is None else spec["twins"][twin]
    slots["name"] = KIND_IN_NAME.sub("", pattern.format_map(slots))
    slots["title"] = KINDS[kind].get("title", pattern).format_map(slots).removeprefix("the ")
    if "last" in slots:
        slots["last"] = slots["name"].split()[-1]
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


def _pronouns(woman: bool) -> dict[str, str]:
    he, his, him = ("she", "her", "her") if woman else ("he", "his", "him")
    return {"It": he.capitalize(), "it": he, "its": his, "Its": his.capitalize(), "them": him}


class _Draw(dict):
    """Gives a random word for the name of a word list."""

    def __init__(self, rng: random.Random):
        self.rng = rng

    def __missing__(self, list_name: str) -> str:
        return self.rng.choice(WORDS[list_name])


def values_of(seed: int, kind: str, district: int, k: int, rng: random.Random) -> tuple[dict, dict]:
    """The facts of the k-th entity of its kind in a district, and the entities they name."""
    spec = KINDS[kind]
    refs = {slot: (other, _neighbour(other, district, rng)) for slot, other in spec.get("refs", {}).items()}
    slots = {slot: pattern.format_map(_Draw(rng)) for slot, pattern in spec.get("draw", {}).items()}
    slots |= {slot: f"{rng.randint(*span):,}" for slot, span in spec.get("numbers", {}).items()}
    slots |= {slot: str(rng.randint(*span)) for slot, span in spec.get("years", {}).items()}
    if kind == "person":
        slots["died"] = str(int(slots["born"]) + rng.randint(60, 88))
        slots["profession"] = rng.choice(WORDS[spec["roles"][k]])
        refs["work"] = (spec["works"][k], district * 2 + k % 2)
    if "made_by" in spec:
        maker = entity(seed, "person", district * KINDS["person"]["count"] + spec["made_by"]["first"] + k)
        refs[spec["made_by"]["slot"]] = ("person", maker.index)
        slots["year"] = str(int(maker.slots["born"]) + rng.randint(24, 58))
    if kind in ("region", "lands"):
        refs |= _superlatives(seed, kind, district)
    for slot, value in list(slots.items()):
        slots[f"{slot}_short"] = ARTICLE.sub("", value)
    for slot, (other, index) in refs.items():
        named = name_slots(seed, other, index)
        slots[slot], slots[f"{slot}_short"] = named["name"], named["short"]
    return slots, refs


def _neighbour(kind: str, district: int, rng: random.Random) -> int:
    count = KINDS[kind]["count"]
    return district * count + rng.randrange(count)


def _superlatives(seed: int, kind: str, district: int) -> dict[str, tuple[str, int]]:
    """The oldest and largest of a district's towns, or the longest of its rivers."""
    wanted = {"largest": ("town", "population", 1), "oldest": ("town", "founded", -1)}
    if kind == "lands":
        wanted = {"longest": ("river", "length", 1)}
    return {
        slot: (other, max(range(district * 3, district * 3 + 3),
                          key=lambda i: sign * number(entity(seed, other, i), fact)))
        for slot, (other, fact, sign) in wanted.items()
    }


def number(thing: Entity, fact: str) -> int:
    """A fact of an entity as a number."""
    return int(thing.slots[fact].replace(",", ""))


@lru_cache(maxsize=4096)
def entity(seed: int, kind: str, index: int, twin: int | None = None) -> Entity:
    """An entity of the world, or with `twin` something else of nearly the same name in a district farther on."""
    slots = name_slots(seed, kind, index, twin)
    district, k = divmod(index, KINDS[kind]["count"])
    if other := KIND_IN_NAME.search(slots["title"]):
        kind = other[1]
    if twin is not None:
        district += 3 + twin
    values, refs = values_of(seed, kind, district, k, rng_for(seed, kind, index, twin))
    if twin is not None:
        values.pop("work", None)  # what the work's own passage says stays true
    return Entity(kind, index, slots | values, refs)
