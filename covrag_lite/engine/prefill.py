"""A batch of prompts as the model reads it, row by row, with what it has read in a cache.

What all prompts begin with is read once, and rows that are done leave the batch. `decoding` decides what is written.
"""

import os.path
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from covrag_lite.engine import padded
from covrag_lite.engine.prepare import roomy_cache
from covrag_lite.engine.varlen_prefill import reader_of

if TYPE_CHECKING:
    from covrag_lite.engine.local import LanguageModel

SHARED = 16  # tokens of a common beginning from which reading it by itself pays


class Batch:
    """Prompts under way: what a prompt has not read yet is pending, what it has read is in the cache and its mask."""

    def __init__(self, model: "LanguageModel", prompts: Sequence[str], room: int):
        self.model = model
        self.tokenizer = model.tokenizer
        self.network = model.quick_network
        self.pending = model.encode(prompts, room)  # of each prompt, the tokens that the model has not read yet
        model.used["prompt_tokens"] += sum(map(len, self.pending))
        self.rows = list(range(len(prompts)))  # which prompt each row of the batch belongs to
        self.reader = reader_of(model)
        self.cache = roomy_cache(self.network.config)
        self.mask = torch.zeros(len(prompts), 0, dtype=torch.long, device=model.device)  # (rows, tokens read)
        self.beginning = self._take_common_beginning()  # what all prompts begin with, until it is read
        self.n_common = len(self.beginning)

    def _take_common_beginning(self) -> list[int]:
        """What all prompts begin with, and taken from them, where reading it once pays."""
        shortest = min(len(ids) for ids in self.pending)
        shared = min(len(os.path.commonprefix(self.pending)), shortest - 1)  # each prompt has a token left to read
        if len(self.pending) == 1 or shared < SHARED:
            return []
        beginning = list(self.pending[0][:shared])
        self.pending = [ids[shared:] for ids in self.pending]
        return beginning

    def read(
        self, ids: Sequence[Sequence[int]], mask: torch.Tensor, places: Sequence[int] = (-1,)
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The logits after one pass over these rows, (rows, places, vocabulary), and the mask so far.

        Rows of different lengths are aligned at their ends, and `places` count from there: -1 is the last token. A
        first pass also reads what all begin with, packed in the same one, or padded before it.
        """
        beginning, self.beginning = self.beginning, []
        if self.reader is not None and max(map(len, ids)) > 1:
            made = self.reader.read(ids, mask, self.cache, places, beginning)
            if made is not None:
                return made
        if beginning:
            mask = padded.begin(self.network, beginning, mask, self.cache)
        return padded.read(self.network, ids, mask, self.cache, places)

    def logits(self) -> torch.Tensor:
        """Read everything pending and return the logits of what follows: (rows, vocabulary)."""
        logits, self.mask = self.read([self.pending[row] for row in self.rows], self.mask)
        for row in self.rows:
            self.pending[row] = []
        return logits[:, -1].float()

    def keep(self, rows: Sequence[int]) -> None:
        """Let all other rows leave the batch."""
        if 0 < len(rows) < len(self.rows):
            wanted = set(rows)
            places = [place for place, row in enumerate(self.rows) if row in wanted]
            places = torch.tensor(places, device=self.mask.device)
            self.cache.batch_select_indices(places)
            self.mask = self.mask[places]
        self.rows = list(rows)

    def forget_after(self, places: Sequence[int]) -> None:
        """Mask out what each row has read after its place; places count from the end, -1 is the last token."""
        columns = torch.arange(-self.mask.shape[1], 0, device=self.mask.device)  # (tokens read)
        last = torch.tensor(places, device=self.mask.device)[:, None]  # (rows, 1)
        self.mask = self.mask * (columns <= last)

    def snapshot(self) -> tuple:
        """What has been read so far, for `go_back`; it stays good because a cache only ever grows behind its end."""
        return self.rows, self.mask, [(layer.keys, layer.values) for layer in self.cache.layers]

    def go_back(self, snapshot: tuple) -> None:
        """Forget everything that was read after the snapshot."""
        self.rows, self.mask, kept = snapshot
        for layer, (keys, values) in zip(self.cache.layers, kept):
            layer.keys = keys
            layer.values = values
