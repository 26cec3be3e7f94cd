"""The people, towns, rivers, books … of the embedded world, each computed from the seed, its kind and its number.

A district holds a fixed number of each kind and its entities mention only one another, so generation.py can stream
the corpus and questions.py can word questions without the whole world in memory. Words come from world.toml.
"""

import math
import random
import re
import tomllib
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from string import Formatter

VOCABULARY = tomllib.loads(Path(__file__).with_name("world.toml").read_text(encoding="utf-8"))
KINDS = VOCABULARY["kind"]
WORDS = VOCABULARY["words"]
# Women first, so that the place in the list tells the pronoun; the twins stand in the same order.
WORDS["first"] = WORDS["women"] + WORDS["men"]
WORDS["first_twin"] = WORDS["women_twin"] + WORDS["men_twin"]

BEFORE_VOWEL = re.compile(r"\b([Aa]) (?=[aeiouAEIOU])")
ARTICLE = re.compile(r"^(a|an|the) ")
FEWEST_WORDS = 44  # an entry shorter than this gets one more colourful sentence
CONFUSED = 0.6  # how often the entry of a twin names what it is mistaken for
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


@cache
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
        if f"{part}_twin" in WORDS:  # a list of equal length, so twins' names are as distinct
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
    words = []
    rest = round_ - 1
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
        refs["work"] = (spec["works"][k], district * KINDS[spec["works"][k]]["count"] + k % 2)
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
        slots[slot] = named["name"]
        slots[f"{slot}_short"] = named["short"]
    return slots, refs


def _neighbour(kind: str, district: int, rng: random.Random) -> int:
    count = KINDS[kind]["count"]
    return district * count + rng.randrange(count)


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
def entity(seed: int, kind: str, index: int, twin: int | None = None) -> Entity:
    """An entity of the world, or with `twin` something else of nearly the same name in a district farther on."""
    slots = name_slots(seed, kind, index, twin)
    district, k = divmod(index, KINDS[kind]["count"])
    other = KIND_IN_NAME.search(slots["title"])
    if other:
        kind = other[1]
    if twin is not None:
        district += 3 + twin
    values, refs = values_of(seed, kind, district, k, rng_for(seed, kind, index, twin))
    if twin is not None:
        values.pop("work", None)  # what the work's own passage says stays true
    return Entity(kind, index, slots | values, refs)


@cache
def _slots_in(pattern: str) -> frozenset[str]:
    return frozenset(name for _, name, _, _ in Formatter().parse(pattern) if name)


def describe(thing: Entity, rng: random.Random, mistaken_for: Entity | None = None) -> str:
    """An encyclopaedia entry: an opening, every fact the opening leaves out, and colour until it is long enough."""
    spec = KINDS[thing.kind]
    patterns = [rng.choice(spec["lead"])]
    said = _slots_in(patterns[0]) & spec["fact"].keys()
    for fact in rng.sample(list(spec["fact"]), len(spec["fact"])):
        if fact not in said:
            patterns.append(_fresh(spec["fact"][fact]["say"], said, rng))
            said |= _slots_in(patterns[-1]) & spec["fact"].keys()
    # a twin has no work of its own
    colours = [pattern for pattern in spec["colour"] if "work" in thing.slots or "{work}" not in pattern]
    rng.shuffle(colours)
    if mistaken_for and rng.random() < CONFUSED:
        colours.append(rng.choice(VOCABULARY["twin"]["say"]).format(other=mistaken_for.slots["name"]))
    text = _text(thing, patterns, rng)
    while len(text.split()) < FEWEST_WORDS and colours:
        text += " " + _text(thing, [colours.pop()], rng)
    return text


def _fresh(patterns: list[str], said: frozenset[str], rng: random.Random) -> str:
    """A sentence that repeats nothing, where there is one."""
    return rng.choice([pattern for pattern in patterns if not _slots_in(pattern) & said] or patterns)


def _text(thing: Entity, patterns: list[str], rng: random.Random) -> str:
    """Fill sentence after sentence, naming the subject in changing ways."""
    names = KINDS[thing.kind]["it"]
    first = rng.randrange(len(names))
    own = thing.slots.get("It", "It")
    sentences = []
    for i, pattern in enumerate(patterns):
        it = names[(first + i) % len(names)]
        it = own if it == "It" else it.format_map(thing.slots)
        sentences.append(fill(pattern, thing.slots | {"It": it}))
    return " ".join(sentences)


def _other_value(seed: int, thing: Entity, fact: str, rng: random.Random) -> dict[str, str]:
    """The slots of an entity with one fact changed."""
    district, k = divmod(thing.index, KINDS[thing.kind]["count"])
    while True:
        value = values_of(seed, thing.kind, district, k, rng)[0][fact]
        if value != thing.slots[fact]:
            return thing.slots | {fact: value}


def claim(seed: int, thing: Entity, fact: str, rng: random.Random) -> str:
    """What an unreliable passage says of a fact: a sentence with another value."""
    changed = Entity(thing.kind, thing.index, _other_value(seed, thing, fact, rng), thing.refs)
    facts = KINDS[thing.kind]["fact"]
    return _text(changed, [_fresh(facts[fact]["say"], frozenset(facts.keys() - {fact}), rng)], rng)
