"""How the embedded world is told: encyclopaedia entries, and what unreliable passages claim."""

import random
from functools import cache
from string import Formatter

from covrag_lite.data.world.entities import AFAR, KINDS, Entity, fill, values_of

FEWEST_WORDS = 44  # an entry shorter than this gets one more colourful sentence
GOLDEN = 0.6180339887498949  # steps of this size spread a share evenly over any number
KNOWN = 0.75  # how often a maker's entry names the work, so that a two-hop question finds it at once


@cache
def _slots_in(pattern: str) -> frozenset[str]:
    return frozenset(name for _, name, _, _ in Formatter().parse(pattern) if name)


def describe(thing: Entity, rng: random.Random, more: str = "", insist: bool = False) -> str:
    """An encyclopaedia entry: an opening, every fact that it leaves out, `more`, and colour until it is long enough.

    An entry that insists on its subject names it in every other sentence.
    """
    spec = KINDS[thing.kind]
    patterns = [rng.choice(spec["lead"])]
    said = _slots_in(patterns[0]) & spec["fact"].keys()
    for fact in rng.sample(list(spec["fact"]), len(spec["fact"])):
        if fact not in said:
            patterns.append(_fresh(spec["fact"][fact]["say"], said, rng))
            said |= _slots_in(patterns[-1]) & spec["fact"].keys()
    if "work" in thing.slots and thing.index * GOLDEN % 1 < KNOWN:
        patterns.append(rng.choice(spec["known"]))
    text = tell(thing, patterns, rng, insist)
    text += f" {more}" if more else ""
    colours = rng.sample(spec["colour"], len(spec["colour"]))
    while len(text.split()) < FEWEST_WORDS and colours:
        text += " " + tell(thing, [colours.pop()], rng)
    return text


def _fresh(patterns: list[str], said: frozenset[str], rng: random.Random) -> str:
    """A sentence that repeats nothing, where there is one."""
    return rng.choice([pattern for pattern in patterns if not _slots_in(pattern) & said] or patterns)


def tell(thing: Entity, patterns: list[str], rng: random.Random, insist: bool = False) -> str:
    """Fill sentence after sentence, naming the subject in changing ways."""
    names = ["{name}", "It"] if insist else KINDS[thing.kind]["it"]
    first = rng.randrange(len(names))
    own = thing.slots.get("It", "It")
    sentences = []
    for i, pattern in enumerate(patterns):
        it = names[(first + i) % len(names)]
        it = own if it == "It" else it.format_map(thing.slots)
        sentences.append(fill(pattern, thing.slots | {"It": it}))
    return " ".join(sentences)


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


def claim(thing: Entity, facts: list[str], rng: random.Random) -> str:
    """A sentence for each of some facts."""
    known = KINDS[thing.kind]["fact"]
    patterns = [_fresh(known[fact]["say"], frozenset(known.keys() - {fact}), rng) for fact in facts]
    return tell(thing, rng.sample(patterns, len(patterns)), rng, insist=True)
