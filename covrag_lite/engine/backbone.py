"""A model on this machine: its weights and their hash, its adapters, vocabulary and network.

Torch and transformers are imported when the vocabulary or the network is first used: the import
takes almost ten seconds, and a run whose texts are all in the journal needs neither.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from covrag_lite.config import Model
from covrag_lite.engine import weights
from covrag_lite.engine.devices import choose_device

if TYPE_CHECKING:
    from covrag_lite.engine.network import SharedNetwork
    from covrag_lite.engine.vocabulary import Quoted, Vocabulary

FREE_VERDICT_TOKENS = 96  # for a verdict that is not forced, without its revised question


class Backbone:
    """A base model that all views of an engine share.

    `name` is the model's name without the beginning that selects the engine: an alias, a hub id, a
    local folder or a GGUF file.
    """

    def __init__(self, settings: Model, name: str):
        self.settings = replace(settings, model=name)
        self.device = choose_device(settings.device)
        self.weights = weights.find_model(name)

    @cached_property
    def weights_hash(self) -> str:
        """Return a hash of the base model's weights; it does not depend on their path."""
        return weights.hash_weights(self.weights)

    def fingerprint(self, adapter: Path | None) -> str:
        """Return a hash of the weights, adapter included."""
        if not adapter:
            return self.weights_hash
        adapter_files = sorted(adapter.glob("adapter_model*.safetensors"))
        return f"{self.weights_hash}+{weights.hash_files(adapter_files)}"

    def find_adapter(self, name: str) -> Path | None:
        """Return the folder of the adapter "rag", "cov" or "cov-direct"; "" means no adapter."""
        if not name:
            return None
        return weights.find_adapter(self.settings, name, self.weights_hash)

    @cached_property
    def folder(self) -> Path:
        """Return the model's folder; a GGUF file is converted to one."""
        if self.weights.is_file():
            return weights.convert_gguf(self.weights, self.weights_hash)
        return self.weights

    @cached_property
    def vocabulary(self) -> "Vocabulary":
        """Return the tokenizer."""
        from covrag_lite.engine.vocabulary import Vocabulary

        return Vocabulary(self.folder)

    @cached_property
    def network(self) -> "SharedNetwork":
        """Return the network, which is read at its first use."""
        from covrag_lite.engine.network import SharedNetwork

        return SharedNetwork(self.folder, self.settings.quantize, self.device)

    @cached_property
    def quoted(self) -> "Quoted":
        """Return the tokens that may be written in a JSON string."""
        size = self.network.current.config.vocab_size
        return self.vocabulary.find_quoted(size, self.device)

    def encode(
        self,
        prompts: Sequence[str],
        room: int,
        tokenised: Mapping[str, Sequence[int]] | None = None,
    ) -> list[list[int]]:
        """Tokenise the prompts and check that the context leaves `room` for more tokens.

        `tokenised` contains the tokens of prompts that need not be tokenised again.
        """
        ids = self.tokenise(prompts, tokenised)
        length = max(map(len, ids)) + room
        limit = self.network.current.config.max_position_embeddings
        if length > limit:
            raise ValueError(
                f"a prompt with its answer takes {length} tokens, but {self.settings.model!r} "
                f"has room for {limit}; lower k, or choose a model with a longer context"
            )
        return ids

    def tokenise(
        self, prompts: Sequence[str], tokenised: Mapping[str, Sequence[int]] | None = None
    ) -> list[list[int]]:
        """Tokenise the prompts; this needs no network."""
        ids_of = dict(tokenised or {})
        new = [prompt for prompt in dict.fromkeys(prompts) if prompt not in ids_of]
        ids_of.update(zip(new, self.vocabulary.tokenise(new)))
        return [list(ids_of[prompt]) for prompt in prompts]

    def count_tokens(
        self,
        prompts: Sequence[str],
        texts: Sequence[str],
        tokenised: Mapping[str, Sequence[int]] | None = None,
    ) -> list[tuple[int, int]]:
        """Return the tokens read and written for each text."""
        read = map(len, self.tokenise(prompts, tokenised))
        written = self.vocabulary.count(texts)
        return list(zip(read, written))
