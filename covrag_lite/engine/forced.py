"""Verdicts forced into their schema (the paper's Table 7): the model decides only on the slots.

All fixed text is appended, so a verdict always parses. A first pass reads up to the slots that are
most informative. The next pass reads a guess of the whole verdict. At the first slot where the
model decides otherwise, the guess is corrected, and what was read after it is masked out. So most
verdicts need a few passes, not one per token, and the result is the same.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from covrag_lite.engine.decoding import Writer
from covrag_lite.engine.interface import Completion, Schema
from covrag_lite.engine.slots import QUOTES, TELLING, Choices, Filled, Guesses, Slot, probabilities_of, slots_of


class Tail(NamedTuple):
    """A guess of how a verdict continues."""

    ids: list[int]  # its tokens up to the last slot
    places: list[int]  # the position of the token before each slot, from the end; the last is -1
    guessed: Sequence[str]  # the guessed choice of each slot


class VerdictWriter(Writer):
    """Completes a batch of prompts to verdicts."""

    def write_verdicts(self, schema: Schema, limit: int) -> list[Completion]:
        """Write each row's verdict: first the slots, with probabilities, then revised questions."""
        slots, closing = slots_of(schema)
        made = self.write_slots(slots)
        revised = self.write_free(self.loaded.quoted.ends, limit, self.loaded.quoted.forbidden)
        verdicts = []
        for row, filled in made.items():
            text = "".join(slot.before + choice for slot, choice in zip(slots, filled.path))
            if row in revised:
                text += revised[row].revised_question(self.loaded)
            verdicts.append(Completion(text + closing, probabilities_of(slots, filled.chances)))
        return verdicts

    def write_slots(self, slots: Sequence[Slot]) -> dict[int, Filled]:
        """Fill all slots of each row; rows with an empty revision leave the batch."""
        choices = Choices(slots, self.loaded.piece, self.loaded.settings.model)
        guesses = Guesses(slots)
        made = {row: Filled([], []) for row in self.rows}
        first = [TELLING, len(slots)]
        n_filled = 0
        while any(len(made[row].path) < len(slots) for row in self.rows):
            # Not much further than the last guesses were right.
            ahead = first.pop(0) if first else 2 * n_filled
            n_filled = self.fill_ahead(slots, choices, guesses, made, ahead)
            self.keep([row for row in self.rows if made[row].path[-1] != QUOTES[1]])
        return made

    def fill_ahead(
        self, slots: Sequence[Slot], choices: Choices, guesses: Guesses, made: dict[int, Filled], ahead: int
    ) -> int:
        """Fill up to `ahead` slots per row in one pass; return the most that one row has filled."""
        begun = {row: tuple(made[row].path) for row in self.rows}
        tails = {}
        for path in set(begun.values()):
            tails[path] = self.lay_out(slots[: len(path) + ahead], path, guesses.guess(path))
        fed = []
        for row in self.rows:
            tail = tails[begun[row]]
            # A row without slots waits.
            fed.append(self.pending[row] + tail.ids if tail.places else [])
        places = sorted({place for tail in tails.values() for place in tail.places})
        logits, self.mask = self.read(fed, self.mask, places)
        tables = choices.chances(logits)  # each (rows, places, choices)
        columns = {place: column for column, place in enumerate(places)}
        last_places = []
        for number, row in enumerate(self.rows):
            (path, chances), tail = made[row], tails[begun[row]]
            last = -1  # the place of the last choice; a waiting row has none
            for place, guessed in zip(tail.places, tail.guessed):
                slot = slots[len(path)]
                given = tables[slot.choices][number, columns[place]].tolist()
                choice, shares = choices.choose(slot, path, given)
                path.append(choice)
                chances.append(shares)
                last = place
                if choice != guessed:
                    break
            last_places.append(last)
            if tail.places:
                self.pending[row] = list(self.loaded.piece(path[-1]))
                if len(path) == len(slots):
                    guesses.add(tuple(path))
        self.forget_after(last_places)
        return max(len(made[row].path) - len(begun[row]) for row in self.rows)

    def lay_out(self, slots: Sequence[Slot], path: Sequence[str], guessed: Sequence[str]) -> Tail:
        """Return the tokens that follow `path` if the guess is right, up to the last slot."""
        ids = []
        ends = []
        for number in range(len(path), len(slots)):
            ids += self.loaded.piece(slots[number].before)
            ends.append(len(ids))
            is_last = number == len(slots) - 1
            if not is_last:
                ids += self.loaded.piece(guessed[number])
        places = [end - 1 - len(ids) for end in ends]
        return Tail(ids, places, guessed[len(path) : len(slots)])

    def forget_after(self, places: Sequence[int]) -> None:
        """Mask out what each row has read after its place; -1 is the last token."""
        columns = torch.arange(-self.mask.shape[1], 0, device=self.mask.device)  # (tokens read)
        last = torch.tensor(places, device=self.mask.device)[:, None]  # (rows, 1)
        self.mask = self.mask * (columns <= last)
