"""The slots of a verdict: the choices that the schema leaves to the model, and their probabilities.

It implements the form of the paper's Table 7 (`prompts.SCHEMA`) and needs no network.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from covrag_lite.engine.interface import Schema
from covrag_lite.prompts import JUDGMENTS

if TYPE_CHECKING:
    import numpy as np
    import torch

DIGITS = tuple("0123456789")
QUOTES = (' "', ' ""')  # the opening of a revised question, or a whole empty one
# The choices of frequent verdicts, the most frequent first: the first guesses.
TYPICAL = (
    (*"095095095095005095", "true", QUOTES[1]),
    (*"005005005045055095", "false", QUOTES[0]),
    (*"005005005015095095", "false", QUOTES[0]),
    (*"005095005095095095", "true", QUOTES[1]),
)
TELLING = 2  # slots that show which of these a verdict resembles: is the first score high or low?


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
    chances: list[list[float]]  # the probabilities of each slot's choices; [] if only one was left


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
                slots += [Slot(name, before, DIGITS[:2]), Slot(name, ".", DIGITS, 1), Slot(name, "", DIGITS, 2)]
            case "judgment", name:
                slots.append(Slot(name, before, JUDGMENTS))
            case "text", name:
                slots.append(Slot(name, before, QUOTES))
        before = ""
    return slots, before


def fixed(slot: Slot, path: Sequence[str]) -> str | None:
    """Return the only possible choice at a slot, if there is one: a score is at most 1.00."""
    return "0" if slot.digit and path[-slot.digit] == "1" else None


class Choices:
    """The choices at all slots, identified by their first tokens."""

    def __init__(self, slots: Sequence[Slot], ids_of: Callable[[str], list[int]], model: str):
        first_tokens = {slot.choices: [ids_of(choice)[0] for choice in slot.choices] for slot in slots}
        for choices, tokens in first_tokens.items():
            # An empty revision that begins like a full one is recognised later: it ends at once.
            if len(set(tokens)) < len(choices) and choices != QUOTES:
                same = f"the tokenizer of {model!r} gives some of {choices} the same first token"
                raise ValueError(f"{same}; use verdicts = 'free'")
        opening, empty = first_tokens[QUOTES]
        self.tells_empty = opening != empty
        self.tokens = sorted({token for tokens in first_tokens.values() for token in tokens})
        self.columns = {}  # for each tuple of choices, the indices of its first tokens in `tokens`
        for choices, tokens in first_tokens.items():
            self.columns[choices] = [self.tokens.index(token) for token in tokens]

    def chances(self, logits: "torch.Tensor") -> "dict[tuple[str, ...], np.ndarray]":
        """Return the probabilities of all choices: (..., vocabulary) to (..., choices)."""
        first_tokens = logits[..., self.tokens].cpu().double()
        return {one: first_tokens[..., columns].softmax(-1).numpy() for one, columns in self.columns.items()}

    def choose(self, slot: Slot, path: Sequence[str], chances: Sequence[float]) -> tuple[str, Sequence[float]]:
        """Return the most probable choice and all probabilities; [] if only one choice is left."""
        only = fixed(slot, path)
        if slot.choices == QUOTES and not self.tells_empty:
            only = QUOTES[0]
        if only:
            return only, []
        likeliest = chances.index(max(chances))
        return slot.choices[likeliest], chances


def probabilities_of(slots: Sequence[Slot], chances: Sequence[Sequence[float]]) -> dict[str, float]:
    """Return each score's expectation, and the probabilities of "true" and of an empty revision.

    All are relative to the allowed choices.
    """
    made = {}
    for slot, chance in zip(slots, chances):
        if slot.choices == JUDGMENTS:
            made["true"] = chance[JUDGMENTS.index("true")]
        elif slot.choices == QUOTES:
            if chance:
                made["empty"] = chance[1]
        elif not slot.digit:
            # A verdict that begins with 1 has no decimals to ask for. Its expectation is P(1), a
            # lower bound.
            leading_zero, leading_one = chance
            made[slot.name] = leading_one
        elif chance:
            digit_mean = sum(digit * p for digit, p in enumerate(chance))
            made[slot.name] += leading_zero * 0.1**slot.digit * digit_mean
    return {name: float(f"{value:.6g}") for name, value in made.items()}


class Guesses:
    """Earlier verdicts, used to guess how another one continues.

    A wrong guess costs little and changes no verdict.
    """

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
        [(likest, _)] = self.seen[path[:end]].most_common(1)  # of a tie, the first that was seen
        made = list(path)
        for place in range(len(path), len(self.slots)):
            made.append(fixed(self.slots[place], made) or likest[place])
        return tuple(made)
