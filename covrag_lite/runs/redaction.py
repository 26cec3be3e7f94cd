"""Redaction: a mark replaces each question in recorded texts, so that no question is published.

Where the data is available, the questions are put back.

Example:
    >>> redact("Who wrote Emma? Jane Austen", "who wrote emma")
    '⟨question 401⟩? Jane Austen'
    >>> restore("⟨question 401⟩? Jane Austen", "who wrote emma")
    'Who wrote Emma? Jane Austen'
"""

import os.path
import re
from collections.abc import Iterable, Mapping
from itertools import islice

from covrag_lite.metrics import at_most_twice
from covrag_lite.records import Question

# The parts of a mark: the capital letters as bits of a number; the number of letters if the copy is
# cut off; the id if it is another question; the text between the words if it differs from the
# question's, each piece after the same separator.
MARK = re.compile("⟨question ([0-9a-f]+)(?:/([0-9]+))?(?: ([^⟩=]*))?(?:=([^⟩]*))?⟩")
SIGNS = "¦‖␟"  # separators; the first one that the text does not contain is used
WORD = re.compile(r"\w+")
COPIED = 6  # the first words of a question count as a copy if there are at least this many
CUT_OFF = re.compile(r'\s*(?:$|[|"\n…]|\.\.)')  # the end of a written text; "|" separates queries

TWICE = "~"  # used as id for the question itself with no word more than twice
INDEXED = 5  # a question is indexed by at most this many words
# The first words -> questions, their ids and all their words.
Index = Mapping[tuple[str, ...], list[tuple[str, str, list[str]]]]


def index_questions(questions: Iterable[Question]) -> Index:
    """Index questions of three or more words by their first words, to find copies quickly."""
    made = {}
    for one in questions:
        words = WORD.findall(one.question.lower())
        if len(words) > 2:  # without the last word, which may be the beginning of a longer one
            first = tuple(words[: min(len(words) - 1, INDEXED)])
            made.setdefault(first, []).append((core(one.question), one.id, words))
    return made


def core(question: str) -> str:
    """Return a question without its question mark, which models often omit."""
    return question.rstrip("? ")


def redact(text: str, asked: str, others: Index | None = None) -> str:
    """Replace each copy of the question, and of any other question of the run, by a mark.

    A copy has the same words, with anything between them. For the question itself, two more texts
    count as copies: its beginning, if the text was cut off there, for example by a token limit; and
    the question with no word more than twice, as in D2′.
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
    """Return the index at which a copy of the words `own` ends; 0 if there is no copy.

    The end may be within a word.
    """
    same = len(os.path.commonprefix([lower, own]))
    if same and same == len(own):
        return words[same - 1].end()
    following = lower[same] if same < len(lower) else ""
    # The question itself may end in the middle of a word.
    if same and same == len(own) - 1 and following.startswith(own[same]):
        return words[same].start() + len(own[same])
    if whole or same < COPIED:
        return 0
    is_begun = following and own[same].startswith(following)
    end = words[same if is_begun else same - 1].end()
    return end if CUT_OFF.match(text[end:]) else 0


def _mark(found: str, question: str, identity: str) -> str | None:
    """Return the mark of a copy; None if the copy could not be restored from it.

    A mark stores capital letters as bits of a number and, if needed, the length of a copy that is
    cut off, or the text between its words.
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
    """Return the question with these capitals, cut off at `length`, or with `between` its words."""
    words, parts = [question[:length]], []
    if between is not None:
        parts = between.split(between[:1])[1:] if between else []
        words = WORD.findall(question)[: len(parts) + 1]
    letters = (letter.upper() if capitals >> i & 1 else letter.lower() for i, letter in enumerate("".join(words)))
    spelt = ["".join(islice(letters, len(word))) for word in words]
    return "".join(word + part for word, part in zip(spelt, [*parts, ""]))


def restore(text: str, asked: str, others: Mapping[str, Question] | None = None) -> str:
    """Put the questions back in place of their marks; an unknown question keeps its mark."""

    def spell(match: re.Match) -> str:
        other = (others or {}).get(match[3])
        own = " ".join(at_most_twice(asked)) if match[3] == TWICE else "" if match[3] else asked
        question = core(other.question) if other else own
        length = int(match[2]) if match[2] else None
        return _spell(int(match[1], 16), question, length, match[4]) if question else match[0]

    return MARK.sub(spell, text)
