"""Verdicts forced into their schema (the paper's Table 7): what it fixes is appended, and only the slots are decided.

So a verdict always parses. A first pass reads up to the slots that tell most, and the next one a whole verdict as it is
guessed to go on. At the first slot that the model fills otherwise, the guess is corrected and what was read after it is
masked out. Most verdicts cost a few passes where each token would cost one, and none comes out differently.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from covrag_lite.engine.decoding import Writer
from covrag_lite.engine.interface import Completion, Schema
from covrag_lite.engine.slots import QUOTES, TELLING, Choices, Filled, Guesses, Slot, probabilities_of, slots_of


class Tail(NamedTuple):
    """How a verdict is guessed to go on."""

    ids: list[int]  # its tokens up to the last slot
    places: list[int]  # of each slot, where the token before it stands; counted from the end, so the last is -1
    guessed: Sequence[str]  # what each slot is guessed to hold


class VerdictWriter(Writer):
    """Completes a batch of prompts to verdicts."""

    def write_verdicts(self, schema: Schema, limit: int) -> list[Completion]:
        """Each row's verdict and the probabilities behind it: first the slots, then the revised questions."""
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
        """Each row's choices and their chances; rows with an empty revision leave the batch."""
        choices = Choices(slots, self.loaded.piece, self.loaded.settings.model)
        guesses = Guesses(slots)
        made = {row: Filled([], []) for row in self.rows}
        first = [TELLING, len(slots)]
        n_filled = 0
        while any(len(made[row].path) < len(slots) for row in self.rows):
            ahead = first.pop(0) if first else 2 * n_filled  # not much further than guesses have just been right
            n_filled = self.fill_ahead(slots, choices, guesses, made, ahead)
            self.keep([row for row in self.rows if made[row].path[-1] != QUOTES[1]])
        return made

    def fill_ahead(
        self, slots: Sequence[Slot], choices: Choices, guesses: Guesses, made: dict[int, Filled], ahead: int
    ) -> int:
        """Fill up to `ahead` slots of every row by one pass over its guess; returns the most that a row has filled."""
        begun = {row: tuple(made[row].path) for row in self.rows}
        tails = {}
        for path in set(begun.values()):
            tails[path] = self.lay_out(slots[: len(path) + ahead], path, guesses.guess(path))
        fed = []
        for row in self.rows:
            tail = tails[begun[row]]
            fed.append(self.pending[row] + tail.ids if tail.places else [])  # a row without slots left waits
        places = sorted({place for tail in tails.values() for place in tail.places})
        logits, self.mask = self.read(fed, self.mask, places)
        tables = choices.chances(logits)  # each (rows, places, choices)
        columns = {place: column for column, place in enumerate(places)}
        last_places = []
        for number, row in enumerate(self.rows):
            (path, chances), tail = made[row], tails[begun[row]]
            last = -1  # the place of the last choice; a row that waits has none
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
        """The tokens that follow the choices of `path` if the guess is right, up to the last of these slots."""
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
        """Mask out what each row has read after its place; places count from the end, -1 is the last token."""
        columns = torch.arange(-self.mask.shape[1], 0, device=self.mask.device)  # (tokens read)
        last = torch.tensor(places, device=self.mask.device)[:, None]  # (rows, 1)
        self.mask = self.mask * (columns <= last)
