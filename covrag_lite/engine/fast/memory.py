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
from covrag_lite.engine.devices import free_memory
from covrag_lite.engine.fast.batch_plan import head_size
from covrag_lite.engine.fast.layers import MLP_PART
from covrag_lite.engine.fast.loss import rows_at_once
from covrag_lite.engine.fast.unpacking import are_worth_unpacking, unpacked_bytes
from covrag_lite.engine.interface import RowShape
from covrag_lite.engine.trainee import ACTIVATIONS, KEEP, OFFLOAD, RECOMPUTE
from covrag_lite.engine.weights import read_gguf_config

# The names of a network's sizes in config.json, in the order of a shape in replication.toml.
SHAPE = (
    "model_type",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
    "max_position_embeddings",
)


def report_training_memory(
    network: PreTrainedModel, settings: Training, shape: RowShape, device: str
) -> bool:
    """Print the memory that training needs; return whether to unpack the 4-bit weights.

    A run that cannot fit is an error.
    """
    free = free_memory(device)
    model = base_bytes(network)
    needed = require_memory(network, settings, shape, free + model, device)
    print(
        f"training will need about {needed / 1e9:.1f} GB, of which the model already takes "
        f"{model / 1e9:.1f} GB; {free / 1e9:.1f} GB are free"
    )
    fits_unpacked = needed + unpacked_bytes(network) <= free + model
    return are_worth_unpacking(network, free) and fits_unpacked


def require_memory(
    network: PreTrainedModel, settings: Training, shape: RowShape, room: float, device: str
) -> float:
    """Return the bytes that training needs; if they do not fit, an error names the cure."""
    needed = training_bytes(network, settings, shape)
    if needed > room:
        advice = suggest_setting(network, settings, shape, room)
        raise MemoryError(
            f"training needs about {needed / 1e9:.1f} GB, but {room / 1e9:.1f} GB are available; "
            f"{advice}"
        )
    offloaded = offloaded_bytes(network, settings, shape)
    free = free_memory("cpu")
    if device == "cuda" and offloaded >= free:
        raise MemoryError(
            f"activations = {OFFLOAD!r} needs about {offloaded / 1e9:.1f} GB of the CPU's memory, "
            f"but {free / 1e9:.1f} GB are free; set activations = {RECOMPUTE!r}, "
            "or a smaller pack_tokens"
        )
    return needed


def suggest_setting(
    network: PreTrainedModel, settings: Training, shape: RowShape, room: float
) -> str:
    """Return the first change of settings that makes the run fit."""
    leanest = settings
    change = ""
    for activations in ACTIVATIONS[ACTIVATIONS.index(settings.activations) + 1 :]:
        leaner = replace(settings, activations=activations)
        if offloaded_bytes(network, leaner, shape) < free_memory("cpu"):
            leanest = leaner
            change = f"activations = {activations!r}"
            if training_bytes(network, leanest, shape) <= room:
                return f"set {change}"
    tokens = shape.tokens
    while tokens // 2 >= shape.longest:
        tokens //= 2
        shorter = replace(shape, tokens=tokens, targets=shape.targets * tokens // shape.tokens)
        if training_bytes(network, leanest, shorter) <= room:
            return f"set pack_tokens = {tokens}" + (f", {change}" if change else "")
    return "no training setting makes it fit: choose a smaller model"


# What takes memory.


def training_bytes(network: PreTrainedModel, settings: Training, shape: RowShape) -> float:
    """Return the peak of a training step in bytes.

    It contains weights, adapters, activations, logits and unpacked weights.
    """
    return (
        base_bytes(network)
        + adapter_bytes(network, settings)
        + activation_bytes(network, settings.activations, shape.tokens)
        + logit_bytes(network, shape)
        + 2 * largest_linear_bytes(network)  # gate and up, for a moment
    )


def base_bytes(network: PreTrainedModel) -> int:
    """Return the bytes of the frozen network.

    A 4-bit weight takes half a byte, plus a scale for every 64 weights.
    """
    plain = sum(p.nbytes for p in network.parameters() if not isinstance(p, Params4bit))
    return plain + unpacked_bytes(network) // network.dtype.itemsize * 33 // 64


def adapter_bytes(network: PreTrainedModel, settings: Training) -> int:
    """Return the bytes of the adapters and of their optimizer."""
    # A pass uses a weight and a gradient; the optimizer a gradient, a weight and two fp32 moments.
    n_in_fp32 = 1 if settings.activations == OFFLOAD else 4
    per_weight = 2 * network.dtype.itemsize + 4 * n_in_fp32
    return count_adapter_weights(network, settings) * per_weight


def logit_bytes(network: PreTrainedModel, shape: RowShape) -> int:
    """Return the bytes at the end of the forward pass.

    These are a part of the logits, also in fp32, their softmax, and the hidden states of all
    targets.
    """
    config = network.config
    size = network.dtype.itemsize
    n_rows = min(shape.targets, rows_at_once(config.vocab_size))
    logits = n_rows * config.vocab_size * (2 * size + 2 * 4)
    return logits + 3 * shape.targets * config.hidden_size * size


def activation_bytes(network: PreTrainedModel, activations: str, tokens: int) -> int:
    """Return what all layers keep for the backward pass, plus one layer that is recomputed."""
    config = network.config
    offloads = activations == OFFLOAD
    # In the backward pass, one recomputed layer and its gradients come on top.
    mlp_tokens = min(tokens, MLP_PART) if offloads else tokens
    mlp_numbers = 5 * mlp_tokens * config.intermediate_size
    recomputed = (mlp_numbers + 6 * tokens * config.hidden_size) * network.dtype.itemsize
    # With offloading, two layers are on their way out and two on their way back.
    n_here = min(config.num_hidden_layers, 4) if offloads else config.num_hidden_layers
    return n_here * layer_bytes(network, tokens, activations) + recomputed


def offloaded_bytes(network: PreTrainedModel, settings: Training, shape: RowShape) -> int:
    """Return the offloaded bytes: kept activations, and the optimizer's weights and moments."""
    if settings.activations != OFFLOAD:
        return 0
    kept = network.config.num_hidden_layers * layer_bytes(network, shape.tokens, OFFLOAD)
    return kept + 3 * 4 * count_adapter_weights(network, settings)


def layer_bytes(network: PreTrainedModel, tokens: int, activations: str) -> int:
    """Return what one layer keeps for its backward pass, as `layers.Layer` saves it."""
    config = network.config
    queries = config.num_attention_heads * head_size(config)
    keys = config.num_key_value_heads * head_size(config)
    per_token = 2 * config.hidden_size + queries  # hidden, middle, attended
    if activations == KEEP:  # also queries, keys, values, gate and up
        per_token += queries + 2 * keys + 2 * config.intermediate_size
    return tokens * network.dtype.itemsize * per_token


# Sizes of the network.


def linear_sizes(network: PreTrainedModel) -> list[tuple[int, int]]:
    """Return inputs and outputs of the layers with an adapter: all linear ones except the last."""
    last = network.get_output_embeddings()
    return [
        (module.in_features, module.out_features)
        for module in network.modules()
        if isinstance(module, torch.nn.Linear) and module is not last
    ]


def count_adapter_weights(network: PreTrainedModel, settings: Training) -> int:
    """Return the number of weights of the adapters of all linear layers."""
    return settings.lora_rank * sum(map(sum, linear_sizes(network)))


def largest_linear_bytes(network: PreTrainedModel) -> int:
    """Return the bytes of the largest linear layer when unpacked."""
    return network.dtype.itemsize * max(map(math.prod, linear_sizes(network)))


def build_without_weights(
    shape: Path | Sequence[str | int], quantize: str, device: str
) -> PreTrainedModel:
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
