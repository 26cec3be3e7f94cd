"""The passages of the embedded world: an encyclopaedia entry for each entity, and a crowd around some of them.

A crowd is why a well-put question fails: passages that rank before the entity's own, in four kinds of trap.

namesake       others have the same name; the question tells them apart, in another word than the entry's
synonym        the question has the name in other words, and others have nearly that name
stale          older accounts give former values
contradiction  almanacs have it otherwise

Two passages of every crowd point at what finds the entry itself: the entry's own word, name, year or record. A careful
reader can see from question and passages that none of them will do, and how to ask instead. Which word the corpus has
and which the question is decided by coins, so the wording by itself tells nothing.
"""

from dataclasses import dataclass, replace
from random import Random

from covrag_lite.config import World
from covrag_lite.data.world.entities import KINDS, SLOT, TRAPS, WORDS, Entity, fill, mistake, namesake, rng_for, twin

FEWEST_WORDS = 44  # an entry shorter than this gets one more colourful sentence
GOLDEN = 0.6180339887498949  # steps of this size spread a share evenly over any number
KNOWN = 0.75  # how often a maker's entry names the work, so that a two-hop question finds it at once
CROWD = 6  # five passages are shown, so six of a crowd fill them
POINTERS = 2  # of these, so that one is shown


@dataclass(frozen=True)
class Trap:
    """A trap around one entity."""

    kind: str
    slots: dict[str, str]  # what finds the entity's own entry, under the names that sentences have for it


def count_before(world: World, trap: str, district: int) -> int:
    """How many entities of the districts before this one have such a trap."""
    return int(district * TRAPS[trap]["density"] * world.shares[TRAPS[trap]["share"]] + 1e-9)


def assign(world: World, district: int, main: list[Entity]) -> dict[tuple[str, int], Trap]:
    """Which entities of a district have a trap, by kind and index: one at most."""
    rng = rng_for(world.seed, district, "traps")
    made = {}
    for trap, spec in TRAPS.items():
        free = [thing for thing in main if KINDS[thing.kind].get(spec["needs"]) and thing.key not in made]
        size = count_before(world, trap, district + 1) - count_before(world, trap, district)
        for thing in rng.sample(free, size):
            sought = thing.slots["epithet" if trap == "namesake" else "name"]  # its own entry has it, its crowd not
            if trap == "stale":
                began = max(int(thing.slots.get(slot, 0)) for slot in ("year", "since", "founded"))
                sought = str(max(began + 3 * CROWD + 3, 1900 + rng.randrange(60)))
            elif trap == "contradiction":
                sought = rng.choice(WORDS["records"])
            made[thing.key] = Trap(trap, {"sought": sought, "when": sought, "source": f"the {sought}"})
    return made


def entry(thing: Entity, trap: Trap | None, rng: Random) -> tuple[str, str]:
    """Title and text of an entity's own passage."""
    if trap is None:
        return thing.slots["title"], describe(thing, rng)
    spec = TRAPS[trap.kind]
    slots = thing.slots | trap.slots
    more = fill(rng.choice(spec["gold"]), slots) if "gold" in spec else ""
    return spec.get("title", "{title}").format_map(slots), describe(thing, rng, more, insist=trap.kind == "synonym")


def crowd(seed: int, thing: Entity, trap: Trap, rng: Random) -> list[tuple[str, str, Entity | None]]:
    """Title and text of the passages around an entity's own, and the entity as they have it if it can be asked for."""
    spec = TRAPS[trap.kind]
    pointing = rng.sample(range(CROWD), POINTERS)
    made = []
    for number in range(CROWD):
        closing = rng.choice(spec["point" if number in pointing else "plain"] or [""])
        closing = fill(closing, thing.slots | trap.slots) if closing else ""
        if "frame" in spec:
            told = _account(seed, thing, trap, number, rng)
            text = f"{fill(rng.choice(spec['frame']), told.slots)} {closing}"
            made.append((spec["title"].format_map(told.slots), text, told))
        else:
            other = (namesake if trap.kind == "namesake" else twin)(seed, thing, number)
            made.append((other.slots["title"], describe(other, rng, closing, insist=trap.kind == "namesake"), None))
    return made


def _account(seed: int, thing: Entity, trap: Trap, number: int, rng: Random) -> Entity:
    """The entity in an older account, or an almanac's: a sentence for each of its facts, all of them other ones."""
    facts, known = KINDS[thing.kind][TRAPS[trap.kind]["needs"]], KINDS[thing.kind]["fact"]
    told = mistake(seed, thing, facts, number, rng)
    patterns = [_fresh(known[fact]["say"], known.keys() - {fact}, rng) for fact in facts]
    slots = told.slots | {"claim": _tell(told, rng.sample(patterns, len(patterns)), rng, insist=True)}
    if trap.kind == "stale":
        slots["when"] = str(int(trap.slots["when"]) - 3 * (CROWD - number) + rng.randrange(2))
    else:
        slots["source"] = WORDS["almanacs"][(thing.index + number) % len(WORDS["almanacs"])]
    return replace(told, slots=slots)


def describe(thing: Entity, rng: Random, more: str = "", insist: bool = False) -> str:
    """An encyclopaedia entry: an opening, every fact that it leaves out, `more`, and colour until it is long enough.

    An entry that insists on its subject names it in every other sentence.
    """
    spec = KINDS[thing.kind]
    patterns = [rng.choice(spec["lead"])]
    said = spec["fact"].keys() & SLOT.findall(patterns[0])
    for fact in rng.sample(list(spec["fact"]), len(spec["fact"])):
        if fact not in said:
            patterns.append(_fresh(spec["fact"][fact]["say"], said, rng))
            said |= spec["fact"].keys() & SLOT.findall(patterns[-1])
    if "work" in thing.slots and thing.index * GOLDEN % 1 < KNOWN:
        patterns.append(rng.choice(spec["known"]))
    text = _tell(thing, patterns, rng, insist)
    text += f" {more}" if more else ""
    colours = rng.sample(spec["colour"], len(spec["colour"]))
    while len(text.split()) < FEWEST_WORDS and colours:
        text += " " + _tell(thing, [colours.pop()], rng)
    return text


def _fresh(patterns: list[str], said: set[str], rng: Random) -> str:
    """A sentence that repeats nothing, where there is one."""
    return rng.choice([pattern for pattern in patterns if said.isdisjoint(SLOT.findall(pattern))] or patterns)


def _tell(thing: Entity, patterns: list[str], rng: Random, insist: bool = False) -> str:
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
