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
from typing import NamedTuple

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

SHORTENED = "~"  # used as id for the question itself with no word more than twice
INDEXED = 5  # a question is indexed by at most this many words


class Hidden(NamedTuple):
    """A text that is replaced by a mark wherever it was copied."""

    text: str
    identity: str  # in the mark: a question's id, SHORTENED, or "" for the question itself
    words: list[str]  # in lower case


Index = Mapping[tuple[str, ...], list[Hidden]]  # questions by their first words


def index_questions(questions: Iterable[Question]) -> Index:
    """Index questions of three or more words by their first words, to find copies quickly."""
    index: dict[tuple[str, ...], list[Hidden]] = {}
    for question in questions:
        words = WORD.findall(question.question.lower())
        if len(words) > 2:  # without the last word, which may be the beginning of a longer one
            first_words = tuple(words[: min(len(words) - 1, INDEXED)])
            hidden = Hidden(core(question.question), question.id, words)
            index.setdefault(first_words, []).append(hidden)
    return index


def core(question: str) -> str:
    """Return a question without its question mark, which models often omit."""
    return question.rstrip("? ")


def redact(text: str, question: str, others: Index | None = None) -> str:
    """Replace each copy of the question, and of any other question of the run, by a mark.

    A copy has the same words, with anything between them. For the question itself, two more texts
    count as copies: its beginning, if the text was cut off there, for example by a token limit; and
    the question with no word more than twice, as in D2′.
    """
    words = list(WORD.finditer(text))
    lower = [word[0].lower() for word in words]
    forms = _forms(question)
    redacted = []
    done = 0  # the text before this index is redacted
    for place, first_word in enumerate(words):
        start = first_word.start()
        for hidden in _candidates(lower, place, forms, others or {}):
            end = _end_of_copy(text, words[place:], lower[place:], hidden)
            if not end or start < done:
                continue
            mark = _mark(text[start:end], hidden)
            if mark:
                redacted += [text[done:start], mark]
                done = end
    redacted.append(text[done:])
    return "".join(redacted)


def _forms(question: str) -> list[Hidden]:
    """Return the question with no word more than twice, if it differs, and the question itself."""
    identities = {" ".join(at_most_twice(question)): SHORTENED}
    identities[question] = ""  # replaces the first one if both are the same
    forms = []
    for text, identity in identities.items():
        forms.append(Hidden(text, identity, WORD.findall(text.lower())))
    return forms


def _candidates(lower: list[str], place: int, forms: list[Hidden], index: Index) -> list[Hidden]:
    """List the texts of which a copy may begin with the word at this place."""
    candidates = [form for form in forms if form.words[:1] == lower[place : place + 1]]
    for length in range(INDEXED, 1, -1):
        candidates += index.get(tuple(lower[place : place + length]), ())
    return candidates


def _end_of_copy(text: str, words: list[re.Match], lower: list[str], hidden: Hidden) -> int:
    """Return the index at which a copy of `hidden` ends; 0 if `words` do not begin with a copy.

    The end may be within a word.
    """
    wanted = hidden.words
    n_same = len(os.path.commonprefix([lower, wanted]))
    if n_same and n_same == len(wanted):
        return words[n_same - 1].end()
    following = lower[n_same] if n_same < len(lower) else ""
    # The question itself may end in the middle of a word.
    if n_same and n_same == len(wanted) - 1 and following.startswith(wanted[n_same]):
        return words[n_same].start() + len(wanted[n_same])
    must_be_whole = bool(hidden.identity)
    if must_be_whole or n_same < COPIED:
        return 0
    is_begun = following and wanted[n_same].startswith(following)
    last_word = words[n_same] if is_begun else words[n_same - 1]
    end = last_word.end()
    return end if CUT_OFF.match(text[end:]) else 0


def _mark(copy: str, hidden: Hidden) -> str | None:
    """Return the mark of a copy; None if the copy could not be restored from it.

    A mark stores capital letters as bits of a number and, if needed, the length of a copy that is
    cut off, or the text between its words.
    """
    name = f" {hidden.identity}" if hidden.identity else ""
    capitals = _capitals(copy)
    if _spell(capitals, hidden.text, len(copy)) == copy:
        length = f"/{len(copy)}" if len(copy) < len(hidden.text) else ""
        return f"⟨question {capitals:x}{length}{name}⟩"
    sign = next((sign for sign in SIGNS if sign not in copy), "")
    if not sign or "⟩" in copy:
        return None
    capitals = _capitals("".join(WORD.findall(copy)))
    between = "".join(sign + part for part in WORD.split(copy)[1:-1])
    if _spell(capitals, hidden.text, None, between) != copy:
        return None
    return f"⟨question {capitals:x}{name}={between}⟩"


def _capitals(text: str) -> int:
    """Return the places of the capital letters as the bits of a number."""
    return sum(1 << place for place, letter in enumerate(text) if letter.isupper())


def _spell(
    capitals: int, question: str, length: int | None = None, between: str | None = None
) -> str:
    """Return the question with these capitals, cut off at `length`, or with `between` its words."""
    words = [question[:length]]
    separators = []
    if between is not None:
        separators = between.split(between[:1])[1:] if between else []
        words = WORD.findall(question)[: len(separators) + 1]
    letters = iter(_with_capitals("".join(words), capitals))
    spelt = ["".join(islice(letters, len(word))) for word in words]
    return "".join(word + separator for word, separator in zip(spelt, [*separators, ""]))


def _with_capitals(text: str, capitals: int) -> list[str]:
    """Return the letters of a text, those at the places of the bits as capitals."""
    letters = []
    for place, letter in enumerate(text):
        letters.append(letter.upper() if capitals >> place & 1 else letter.lower())
    return letters


def restore(text: str, question: str, others: Mapping[str, Question] | None = None) -> str:
    """Put the questions back in place of their marks; an unknown question keeps its mark."""

    def hidden_text(identity: str | None) -> str:
        """Return the text that a mark with this id replaced; "" if it is unknown."""
        if not identity:
            return question
        if others and identity in others:
            return core(others[identity].question)
        return " ".join(at_most_twice(question)) if identity == SHORTENED else ""

    def spell(match: re.Match) -> str:
        capitals, length, identity, between = match.groups()
        text = hidden_text(identity)
        if not text:
            return match[0]
        return _spell(int(capitals, 16), text, int(length) if length else None, between)

    return MARK.sub(spell, text)
