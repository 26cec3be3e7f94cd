"""The plain engine: model="plain:<model>", which uses only transformers and peft.

It works with any architecture: one prompt, one token and one training sample at a time, with the
network's own layers. It is slow, and short enough to check by reading. It is the specification of
the fast engine: tests compare the two.
"""

import copy
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
from transformers import DynamicCache, PreTrainedModel

from covrag_lite.config import Model, Training
from covrag_lite.engine.backbone import FREE_VERDICT_TOKENS, Backbone
from covrag_lite.engine.batch import write_batch
from covrag_lite.engine.interface import Completion, RowShape, Schema, Trainee
from covrag_lite.engine.plain_training import build_plain_trainee
from covrag_lite.engine.sampling import Continuation, Pick, choose_pick, pick_likeliest
from covrag_lite.engine.slots import Choices, Filled, probabilities_of, slots_of
from covrag_lite.prompts import OPENING_QUOTE, VERDICT_ROOM

PREFIX = "plain:"


def load(settings: Model, execution: str) -> "PlainEngine":
    """Build the plain engine of any model that the fast one accepts; it always runs eagerly."""
    return PlainEngine(settings)


class PlainEngine:
    """A model on this machine that writes one token at a time, with the fast engine's weights."""

    at_once = 1

    def __init__(self, settings: Model):
        self.settings = settings
        self.backbone = Backbone(settings, settings.model.removeprefix(PREFIX))
        self.device = self.backbone.device
        self.weights = self.backbone.weights
        self.adapter: Path | None = None
        self.used = Counter()

    def with_adapter(self, name: str) -> "PlainEngine":
        """Return a view of the same base model with the adapter of that name."""
        view = copy.copy(self)
        view.adapter = self.backbone.find_adapter(name)
        return view

    @property
    def weights_hash(self) -> str:
        return self.backbone.weights_hash

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint with a mark, so that the journal separates the two engines."""
        return f"plain {self.backbone.fingerprint(self.adapter)}"

    @property
    def network(self) -> PreTrainedModel:
        """Return the network with this view's adapter active."""
        return self.backbone.network.switch(self.adapter)

    # Answers and verdicts.

    def batches(self, prompts: Sequence[str], room: int) -> list[list[str]]:
        """Put each prompt into a batch of its own."""
        return [[prompt] for prompt in prompts]

    def complete(
        self, prompts: Sequence[str], max_tokens: int, sample: int | None = None
    ) -> list[Completion]:
        """Complete prompts greedily, each with its mean log-likelihood, or by sampling."""
        write = partial(self._write_answers, max_tokens=max_tokens, sample=sample)
        return write_batch(write, prompts, self.backbone.vocabulary, self.used)

    def _write_answers(
        self, prompts: Sequence[str], max_tokens: int, sample: int | None
    ) -> list[Completion]:
        vocabulary = self.backbone.vocabulary
        completions = []
        for prompt, ids in zip(prompts, self._encode(prompts, max_tokens)):
            pick = choose_pick([prompt], sample)
            reader = Reader(self.network)
            continuation = reader.write(ids, {vocabulary.end_id}, max_tokens, pick)
            completions.append(continuation.answer(vocabulary, pick))
        return completions

    def fill(
        self, prompts: Sequence[str], schema: Schema | None, max_tokens: int
    ) -> list[Completion]:
        """Write verdicts: forced into the schema, with probabilities, or free without one."""
        if schema is None:
            completions = self.complete(prompts, FREE_VERDICT_TOKENS + max_tokens)
            return [Completion(completion.text) for completion in completions]
        write = partial(self._write_verdicts, schema=schema, max_tokens=max_tokens)
        return write_batch(write, prompts, self.backbone.vocabulary, self.used)

    def _write_verdicts(
        self, prompts: Sequence[str], schema: Schema, max_tokens: int
    ) -> list[Completion]:
        encoded = self._encode(prompts, VERDICT_ROOM + max_tokens)
        return [self._write_verdict(ids, schema, max_tokens) for ids in encoded]

    def _write_verdict(self, pending: list[int], schema: Schema, max_tokens: int) -> Completion:
        """Write one verdict: at each slot the most probable choice, judged by its first token."""
        vocabulary = self.backbone.vocabulary
        reader = Reader(self.network)
        slots, closing = slots_of(schema)
        choices = Choices(slots, vocabulary.piece, self.settings.model)
        filled = Filled([], [])
        text = ""
        for slot in slots:
            logits = reader.read(pending + vocabulary.piece(slot.before))
            probabilities = choices.probabilities(logits)[slot.choices].tolist()
            choice, probabilities = choices.choose(slot, filled.path, probabilities)
            filled.add(choice, probabilities)
            text += slot.before + choice
            pending = list(vocabulary.piece(choice))
        if choice == OPENING_QUOTE:
            quoted = self.backbone.quoted
            continuation = reader.write(
                pending, quoted.ends, max_tokens, forbidden=quoted.forbidden
            )
            text += continuation.revised_question(vocabulary)
        return Completion(text + closing, probabilities_of(slots, filled.probabilities))

    def _encode(self, prompts: Sequence[str], room: int) -> list[list[int]]:
        """Return the tokens of the prompts, and count them as read."""
        encoded = self.backbone.encode(prompts, room)
        self.used["prompt_tokens"] += sum(map(len, encoded))
        return encoded

    def count_tokens(self, prompts: Sequence[str], texts: Sequence[str]) -> list[tuple[int, int]]:
        """Return the tokens read and written for each text."""
        return self.backbone.count_tokens(prompts, texts)

    # Training.

    def prompt_ids(self, prompt: str) -> Sequence[int]:
        """Tokenise a prompt as in inference."""
        return self.backbone.vocabulary.tokenise([prompt])[0]

    def target_ids(self, part: str) -> Sequence[int]:
        """Tokenise a part of a target as it is decoded."""
        return self.backbone.vocabulary.continue_ids(part)

    @property
    def end_id(self) -> int:
        """Return the token that ends a text."""
        return self.backbone.vocabulary.end_id

    @contextmanager
    def prepare_training(self, settings: Training, shape: RowShape) -> Iterator[Trainee]:
        """Read the network again, add a new adapter, and drop the network afterwards."""
        shared = self.backbone.network
        try:
            yield build_plain_trainee(shared.read_for_training(), settings)
        finally:
            shared.forget()


class Reader:
    """A network that reads one prompt, in several parts."""

    def __init__(self, network: PreTrainedModel):
        self.network = network
        self.cache = DynamicCache(config=network.config)

    @torch.inference_mode()
    def read(self, ids: Sequence[int]) -> torch.Tensor:
        """Read these tokens and return the logits of the next one: (vocabulary)."""
        input_ids = torch.tensor([list(ids)], device=self.network.device)
        output = self.network(input_ids=input_ids, past_key_values=self.cache, use_cache=True)
        return output.logits[0, -1].float()

    def write(
        self,
        ids: Sequence[int],
        ends: Collection[int],
        limit: int,
        pick: Pick = pick_likeliest,
        forbidden: torch.Tensor | None = None,
    ) -> Continuation:
        """Write the continuation of these tokens."""
        continuation = Continuation([], [])
        pending = ids
        for _ in range(limit):
            logits = self.read(pending)
            if forbidden is not None:
                logits = logits.masked_fill(forbidden, float("-inf"))
            picked_logits, tokens = pick([0], logits[None])
            token = int(tokens)
            continuation.add(token, (picked_logits[0] - logits.logsumexp(0)).item())
            if token in ends:
                break
            pending = [token]
        return continuation
