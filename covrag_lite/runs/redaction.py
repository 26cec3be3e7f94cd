"""Redaction: in what is recorded a mark stands in the place of each question, and is resolved where the data is."""

import os.path
import re
from collections.abc import Iterable, Mapping
from itertools import islice

from covrag_lite.metrics import at_most_twice
from covrag_lite.records import Question

# Its capitals; of one that was cut off how many letters are left of it; its id where it is another's question; what
# stands between its words, each after the same sign, where that is not what stands there in the question.
MARK = re.compile("⟨question ([0-9a-f]+)(?:/([0-9]+))?(?: ([^⟩=]*))?(?:=([^⟩]*))?⟩")
SIGNS = "¦‖␟"  # the first of them that a text does not hold parts what stands between its words
WORD = re.compile(r"\w+")
COPIED = 6  # words from which on the beginning of a question is a copy of it that was cut off
CUT_OFF = re.compile(r'\s*(?:$|[|"\n…]|\.\.)')  # where what was written ends; several queries stand between bars

TWICE = "~"  # in place of an id: the question itself, with no word more than twice
INDEXED = 5  # words of a question, at most, by which it is found
Index = Mapping[tuple[str, ...], list[tuple[str, str, list[str]]]]  # first words -> questions, their ids and all words


def index_questions(questions: Iterable[Question]) -> Index:
    """Questions of at least three words by their first ones, so that a text need not be searched for each of them."""
    made = {}
    for one in questions:
        words = WORD.findall(one.question.lower())
        if len(words) > 2:  # the last one may be the beginning of a word of the text
            first = tuple(words[: min(len(words) - 1, INDEXED)])
            made.setdefault(first, []).append((core(one.question), one.id, words))
    return made


def core(question: str) -> str:
    """A question without the sign at its end, which what we write often leaves out."""
    return question.rstrip("? ")


def redact(text: str, asked: str, others: Index | None = None) -> str:
    """The text with a mark in place of each copy of the question, and of any other question of the run.

    A copy has the question's words, whatever stands between them. Of the question itself a beginning is a copy too,
    where it was cut off, as by a limit of tokens, and so is the question with no word more than twice, as D2′ has it.
    """
    words = list(WORD.finditer(text))
    lower = [one[0].lower() for one in words]
    made, done = [], 0
    known, own = others or {}, []
    for question, identity in ({" ".join(at_most_twice(asked)): TWICE} | {asked: ""}).items():
        own.append((question, identity, WORD.findall(question.lower())))
    for i, first in enumerate(words):
        here = [one for one in own if one[2][:1] == lower[i : i + 1]]
        here += [one for n in range(INDEXED, 1, -1) for one in known.get(tuple(lower[i : i + n]), ())]
        for question, identity, own_words in here:
            end = _end_of_copy(text, words[i:], lower[i:], own_words, bool(identity))
            mark = _mark(text[first.start() : end], question, identity) if end and first.start() >= done else None
            if mark:
                made += [text[done : first.start()], mark]
                done = end
    return "".join([*made, text[done:]])


def _end_of_copy(text: str, words: list[re.Match], lower: list[str], own: list[str], whole: bool) -> int:
    """Where the copy of a question that has its own words ends, which may be within a word; 0 where there is none."""
    same = len(os.path.commonprefix([lower, own]))
    if same and same == len(own):
        return words[same - 1].end()
    following = lower[same] if same < len(lower) else ""
    if same and same == len(own) - 1 and following.startswith(own[same]):  # the question itself breaks off in a word
        return words[same].start() + len(own[same])
    if whole or same < COPIED:
        return 0
    is_begun = following and own[same].startswith(following)
    end = words[same if is_begun else same - 1].end()
    return end if CUT_OFF.match(text[end:]) else 0


def _mark(found: str, question: str, identity: str) -> str | None:
    """A mark that holds the capitals as the bits of a number; None where it would not give the text back.

    It also holds the length where the copy is cut off, or what stands between the words where that is not the same.
    """
    name = f" {identity}" if identity else ""
    capitals = sum(1 << i for i, letter in enumerate(found) if letter.isupper())
    if _spell(capitals, question, len(found)) == found:
        return f"⟨question {capitals:x}{f'/{len(found)}' if len(found) < len(question) else ''}{name}⟩"
    sign = next((one for one in SIGNS if one not in found), "")
    capitals = sum(1 << i for i, letter in enumerate("".join(WORD.findall(found))) if letter.isupper())
    between = "".join(sign + part for part in WORD.split(found)[1:-1])
    if not sign or "⟩" in found or _spell(capitals, question, None, between) != found:
        return None
    return f"⟨question {capitals:x}{name}={between}⟩"


def _spell(capitals: int, question: str, length: int | None = None, between: str | None = None) -> str:
    """The question with these capitals, as far as this length, or with this between its words."""
    words, parts = [question[:length]], []
    if between is not None:
        parts = between.split(between[:1])[1:] if between else []
        words = WORD.findall(question)[: len(parts) + 1]
    letters = (letter.upper() if capitals >> i & 1 else letter.lower() for i, letter in enumerate("".join(words)))
    spelt = ["".join(islice(letters, len(word))) for word in words]
    return "".join(word + part for word, part in zip(spelt, [*parts, ""]))


def restore(text: str, asked: str, others: Mapping[str, Question] | None = None) -> str:
    """The text with the questions put back in the place of their marks; one that is not known stays hidden."""

    def spell(match: re.Match) -> str:
        other = (others or {}).get(match[3])
        own = " ".join(at_most_twice(asked)) if match[3] == TWICE else "" if match[3] else asked
        question = core(other.question) if other else own
        length = int(match[2]) if match[2] else None
        return _spell(int(match[1], 16), question, length, match[4]) if question else match[0]

    return MARK.sub(spell, text)
