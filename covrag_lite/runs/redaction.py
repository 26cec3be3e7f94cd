"""Redaction: in what is recorded a mark stands in the place of each question, and is resolved where the data is."""

import os.path
import re
from collections.abc import Iterable, Mapping

from covrag_lite.records import Question

# Its capitals; of one that was cut off how many letters are left of it; its id where it is another's question; what
# stands between its words, each after the same sign, where that is not what stands there in the question.
MARK = re.compile("⟨question ([0-9a-f]+)(?:/([0-9]+))?(?: ([^⟩=]*))?(?:=([^⟩]*))?⟩")
SIGNS = "¦‖␟"  # the first of them that a text does not hold parts what stands between its words
WORD = re.compile(r"\w+")
COPIED = 6  # words from which on the beginning of a question is a copy of it that was cut off
CUT_OFF = re.compile(r'\s*(?:$|[|"\n…]|\.\.)')  # where what was written ends; several queries stand between bars

Index = Mapping[tuple[str, ...], list[tuple[str, str]]]  # two words -> those that begin with them, and their ids


def index_questions(questions: Iterable[Question]) -> Index:
    """Questions of at least three words by their first two, so that a text need not be searched for each of them."""
    made = {}
    for one in questions:
        words = WORD.findall(one.question.lower())
        if len(words) > 2:
            made.setdefault(tuple(words[:2]), []).append((core(one.question), one.id))
    return made


def core(question: str) -> str:
    """A question without the sign at its end, which what we write often leaves out."""
    return question.rstrip("? ")


def redact(text: str, asked: str, others: Index | None = None) -> str:
    """The text with a mark in place of the question, and of any other question of the run."""
    if asked:
        text = re.sub(re.escape(asked), lambda match: _mark(match[0], asked) or match[0], text, flags=re.IGNORECASE)
        text = _redact_beginning(text, asked)
        text = _redact_words(text, asked)
    return _redact_others(text, others) if others else text


def _redact_beginning(text: str, asked: str) -> str:
    """The text with a mark in place of a copy of the question that was cut off, as by a limit of tokens."""
    words, found = list(WORD.finditer(asked)), []
    if len(words) <= COPIED:
        return text
    for one in re.finditer(re.escape(asked[: words[COPIED - 1].end()]), text, re.IGNORECASE):
        length = len(os.path.commonprefix([text[one.start() :].lower(), asked.lower()]))
        copy = text[one.start() : one.start() + length].rstrip()
        end = one.start() + len(copy)
        mark = CUT_OFF.match(text[end:]) and _mark(copy, asked[: len(copy)], length=len(copy))
        found.append((one.start(), end, mark))
    return _put(text, found)


def _redact_words(text: str, asked: str) -> str:
    """The text with a mark in place of the question in its own words but other signs between them, or cut off so."""
    own, words, found = WORD.findall(asked.lower()), list(WORD.finditer(text)), []
    lower = [one[0].lower() for one in words]
    for i in range(len(words)) if len(own) > 2 else ():
        if lower[i : i + min(COPIED, len(own))] == own[:COPIED]:
            same = len(os.path.commonprefix([lower[i:], own]))
            start, end = words[i].start(), words[i + same - 1].end()
            is_copy = same == len(own) or CUT_OFF.match(text[end:])
            found.append((start, end, is_copy and _mark_words(text[start:end], asked)))
    return _put(text, found)


def _redact_others(text: str, others: Index) -> str:
    """The text with a mark in place of every other question, to the letter or in its own words."""
    words, found = list(WORD.finditer(text)), []
    for i, (one, following) in enumerate(zip(words, words[1:])):
        for question, identity in others.get((one[0].lower(), following[0].lower()), ()):
            start = one.start() - WORD.search(question).start()
            copy = text[start : start + len(question)] if start >= 0 else ""
            if copy.lower() == question.lower():
                found.append((start, start + len(copy), _mark(copy, question, identity)))
            own = WORD.findall(question.lower())
            end = words[min(i + len(own), len(words)) - 1].end()
            if [word[0].lower() for word in words[i : i + len(own)]] == own:
                found.append((one.start(), end, _mark_words(text[one.start() : end], question, identity)))
    return _put(text, found)


def _put(text: str, found: Iterable[tuple[int, int, str | None]]) -> str:
    """The text with each mark in place of what stands from its start to its end, unless an earlier one covers that."""
    made, done = [], 0
    for start, end, mark in found:
        if mark and start >= done:
            made += [text[done:start], mark]
            done = end
    return "".join([*made, text[done:]])


def _mark(found: str, question: str, identity: str = "", length: int = 0) -> str | None:
    """A mark that holds the capitals as the bits of a number; None where it would not give the text back."""
    capitals = sum(1 << i for i, letter in enumerate(found) if letter.isupper())
    if _spell(capitals, question) != found:
        return None
    return f"⟨question {capitals:x}{f'/{length}' if length else ''}{f' {identity}' if identity else ''}⟩"


def _mark_words(found: str, question: str, identity: str = "") -> str | None:
    """A mark that also holds what stands between the words; None where it would not give the text back."""
    sign = next((one for one in SIGNS if one not in found), "")
    capitals = sum(1 << i for i, letter in enumerate("".join(WORD.findall(found))) if letter.isupper())
    between = "".join(sign + part for part in WORD.split(found)[1:-1])
    if not sign or "⟩" in found or _spell_words(capitals, question, between) != found:
        return None
    return f"⟨question {capitals:x}{f' {identity}' if identity else ''}={between}⟩"


def _spell_words(capitals: int, question: str, between: str) -> str:
    parts = between.split(between[:1])[1:] if between else []
    words = WORD.findall(question)[: len(parts) + 1]
    letters = iter(_spell(capitals, "".join(words)))
    spelt = ["".join(next(letters) for _ in word) for word in words]
    return "".join(word + part for word, part in zip(spelt, [*parts, ""]))


def _spell(capitals: int, question: str) -> str:
    return "".join(letter.upper() if capitals >> i & 1 else letter.lower() for i, letter in enumerate(question))


def restore(text: str, asked: str, others: Mapping[str, Question] | None = None) -> str:
    """The text with the questions put back in the place of their marks; one that is not known stays hidden."""

    def spell(match: re.Match) -> str:
        other = (others or {}).get(match[3])
        question = core(other.question) if other else "" if match[3] else asked
        if question and match[4] is not None:
            return _spell_words(int(match[1], 16), question, match[4])
        return _spell(int(match[1], 16), question[: int(match[2] or len(question))]) if question else match[0]

    return MARK.sub(spell, text)
