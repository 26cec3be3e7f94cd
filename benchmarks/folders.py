"""Model folders with 4-bit weights: the same base for every training method.

A shape has random weights; the weights of a model folder or a GGUF file are quantised once. A
separate process writes a folder and then frees its memory:
`python -m benchmarks.folders <a task as JSON>`.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from benchmarks.shapes import SHAPES, build_network
from covrag_lite.config import Model
from covrag_lite.engine import load_engine
from covrag_lite.engine.network import quantization

END = "<end>"  # the only token that a tokenizer for random weights needs


def write_folder(name: str, folder: Path, device: str) -> Path:
    """Write the 4-bit folder of a shape, a model folder or a GGUF file, once, under `folder`."""
    model_folder = folder / Path(name).name.replace(".", "-")
    if not (model_folder / "config.json").exists():
        load = random_weights if name in SHAPES else load_weights
        network, tokenizer = load(name, device)
        save_four_bit(network, tokenizer, model_folder)
    return model_folder


def random_weights(shape: str, device: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Build a network of this shape, and a tokenizer with numbers as tokens: "<12> <7>"."""
    network = build_network(shape, device)
    words = {END: 0} | {f"<{i}>": i for i in range(1, SHAPES[shape].vocabulary)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token=END))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    # Unsloth needs a separate padding token.
    special = {"bos_token": END, "eos_token": END, "unk_token": END, "pad_token": "<1>"}
    return network, PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def load_weights(name: str, device: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a model's own weights, quantised like in our loader."""
    model = load_engine(Model(model=name, adapters="none", device=device))
    tokenizer = model.backbone.vocabulary.tokenizer
    if tokenizer.pad_token_id == tokenizer.eos_token_id:  # Unsloth needs a separate padding token
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(1)
    return model.network, tokenizer


def save_four_bit(
    network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path
) -> None:
    """Write a network with its 4-bit weights, and its tokenizer."""
    folder.mkdir(parents=True)
    tokenizer.save_pretrained(folder)
    tensors = dict(network.state_dict())
    if network.config.tie_word_embeddings:
        tensors.pop("lm_head.weight", None)
    save_file(
        {name: value.contiguous() for name, value in tensors.items()},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    network.config.quantization_config = quantization("nf4", network.dtype)
    network.config.architectures = [type(network).__name__]
    network.config.save_pretrained(folder)


def load_four_bit(folder: Path, device: str, attention: str = "sdpa") -> PreTrainedModel:
    """Load the network of such a folder with transformers."""
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, device_map=device, use_safetensors=True, attn_implementation=attention
    )


if __name__ == "__main__":
    task = json.loads(sys.argv[1])
    write_folder(task["shape"], Path(task["folder"]), task["device"])
    print("{}")
