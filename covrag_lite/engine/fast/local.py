"""The fast engine: a 4-bit model with its adapters on this machine.

Decoding is greedy unless samples are requested, so the same prompts give the same texts. Torch and
transformers are imported at the first prompt; see `backbone`.
"""

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from covrag_lite.config import Model, Training
from covrag_lite.engine.backbone import FREE_VERDICT_TOKENS, Backbone
from covrag_lite.engine.devices import choose_execution
from covrag_lite.engine.interface import Completion, RowShape, Schema, Trainee
from covrag_lite.prompts import VERDICT_ROOM

if TYPE_CHECKING:
    import torch

    from covrag_lite.engine.fast.network import PreparedNetwork


def load(settings: Model, execution: str) -> "LocalEngine":
    """Build the engine of an alias, a hub id, a local folder or a GGUF file."""
    return LocalEngine(settings, execution)


def load_prepared(backbone: Backbone, execution: str, used: Counter) -> "PreparedNetwork":
    """Return the backbone's network, prepared for answering."""
    from covrag_lite.engine.fast.network import PreparedNetwork

    return PreparedNetwork(backbone, execution, used)


class LocalEngine:
    """A model on this machine; `with_adapter` returns another view of the same base model."""

    at_once = 1

    def __init__(self, settings: Model, execution: str = "auto"):
        self.settings = settings
        self.backbone = Backbone(settings, settings.model)
        self.device = self.backbone.device
        self.weights = self.backbone.weights
        execution = choose_execution(execution, self.device)
        # On a CPU only training is compiled.
        self.execution = execution if self.device == "cuda" else "eager"
        self.adapter: Path | None = None
        self.used = Counter()
        # Called at the first prompt; all views share its result.
        self._load = cache(partial(load_prepared, self.backbone, self.execution, self.used))

    def with_adapter(self, name: str) -> "LocalEngine":
        """Return a view of the same base model with the adapter of that name."""
        view = copy.copy(self)
        view.adapter = self.backbone.find_adapter(name)
        return view

    @property
    def weights_hash(self) -> str:
        return self.backbone.weights_hash

    @property
    def fingerprint(self) -> str:
        """Return a hash of the weights, adapter included; it does not depend on their path."""
        return self.backbone.fingerprint(self.adapter)

    @property
    def network(self) -> "torch.nn.Module":
        """Return the network with this view's adapter active, before any preparation."""
        return self.backbone.network.switch(self.adapter)

    @property
    def prepared(self) -> "PreparedNetwork":
        """Return the network prepared for answering, which all views share."""
        return self._load()

    # Answers and verdicts.

    def batches(self, prompts: Sequence[str], room: int) -> list[list[str]]:
        """Split the prompts into batches that fit into memory, with similar lengths together."""
        return self.prepared.plan(prompts, room)

    def complete(
        self, prompts: Sequence[str], max_tokens: int, sample: int | None = None
    ) -> list[Completion]:
        """Complete one batch greedily, each text with its mean log-likelihood, or by sampling."""
        write = partial(self._write_answers, max_tokens=max_tokens, sample=sample)
        return self._write_batch(write, prompts)

    def _write_answers(
        self, prompts: Sequence[str], max_tokens: int, sample: int | None
    ) -> list[Completion]:
        from covrag_lite.engine.fast.decoding import Writer
        from covrag_lite.engine.sampling import choose_pick

        writer = Writer(self.prepared, self.adapter, self._encode(prompts, max_tokens))
        return writer.write_answers(max_tokens, choose_pick(prompts, sample))

    def fill(
        self, prompts: Sequence[str], schema: Schema | None, max_tokens: int
    ) -> list[Completion]:
        """Write one batch of verdicts: forced into the schema, or free without one.

        A forced verdict comes with its probabilities.
        """
        if schema is None:
            completions = self.complete(prompts, FREE_VERDICT_TOKENS + max_tokens)
            return [Completion(completion.text) for completion in completions]
        write = partial(self._write_verdicts, schema=schema, max_tokens=max_tokens)
        return self._write_batch(write, prompts)

    def _write_verdicts(
        self, prompts: Sequence[str], schema: Schema, max_tokens: int
    ) -> list[Completion]:
        from covrag_lite.engine.fast.forced import VerdictWriter

        encoded = self._encode(prompts, VERDICT_ROOM + max_tokens)
        writer = VerdictWriter(self.prepared, self.adapter, encoded)
        return writer.write_verdicts(schema, max_tokens)

    def _encode(self, prompts: Sequence[str], room: int) -> list[list[int]]:
        """Return the tokens of the prompts, and count them as read."""
        encoded = self.prepared.encode(prompts, room)
        self.used["prompt_tokens"] += sum(map(len, encoded))
        return encoded

    def _write_batch(
        self, write: Callable[[Sequence[str]], list[Completion]], prompts: Sequence[str]
    ) -> list[Completion]:
        from covrag_lite.engine.batch import write_batch

        return write_batch(write, prompts, self.backbone.vocabulary, self.used)

    def count_tokens(self, prompts: Sequence[str], texts: Sequence[str]) -> list[tuple[int, int]]:
        """Return the tokens read and written for each text."""
        is_loaded = self._load.cache_info().currsize > 0  # counting needs no network
        planned = self.prepared.planned if is_loaded else None
        return self.backbone.count_tokens(prompts, texts, planned)

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
        from covrag_lite.engine.fast.training import build_fitting_trainee

        try:
            network = self.read_for_training()
            yield build_fitting_trainee(network, settings, shape, self.device, self.used)
        finally:
            self.prepared.forget()

    def read_for_training(self) -> "torch.nn.Module":
        """Drop the network with everything prepared for it, and read it again."""
        self.prepared.forget()
        return self.backbone.network.read_for_training()
