"""What can be asked of a district of the embedded world; generation.py chooses among it, wording.py words it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, zip_longest
from random import Random

from covrag_lite import config
from covrag_lite.data.world.entities import KINDS, VOCABULARY, Entity, fill, number
from covrag_lite.data.world.traps import TRAPS, Trap, other_name

# Kind and index -> the entity, the id of its passage, the trap around it.
Main = dict[tuple[str, int], tuple[Entity, str, Trap | None]]

NUMERALS = {"three": 3, "five": 5, "seven": 7, "eight": 8, "nine": 9}
NUMERALS |= {"eleven": 11, "twelve": 12, "thirteen": 13, "fifteen": 15}
SPRUNG = 0.75  # how often the question about an entity of a shared or other name has the word that misses it
COMPARISONS = 2  # of a district, while there is something else to ask: they find their passages too easily


@dataclass(frozen=True)
class Ask:
    """One thing to ask, before it is worded."""

    label: str
    forms: dict[str, list[str]]  # manner ("ask", "search", "quiz") -> patterns
    slots: dict[str, str]
    subjects: tuple[str, ...]  # the slots that name what is asked about
    clean: str
    answers: tuple[str, ...]
    gold: tuple[str, ...]
    kind: str = ""  # what sort of thing the subject is, where it can be cut off or put vaguely
    breakable: tuple[str, ...] = ("misspelt", "cut-off", "vague")
    failure: str = ""  # the trap that it runs into
    epithets: tuple[str, ...] = ("",)  # one of these is put before the name
    changes: bool = False  # is it about a fact that changes with time?


def single(world: config.World, main: Main, rng: Random) -> list[Ask]:
    """A question for every fact that stands in one passage and needs no reasoning."""
    asks = []
    for one in main.values():
        for fact, spec in KINDS[one[0].kind]["fact"].items():
            if spec["label"] not in ("superlative", "count"):
                asks += _about(world, *one, fact, rng)
    return asks


def accounts(told: Sequence[tuple[Entity, str, Trap]], rng: Random) -> list[Ask]:
    """Questions that ask for what an older account, or an almanac, says: one of each crowd."""
    chosen = {}
    for thing, gold, trap in told:
        chosen.setdefault((thing.kind, thing.index), []).append((thing, gold, trap))
    asks = []
    for thing, gold, trap in (rng.choice(crowd) for crowd in chosen.values()):
        fact = rng.choice(KINDS[thing.kind][TRAPS[trap.kind][1]])
        spec = KINDS[thing.kind]["fact"][fact]
        if spec["label"] not in ("superlative", "count"):
            manners = {manner: [_by(one, trap.kind) for one in spec[manner]] for manner in ("ask", "search", "quiz")}
            clean, answers = fill(manners["ask"][0], thing.slots), _answers(thing, fact)
            asks.append(Ask(spec["label"], manners, thing.slots, ("name",), clean, answers, (gold,), thing.kind, ()))
    return asks


def _by(pattern: str, trap: str) -> str:
    """The pattern of a question, asking for what a certain account says."""
    mark = "?" if pattern.endswith("?") else ""
    return pattern.rstrip("?") + VOCABULARY[trap]["ask"] + mark


def composed(world: config.World, main: Main, rng: Random) -> list[Ask]:
    """Two-hop questions, comparisons, superlatives and counts in turn."""
    groups = {"two-hop": _hops(main), "comparison": _comparisons(main), "superlative": [], "count": []}
    for one in main.values():
        for fact, spec in KINDS[one[0].kind]["fact"].items():
            if spec["label"] in groups:
                groups[spec["label"]] += _about(world, *one, fact, rng)
    for group in groups.values():
        rng.shuffle(group)
    spare = groups["comparison"][COMPARISONS:]
    del groups["comparison"][COMPARISONS:]
    order = list(groups.values())
    rng.shuffle(order)
    return [ask for turn in zip_longest(*order) for ask in turn if ask] + spare


def unknowns(main: Main) -> list[Ask]:
    """Questions no passage answers."""
    answers = tuple(VOCABULARY["unanswerable"]["answers"])
    return [
        Ask(
            "unanswerable",
            _manners([pattern]),
            thing.slots,
            ("name",),
            fill(pattern, thing.slots),
            answers,
            gold=(),
            breakable=(),
        )
        for thing, _, _ in main.values()
        for pattern in KINDS[thing.kind]["unknown"]
    ]


def _manners(patterns: list[str]) -> dict[str, list[str]]:
    return {"ask": patterns, "search": patterns, "quiz": patterns}


def _about(world: config.World, thing: Entity, gold: str, trap: Trap | None, fact: str, rng: Random) -> list[Ask]:
    """A question about one fact, which runs into the trap around its entity or not; none where another would."""
    spec = KINDS[thing.kind]["fact"][fact]
    slots, asked = thing.slots, spec["ask"][0]
    changes = fact in KINDS[thing.kind].get("stale", ())
    failure, epithets, breakable = "", ("",), ()
    if trap is None:
        breakable = Ask.breakable
        if "epithet" in slots:  # as often as of those that share their name, in the one word or the other
            epithets = ("", slots["epithet"], slots["epithet_alias"])
    elif trap.kind == "namesake":
        failure = trap.kind if rng.random() < SPRUNG else ""
        epithets = (slots["epithet_alias"] if failure else slots["epithet"],)
        asked = asked.replace("{name}", "the {epithet} {name}")
    elif trap.kind == "synonym":
        failure = trap.kind if rng.random() < SPRUNG else ""
        slots = slots | {"name": other_name(world, thing)} if failure else slots
    elif fact not in KINDS[thing.kind][TRAPS[trap.kind][1]]:
        return []
    else:
        failure = trap.kind
        asked = _by(asked, trap.kind).format_map(slots | trap.slots)
    clean, answers = fill(asked, thing.slots), _answers(thing, fact)
    rest = (thing.kind, breakable, failure, epithets, changes)
    return [Ask(spec["label"], spec, slots, ("name",), clean, answers, (gold,), *rest)]


def _answers(thing: Entity, fact: str) -> tuple[str, ...]:
    """What counts as right; a count is given as a word and never as a bare digit."""
    spec = KINDS[thing.kind]["fact"][fact]
    answers = [pattern.format_map(thing.slots) for pattern in spec["answers"]]
    if "unit" in spec:
        answers.append(f"{NUMERALS[thing.slots[fact]]} {spec['unit'].format_map(thing.slots)}")
    # "the Amber Sea" is as right without its article
    bare = [re.sub(r"^(the|The|a|an) ", "", answer) for answer in answers]
    return tuple(dict.fromkeys(answers + bare))


def _hops(main: Main) -> list[Ask]:
    """The question names one entity and asks about another; well put it names the other."""
    asks = []
    for hop in VOCABULARY["hop"]:
        subjects = [thing for thing, _, trap in main.values() if thing.kind == hop["kind"] and _is_free(trap)]
        for thing in subjects:
            target, gold, trap = main[thing.refs[hop["via"]]]
            if not _is_free(trap):
                continue
            for fact, patterns in hop["ask"].items():
                clean = fill(KINDS[target.kind]["fact"][fact]["ask"][0], target.slots)
                answers = _answers(target, fact)
                forms = _manners(patterns)
                asks.append(Ask("two-hop", forms, thing.slots, ("name",), clean, answers, (gold,), breakable=()))
    return asks


def _is_free(trap: Trap | None) -> bool:
    """Can the entity be asked about by the name that the corpus has, with no crowd in the way?"""
    return trap is None or trap.kind == "synonym"


def _comparisons(main: Main) -> list[Ask]:
    """Two entities of a kind and a number in which they differ."""
    asks = []
    for spec in VOCABULARY["compare"]:
        same = [(thing, gold) for thing, gold, trap in main.values() if thing.kind == spec["kind"] and _is_free(trap)]
        for (a, gold_a), (b, gold_b) in combinations(same, 2):
            ahead = number(a, spec["fact"]) - number(b, spec["fact"])
            if ahead:
                winner = a if (ahead > 0) == spec["most"] else b
                asks.append(_comparison(spec["ask"], (a, b), winner, (gold_a, gold_b)))
    return asks


def _comparison(patterns: list[str], pair: tuple[Entity, Entity], winner: Entity, gold: tuple[str, str]) -> Ask:
    slots = {"a": pair[0].slots["name"], "b": pair[1].slots["name"]}
    answers = tuple(dict.fromkeys((winner.slots["name"], winner.slots["short"])))
    # cut off or put vaguely, half of the question would still name a subject in full
    return Ask(
        "comparison",
        _manners(patterns),
        slots,
        ("a", "b"),
        fill(patterns[0], slots),
        answers,
        gold,
        breakable=("misspelt",),
    )
