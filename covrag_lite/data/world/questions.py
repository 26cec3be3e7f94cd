"""The questions of the fictional world: what can be asked, and how people type it, with errors."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, zip_longest
from random import Random
from typing import NamedTuple

from covrag_lite.config import World
from covrag_lite.data.world.entities import (
    ARTICLE,
    KINDS,
    TRAPS,
    VOCABULARY,
    Entity,
    fill,
    name_slots,
    number,
    rng_for,
)
from covrag_lite.data.world.passages import Trap
from covrag_lite.records import Question


class Described(NamedTuple):
    """An entity as a passage describes it."""

    thing: Entity
    passage: str  # its id
    trap: Trap | None  # around the entity


Main = dict[tuple[str, int], Described]  # by kind and index
Crowds = dict[tuple[str, int], list[Described]]  # the accounts around an entity, also asked about

COMPOSED = ("two-hop", "comparison", "superlative", "count")  # the kinds of complex questions
SPRUNG = 0.75  # share of questions in a namesake or synonym trap that use the misleading word
N_COMPARISONS = 2  # per district, unless nothing else is left: they find their passages too easily
NOW = 0.7  # share of questions about changing facts that say they mean today
ONE_ONLY = 0.95  # share of misspelt names with an error in only one word
SHARE_WITH_TWO_ERRORS = 0.15  # share of long misspelt words with two errors
CUT_EARLY = 0.6  # share of names, of a long and a short word, that are cut off in the long word
JOINED = 0.05  # share of misspelt names in which two words are joined instead


@dataclass(frozen=True)
class Ask:
    """One question before it is worded."""

    label: str
    forms: dict[str, list[str]]  # manner -> patterns; "ask" replaces a missing manner
    slots: dict[str, str]
    clean: str
    answers: tuple[str, ...]
    gold: tuple[str, ...]
    subjects: tuple[str, ...] = ("name",)  # the slots that name the subject
    kind: str = ""  # the kind of the subject, if it can be cut off or made vague
    breakable: tuple[str, ...] = ()  # the possible defects: "misspelt", "cut-off" and "vague"
    failure: str = ""  # the trap that makes it fail
    epithets: tuple[str, ...] = ("",)  # one of these is written before the name
    changes: bool = False  # is it about a fact that changes over time?


def list_asks(world: World, main: Main, crowds: Crowds, dataset: str, rng: Random) -> list[Ask]:
    """List the possible questions about one district for one of the sets."""
    if dataset == "complex":
        return _composed(world, main, rng)
    asks = _facts(world, main, rng) + _accounts(crowds, rng)
    rng.shuffle(asks)
    return asks[("search", "entity", "quiz").index(dataset) :: 3]


def _facts(world: World, main: Main, rng: Random, composed: bool = False) -> list[Ask]:
    """Ask about every fact: simple ones that one passage contains, or those that need reasoning."""
    asks = []
    for described in main.values():
        for fact, spec in KINDS[described.thing.kind]["fact"].items():
            if (spec["label"] in COMPOSED) == composed:
                asks += _about(world, described, fact, rng)
    return asks


def _accounts(crowds: Crowds, rng: Random) -> list[Ask]:
    """Ask what an older account or an almanac says, once per crowd."""
    asks = []
    for accounts in crowds.values():
        thing, gold, trap = rng.choice(accounts)
        fact = rng.choice(KINDS[thing.kind][TRAPS[trap.kind]["needs"]])
        spec = KINDS[thing.kind]["fact"][fact]
        if spec["label"] in COMPOSED:
            continue
        forms = {}
        for manner in ("ask", "search", "quiz"):
            forms[manner] = [_by(pattern, trap.kind) for pattern in spec[manner]]
        ask = Ask(
            label=spec["label"],
            forms=forms,
            slots=thing.slots,
            clean=fill(forms["ask"][0], thing.slots),
            answers=_answers(thing, fact),
            gold=(gold,),
            kind=thing.kind,
        )
        asks.append(ask)
    return asks


def _by(pattern: str, trap: str) -> str:
    """Change the pattern of a question so that it asks for a certain account."""
    mark = "?" if pattern.endswith("?") else ""
    return pattern.rstrip("?") + TRAPS[trap]["ask"] + mark


def _composed(world: World, main: Main, rng: Random) -> list[Ask]:
    """List two-hop questions, comparisons, superlatives and counts in turn."""
    # Only entities without a crowd, or whose crowd has another name.
    free = {}
    for key, described in main.items():
        if described.trap is None or described.trap.kind == "synonym":
            free[key] = described
    groups = {
        "two-hop": _hops(free),
        "comparison": _comparisons(free),
        "superlative": [],
        "count": [],
    }
    for ask in _facts(world, main, rng, composed=True):
        groups[ask.label].append(ask)
    for group in groups.values():
        rng.shuffle(group)
    spare = groups["comparison"][N_COMPARISONS:]
    del groups["comparison"][N_COMPARISONS:]
    order = list(groups.values())
    rng.shuffle(order)
    return in_turn(order) + spare


def in_turn(pools: Sequence[Sequence[Ask]]) -> list[Ask]:
    """Return the first of each pool, then the second of each, and so on."""
    asks: list[Ask] = []
    for turn in zip_longest(*pools):
        asks += [ask for ask in turn if ask]
    return asks


def _about(world: World, described: Described, fact: str, rng: Random) -> list[Ask]:
    """Return a question about one fact, which may fail by its entity's trap.

    The list is empty if another trap would catch it.
    """
    thing, gold, trap = described
    spec = KINDS[thing.kind]["fact"][fact]
    slots = thing.slots
    pattern = spec["ask"][0]
    failure = ""
    epithets: tuple[str, ...] = ("",)
    breakable: tuple[str, ...] = ()
    if trap is None:
        breakable = ("misspelt", "cut-off", "vague")
        if "epithet" in slots:  # as often as for those that share their name, with either word
            epithets = ("", slots["epithet"], slots["epithet_alias"])
    elif trap.kind in ("namesake", "synonym"):
        failure = trap.kind if rng.random() < SPRUNG else ""
        if trap.kind == "namesake":
            epithets = (slots["epithet_alias"] if failure else slots["epithet"],)
            pattern = pattern.replace("{name}", "the {epithet} {name}")
        elif failure:  # the name in other words than in the corpus
            slots = slots | {"name": name_slots(world.seed, *thing.key, alias=True)["name"]}
    elif fact not in KINDS[thing.kind][TRAPS[trap.kind]["needs"]]:
        return []
    else:
        failure = trap.kind
        pattern = _by(pattern, trap.kind).format_map(slots | trap.slots)
    ask = Ask(
        label=spec["label"],
        forms=spec,
        slots=slots,
        clean=fill(pattern, thing.slots),
        answers=_answers(thing, fact),
        gold=(gold,),
        kind=thing.kind,
        breakable=breakable,
        failure=failure,
        epithets=epithets,
        changes=fact in KINDS[thing.kind].get("stale", ()),
    )
    return [ask]


def _answers(thing: Entity, fact: str) -> tuple[str, ...]:
    """Return the right answers; a count is written as a word, never only as a digit."""
    spec = KINDS[thing.kind]["fact"][fact]
    answers = [pattern.format_map(thing.slots) for pattern in spec["answers"]]
    if "unit" in spec:
        answers.append(
            f"{VOCABULARY['numerals'][thing.slots[fact]]} {spec['unit'].format_map(thing.slots)}"
        )
    bare = [ARTICLE.sub("", answer) for answer in answers]  # "the Amber Sea" is right without "the"
    return tuple(dict.fromkeys(answers + bare))


def _hops(free: Main) -> list[Ask]:
    """List questions that name one entity and ask about another; reworded, they name the other."""
    asks = []
    for hop in VOCABULARY["hop"]:
        for described in free.values():
            thing = described.thing
            if thing.kind != hop["kind"] or thing.refs[hop["via"]] not in free:
                continue
            target = free[thing.refs[hop["via"]]]
            for fact, patterns in hop["ask"].items():
                asks.append(_hop(thing, target, fact, patterns))
    return asks


def _hop(thing: Entity, target: Described, fact: str, patterns: list[str]) -> Ask:
    """Return a question about a fact of `target` that names `thing`."""
    direct = KINDS[target.thing.kind]["fact"][fact]["ask"][0]
    return Ask(
        label="two-hop",
        forms={"ask": patterns},
        slots=thing.slots,
        clean=fill(direct, target.thing.slots),
        answers=_answers(target.thing, fact),
        gold=(target.passage,),
    )


def _comparisons(free: Main) -> list[Ask]:
    """List comparisons of two entities of one kind, by a number in which they differ."""
    asks = []
    for spec in VOCABULARY["compare"]:
        rivals = [described for described in free.values() if described.thing.kind == spec["kind"]]
        for a, b in combinations(rivals, 2):
            ahead = number(a.thing, spec["fact"]) - number(b.thing, spec["fact"])
            if not ahead:
                continue
            winner = a if (ahead > 0) == spec["most"] else b
            names = (winner.thing.slots["name"], winner.thing.slots["short"])
            slots = {"a": a.thing.slots["name"], "b": b.thing.slots["name"]}
            ask = Ask(
                label="comparison",
                forms={"ask": spec["ask"]},
                slots=slots,
                clean=fill(spec["ask"][0], slots),
                answers=tuple(dict.fromkeys(names)),
                gold=(a.passage, b.passage),
                subjects=("a", "b"),
                # Cut off or vague, the question would still name one of its subjects in full.
                breakable=("misspelt",),
            )
            asks.append(ask)
    return asks


def choose_defects(world: World, asks: Sequence[Ask], rng: Random) -> list[str]:
    """Choose the defect in the wording of each question, by the configured shares; "" for none."""
    defects = [""] * len(asks)
    for name in ("vague", "cut-off", "misspelt"):
        able = [i for i, ask in enumerate(asks) if name in ask.breakable and not defects[i]]
        share = world.shares[name.replace("-", "_")]
        for i in rng.sample(able, min(len(able), round(share * len(asks)))):
            defects[i] = name
    return defects


def word(ask: Ask, id: str, dataset: str, defect: str) -> Question:
    """Word a question in the manner of a set, with its defect if it has one."""
    rng = rng_for(id)
    patterns = ask.forms.get(dataset) or ask.forms["ask"]
    if defect == "cut-off":
        patterns = [pattern for pattern in patterns if re.search(r"\{name\}\??$", pattern)]
    pattern = rng.choice(patterns)
    names = {slot: ask.slots[slot] for slot in ask.subjects}
    if defect == "vague":
        names["name"] = rng.choice(KINDS[ask.kind]["vague"]).format_map(_half_remembered(ask))
    elif defect == "cut-off":
        names["name"] = _cut_off(names["name"], KINDS[ask.kind].get("long_first", False), rng)
    elif defect == "misspelt":
        names = {slot: _misspell(name, rng) for slot, name in names.items()}
    epithet = rng.choice(ask.epithets)
    if epithet and defect != "vague":
        names["name"] = f"the {epithet} {names['name']}"
    if ask.changes and not defect and rng.random() < NOW:
        names["name"] += " today" if pattern.rstrip("?").endswith("{name}") else " now"
    text = fill(pattern, ask.slots | names)
    if defect == "cut-off":
        text = text.rstrip("?")
    if dataset == "search":
        text = text.rstrip("?").lower()
    if dataset == "entity":
        text = text[0].lower() + text[1:]
    kind = ask.label + (f"/{ask.failure}" if ask.failure else "") + (f"+{defect}" if defect else "")
    return Question(id, dataset, text, ask.answers, ask.gold, ask.clean, kind)


def _half_remembered(ask: Ask) -> dict[str, str]:
    """Return the slots of a vague description: lower case, and only the start of name parts."""
    slots = dict(ask.slots)
    for part in KINDS[KINDS[ask.kind].get("names", ask.kind)]["parts"]:
        if part in VOCABULARY["defects"]["common"]:
            slots[part] = slots[part].lower()
        slots[f"{part}_start"] = slots[part][: max(3, len(slots[part]) // 2)]
    return slots


def _telling(words: list[str]) -> list[int]:
    """Return the positions of the words that distinguish a name from others of its kind."""
    return [
        i
        for i, w in enumerate(words)
        if len(w) >= 4 and w.lower() not in VOCABULARY["defects"]["plain"]
    ]


def _misspell(name: str, rng: Random) -> str:
    """Misspell a name like a hurried typist."""
    words = name.split()
    places = _telling(words)
    if len(places) > 1 and places[1] == places[0] + 1 and rng.random() < JOINED:
        first = places[0]
        words[first : first + 2] = ["".join(words[first : first + 2]).lower().capitalize()]
        return " ".join(words)
    if len(places) > 1 and rng.random() < ONE_ONLY:
        places = [rng.choice(places)]
    for i in places:
        words[i] = _typo(words[i], rng)
        if len(words[i]) > 7 and rng.random() < SHARE_WITH_TWO_ERRORS:
            words[i] = _typo(words[i], rng)
    return " ".join(words)


def _typo(word: str, rng: Random) -> str:
    """Make one typing error, early enough in the word that stemming does not undo it."""
    i = rng.randrange(1, max(2, len(word) - 3))
    swapped = word[:i] + word[i + 1] + word[i] + word[i + 2 :]
    by_hand = [swapped, word[:i] + word[i] + word[i:], word[:i] + word[i + 1 :]]
    by_ear = [
        word[0] + word[1:].replace(right, wrong, 1)
        for right, wrong in VOCABULARY["defects"]["sounds"]
    ]
    return rng.choice([slip for slip in by_hand + by_ear if slip != word])


def _cut_off(name: str, long_first: bool, rng: Random) -> str:
    """Cut a name off in its last word, or in its first word if that is informative enough."""
    words = name.split()
    places = _telling(words)
    i = places[0] if long_first and rng.random() < CUT_EARLY else places[-1]
    keep = max(len(words[i]) // 2 + 1, len(words[i]) - rng.randint(2, 4))
    return " ".join(words[:i] + [words[i][:keep]])
