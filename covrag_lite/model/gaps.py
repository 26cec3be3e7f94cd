"""The gaps of a verdict: where the schema lets the model choose, how a verdict is guessed to go on, and what its choices' chances say.

Pure bookkeeping over `prompts.SCHEMA`; `decoding` asks the model.
"""

import math
import os.path
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from covrag_lite.prompts import JUDGMENTS

DIGITS, QUOTES = tuple("0123456789"), (' "', ' ""')  # a revised question's opening, or all of an empty one
# The choices of verdicts as they are often written: the first guesses.
TYPICAL = ((*"095095095095005095", "true", QUOTES[1]), (*"005005005015095095", "false", QUOTES[0]))


@dataclass(frozen=True)
class Gap:
    """A place in the schema where the model chooses, with the fixed text before it."""

    name: str
    before: str
    choices: tuple[str, ...]
    digit: int = 0  # of a score, which one: its decimals are zeros where it begins with a 1


def gaps_of(schema: Sequence[str | tuple[str, str]]) -> tuple[list[Gap], str]:
    """The schema's gaps in order, and its closing text."""
    gaps, before = [], ""
    for part in schema:
        match part:
            case str():
                before += part
                continue
            case "score", name:
                gaps += [Gap(name, before, DIGITS[:2]), Gap(name, ".", DIGITS, 1), Gap(name, "", DIGITS, 2)]
            case "judgment", name:
                gaps.append(Gap(name, before, JUDGMENTS))
            case "text", name:
                gaps.append(Gap(name, before, QUOTES))
        before = ""
    return gaps, before


def fixed(gap: Gap, path: Sequence[str]) -> str | None:
    """The choice at a gap that leaves none: a score is at most 1.00."""
    return "0" if gap.digit and path[-gap.digit] == "1" else None


def probabilities_of(gaps: Sequence[Gap], path: Sequence[str], chances: Sequence[Sequence[float]]) -> dict[str, float]:
    """What stands behind a verdict: the expectation of each score, the probability of "true" and that of an empty revision, each among what the schema allows."""
    made = {}
    for gap, choice, chance in zip(gaps, path, chances):
        if gap.choices == JUDGMENTS:
            made["true"] = chance[JUDGMENTS.index("true")]
        elif gap.choices == QUOTES:
            made |= {"empty": chance[1]} if chance else {}
        elif not gap.digit:
            # What would follow a leading 0 is not asked of those that wrote a 1: there the expectation is P(1) alone, a lower bound.
            made[gap.name], leading = chance[1], chance[0]
        elif chance:
            made[gap.name] += leading * 0.1**gap.digit * sum(digit * p for digit, p in enumerate(chance))
    return {name: float(f"{value:.6g}") for name, value in made.items()}


def softmax(values: Sequence[float]) -> list[float]:
    powers = [math.exp(value - max(values)) for value in values]
    return [power / sum(powers) for power in powers]


class Guesses:
    """Verdicts as they have gone so far, to guess how others go on. A guess costs nothing when it is wrong, and changes no verdict."""

    def __init__(self, gaps: Sequence[Gap]):
        self.gaps = gaps
        self.seen = Counter(path[-len(gaps) :] for path in TYPICAL)

    def add(self, path: Sequence[str]) -> None:
        if len(path) == len(self.gaps):
            self.seen[tuple(path)] += 1

    def guess(self, path: Sequence[str]) -> tuple[str, ...]:
        """These choices, gone on like the most frequent of the verdicts that began most like them."""
        like = max(self.seen, key=lambda one: (len(os.path.commonprefix([tuple(path), one])), self.seen[one]))
        made = list(path)
        for gap, choice in list(zip(self.gaps, like))[len(path) :]:
            made.append(fixed(gap, made) or choice)
        return tuple(made)
