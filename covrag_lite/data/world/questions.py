"""How the embedded world is asked: what can be asked of a district, and how people type it, mistakes included.

generation.py chooses among these asks and hands them back to be worded in the manner of one of the four sets.
"""

import re
from dataclasses import dataclass
from itertools import combinations, zip_longest
from random import Random

from covrag_lite import config
from covrag_lite.data.world.entities import KINDS, VOCABULARY, Entity, fill, number, rng_for
from covrag_lite.records import Question

Main = dict[tuple[str, int], tuple[Entity, str]]  # kind and index -> the entity and the id of its passage

NUMERALS = {"three": 3, "five": 5, "seven": 7, "eight": 8, "nine": 9}
NUMERALS |= {"eleven": 11, "twelve": 12, "thirteen": 13, "fifteen": 15}
GOLDEN = 0.6180339887498949  # steps of this size spread defects evenly over any number of questions
LEFT_WHOLE = 0.3  # how often a misspelt name of several words keeps one of them right
TWICE = 0.25  # how often a long word is misspelt in two places
CUT_EARLY = 0.6  # how often a name of a long and a short word is cut off in the long one
JOINED = 0.15  # how often two words are typed as one instead


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


def single(main: Main) -> list[Ask]:
    """A question for every fact that stands in one passage and needs no reasoning."""
    return [
        _about(thing, fact, gold)
        for thing, gold in main.values()
        for fact, spec in KINDS[thing.kind]["fact"].items()
        if spec["label"] not in ("superlative", "count")
    ]


def composed(main: Main, rng: Random) -> list[Ask]:
    """Two-hop questions, comparisons, superlatives and counts in turn."""
    groups = {"two-hop": _hops(main), "comparison": _comparisons(main), "superlative": [], "count": []}
    for thing, gold in main.values():
        for fact, spec in KINDS[thing.kind]["fact"].items():
            if spec["label"] in groups:
                groups[spec["label"]].append(_about(thing, fact, gold))
    for group in groups.values():
        rng.shuffle(group)
    order = list(groups.values())
    rng.shuffle(order)
    return [ask for turn in zip_longest(*order) for ask in turn if ask]


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
        for thing, _ in main.values()
        for pattern in KINDS[thing.kind]["unknown"]
    ]


def _manners(patterns: list[str]) -> dict[str, list[str]]:
    return {"ask": patterns, "search": patterns, "quiz": patterns}


def _about(thing: Entity, fact: str, gold: str) -> Ask:
    spec = KINDS[thing.kind]["fact"][fact]
    clean = fill(spec["ask"][0], thing.slots)
    return Ask(spec["label"], spec, thing.slots, ("name",), clean, _answers(thing, fact), (gold,), thing.kind)


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
        subjects = [thing for thing, _ in main.values() if thing.kind == hop["kind"]]
        for thing in subjects:
            target, gold = main[thing.refs[hop["via"]]]
            for fact, patterns in hop["ask"].items():
                clean = fill(KINDS[target.kind]["fact"][fact]["ask"][0], target.slots)
                answers = _answers(target, fact)
                forms = _manners(patterns)
                asks.append(Ask("two-hop", forms, thing.slots, ("name",), clean, answers, (gold,), breakable=()))
    return asks


def _comparisons(main: Main) -> list[Ask]:
    """Two entities of a kind and a number in which they differ."""
    asks = []
    for spec in VOCABULARY["compare"]:
        same = [pair for pair in main.values() if pair[0].kind == spec["kind"]]
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


def defects(world: config.World, size: int, start: float) -> list[str]:
    """For each question what is wrong with it, in the shares asked for; "" for nothing."""
    names = ("misspelt", "cut-off", "vague")
    shares = (world.misspelt, world.cut_off, world.vague)
    found = []
    for i in range(size):
        place = (start + i * GOLDEN) % 1
        defect = ""
        for name, share in zip(names, shares):
            if 0 <= place < share and not defect:
                defect = name
            place -= share
        found.append(defect)
    return found


def word(ask: Ask, id: str, dataset: str, defect: str) -> Question:
    """Word an ask in the manner of a set, broken where its defect says so."""
    rng = rng_for(id)
    defect = defect if defect in ask.breakable else ""
    manner = {"nq": "search", "triviaqa": "quiz"}.get(dataset, "ask")
    patterns = ask.forms.get(manner) or ask.forms["ask"]
    if defect == "cut-off":
        patterns = [pattern for pattern in patterns if re.search(r"\{name\}\??$", pattern)]
    text = fill(rng.choice(patterns), ask.slots | _subjects(ask, defect, rng))
    if defect == "cut-off":
        text = text.rstrip("?")
    if dataset == "nq":
        text = text.rstrip("?").lower()
    if dataset == "webq":
        text = text[0].lower() + text[1:]
    kind = f"{ask.label}+{defect}" if defect else ask.label
    return Question(id, dataset, text, ask.answers, ask.gold, ask.clean, kind)


def _subjects(ask: Ask, defect: str, rng: Random) -> dict[str, str]:
    """The names as typed."""
    if defect == "vague":
        return {"name": rng.choice(KINDS[ask.kind]["vague"]).format_map(_half_remembered(ask))}
    if defect == "cut-off":
        return {"name": cut_off(ask.slots["name"], KINDS[ask.kind].get("long_first", False), rng)}
    if defect == "misspelt":
        return {slot: misspell(ask.slots[slot], rng) for slot in ask.subjects}
    return {}


def _half_remembered(ask: Ask) -> dict[str, str]:
    """The slots for a hazy description: common words lose their capitals, name parts are known by their start."""
    slots = dict(ask.slots)
    for part in KINDS[KINDS[ask.kind].get("names", ask.kind)]["parts"]:
        if part in VOCABULARY["defects"]["common"]:
            slots[part] = slots[part].lower()
        slots[f"{part}_start"] = slots[part][: max(3, len(slots[part]) // 2)]
    return slots


def _telling(words: list[str]) -> list[int]:
    """Places of the words that tell a name from others of its kind."""
    return [i for i, w in enumerate(words) if len(w) >= 4 and w.lower() not in VOCABULARY["defects"]["plain"]]


def misspell(name: str, rng: Random) -> str:
    """A name as a hurried typist writes it."""
    words = name.split()
    places = _telling(words)
    if len(places) > 1 and places[1] == places[0] + 1 and rng.random() < JOINED:
        first, second = places[:2]
        joined = (words[first] + words[second]).lower().capitalize()
        words[first : second + 1] = [joined]
        return " ".join(words)
    if len(places) > 1 and rng.random() < LEFT_WHOLE:
        places.remove(rng.choice(places))
    for i in places:
        words[i] = _typo(words[i], rng)
        if len(words[i]) > 7 and rng.random() < TWICE:
            words[i] = _typo(words[i], rng)
    return " ".join(words)


def _typo(word: str, rng: Random) -> str:
    """One slip early enough in the word that stemming does not undo it."""
    i = rng.randrange(1, max(2, len(word) - 3))
    by_hand = [
        word[:i] + word[i + 1] + word[i] + word[i + 2 :],
        word[:i] + word[i] + word[i:],
        word[:i] + word[i + 1 :],
    ]
    by_ear = [word[0] + word[1:].replace(right, wrong, 1) for right, wrong in VOCABULARY["defects"]["sounds"]]
    return rng.choice([slip for slip in by_hand + by_ear if slip != word])


def cut_off(name: str, long_first: bool, rng: Random) -> str:
    """A name whose typist was interrupted in its last word, or in its first where that says enough."""
    words = name.split()
    places = _telling(words)
    i = places[0] if long_first and rng.random() < CUT_EARLY else places[-1]
    keep = max(len(words[i]) // 2 + 1, len(words[i]) - rng.randint(2, 4))
    return " ".join(words[:i] + [words[i][:keep]])
