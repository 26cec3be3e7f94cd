"""Decoding of one batch: the state of each row, and free text, greedy or sampled."""

import os.path
from collections.abc import Collection, Sequence
from pathlib import Path

import torch

from covrag_lite.engine.fast import prefill, varlen_prefill
from covrag_lite.engine.fast.decode_session import DecodeSession
from covrag_lite.engine.fast.network import PreparedNetwork
from covrag_lite.engine.interface import Completion
from covrag_lite.engine.sampling import Continuation, Pick, pick_likeliest

SHARED = 16  # tokens of a common prefix from which it pays to read it only once


class Writer:
    """A batch of prompts.

    Tokens that are not read yet are pending; those that are read are in the cache and its mask. A
    common prefix is read once, and finished rows leave the batch.
    """

    def __init__(self, prepared: PreparedNetwork, adapter: Path | None, ids: list[list[int]]):
        self.prepared = prepared
        self.backbone = prepared.backbone
        self.vocabulary = prepared.backbone.vocabulary
        self.adapter = adapter
        self.network = prepared.prepare(adapter)
        self.pending = ids  # for each prompt, the tokens that the model has not read yet
        self.rows = list(range(len(ids)))  # the prompt of each row of the batch
        self.cache = prefill.roomy_cache(self.network.config)
        # (rows, tokens read)
        self.mask = torch.zeros(len(ids), 0, dtype=torch.long, device=prepared.device)
        self.common_prefix = self._take_common_prefix()  # until it is read

    def _take_common_prefix(self) -> list[int]:
        """Remove the common prefix from all prompts and return it, if it pays to read it once."""
        shortest = min(len(ids) for ids in self.pending)
        # Each prompt keeps at least one token to read.
        n_shared = min(len(os.path.commonprefix(self.pending)), shortest - 1)
        if len(self.pending) == 1 or n_shared < SHARED:
            return []
        common_prefix = list(self.pending[0][:n_shared])
        self.pending = [ids[n_shared:] for ids in self.pending]
        return common_prefix

    def read(
        self, ids: Sequence[Sequence[int]], mask: torch.Tensor, positions: Sequence[int] = (-1,)
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run one pass over these rows.

        Returns the logits (rows, positions, vocabulary) and the mask. Rows of different lengths are
        aligned at their ends. `positions` count from there: -1 is the last token. Before the first
        pass, one row reads the common prefix.
        """
        if self.common_prefix:
            mask = prefill.read_common_prefix(self.network, self.common_prefix, mask, self.cache)
            self.common_prefix = []
        is_one_token = max(map(len, ids)) <= 1
        method = varlen_prefill if self.prepared.is_packed and not is_one_token else prefill
        return method.read(self.network, ids, mask, self.cache, positions)

    def keep(self, rows: Sequence[int]) -> None:
        """Remove all other rows from the batch."""
        if 0 < len(rows) < len(self.rows):
            kept = set(rows)
            places = [place for place, row in enumerate(self.rows) if row in kept]
            indices = torch.tensor(places, device=self.mask.device)
            self.cache.batch_select_indices(indices)
            self.mask = self.mask[indices]
        self.rows = list(rows)

    def write_answers(self, limit: int, pick: Pick = pick_likeliest) -> list[Completion]:
        """Write free text for each row, up to the end of the model's turn."""
        continuations = self.write_free({self.vocabulary.end_id}, limit, pick=pick)
        return [
            continuation.answer(self.vocabulary, pick) for continuation in continuations.values()
        ]

    def write_free(
        self,
        ends: Collection[int],
        limit: int,
        forbidden: torch.Tensor | None = None,
        pick: Pick = pick_likeliest,
    ) -> dict[int, Continuation]:
        """Write each row until one of `ends` or the limit; finished rows leave the batch."""
        continuations = {row: Continuation([], []) for row in self.rows}
        active = self.rows
        session = None  # steps of fixed shapes, used after the prompts are read
        for number in range(limit):
            if not active:
                break
            if session:
                tokens, log_probabilities = session.take()
            else:
                tokens, log_probabilities = self.next_tokens(forbidden, pick)
            for row, token, log_probability in zip(active, tokens, log_probabilities):
                continuations[row].add(token, log_probability)
            unfinished = [place for place, token in enumerate(tokens) if token not in ends]
            active = [active[place] for place in unfinished]
            if session:
                session.keep(unfinished)
                continue
            for row in active:
                self.pending[row] = continuations[row].tokens[-1:]
            self.keep(active)
            if active and number == 0 and pick is pick_likeliest:
                session = self.start_session(limit - 1, forbidden)
        return continuations

    def next_tokens(
        self, forbidden: torch.Tensor | None, pick: Pick
    ) -> tuple[list[int], list[float]]:
        """Read all pending tokens; return each row's next token and its log-probability."""
        logits, self.mask = self.read([self.pending[row] for row in self.rows], self.mask)
        logits = logits[:, -1].float()  # (rows, vocabulary)
        if forbidden is not None:
            logits = logits.masked_fill(forbidden, float("-inf"))
        picked_logits, tokens = pick(self.rows, logits)
        log_probabilities = picked_logits - logits.logsumexp(1)
        # Both at once, because each transfer waits for the GPU; 64 bits keep both exact.
        both = torch.stack([tokens.double(), log_probabilities.double()])
        token_list, log_probability_list = both.tolist()
        return [int(token) for token in token_list], log_probability_list

    def start_session(self, limit: int, forbidden: torch.Tensor | None) -> DecodeSession | None:
        """Start steps of fixed shapes, if this network has them; each row has one pending token."""
        if self.prepared.steps is None:
            return None
        tokens = [self.pending[row][-1] for row in self.rows]
        return self.prepared.steps.start_session(
            self.adapter, self.cache, self.mask, tokens, limit, forbidden
        )
