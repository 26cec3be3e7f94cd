"""Probabilities from the tokens that a server reports: of an answer, and of a verdict's fields.

A server splits a verdict into tokens as it likes, so a field's probability is known only if a token
begins where the field begins. Fields for which that is not so are left out.
"""

import math
import re
from collections.abc import Mapping, Sequence

from openai.types.chat import ChatCompletionTokenLogprob

from covrag_lite.engine.slots import DIGITS, Slot, probabilities_of
from covrag_lite.prompts import JUDGMENTS

Tokens = Sequence[ChatCompletionTokenLogprob]

SCORE = re.compile(r'"(?P<name>\w+)":\s*(?P<integer>[01])\.(?P<decimals>\d\d?)')
JUDGMENT = re.compile(r'"3":\s*"')  # what is before the judgment
REVISED_QUESTION = re.compile(r'"4":\s*')  # what is before the quotation marks
QUOTE = '"'
EMPTY = '""'


def mean_likelihood(tokens: Tokens) -> dict[str, float] | None:
    """Return the mean log-probability of these tokens; None if the server reports none.

    vLLM reports the token that ends a text too, and our own engines count it; other servers may
    leave it out.
    """
    if not tokens:
        return None
    mean = sum(token.logprob for token in tokens) / len(tokens)
    return {"likelihood": round(mean, 5)}


def verdict_probabilities(tokens: Tokens) -> dict[str, float]:
    """Return what is known of each score's expectation, of "true" and of an empty revision."""
    text = "".join(token.token for token in tokens)
    choices = choices_by_position(tokens)
    single_letters = choices_by_position(tokens, written_length=1)
    probabilities = expected_scores(text, single_letters)
    true = chance_of_true(text, choices)
    if true is not None:
        probabilities["true"] = true
    empty = chance_of_empty(text, choices)
    if empty is not None:
        probabilities["empty"] = empty
    return probabilities


Choices = Mapping[int, Mapping[str, float]]  # position in the text -> token -> its probability


def choices_by_position(tokens: Tokens, written_length: int = 0) -> Choices:
    """Return the most probable tokens at each position of the text where a token begins.

    With `written_length`, only where the written token has that many letters.
    """
    choices = {}
    position = 0
    for token in tokens:
        if written_length in (0, len(token.token)):
            choices[position] = {
                other.token: math.exp(other.logprob) for other in token.top_logprobs or ()
            }
        position += len(token.token)
    return choices


def expected_scores(text: str, choices: Choices) -> dict[str, float]:
    """Return the expectation of each score, if the model writes numbers digit by digit."""
    slots = []
    probabilities = []
    for score in SCORE.finditer(text):
        name = score["name"]
        score_slots = [Slot(name, "", DIGITS[:2])]
        if score["integer"] != "1":  # the decimals of a 1 are zeros
            n_decimals = len(score["decimals"])
            score_slots += [Slot(name, "", DIGITS, digit) for digit in range(1, 1 + n_decimals)]
        score_chances = []
        for slot in score_slots:
            # Digit 0 is the integer; the first decimal is behind the point.
            place = score.start("integer")
            if slot.digit:
                place = score.start("decimals") + slot.digit - 1
            chances = choices.get(place, {})
            score_chances.append([chances.get(digit, 0.0) for digit in slot.choices])
        if all(sum(chances) for chances in score_chances):
            slots += score_slots
            probabilities += [normalise(chances) for chances in score_chances]
    return probabilities_of(slots, probabilities)


def chance_of_true(text: str, choices: Choices) -> float | None:
    """Return the probability of "true" relative to the three judgments; None if unknown."""
    before = JUDGMENT.search(text)
    if not before:
        return None
    chances = dict.fromkeys(JUDGMENTS, 0.0)
    for token, chance in choices.get(before.end(), {}).items():
        for judgment in JUDGMENTS:
            begins = token and (judgment.startswith(token) or token.startswith(judgment))
            if begins:
                chances[judgment] += chance
    total = sum(chances.values())
    return float(f"{chances['true'] / total:.6g}") if total else None


def chance_of_empty(text: str, choices: Choices) -> float | None:
    """Return the probability that the revised question is empty; None if unknown.

    Most tokenizers have one token for two quotation marks. If the model opened with one mark and no
    such token was likely, the next token decides.
    """
    before = REVISED_QUESTION.search(text)
    if not before:
        return None
    for start in range(before.start() + len('"4":'), before.end() + 1):  # blanks before the mark
        empty, opening = quote_chances(choices.get(start, {}))
        if empty:
            return float(f"{empty / (empty + opening):.6g}")
        if opening:
            after_mark = choices.get(before.end() + 1, {})
            closing = sum(p for token, p in after_mark.items() if token.startswith(QUOTE))
            total = sum(after_mark.values())
            return float(f"{closing / total:.6g}") if total else None
    return None


def quote_chances(chances: Mapping[str, float]) -> tuple[float, float]:
    """Return the chances of tokens that begin with two quotation marks, and with only one."""
    empty = 0.0
    opening = 0.0
    for token, chance in chances.items():
        mark = token.lstrip(" ")
        if mark.startswith(EMPTY):
            empty += chance
        elif mark.startswith(QUOTE):
            opening += chance
    return empty, opening


def normalise(chances: Sequence[float]) -> list[float]:
    """Return these probabilities relative to their sum."""
    total = sum(chances)
    return [chance / total for chance in chances]
