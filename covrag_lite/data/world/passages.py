"""The passages of the fictional world: an entry for each entity, and a crowd around some of them.

A crowd makes a well-worded question fail: its passages rank before the entity's own entry. There
are four kinds of trap:

namesake       others have the same name; the question uses a synonym of the entry's epithet
synonym        the question uses a synonym of the name, and others have a similar name
stale          older accounts give earlier values
contradiction  almanacs give other values

Two passages of every crowd contain a hint that finds the entry: its own word, name, year or record.
A careful reader can see from the question and the passages that none of them answers it, and how
to ask instead. Coins decide which word the corpus uses and which the question, so the wording
itself reveals nothing.
"""

from dataclasses import dataclass, replace
from random import Random

from covrag_lite.config import World
from covrag_lite.data.world.entities import (
    KINDS,
    SLOT,
    TRAPS,
    WORDS,
    Entity,
    fill,
    mistake,
    namesake,
    rng_for,
    twin,
)

FEWEST_WORDS = 44  # a shorter entry gets one more colourful sentence
GOLDEN = 0.6180339887498949  # the golden ratio spreads a share evenly over any sequence
WORK_NAMED = 0.75  # share of makers whose entry names the work, so that one search answers two hops
CROWD = 6  # five passages are shown, so a crowd of six fills them
POINTERS = 2  # passages of a crowd with a hint, so that at least one is shown


@dataclass(frozen=True)
class Trap:
    """A trap around one entity."""

    kind: str
    slots: dict[str, str]  # the hint to the entity's own entry, by the slots of the sentences


def count_before(world: World, trap: str, district: int) -> int:
    """Count the entities with such a trap in all earlier districts."""
    return int(district * TRAPS[trap]["density"] * world.shares[TRAPS[trap]["share"]] + 1e-9)


def assign(world: World, district: int, main: list[Entity]) -> dict[tuple[str, int], Trap]:
    """Choose the entities of a district that have a trap, by kind and index: at most one each."""
    rng = rng_for(world.seed, district, "traps")
    traps: dict[tuple[str, int], Trap] = {}
    for trap, spec in TRAPS.items():
        free = [
            thing
            for thing in main
            if KINDS[thing.kind].get(spec["needs"]) and thing.key not in traps
        ]
        size = count_before(world, trap, district + 1) - count_before(world, trap, district)
        for thing in rng.sample(free, size):
            # In its own entry, not in its crowd.
            sought = thing.slots["epithet" if trap == "namesake" else "name"]
            if trap == "stale":
                began = max(int(thing.slots.get(slot, 0)) for slot in ("year", "since", "founded"))
                sought = str(max(began + 3 * CROWD + 3, 1900 + rng.randrange(60)))
            elif trap == "contradiction":
                sought = rng.choice(WORDS["records"])
            slots = {"sought": sought, "when": sought, "source": f"the {sought}"}
            traps[thing.key] = Trap(trap, slots)
    return traps


def entry(thing: Entity, trap: Trap | None, rng: Random) -> tuple[str, str]:
    """Return title and text of an entity's own passage."""
    if trap is None:
        return thing.slots["title"], write_entry(thing, rng)
    spec = TRAPS[trap.kind]
    slots = thing.slots | trap.slots
    more = fill(rng.choice(spec["gold"]), slots) if "gold" in spec else ""
    title = spec.get("title", "{title}").format_map(slots)
    return title, write_entry(thing, rng, more, insist=trap.kind == "synonym")


def crowd(
    seed: int, thing: Entity, trap: Trap, rng: Random
) -> list[tuple[str, str, Entity | None]]:
    """Return title and text of the crowd, with the entity as described, if it can be asked for."""
    spec = TRAPS[trap.kind]
    pointing = rng.sample(range(CROWD), POINTERS)
    passages: list[tuple[str, str, Entity | None]] = []
    for number in range(CROWD):
        closing = rng.choice(spec["point" if number in pointing else "plain"] or [""])
        closing = fill(closing, thing.slots | trap.slots) if closing else ""
        if "frame" in spec:
            account = _account(seed, thing, trap, number, rng)
            text = f"{fill(rng.choice(spec['frame']), account.slots)} {closing}"
            passages.append((spec["title"].format_map(account.slots), text, account))
        else:
            is_namesake = trap.kind == "namesake"
            other = (namesake if is_namesake else twin)(seed, thing, number)
            text = write_entry(other, rng, closing, insist=is_namesake)
            passages.append((other.slots["title"], text, None))
    return passages


def _account(seed: int, thing: Entity, trap: Trap, number: int, rng: Random) -> Entity:
    """Return the entity as an older account or an almanac describes it, with other facts."""
    facts = KINDS[thing.kind][TRAPS[trap.kind]["needs"]]
    every_fact = KINDS[thing.kind]["fact"]
    account = mistake(seed, thing, facts, number, rng)
    patterns = []
    for fact in facts:
        patterns.append(_fresh(every_fact[fact]["say"], every_fact.keys() - {fact}, rng))
    shuffled = rng.sample(patterns, len(patterns))
    slots = account.slots | {"claim": _write(account, shuffled, rng, insist=True)}
    if trap.kind == "stale":
        slots["when"] = str(int(trap.slots["when"]) - 3 * (CROWD - number) + rng.randrange(2))
    else:
        slots["source"] = WORDS["almanacs"][(thing.index + number) % len(WORDS["almanacs"])]
    return replace(account, slots=slots)


def write_entry(thing: Entity, rng: Random, more: str = "", insist: bool = False) -> str:
    """Write an encyclopaedia entry: an opening, the other facts, `more`, and colourful sentences.

    With `insist`, every other sentence names the subject.
    """
    spec = KINDS[thing.kind]
    patterns = [rng.choice(spec["lead"])]
    stated = spec["fact"].keys() & SLOT.findall(patterns[0])
    for fact in rng.sample(list(spec["fact"]), len(spec["fact"])):
        if fact not in stated:
            patterns.append(_fresh(spec["fact"][fact]["say"], stated, rng))
            stated |= spec["fact"].keys() & SLOT.findall(patterns[-1])
    if "work" in thing.slots and thing.index * GOLDEN % 1 < WORK_NAMED:
        patterns.append(rng.choice(spec["known"]))
    text = _write(thing, patterns, rng, insist)
    text += f" {more}" if more else ""
    colours = rng.sample(spec["colour"], len(spec["colour"]))
    while len(text.split()) < FEWEST_WORDS and colours:
        text += " " + _write(thing, [colours.pop()], rng)
    return text


def _fresh(patterns: list[str], stated: set[str], rng: Random) -> str:
    """Choose a sentence that repeats no stated fact, if there is one."""
    fresh = [pattern for pattern in patterns if stated.isdisjoint(SLOT.findall(pattern))]
    return rng.choice(fresh or patterns)


def _write(thing: Entity, patterns: list[str], rng: Random, insist: bool = False) -> str:
    """Fill the sentences one after another, with changing names for the subject."""
    names = ["{name}", "It"] if insist else KINDS[thing.kind]["it"]
    first = rng.randrange(len(names))
    pronoun = thing.slots.get("It", "It")
    sentences = []
    for number, pattern in enumerate(patterns):
        name = names[(first + number) % len(names)]
        it = pronoun if name == "It" else name.format_map(thing.slots)
        sentences.append(fill(pattern, thing.slots | {"It": it}))
    return " ".join(sentences)
