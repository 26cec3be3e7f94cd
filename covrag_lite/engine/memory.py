"""Estimates of the memory that training needs, and advice on the setting to change."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from bitsandbytes.nn import Params4bit
from transformers import AutoConfig, AutoModelForCausalLM, BitsAndBytesConfig, PreTrainedModel
from transformers.integrations.bitsandbytes import replace_with_bnb_linear

from covrag_lite.config import Training
from covrag_lite.engine.interface import Shape
from covrag_lite.engine.layers import ACTIVATIONS, KEEP, OFFLOAD, PART, RECOMPUTE
from covrag_lite.engine.loss import rows_at_once
from covrag_lite.engine.prepare import free_memory, unpacked_bytes
from covrag_lite.engine.weights import read_gguf_config

# The largest share of the free memory for unpacked 4-bit weights; unpacking saves time.
UNPACKED = 0.1

# The names of a network's sizes in config.json, in the order of a shape in replication.toml.
SHAPE = (
    *("model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "vocab_size", "max_position_embeddings"),
)


def check(network: PreTrainedModel, settings: Training, shape: Shape, device: str) -> bool:
    """Print the memory that training needs; return whether to unpack the 4-bit weights.

    A run that cannot fit is an error.
    """
    free, held, unpacked = free_memory(device), base_bytes(network), unpacked_bytes(network)
    needed = refuse(network, settings, shape, free + held, device)
    told = f"about {needed / 1e9:.1f} GB, of which the model already takes {held / 1e9:.1f} GB"
    print(f"training will need {told}; {free / 1e9:.1f} GB are free")
    return unpacked < UNPACKED * free and needed + unpacked <= free + held


def refuse(network: PreTrainedModel, settings: Training, shape: Shape, room: float, device: str) -> float:
    """Return the bytes that training needs; if they do not fit, an error names the cure."""
    needed = estimate(network, settings, shape)
    if needed > room:
        advice = cure(network, settings, shape, room)
        needs = f"training needs about {needed / 1e9:.1f} GB"
        raise MemoryError(f"{needs}, but {room / 1e9:.1f} GB are available; {advice}")
    aside, there = offloaded_bytes(network, settings, shape), free_memory("cpu")
    if device == "cuda" and aside >= there:
        raise MemoryError(
            f"activations = {OFFLOAD!r} needs about {aside / 1e9:.1f} GB of the CPU's memory, "
            f"but {there / 1e9:.1f} GB are free; set activations = {RECOMPUTE!r}, "
            "or a smaller pack_tokens"
        )
    return needed


def cure(network: PreTrainedModel, settings: Training, shape: Shape, room: float) -> str:
    """Return the first change of settings that makes the run fit."""
    lean, told = settings, ""
    for activations in ACTIVATIONS[ACTIVATIONS.index(settings.activations) + 1 :]:
        leaner = replace(settings, activations=activations)
        if offloaded_bytes(network, leaner, shape) < free_memory("cpu"):
            lean, told = leaner, f"activations = {activations!r}"
            if estimate(network, lean, shape) <= room:
                return f"set {told}"
    tokens = shape.tokens
    while tokens // 2 >= shape.longest:
        tokens //= 2
        shorter = replace(shape, tokens=tokens, targets=shape.targets * tokens // shape.tokens)
        if estimate(network, lean, shorter) <= room:
            return f"set pack_tokens = {tokens}" + (told and f", {told}")
    return "no training setting makes it fit: choose a smaller model"


def offloaded_bytes(network: PreTrainedModel, settings: Training, shape: Shape) -> int:
    """Return the offloaded bytes: kept activations, and the optimizer's weights and moments."""
    if settings.activations != OFFLOAD:
        return 0
    kept = network.config.num_hidden_layers * layer_bytes(network, shape.tokens, OFFLOAD)
    return kept + 3 * 4 * settings.lora_rank * sum(map(sum, linear_sizes(network)))


def estimate(network: PreTrainedModel, settings: Training, shape: Shape) -> float:
    """Return the peak of a training step in bytes.

    It contains weights, adapters, activations, logits and unpacked weights.
    """
    config, size, weights = network.config, network.dtype.itemsize, base_bytes(network)
    # A pass uses a weight and a gradient; the optimizer a gradient, a weight and two fp32 moments.
    in_fp32 = 1 if settings.activations == OFFLOAD else 4
    adapters = settings.lora_rank * sum(map(sum, linear_sizes(network))) * (2 * size + 4 * in_fp32)
    # At the end of the forward pass: one part of the logits, also in fp32, their softmax, and the
    # hidden states of all targets.
    at_once = min(shape.targets, rows_at_once(config.vocab_size))
    logits = at_once * config.vocab_size * (2 * size + 2 * 4) + 3 * shape.targets * config.hidden_size * size
    unpacked = 2 * size * max(map(math.prod, linear_sizes(network)))  # gate and up, for a moment
    return weights + adapters + activation_bytes(network, settings.activations, shape.tokens) + logits + unpacked


def activation_bytes(network: PreTrainedModel, activations: str, tokens: int) -> int:
    """Return what all layers keep for the backward pass, plus one layer that is recomputed."""
    config = network.config
    offloads = activations == OFFLOAD
    # In the backward pass, one recomputed layer and its gradients come on top.
    at_once = min(tokens, PART) if offloads else tokens  # tokens in its MLP
    passing = (5 * at_once * config.intermediate_size + 6 * tokens * config.hidden_size) * network.dtype.itemsize
    # With offloading, two layers are on their way out and two on their way back.
    n_here = min(config.num_hidden_layers, 4) if offloads else config.num_hidden_layers
    return n_here * layer_bytes(network, tokens, activations) + passing


def layer_bytes(network: PreTrainedModel, tokens: int, activations: str) -> int:
    """Return what one layer keeps for its backward pass, as `layers.Layer` saves it."""
    config = network.config
    size, narrow, wide = network.dtype.itemsize, config.hidden_size, config.intermediate_size
    head_size = getattr(config, "head_dim", None) or narrow // config.num_attention_heads
    queries, keys = config.num_attention_heads * head_size, config.num_key_value_heads * head_size
    less, more = 2 * narrow + queries, queries + 2 * keys + 2 * wide
    return tokens * size * (less + more if activations == KEEP else less)


def sketch(shape: Path | Sequence[str | int], quantize: str, device: str) -> PreTrainedModel:
    """Build the network as it is loaded, without its weights.

    `shape` is a folder with a config.json, a GGUF file, or the sizes in the order of SHAPE.
    """
    if not isinstance(shape, Path):
        config = AutoConfig.for_model(**dict(zip(SHAPE, shape)))
    elif shape.is_file():
        config = read_gguf_config(shape)
    else:
        config = AutoConfig.from_pretrained(shape)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(config, dtype=dtype)
    if quantize == "nf4":
        replace_with_bnb_linear(network, ["lm_head"], BitsAndBytesConfig(load_in_4bit=True))
    return network


def linear_sizes(network: PreTrainedModel) -> list[tuple[int, int]]:
    """Return inputs and outputs of the layers with an adapter: all linear ones except the last."""
    linears = [m for m in network.modules() if isinstance(m, torch.nn.Linear)]
    return [(m.in_features, m.out_features) for m in linears if m is not network.get_output_embeddings()]


def base_bytes(network: PreTrainedModel) -> int:
    """Return the bytes of the frozen network.

    A 4-bit weight takes half a byte, plus a scale for every 64 weights.
    """
    plain = sum(p.nbytes for p in network.parameters() if not isinstance(p, Params4bit))
    return plain + unpacked_bytes(network) // network.dtype.itemsize * 33 // 64
