"""Decoding of one batch: the state of each row, and free text, greedy or sampled."""

import hashlib
import os.path
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from covrag_lite.engine import prefill, varlen_prefill
from covrag_lite.engine.decode_session import DecodeSession
from covrag_lite.engine.interface import Completion
from covrag_lite.engine.network import LoadedNetwork

SHARED = 16  # tokens of a common prefix from which it pays to read it only once
TOP = 50  # sampling chooses among this many tokens, at temperature 1
# Rows and their logits (rows, vocabulary) -> logits of the picked tokens, and the tokens (rows).
Pick = Callable[[Sequence[int], torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def greedily(rows: Sequence[int], logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Pick the most probable token of each row."""
    return logits.max(1)


class Dice:
    """Samples with Gumbel noise; each prompt has its own generator.

    So a sample does not depend on the rest of its batch.
    """

    def __init__(self, prompts: Sequence[str], number: int):
        self.generators = []
        for prompt in prompts:
            seed = hashlib.sha256(f"{number} {prompt}".encode()).digest()[:7]
            self.generators.append(torch.Generator().manual_seed(int.from_bytes(seed)))

    def __call__(self, rows: Sequence[int], logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Sample one token per row from the most probable ones."""
        values, tokens = logits.topk(min(TOP, logits.shape[1]), dim=1)  # (rows, TOP), sorted
        noise = [torch.empty(values.shape[1]).exponential_(generator=self.generators[row]).log() for row in rows]
        places = (values - torch.stack(noise).to(values)).argmax(1, keepdim=True)  # (rows, 1)
        return values.gather(1, places)[:, 0], tokens.gather(1, places)[:, 0]


class Written(NamedTuple):
    """The tokens that follow a prompt, including the token that ends them, if there is one."""

    tokens: list[int]
    logs: list[float]  # the log-probability of each token

    def answer(self, loaded: LoadedNetwork, pick: Pick) -> Completion:
        """Return the text without its end, and its mean log-likelihood unless it was sampled."""
        tokens = [token for token in self.tokens if token != loaded.end_id]
        text = loaded.tokenizer.decode(tokens, skip_special_tokens=True).strip()
        mean = sum(self.logs) / len(self.logs) if self.logs else 0.0
        return Completion(text, {"likelihood": float(f"{mean:.5g}")} if pick is greedily else None)

    def revised_question(self, loaded: LoadedNetwork) -> str:
        """Return the rest of a revised question after its opening quote, with the closing quote."""
        return loaded.tokenizer.decode(self.tokens, skip_special_tokens=True).removesuffix('"') + '"'


class Writer:
    """A batch of prompts.

    Tokens that are not read yet are pending; those that are read are in the cache and its mask. A
    common prefix is read once, and finished rows leave the batch.
    """

    def __init__(self, loaded: LoadedNetwork, adapter: Path | None, ids: list[list[int]]):
        self.loaded = loaded
        self.adapter = adapter
        self.network = loaded.prepare(adapter)
        self.pending = ids  # for each prompt, the tokens that the model has not read yet
        self.rows = list(range(len(ids)))  # the prompt of each row of the batch
        self.cache = prefill.roomy_cache(self.network.config)
        self.mask = torch.zeros(len(ids), 0, dtype=torch.long, device=loaded.device)  # (rows, tokens read)
        self.beginning = self._take_common_beginning()  # the common prefix, until it is read

    def _take_common_beginning(self) -> list[int]:
        """Remove the common prefix from all prompts and return it, if it pays to read it once."""
        shortest = min(len(ids) for ids in self.pending)
        # Each prompt keeps at least one token to read.
        shared = min(len(os.path.commonprefix(self.pending)), shortest - 1)
        if len(self.pending) == 1 or shared < SHARED:
            return []
        beginning = list(self.pending[0][:shared])
        self.pending = [ids[shared:] for ids in self.pending]
        return beginning

    def read(
        self, ids: Sequence[Sequence[int]], mask: torch.Tensor, places: Sequence[int] = (-1,)
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run one pass over these rows; return the logits (rows, places, vocabulary) and the mask.

        Rows of different lengths are aligned at their ends. `places` count from there: -1 is the
        last token. Before the first pass, one row reads the common prefix.
        """
        if self.beginning:
            mask = prefill.begin(self.network, self.beginning, mask, self.cache)
            self.beginning = []
        way = varlen_prefill if self.loaded.packed and max(map(len, ids)) > 1 else prefill
        return way.read(self.network, ids, mask, self.cache, places)

    def keep(self, rows: Sequence[int]) -> None:
        """Remove all other rows from the batch."""
        if 0 < len(rows) < len(self.rows):
            wanted = set(rows)
            places = [place for place, row in enumerate(self.rows) if row in wanted]
            places = torch.tensor(places, device=self.mask.device)
            self.cache.batch_select_indices(places)
            self.mask = self.mask[places]
        self.rows = list(rows)

    def write_answers(self, limit: int, pick: Pick = greedily) -> list[Completion]:
        """Write free text for each row, up to the end of the model's turn."""
        written = self.write_free({self.loaded.end_id}, limit, pick=pick)
        return [one.answer(self.loaded, pick) for one in written.values()]

    def write_free(
        self, ends: Collection[int], limit: int, forbidden: torch.Tensor | None = None, pick: Pick = greedily
    ) -> dict[int, Written]:
        """Write each row until one of `ends` or the limit; finished rows leave the batch."""
        written = {row: Written([], []) for row in self.rows}
        active = self.rows
        session = None  # steps of fixed shapes, used after the prompts are read
        for number in range(limit):
            if not active:
                break
            tokens, logs = session.take() if session else self.next_tokens(forbidden, pick)
            for row, token, log in zip(active, tokens, logs):
                written[row].tokens.append(token)
                written[row].logs.append(log)
            going = [place for place, token in enumerate(tokens) if token not in ends]
            active = [active[place] for place in going]
            if session:
                session.keep(going)
                continue
            for row in active:
                self.pending[row] = written[row].tokens[-1:]
            self.keep(active)
            if active and number == 0 and pick is greedily:
                session = self.begin_session(limit - 1, forbidden)
        return written

    def next_tokens(self, forbidden: torch.Tensor | None, pick: Pick) -> tuple[list[int], list[float]]:
        """Read all pending tokens; return each row's next token and its log-probability."""
        logits, self.mask = self.read([self.pending[row] for row in self.rows], self.mask)
        logits = logits[:, -1].float()  # (rows, vocabulary)
        if forbidden is not None:
            logits = logits.masked_fill(forbidden, float("-inf"))
        picked, tokens = pick(self.rows, logits)
        logs = picked - logits.logsumexp(1)
        # Both at once, because each transfer waits for the GPU; 64 bits keep both exact.
        tokens, logs = torch.stack([tokens.double(), logs.double()]).tolist()
        return [int(token) for token in tokens], logs

    def begin_session(self, limit: int, forbidden: torch.Tensor | None) -> DecodeSession | None:
        """Start steps of fixed shapes, if this network has them; each row has one pending token."""
        if self.loaded.steps is None:
            return None
        tokens = [self.pending[row][-1] for row in self.rows]
        return self.loaded.steps.begin(self.adapter, self.cache, self.mask, tokens, limit, forbidden)
