"""The network of a model folder, read by transformers, and its adapters, added by peft."""

import gc
from pathlib import Path

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, PreTrainedModel
from transformers.utils import logging

from covrag_lite.engine import devices
from covrag_lite.engine.progress import is_watched

# Bytes of weights that must not be in memory twice. Collecting the garbage takes half a second.
LARGE = 2**30


def quantization(quantize: str, dtype: torch.dtype) -> BitsAndBytesConfig | None:
    """Return the quantisation for bitsandbytes: NF4 with double quantisation, or none."""
    if quantize == "none":
        return None
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )


class SharedNetwork:
    """The network of a model folder; all adapters share one copy of its weights."""

    def __init__(self, folder: Path, quantize: str, device: str):
        self.folder = folder
        self.quantize = quantize
        self.device = device
        self.dtype = devices.number_type(device)
        self.forget()

    def forget(self) -> None:
        """Drop the network; the next use reads the weights again."""
        self._current: PreTrainedModel | None = None
        self.adapters: PeftModel | None = None  # all so far; peft changes the network itself
        self.active: Path | None = None

    @property
    def current(self) -> PreTrainedModel:
        """Return the network in its current state; it is read at the first use."""
        if self._current is None:
            self._current = self.read()
        return self._current

    def read(self) -> PreTrainedModel:
        """Read a new network without adapters, with transformers and bitsandbytes."""
        if sum(file.stat().st_size for file in self.folder.glob("*.safetensors")) >= LARGE:
            # Free what an earlier engine left.
            gc.collect()  # prepared layers refer to themselves
        if not is_watched():
            logging.disable_progress_bar()
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_pretrained(
            self.folder,
            dtype=self.dtype,
            device_map=self.device,
            use_safetensors=True,
            quantization_config=quantization(self.quantize, self.dtype),
        ).eval()

    def read_for_training(self) -> PreTrainedModel:
        """Read the network again.

        A network that has answered may contain adapters, or weights without a gradient.
        """
        self.forget()
        return self.current

    def switch(self, adapter: Path | None) -> PreTrainedModel:
        """Return the network with only this adapter active."""
        if adapter == self.active:
            return self.current
        if adapter is None:
            self.adapters.base_model.disable_adapter_layers()
        else:
            self.activate(adapter)
        self.active = adapter
        return self.current

    def activate(self, adapter: Path) -> None:
        """Let the network compute with this adapter, which is loaded at its first use."""
        name = str(adapter).replace(".", "-")  # a dot would split a name of peft
        if self.adapters is None:
            self.adapters = PeftModel.from_pretrained(self.current, str(adapter), adapter_name=name)
        if name not in self.adapters.peft_config:
            self.adapters.load_adapter(str(adapter), adapter_name=name)
        self.adapters.base_model.enable_adapter_layers()
        self.adapters.set_adapter(name)
