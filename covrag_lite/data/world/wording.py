"""How people type what they ask the embedded world, in the manner of one of the four sets, mistakes included."""

import re
from collections.abc import Sequence
from random import Random

from covrag_lite import config
from covrag_lite.data.world.entities import KINDS, VOCABULARY, fill, rng_for
from covrag_lite.data.world.questions import Ask
from covrag_lite.records import Question

NOW = 0.7  # how often a question about what changes says that it means today
ONE_ONLY = 0.95  # how often only one word of a name is misspelt
TWICE = 0.15  # how often a long word is misspelt in two places
CUT_EARLY = 0.6  # how often a name of a long and a short word is cut off in the long one
JOINED = 0.05  # how often two words are typed as one instead


def defects(world: config.World, asks: Sequence[Ask], rng: Random) -> list[str]:
    """For each ask what is wrong with its wording, in the shares of all that are asked for; "" for nothing."""
    found = [""] * len(asks)
    for name, share in (("vague", world.vague), ("cut-off", world.cut_off), ("misspelt", world.misspelt)):
        able = [i for i, ask in enumerate(asks) if name in ask.breakable and not found[i]]
        for i in rng.sample(able, min(len(able), round(share * len(asks)))):
            found[i] = name
    return found


def word(ask: Ask, id: str, dataset: str, defect: str) -> Question:
    """Word an ask in the manner of a set, broken where its defect says so."""
    rng = rng_for(id)
    manner = {"search": "search", "quiz": "quiz"}.get(dataset, "ask")
    patterns = ask.forms.get(manner) or ask.forms["ask"]
    if defect == "cut-off":
        patterns = [pattern for pattern in patterns if re.search(r"\{name\}\??$", pattern)]
    pattern = rng.choice(patterns)
    names = _subjects(ask, defect, rng)
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


def _subjects(ask: Ask, defect: str, rng: Random) -> dict[str, str]:
    """The names as typed."""
    if defect == "vague":
        return {"name": rng.choice(KINDS[ask.kind]["vague"]).format_map(_half_remembered(ask))}
    if defect == "cut-off":
        return {"name": cut_off(ask.slots["name"], KINDS[ask.kind].get("long_first", False), rng)}
    if defect == "misspelt":
        return {slot: misspell(ask.slots[slot], rng) for slot in ask.subjects}
    return {slot: ask.slots[slot] for slot in ask.subjects}


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
    if len(places) > 1 and rng.random() < ONE_ONLY:
        places = [rng.choice(places)]
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
