"""Verdicts forced into their schema (the paper's Table 7): the model decides only on the slots.

All fixed text is appended, so a verdict always parses. A first pass reads up to the slots that are
most informative. The next pass reads a guess of the whole verdict. At the first slot where the
model decides otherwise, the guess is corrected, and what was read after it is masked out. So most
verdicts need a few passes, not one per token, and the result is the same.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from covrag_lite.engine.fast.decoding import Writer
from covrag_lite.engine.interface import Completion, Schema
from covrag_lite.engine.slots import (
    TELLING,
    Choices,
    Filled,
    Guesses,
    Slot,
    probabilities_of,
    slots_of,
)
from covrag_lite.prompts import EMPTY_QUOTES


class Guess(NamedTuple):
    """A guess of how a verdict continues."""

    ids: list[int]  # its tokens up to the last slot
    # The position of the token before each slot, from the end; the last is -1.
    positions: list[int]
    choices: Sequence[str]  # the guessed choice of each slot


class Probabilities(NamedTuple):
    """The probabilities of all choices, at several positions of each row."""

    tables: dict[tuple[str, ...], np.ndarray]  # by choices, each (rows, positions, choices)
    columns: dict[int, int]  # position -> its index in the tables

    def at(self, row: int, position: int, slot: Slot) -> list[float]:
        """Return the probabilities of a slot's choices, of the batch's row of that number."""
        return self.tables[slot.choices][row, self.columns[position]].tolist()


class VerdictWriter(Writer):
    """Completes a batch of prompts to verdicts."""

    def write_verdicts(self, schema: Schema, limit: int) -> list[Completion]:
        """Write each row's verdict: first the slots, with probabilities, then revised questions."""
        slots, closing = slots_of(schema)
        verdicts = self.write_slots(slots)
        quoted = self.backbone.quoted
        revised = self.write_free(quoted.ends, limit, quoted.forbidden)
        completions = []
        for row, filled in verdicts.items():
            text = "".join(slot.before + choice for slot, choice in zip(slots, filled.path))
            if row in revised:
                text += revised[row].revised_question(self.vocabulary)
            probabilities = probabilities_of(slots, filled.probabilities)
            completions.append(Completion(text + closing, probabilities))
        return completions

    def write_slots(self, slots: Sequence[Slot]) -> dict[int, Filled]:
        """Fill all slots of each row; rows with an empty revision leave the batch."""
        choices = Choices(slots, self.vocabulary.piece, self.backbone.settings.model)
        guesses = Guesses(slots)
        verdicts = {row: Filled([], []) for row in self.rows}
        n_ahead = TELLING
        n_passes = 0
        while any(len(verdicts[row].path) < len(slots) for row in self.rows):
            n_filled = self.fill_ahead(slots, choices, guesses, verdicts, n_ahead)
            n_passes += 1
            # The second pass guesses the whole verdict; later ones do not guess much further than
            # the last guesses were right.
            n_ahead = len(slots) if n_passes == 1 else 2 * n_filled
            self.keep([row for row in self.rows if verdicts[row].path[-1] != EMPTY_QUOTES])
        return verdicts

    def fill_ahead(
        self,
        slots: Sequence[Slot],
        choices: Choices,
        guesses: Guesses,
        verdicts: Mapping[int, Filled],
        n_ahead: int,
    ) -> int:
        """Fill up to `n_ahead` slots per row in one pass; return the most that one row filled."""
        guess_of = self.guess_all(slots, guesses, verdicts, n_ahead)
        probabilities = self.read_guesses(choices, guess_of)
        last_positions = []
        n_filled = []
        for number, row in enumerate(self.rows):
            filled = verdicts[row]
            n_before = len(filled.path)
            last = fill_row(number, filled, slots, guess_of[row], choices, probabilities)
            last_positions.append(last)
            n_filled.append(len(filled.path) - n_before)
            if guess_of[row].positions:
                self.pending[row] = list(self.vocabulary.piece(filled.path[-1]))
                if len(filled.path) == len(slots):
                    guesses.add(tuple(filled.path))
        self.forget_after(last_positions)
        return max(n_filled)

    def guess_all(
        self,
        slots: Sequence[Slot],
        guesses: Guesses,
        verdicts: Mapping[int, Filled],
        n_ahead: int,
    ) -> dict[int, Guess]:
        """Return a guess of the next slots of each row; rows with the same choices share one."""
        paths = {row: tuple(verdicts[row].path) for row in self.rows}
        guess_of_path = {}
        for path in set(paths.values()):
            next_slots = slots[: len(path) + n_ahead]
            guess_of_path[path] = self.lay_out(next_slots, path, guesses.guess(path))
        return {row: guess_of_path[path] for row, path in paths.items()}

    def lay_out(self, slots: Sequence[Slot], path: Sequence[str], guessed: Sequence[str]) -> Guess:
        """Return the tokens that follow `path` if the guess is right, up to the last slot."""
        ids = []
        ends = []
        for number in range(len(path), len(slots)):
            ids += self.vocabulary.piece(slots[number].before)
            ends.append(len(ids))
            is_last = number == len(slots) - 1
            if not is_last:
                ids += self.vocabulary.piece(guessed[number])
        positions = [end - 1 - len(ids) for end in ends]
        return Guess(ids, positions, guessed[len(path) : len(slots)])

    def read_guesses(self, choices: Choices, guess_of: Mapping[int, Guess]) -> Probabilities:
        """Read the guess of each row in one pass; a row without slots waits."""
        next_ids = []
        all_positions: set[int] = set()
        for row in self.rows:
            guess = guess_of[row]
            next_ids.append(self.pending[row] + guess.ids if guess.positions else [])
            all_positions.update(guess.positions)
        positions = sorted(all_positions)
        logits, self.mask = self.read(next_ids, self.mask, positions)
        columns = {position: column for column, position in enumerate(positions)}
        return Probabilities(choices.probabilities(logits), columns)

    def forget_after(self, positions: Sequence[int]) -> None:
        """Mask out what each row has read after its position; -1 is the last token."""
        columns = torch.arange(-self.mask.shape[1], 0, device=self.mask.device)  # (tokens read)
        last = torch.tensor(positions, device=self.mask.device)[:, None]  # (rows, 1)
        self.mask = self.mask * (columns <= last)


def fill_row(
    number: int,
    filled: Filled,
    slots: Sequence[Slot],
    guess: Guess,
    choices: Choices,
    probabilities: Probabilities,
) -> int:
    """Fill the slots of the batch's row of that number, up to the first wrong guess.

    Returns the position of the last choice; -1 for a row that waits.
    """
    last = -1
    for position, guessed in zip(guess.positions, guess.choices):
        slot = slots[len(filled.path)]
        slot_probabilities = probabilities.at(number, position, slot)
        choice, slot_probabilities = choices.choose(slot, filled.path, slot_probabilities)
        filled.add(choice, slot_probabilities)
        last = position
        if choice != guessed:
            break
    return last
