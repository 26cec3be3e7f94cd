"""The slots of a verdict: the choices that the schema leaves to the model, and their probabilities.

It implements the form of the paper's Table 7 (`prompts.SCHEMA`) and needs no network.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from covrag_lite.engine.interface import Schema
from covrag_lite.oracle import HIGH, LOW, bias, truthfulness
from covrag_lite.prompts import EMPTY_QUOTES, JUDGMENTS, OPENING_QUOTE

if TYPE_CHECKING:
    import numpy as np
    import torch

DIGITS = tuple("0123456789")
QUOTES = (OPENING_QUOTE, EMPTY_QUOTES)


@dataclass(frozen=True)
class Slot:
    """A place in the schema where the model chooses, with the fixed text before it."""

    name: str
    before: str
    choices: tuple[str, ...]
    digit: int = 0  # position within a score; if the score begins with 1, its decimals are zeros


class Filled(NamedTuple):
    """The slots of one verdict that are filled so far."""

    path: list[str]  # the choice at each slot
    # The probabilities of each slot's choices; [] if there was only one.
    probabilities: list[Sequence[float]]

    def add(self, choice: str, probabilities: Sequence[float]) -> None:
        """Fill the next slot."""
        self.path.append(choice)
        self.probabilities.append(probabilities)


def slots_of(schema: Schema) -> tuple[list[Slot], str]:
    """Return the schema's slots in order, and its closing text."""
    slots = []
    before = ""
    for part in schema:
        match part:
            case str():
                before += part
                continue
            case "score", name:
                slots.append(Slot(name, before, DIGITS[:2]))
                slots.append(Slot(name, ".", DIGITS, 1))
                slots.append(Slot(name, "", DIGITS, 2))
            case "judgment", name:
                slots.append(Slot(name, before, JUDGMENTS))
            case "text", name:
                slots.append(Slot(name, before, QUOTES))
        before = ""
    return slots, before


def only_choice(slot: Slot, path: Sequence[str]) -> str | None:
    """Return the only possible choice at a slot, if there is one: a score is at most 1.00."""
    return "0" if slot.digit and path[-slot.digit] == "1" else None


class Choices:
    """The choices at all slots, identified by their first tokens."""

    def __init__(self, slots: Sequence[Slot], ids_of: Callable[[str], list[int]], model: str):
        first_tokens = {
            slot.choices: [ids_of(choice)[0] for choice in slot.choices] for slot in slots
        }
        for choices, tokens in first_tokens.items():
            # An empty revision that begins like a full one is recognised later: it ends at once.
            if len(set(tokens)) < len(choices) and choices != QUOTES:
                raise ValueError(
                    f"the tokenizer of {model!r} gives some of {choices} the same first token; "
                    "use verdicts = 'free'"
                )
        opening, empty = first_tokens[QUOTES]
        self.tells_empty = opening != empty
        self.tokens = sorted(set().union(*first_tokens.values()))
        self.columns = {}  # for each tuple of choices, the indices of its first tokens in `tokens`
        for choices, tokens in first_tokens.items():
            self.columns[choices] = [self.tokens.index(token) for token in tokens]

    def probabilities(self, logits: "torch.Tensor") -> "dict[tuple[str, ...], np.ndarray]":
        """Return the probabilities of all choices: (..., vocabulary) to (..., choices)."""
        first_tokens = logits[..., self.tokens].cpu().double()
        return {
            choices: first_tokens[..., columns].softmax(-1).numpy()
            for choices, columns in self.columns.items()
        }

    def choose(
        self, slot: Slot, path: Sequence[str], probabilities: Sequence[float]
    ) -> tuple[str, Sequence[float]]:
        """Return the most probable choice and all probabilities; [] if there is only one choice."""
        only = only_choice(slot, path)
        if slot.choices == QUOTES and not self.tells_empty:
            only = OPENING_QUOTE
        if only:
            return only, []
        likeliest = probabilities.index(max(probabilities))
        return slot.choices[likeliest], probabilities


def probabilities_of(
    slots: Sequence[Slot], probabilities: Sequence[Sequence[float]]
) -> dict[str, float]:
    """Return each score's expectation, and the probabilities of "true" and of an empty revision.

    All are relative to the allowed choices.
    """
    expected: dict[str, float] = {}
    for slot, chances in zip(slots, probabilities):
        if not chances:  # there was only one choice
            continue
        if slot.choices == JUDGMENTS:
            expected["true"] = chances[JUDGMENTS.index("true")]
        elif slot.choices == QUOTES:
            expected["empty"] = chances[QUOTES.index(EMPTY_QUOTES)]
        elif not slot.digit:
            # A score that begins with 1 has no decimals whose probabilities could be asked for. Its
            # expectation is P(1), a lower bound.
            leading_zero, leading_one = chances
            expected[slot.name] = leading_one
        else:
            mean_digit = sum(digit * chance for digit, chance in enumerate(chances))
            expected[slot.name] += leading_zero * 0.1**slot.digit * mean_digit
    return {name: float(f"{value:.6g}") for name, value in expected.items()}


# Guesses of how a verdict continues. A wrong guess costs little and changes no verdict.


def path_of(scores: Sequence[float], judgment: str, quotes: str) -> tuple[str, ...]:
    """Return the choices of a verdict with these scores."""
    digits = "".join(f"{score:.2f}".replace(".", "") for score in scores)
    return (*digits, judgment, quotes)


# The oracle's truthfulness and bias for a wrong answer, by whether a passage contains the answer.
WRONG = {
    grounded: (truthfulness(False, grounded, repetitive=False), bias(False, grounded))
    for grounded in (True, False)
}
# The choices of frequent verdicts of the oracle, the most frequent first: the first guesses.
TYPICAL = (
    path_of((HIGH, HIGH, HIGH, HIGH, LOW, HIGH), "true", EMPTY_QUOTES),
    path_of((LOW, LOW, LOW, *WRONG[True], HIGH), "false", OPENING_QUOTE),
    path_of((LOW, LOW, LOW, *WRONG[False], HIGH), "false", OPENING_QUOTE),
    path_of((LOW, HIGH, LOW, HIGH, HIGH, HIGH), "true", EMPTY_QUOTES),
)
TELLING = 2  # slots that show which of these a verdict resembles: is the first score high or low?


class Guesses:
    """Earlier verdicts, used to guess how another one continues."""

    def __init__(self, slots: Sequence[Slot]):
        self.slots = slots
        # For every beginning, the verdicts that had it.
        self.seen: dict[tuple[str, ...], Counter] = defaultdict(Counter)
        for path in TYPICAL:
            self.add(path[-len(slots) :])

    def add(self, path: tuple[str, ...]) -> None:
        """Add a complete verdict."""
        for end in range(len(path) + 1):
            self.seen[path[:end]][path] += 1

    def guess(self, path: tuple[str, ...]) -> tuple[str, ...]:
        """Continue these choices like the most frequent verdict that begins most like them."""
        end = len(path)
        while path[:end] not in self.seen:
            end -= 1
        [(likeliest, _)] = self.seen[path[:end]].most_common(1)  # of a tie, the first in order
        guess = list(path)
        for number in range(len(path), len(self.slots)):
            guess.append(only_choice(self.slots[number], guess) or likeliest[number])
        return tuple(guess)
