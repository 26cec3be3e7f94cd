"""A base network with its tokenizer, its adapters and everything prepared for it.

One object owns all of these, so they are freed together.
"""

import gc
import re
from array import array
from collections import Counter
from collections.abc import Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, PreTrainedModel
from transformers.utils import logging

from covrag_lite.config import Model
from covrag_lite.engine import devices, prepare, varlen_prefill
from covrag_lite.engine.decode_session import Steps
from covrag_lite.progress import is_watched

# The text of a token inside a JSON string, and of one that ends it, with or without letters before.
INSIDE, ENDING = re.compile(r'[^"\\\x00-\x1f]+'), re.compile(r'[^"\\\x00-\x1f]*"')
# Bytes of weights that must not be in memory twice. Collecting the garbage takes half a second.
LARGE = 2**30


def quantization(quantize: str, dtype: torch.dtype) -> BitsAndBytesConfig | None:
    """Return the quantisation for bitsandbytes: NF4 with double quantisation, 8 bits, or none."""
    if quantize == "nf4":
        nested = {"bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
        return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=dtype, **nested)
    return BitsAndBytesConfig(load_in_8bit=True) if quantize == "int8" else None


class Quoted(NamedTuple):
    """The tokens that may be written in a JSON string."""

    ends: Collection[int]  # tokens that end it
    forbidden: torch.Tensor  # (vocabulary), tokens that would make it invalid


class LoadedNetwork:
    """The network of a model folder; all adapters share one copy of its weights."""

    def __init__(self, folder: Path, settings: Model, device: str, execution: str, used: Counter):
        self.folder = folder
        self.settings = settings
        self.device = device
        self.execution = execution  # "graph" records decoding steps; "compiled" compiles layers
        self.used = used  # the engine's counter, which also counts fallbacks
        self.dtype = devices.number_type(device)
        self.tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
        self.tokenizer.pad_token = self.tokenizer.pad_token or self.tokenizer.eos_token
        self.planned: dict[str, array] = {}  # the tokens of the prompts in the last planned batches
        self.pieces: dict[str, list[int]] = {}  # pieces of the schema and their tokens
        self.forget()

    def forget(self) -> None:
        """Drop the network; the next use reads the weights again."""
        self._network: PreTrainedModel | None = None
        self.adapters: PeftModel | None = None  # all so far; peft changes the network itself
        self.active: Path | None = None
        self.prepared: set[Path | None] = set()  # the adapters that are prepared for answering
        self.packed = False  # whether prompts are read by `varlen_prefill`
        self.steps: Steps | None = None

    @property
    def network(self) -> PreTrainedModel:
        """Return the network in its current state; it is read at the first use."""
        if self._network is None:
            self._network = self.read()
        return self._network

    def read(self) -> PreTrainedModel:
        """Read a new network without adapters, with transformers and bitsandbytes."""
        if sum(file.stat().st_size for file in self.folder.glob("*.safetensors")) >= LARGE:
            # Free what an earlier engine left.
            gc.collect()  # peft's layers and their network refer to each other
        if not is_watched():
            logging.disable_progress_bar()
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_pretrained(
            self.folder,
            dtype=self.dtype,
            device_map=self.device,
            use_safetensors=True,
            quantization_config=quantization(self.settings.quantize, self.dtype),
        ).eval()

    def switch(self, adapter: Path | None) -> PreTrainedModel:
        """Return the network with only this adapter active."""
        if adapter != self.active:
            name = str(adapter).replace(".", "-")  # a dot would split a name of peft
            if self.adapters is None:
                self.adapters = PeftModel.from_pretrained(self.network, str(adapter), adapter_name=name)
            if adapter and name not in self.adapters.peft_config:
                self.adapters.load_adapter(str(adapter), adapter_name=name)
            if adapter:
                self.adapters.base_model.enable_adapter_layers()
                self.adapters.set_adapter(name)
            else:
                self.adapters.base_model.disable_adapter_layers()
            self.active = adapter
        return self.network

    def prepare(self, adapter: Path | None) -> PreTrainedModel:
        """Return the same network, prepared for answering; training needs an unprepared one."""
        network = self.switch(adapter)
        if adapter not in self.prepared:  # each adapter has its own weights
            prepare.quicken(network, self.device)
            if not self.prepared and self.execution != "eager":
                self.packed = varlen_prefill.install(network, "compiled" in self.execution, self.used)
            self.prepared.add(adapter)
            self.steps = None  # they were recorded with weights that have moved
            if "graph" in self.execution:
                self.steps = Steps(network, self.device, self.used, self.packed)
        return network

    @cached_property
    def fitting_tokens(self) -> int:
        """Return how many tokens may pass through the network at once."""
        return prepare.fitting_tokens(self.prepare(None), self.device)

    @cached_property
    def end_id(self) -> int:
        """Return the token that ends the model's turn in its chat template.

        The tokenizer's own end token is sometimes another one.
        """
        if not self.tokenizer.chat_template:
            return self.tokenizer.eos_token_id
        turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "§"}]
        after = self.tokenizer.apply_chat_template(turns, tokenize=False).split("§")[-1]
        return self.tokenizer(after, add_special_tokens=False).input_ids[0] if after else self.tokenizer.eos_token_id

    def tokenise(self, prompts: Sequence[str]) -> list[list[int]]:
        """Tokenise each prompt, as a user turn if the tokenizer has a chat template."""
        if not self.tokenizer.chat_template:
            return self.tokenizer(list(prompts)).input_ids
        turns = [[{"role": "user", "content": prompt}] for prompt in prompts]
        rendered = self.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        return self.tokenizer(rendered, add_special_tokens=False).input_ids

    def encode(self, prompts: Sequence[str], room: int) -> list[list[int]]:
        """Tokenise the prompts and check that the context leaves `room` for more tokens.

        Planned prompts are tokenised only once.
        """
        new = list(dict.fromkeys(prompt for prompt in prompts if prompt not in self.planned))
        made = dict(zip(new, self.tokenise(new))) if new else {}
        ids = [self.planned[prompt].tolist() if prompt in self.planned else list(made[prompt]) for prompt in prompts]
        length = max(map(len, ids)) + room
        limit = self.network.config.max_position_embeddings
        if length > limit:
            raise ValueError(
                f"a prompt with its answer takes {length} tokens, but {self.settings.model!r} "
                f"has room for {limit}; lower k, or choose a model with a longer context"
            )
        return ids

    def continue_ids(self, text: str) -> list[int]:
        """Tokenise a text as a continuation: after a line break, which is then removed."""
        anchor = self.tokenizer("\n", add_special_tokens=False).input_ids
        ids = self.tokenizer("\n" + text, add_special_tokens=False).input_ids
        if ids[: len(anchor)] == anchor:
            return ids[len(anchor) :]
        return self.tokenizer(text, add_special_tokens=False).input_ids

    def piece(self, text: str) -> list[int]:
        """Return the tokens of a piece of the schema; each piece is tokenised once."""
        if text not in self.pieces:
            self.pieces[text] = self.continue_ids(text)
        return self.pieces[text]

    @cached_property
    def quoted(self) -> Quoted:
        """Return the tokens that may be written in a JSON string."""
        texts = self.tokenizer.batch_decode([[token] for token in range(self.network.config.vocab_size)])
        special = set(self.tokenizer.all_special_ids)
        own = {token: text for token, text in enumerate(texts) if token not in special}
        ends = {token for token, text in own.items() if ENDING.fullmatch(text)}
        inside = {token for token, text in own.items() if INSIDE.fullmatch(text)}
        allowed = [token in ends or token in inside for token in range(len(texts))]
        return Quoted(ends, ~torch.tensor(allowed, device=self.device))
