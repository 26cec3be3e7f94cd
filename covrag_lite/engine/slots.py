"""The slots of a verdict: where the schema lets the model choose, how a verdict may go on, and what its chances say.

This is bookkeeping over `prompts.SCHEMA` (the paper's Table 7) and knows no network.
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
QUOTES = (' "', ' ""')  # a revised question's opening, or all of an empty one
# The choices of verdicts as they are often written, the most frequent first: the first guesses.
TYPICAL = (
    (*"095095095095005095", "true", QUOTES[1]),
    (*"005005005045055095", "false", QUOTES[0]),
    (*"005005005015095095", "false", QUOTES[0]),
    (*"005095005095095095", "true", QUOTES[1]),
)
TELLING = 2  # slots that tell which of these a verdict will be like: the first score is high or low


@dataclass(frozen=True)
class Slot:
    """A place in the schema where the model chooses, with the fixed text before it."""

    name: str
    before: str
    choices: tuple[str, ...]
    digit: int = 0  # of a score, which one: its decimals are zeros where it begins with a 1


class Filled(NamedTuple):
    """How the slots of one verdict have been filled so far."""

    path: list[str]  # the choice at each slot
    chances: list[list[float]]  # at each slot the probabilities of its choices; none where only one was left


def slots_of(schema: Schema) -> tuple[list[Slot], str]:
    """The schema's slots in order, and its closing text."""
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
    """The choice at a slot that leaves none: a score is at most 1.00."""
    return "0" if slot.digit and path[-slot.digit] == "1" else None


class Choices:
    """The choices at all slots by their first tokens, which are all that the model is asked for."""

    def __init__(self, slots: Sequence[Slot], ids_of: Callable[[str], list[int]], model: str):
        first_tokens = {slot.choices: [ids_of(choice)[0] for choice in slot.choices] for slot in slots}
        for choices, tokens in first_tokens.items():
            # An empty revision that begins like a full one also shows later, by ending at once.
            if len(set(tokens)) < len(choices) and choices != QUOTES:
                raise ValueError(f"the tokenizer of {model!r} cannot tell {choices} apart; use verdicts = 'free'")
        opening, empty = first_tokens[QUOTES]
        self.tells_empty = opening != empty
        self.tokens = sorted({token for tokens in first_tokens.values() for token in tokens})
        self.columns = {}  # of each tuple of choices, where its first tokens stand in `self.tokens`
        for choices, tokens in first_tokens.items():
            self.columns[choices] = [self.tokens.index(token) for token in tokens]

    def chances(self, logits: "torch.Tensor") -> "dict[tuple[str, ...], np.ndarray]":
        """For each tuple of choices their probabilities at all places: (..., vocabulary) to (..., choices)."""
        first_tokens = logits[..., self.tokens].cpu().double()
        return {one: first_tokens[..., columns].softmax(-1).numpy() for one, columns in self.columns.items()}

    def choose(self, slot: Slot, path: Sequence[str], chances: Sequence[float]) -> tuple[str, Sequence[float]]:
        """The likeliest choice at a slot and the probabilities of all, which are none where only one is left."""
        only = fixed(slot, path)
        if slot.choices == QUOTES and not self.tells_empty:
            only = QUOTES[0]
        if only:
            return only, []
        likeliest = chances.index(max(chances))
        return slot.choices[likeliest], chances


def probabilities_of(slots: Sequence[Slot], chances: Sequence[Sequence[float]]) -> dict[str, float]:
    """Each score's expectation, and the probabilities of "true" and of an empty revision, among what is allowed."""
    made = {}
    for slot, chance in zip(slots, chances):
        if slot.choices == JUDGMENTS:
            made["true"] = chance[JUDGMENTS.index("true")]
        elif slot.choices == QUOTES:
            if chance:
                made["empty"] = chance[1]
        elif not slot.digit:
            # The decimals after a leading 0 are not asked of a verdict that wrote a 1: there the expectation is P(1)
            # alone, a lower bound.
            leading_zero, leading_one = chance
            made[slot.name] = leading_one
        elif chance:
            digit_mean = sum(digit * p for digit, p in enumerate(chance))
            made[slot.name] += leading_zero * 0.1**slot.digit * digit_mean
    return {name: float(f"{value:.6g}") for name, value in made.items()}


class Guesses:
    """Verdicts as they have gone so far, to guess how others go on.

    A wrong guess costs little and changes no verdict.
    """

    def __init__(self, slots: Sequence[Slot]):
        self.slots = slots
        self.seen: dict[tuple[str, ...], Counter] = defaultdict(Counter)  # of every beginning, the verdicts that had it
        for path in TYPICAL:
            self.add(path[-len(slots) :])

    def add(self, path: tuple[str, ...]) -> None:
        """Remember a whole verdict."""
        for end in range(len(path) + 1):
            self.seen[path[:end]][path] += 1

    def guess(self, path: tuple[str, ...]) -> tuple[str, ...]:
        """These choices, continued like the most frequent of the verdicts that begin most like them."""
        end = len(path)
        while path[:end] not in self.seen:
            end -= 1
        [(likest, _)] = self.seen[path[:end]].most_common(1)  # of two, the first that was seen
        made = list(path)
        for place in range(len(path), len(self.slots)):
            made.append(fixed(self.slots[place], made) or likest[place])
        return tuple(made)
