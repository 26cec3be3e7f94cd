"""The fast engine: a 4-bit model with its adapters on this machine.

Decoding is greedy unless samples are requested, so the same prompts give the same texts. Torch and
transformers are imported at the first prompt: the import takes almost ten seconds, and a run whose
texts are all in the journal needs neither.
"""

import copy
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from covrag_lite.config import Model, Training
from covrag_lite.engine import weights as stores
from covrag_lite.engine.devices import choose_execution, find_device
from covrag_lite.engine.interface import Completion, Schema, Shape
from covrag_lite.prompts import VERDICT_ROOM

if TYPE_CHECKING:
    import torch

    from covrag_lite.engine.network import LoadedNetwork
    from covrag_lite.engine.training import Trainee

FREE_VERDICT_TOKENS = 96  # for a free verdict, without its revised question


def load(settings: Model, execution: str) -> "LocalEngine":
    """Build the engine of an alias, a hub id, a local folder or a GGUF file."""
    return LocalEngine(settings, stores.find_model(settings.model), execution)


class LocalEngine:
    """A model on this machine; `with_adapter` returns another view of the same base model."""

    at_once = 1
    prefix = ""  # the part of the model's name that selects this engine

    def __init__(self, settings: Model, weights: Path, execution: str = "auto"):
        if settings.device not in ("auto", "cpu", "cuda"):
            raise ValueError(f"device {settings.device!r} is not known; use 'auto', 'cpu' or 'cuda'")
        self.device = find_device() if settings.device == "auto" else settings.device
        chosen = choose_execution(execution, self.device)
        self.execution = chosen if self.device == "cuda" else "eager"  # on a CPU only training is compiled
        self.settings = settings
        self.weights = weights
        self.adapter: Path | None = None
        self.used = Counter()
        self._base = self  # the view that owns the network

    def with_adapter(self, name: str) -> "LocalEngine":
        """Return this base with the adapter "rag", "cov" or "cov-direct"; "" means no adapter."""
        view = copy.copy(self)
        named = replace(self.settings, model=self.settings.model.removeprefix(self.prefix))
        view.adapter = stores.find_adapter(named, name, self.weights_hash) if name else None
        return view

    @property
    def weights_hash(self) -> str:
        return self._base._weights_hash

    @cached_property
    def _weights_hash(self) -> str:
        return stores.hash_weights(self.weights)

    @property
    def fingerprint(self) -> str:
        """Return a hash of the weights, adapter included; it does not depend on their path."""
        if not self.adapter:
            return self.weights_hash
        adapter = stores.hash_files(sorted(self.adapter.glob("adapter_model*.safetensors")))
        return f"{self.weights_hash}+{adapter}"

    @property
    def loaded(self) -> "LoadedNetwork":
        """Return the tokenizer and the network, which all views share."""
        return self._base._loaded

    @cached_property
    def _loaded(self) -> "LoadedNetwork":
        from covrag_lite.engine.network import LoadedNetwork

        is_file = self.weights.is_file()
        folder = stores.convert_gguf(self.weights, self.weights_hash) if is_file else self.weights
        return LoadedNetwork(folder, self.settings, self.device, self.execution, self.used)

    @property
    def network(self) -> "torch.nn.Module":
        """Return the network with this view's adapter active, before any preparation."""
        return self.loaded.switch(self.adapter)

    @contextmanager
    def in_training(self, settings: Training, shape: Shape) -> Iterator["Trainee"]:
        """Read the network again, add a new adapter, and drop the network afterwards."""
        try:
            yield self._adapt(self.read_anew(), settings, shape)
        finally:
            self.loaded.forget()

    def _adapt(self, network: "torch.nn.Module", settings: Training, shape: Shape) -> "Trainee":
        from covrag_lite.engine import training

        return training.load(network, settings, shape, self.device, self.used)

    def read_anew(self) -> "torch.nn.Module":
        """Read the base network again for training.

        A network that has answered may contain adapters, or weights without a gradient.
        """
        if self.settings.quantize == "int8":
            raise ValueError("quantize = 'int8' cannot be trained; use 'nf4' or 'none'")
        self.loaded.forget()
        return self.loaded.switch(None)

    def batches(self, prompts: Sequence[str], room: int) -> list[list[str]]:
        """Split the prompts into batches that fit into memory, with similar lengths together."""
        from covrag_lite.engine import prepare

        loaded = self.loaded
        ids = loaded.encode(prompts, room) if prompts else []
        loaded.planned = {prompt: array("i", one) for prompt, one in zip(prompts, ids)}
        lengths = {prompt: len(one) for prompt, one in loaded.planned.items()}
        return prepare.plan(lengths, room, loaded.fitting_tokens)

    def complete(self, prompts: Sequence[str], max_tokens: int, sample: int | None = None) -> list[Completion]:
        """Complete one batch greedily, each text with its mean log-likelihood, or by sampling."""
        return self._fit(partial(self._complete, max_tokens=max_tokens, sample=sample), prompts)

    def fill(self, prompts: Sequence[str], schema: Schema | None, max_tokens: int) -> list[Completion]:
        """Write one batch of verdicts: forced into the schema, or free without one.

        A forced verdict comes with its probabilities.
        """
        if schema is None:
            made = self.complete(prompts, FREE_VERDICT_TOKENS + max_tokens)
            return [Completion(one.text) for one in made]
        return self._fit(partial(self._fill, schema=schema, max_tokens=max_tokens), prompts)

    def _complete(self, prompts: Sequence[str], max_tokens: int, sample: int | None) -> list[Completion]:
        from covrag_lite.engine.decoding import Dice, Writer, greedily

        writer = Writer(self.loaded, self.adapter, self._encode(prompts, max_tokens))
        return writer.write_answers(max_tokens, greedily if sample is None else Dice(prompts, sample))

    def _fill(self, prompts: Sequence[str], schema: Schema, max_tokens: int) -> list[Completion]:
        from covrag_lite.engine.forced import VerdictWriter

        writer = VerdictWriter(self.loaded, self.adapter, self._encode(prompts, VERDICT_ROOM + max_tokens))
        return writer.write_verdicts(schema, max_tokens)

    def _encode(self, prompts: Sequence[str], room: int) -> list[list[int]]:
        """Return the tokens of the prompts, and count them as read."""
        ids = self.loaded.encode(prompts, room)
        self.used["prompt_tokens"] += sum(map(len, ids))
        return ids

    def _fit(self, write: Callable[[Sequence[str]], list[Completion]], prompts: Sequence[str]) -> list[Completion]:
        """Write a batch, in halves if it does not fit into memory, and count its tokens."""
        from covrag_lite.engine import prepare

        made = prepare.fit(write, prompts, self.used)
        self.used["requests"] += len(made)
        self.used["completion_tokens"] += sum(self._lengths([one.text for one in made]))
        return made

    def _lengths(self, texts: Sequence[str]) -> list[int]:
        return list(map(len, self.loaded.tokenizer(list(texts), add_special_tokens=False).input_ids)) if texts else []

    def count_tokens(self, prompts: Sequence[str], texts: Sequence[str]) -> list[tuple[int, int]]:
        """Return the tokens read and written for each text."""
        return list(zip(map(len, self.loaded.encode(prompts, 0)), self._lengths(texts)))
