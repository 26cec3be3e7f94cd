"""Why well-put questions fail: crowds of passages that rank before an entity's own, in four kinds.

namesake       others have the same name; the question tells them apart, in another word than the entry's
synonym        the question has the name in other words, and others have nearly that name
stale          older accounts give former values
contradiction  almanacs have it otherwise

Two passages of every crowd point at what finds the entry itself: the entry's own word, name, year or record. A careful
reader can see from question and passages that none of them will do, and how to ask instead. Which word the corpus has
and which the question is decided by coins, so the wording by itself tells nothing.
"""

from dataclasses import dataclass
from random import Random

from covrag_lite import config
from covrag_lite.data.world.entities import KINDS, VOCABULARY, WORDS, Entity, fill, name_slots, namesake, rng_for, twin
from covrag_lite.data.world.verbalize import claim, describe, mistake

# Kind of trap -> the parameter with its share of questions, what a kind of entity needs for it, and how many entities
# of a district have one for a share of 1: the first two kinds concern all that can be asked of an entity.
TRAPS = {
    "namesake": ("namesakes", "epithet", 22),
    "synonym": ("synonyms", "alias", 22),
    "stale": ("stale", "stale", 30),
    "contradiction": ("contradicting", "disputed", 30),
}
CROWD = 6  # five passages are shown, so six of a crowd fill them
POINTERS = 2  # of these, so that one is shown


@dataclass(frozen=True)
class Trap:
    """A trap around one entity."""

    kind: str
    sought: str  # what finds the entity's own entry: its epithet, its name, a year or a record

    @property
    def slots(self) -> dict[str, str]:
        """What the sentences of its kind call that."""
        return {"sought": self.sought, "when": self.sought, "source": f"the {self.sought}"}


@dataclass(frozen=True)
class Neighbour:
    """A passage of a crowd: its title, its text, and the entity as it has it, where its facts can be asked for."""

    title: str
    text: str
    thing: Entity | None = None


def count_before(world: config.World, trap: str, district: int) -> int:
    """How many entities of the districts before this one have such a trap."""
    knob, _, density = TRAPS[trap]
    return int(district * density * getattr(world, knob) + 1e-9)


def passages_before(world: config.World, district: int) -> int:
    """How many passages all crowds of the districts before this one have."""
    return CROWD * sum(count_before(world, trap, district) for trap in TRAPS)


def assign(world: config.World, district: int, main: list[Entity]) -> dict[tuple[str, int], Trap]:
    """Which entities of a district have a trap, by kind and index: one at most."""
    rng = rng_for(world.seed, district, "traps")
    made = {}
    for trap, (_, needs, _) in TRAPS.items():
        free = [thing for thing in main if KINDS[thing.kind].get(needs) and (thing.kind, thing.index) not in made]
        size = count_before(world, trap, district + 1) - count_before(world, trap, district)
        for thing in rng.sample(free, size):
            made[thing.kind, thing.index] = Trap(trap, _sought(thing, trap, rng))
    return made


def _sought(thing: Entity, trap: str, rng: Random) -> str:
    """What the entity's own entry has and its crowd has not."""
    if trap == "stale":
        began = max(int(thing.slots.get(slot, 0)) for slot in ("year", "since", "founded"))
        return str(max(began + 3 * CROWD + 3, 1900 + rng.randrange(60)))
    if trap == "contradiction":
        return rng.choice(WORDS["records"])
    return thing.slots["epithet" if trap == "namesake" else "name"]


def entry(thing: Entity, trap: Trap | None, rng: Random) -> tuple[str, str]:
    """Title and text of an entity's own passage."""
    if trap is None:
        return thing.slots["title"], describe(thing, rng)
    spec = VOCABULARY[trap.kind]
    slots = thing.slots | trap.slots
    more = fill(rng.choice(spec["gold"]), slots) if "gold" in spec else ""
    return spec.get("title", "{title}").format_map(slots), describe(thing, rng, more, insist=trap.kind == "synonym")


def crowd(world: config.World, thing: Entity, trap: Trap, rng: Random) -> list[Neighbour]:
    """The passages around an entity's own."""
    spec = VOCABULARY[trap.kind]
    pointing = rng.sample(range(CROWD), POINTERS)
    made = []
    for number in range(CROWD):
        points = number in pointing
        closing = rng.choice((spec["point"] if points else spec["plain"]) or [""])
        closing = fill(closing, thing.slots | trap.slots) if closing else ""
        if trap.kind == "namesake":
            other = namesake(world.seed, thing.kind, thing.index, number)
            made.append(Neighbour(other.slots["title"], describe(other, rng, closing, insist=True)))
        elif trap.kind == "synonym":
            other = twin(world.seed, thing.kind, thing.index, number)
            made.append(Neighbour(other.slots["title"], describe(other, rng, closing)))
        else:
            made.append(_account(world, thing, trap, number, closing, rng))
    return made


def _account(world: config.World, thing: Entity, trap: Trap, number: int, closing: str, rng: Random) -> Neighbour:
    """An older account, or an almanac's: all its facts are other ones."""
    spec = VOCABULARY[trap.kind]
    facts = KINDS[thing.kind][TRAPS[trap.kind][1]]
    told = mistake(world.seed, thing, facts, number, rng)
    slots = told.slots | {"claim": claim(told, facts, rng)}
    if trap.kind == "stale":
        slots["when"] = str(int(trap.sought) - 3 * (CROWD - number) + rng.randrange(2))
    else:
        slots["source"] = WORDS["almanacs"][(thing.index + number) % len(WORDS["almanacs"])]
    text = f"{fill(rng.choice(spec['frame']), slots)} {closing}"
    return Neighbour(spec["title"].format_map(slots), text, Entity(thing.kind, thing.index, slots, {}))


def other_name(world: config.World, thing: Entity) -> str:
    """The name in other words than the corpus's own."""
    return name_slots(world.seed, thing.kind, thing.index, alias=True)["name"]
