"""A base network with its tokenizer and adapters, and everything that was made ready for it.

One object owns all of this, so that it goes when the network goes.
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

# A token's text that may stand in a JSON string, and one that ends it, by itself or with the last letters in it.
INSIDE, ENDING = re.compile(r'[^"\\\x00-\x1f]+'), re.compile(r'[^"\\\x00-\x1f]*"')
LARGE = 2**30  # bytes of weights that are not to lie in memory twice; looking for what is left takes half a second


def quantization(quantize: str, dtype: torch.dtype) -> BitsAndBytesConfig | None:
    """How bitsandbytes is to hold the weights: NF4 with double quantisation, 8 bits, or as they are."""
    if quantize == "nf4":
        nested = {"bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
        return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=dtype, **nested)
    return BitsAndBytesConfig(load_in_8bit=True) if quantize == "int8" else None


class Quoted(NamedTuple):
    """Which tokens may be written in a JSON string."""

    ends: Collection[int]  # those that end it
    forbidden: torch.Tensor  # whether each would break out of it otherwise, (vocabulary)


class LoadedNetwork:
    """The network of a model folder; one copy of its weights serves every adapter."""

    def __init__(self, folder: Path, settings: Model, device: str, execution: str, used: Counter):
        self.folder = folder
        self.settings = settings
        self.device = device
        self.execution = execution  # "graph" in it records decoding steps, "compiled" compiles what is in a layer
        self.used = used  # of the engine, which counts fallbacks there
        self.dtype = devices.number_type(device)
        self.tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
        self.tokenizer.pad_token = self.tokenizer.pad_token or self.tokenizer.eos_token
        self.planned: dict[str, array] = {}  # tokens of the prompts whose batches were planned last
        self.pieces: dict[str, list[int]] = {}  # of the schema, each with its tokens
        self.forget()

    def forget(self) -> None:
        """Let the next use read the weights anew."""
        self._network: PreTrainedModel | None = None
        self.adapters: PeftModel | None = None  # all that were used; peft puts its layers into the network itself
        self.active: Path | None = None
        self.prepared: set[Path | None] = set()  # the adapters for which the network was made ready to answer
        self.packed = False  # whether prompts are read by `varlen_prefill`
        self.steps: Steps | None = None

    @property
    def network(self) -> PreTrainedModel:
        """The network as it is; read at first use."""
        if self._network is None:
            self._network = self.read()
        return self._network

    def read(self) -> PreTrainedModel:
        """A network of its own, without adapters, as transformers and bitsandbytes load it."""
        if sum(file.stat().st_size for file in self.folder.glob("*.safetensors")) >= LARGE:
            gc.collect()  # peft's layers and their network hold each other: what an earlier engine left goes now
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
        """The network with this adapter switched on, and no other."""
        if adapter != self.active:
            name = str(adapter).replace(".", "-")  # a dot would split peft's names
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
        """The same network made ready to answer; training takes one that is not."""
        network = self.switch(adapter)
        if adapter not in self.prepared:  # each adapter brings weights of its own
            prepare.quicken(network, self.device)
            if not self.prepared and self.execution != "eager":
                self.packed = varlen_prefill.install(network, "compiled" in self.execution, self.used)
            self.prepared.add(adapter)
            self.steps = None  # recorded with weights that have moved
            if "graph" in self.execution:
                self.steps = Steps(network, self.device, self.used, self.packed)
        return network

    @cached_property
    def fitting_tokens(self) -> int:
        """How many tokens may go through the network together."""
        return prepare.fitting_tokens(self.prepare(None), self.device)

    @cached_property
    def end_id(self) -> int:
        """The token that ends the model's turn, from its chat template: a tokenizer's own end is not always that."""
        if not self.tokenizer.chat_template:
            return self.tokenizer.eos_token_id
        turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "§"}]
        after = self.tokenizer.apply_chat_template(turns, tokenize=False).split("§")[-1]
        return self.tokenizer(after, add_special_tokens=False).input_ids[0] if after else self.tokenizer.eos_token_id

    def tokenise(self, prompts: Sequence[str]) -> list[list[int]]:
        """Each prompt's tokens, as the model expects a user's turn where its tokenizer knows chats."""
        if not self.tokenizer.chat_template:
            return self.tokenizer(list(prompts)).input_ids
        turns = [[{"role": "user", "content": prompt}] for prompt in prompts]
        rendered = self.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        return self.tokenizer(rendered, add_special_tokens=False).input_ids

    def encode(self, prompts: Sequence[str], room: int) -> list[list[int]]:
        """The same, checked to leave `room` for more in the model's context; planned prompts are tokenised once."""
        new = list(dict.fromkeys(prompt for prompt in prompts if prompt not in self.planned))
        made = dict(zip(new, self.tokenise(new))) if new else {}
        ids = [self.planned[prompt].tolist() if prompt in self.planned else list(made[prompt]) for prompt in prompts]
        length = max(map(len, ids)) + room
        limit = self.network.config.max_position_embeddings
        if length > limit:
            raise ValueError(
                f"a prompt with its answer takes {length} tokens, "
                f"but {self.settings.model!r} has room for {limit}; lower k"
            )
        return ids

    def continue_ids(self, text: str) -> list[int]:
        """The tokens of a text that continues another one: tokenised behind a line break, which is then cut off."""
        anchor = self.tokenizer("\n", add_special_tokens=False).input_ids
        ids = self.tokenizer("\n" + text, add_special_tokens=False).input_ids
        if ids[: len(anchor)] == anchor:
            return ids[len(anchor) :]
        return self.tokenizer(text, add_special_tokens=False).input_ids

    def piece(self, text: str) -> list[int]:
        """The tokens of a piece of the schema that goes on after what was written; each is tokenised once."""
        if text not in self.pieces:
            self.pieces[text] = self.continue_ids(text)
        return self.pieces[text]

    @cached_property
    def quoted(self) -> Quoted:
        """What may be written in a JSON string."""
        texts = self.tokenizer.batch_decode([[token] for token in range(self.network.config.vocab_size)])
        special = set(self.tokenizer.all_special_ids)
        own = {token: text for token, text in enumerate(texts) if token not in special}
        ends = {token for token, text in own.items() if ENDING.fullmatch(text)}
        inside = {token for token, text in own.items() if INSIDE.fullmatch(text)}
        allowed = [token in ends or token in inside for token in range(len(texts))]
        return Quoted(ends, ~torch.tensor(allowed, device=self.device))
