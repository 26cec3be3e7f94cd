"""How much of the device's memory a training run will need, and which setting to change when it is too much.

`loop` calls `check` before the first step.
"""

from dataclasses import replace

import torch
from bitsandbytes.nn import Linear4bit
from transformers import PreTrainedModel

from covrag_lite.config import Training
from covrag_lite.engine.layers import ALL, INPUT, PART, SOME
from covrag_lite.engine.lora import is_away
from covrag_lite.engine.loss import is_plain, rows_at_once
from covrag_lite.engine.prepare import free_memory, unpacked_bytes
from covrag_lite.engine.varlen_prefill import is_known
from covrag_lite.packing import Shape

UNPACK = ("auto", "yes", "no")


def check(network: PreTrainedModel, settings: Training, shape: Shape, device: str) -> bool:
    """Print what training will need and refuse what cannot fit; returns whether the 4-bit weights get unpacked."""
    if settings.unpack not in UNPACK:
        raise ValueError(f"unpack {settings.unpack!r} is not known; use one of {', '.join(UNPACK)}")
    free = free_memory(device)
    held = base_bytes(network)
    unpack = settings.unpack == "yes"
    if settings.unpack == "auto":
        unpack = unpacked_bytes(network) < 0.1 * free
    needed = estimate(network, settings, shape, unpack)
    print(
        f"training will need about {needed:.1f} GB, of which {held / 1e9:.1f} GB hold the model already; "
        f"{free / 1e9:.1f} GB are free"
    )
    if needed * 1e9 - held > free:
        advice = cure(network, settings, shape, unpack, free + held)
        raise MemoryError(f"training needs about {needed:.1f} GB and {(free + held) / 1e9:.1f} GB can be had; {advice}")
    if device == "cuda" and not has_room_away(network, settings, shape):
        aside, there = away_bytes(network, settings, shape) / 1e9, free_memory("cpu") / 1e9
        raise MemoryError(
            f"checkpointing = {settings.checkpointing} puts about {aside:.1f} GB into the CPU's memory, of which "
            f"{there:.1f} GB are free; set checkpointing = 2.0, or a smaller pack_tokens"
        )
    return unpack


def cure(network: PreTrainedModel, settings: Training, shape: Shape, unpack: bool, room: float) -> str:
    """The first change of settings that lets the run fit."""

    def fits(settings: Training, shape: Shape) -> bool:
        return estimate(network, settings, shape, unpack=False) * 1e9 <= room

    if unpack and fits(settings, shape):
        return "set unpack = 'no'"
    and_packed = " and unpack = 'no'" if unpack else ""
    away = replace(settings, checkpointing=3.0)  # quicker than 2.0 and leaner on the GPU, if the CPU has room
    for leaner in (1.0, 3.0 if has_room_away(network, away, shape) else 2.0):
        lean = replace(settings, checkpointing=leaner)
        is_lean = settings.checkpointing >= leaner
        if not is_lean and fits(lean, shape):
            return f"set checkpointing = {leaner}{and_packed}"
    tokens = shape.tokens
    while tokens // 2 >= shape.longest:
        tokens //= 2
        shorter = replace(shape, tokens=tokens, targets=shape.targets * tokens // shape.tokens)
        if fits(lean, shorter):
            with_checkpointing = "" if is_lean else f", checkpointing = {lean.checkpointing}"
            return f"set pack_tokens = {tokens}{with_checkpointing}{and_packed}"
    return "no setting of training makes it fit: choose a smaller model"


def has_room_away(network: PreTrainedModel, settings: Training, shape: Shape) -> bool:
    """Whether the CPU's memory has room for what these settings put there."""
    return away_bytes(network, settings, shape) < free_memory("cpu")


def away_bytes(network: PreTrainedModel, settings: Training, shape: Shape) -> int:
    """What lies in the CPU's memory: what layers keep, and the optimizer's weights and moments."""
    n_away = round(network.config.num_hidden_layers * max(0.0, settings.checkpointing - 2))
    optimizer = 3 * 4 * adapter_weights(network, settings) if is_away(settings) else 0
    return n_away * layer_bytes(network, shape.tokens, SOME) + optimizer


def adapter_weights(network: PreTrainedModel, settings: Training) -> int:
    """How many weights the adapters have."""
    return settings.lora_rank * sum(layer.in_features + layer.out_features for layer in adapted_linears(network))


def estimate(network: PreTrainedModel, settings: Training, shape: Shape, unpack: bool) -> float:
    """The peak of a training step in GB: the sum of weights, adapters, activations, logits and unpacked weights."""
    config = network.config
    size = network.dtype.itemsize
    linears = adapted_linears(network)
    weights = base_bytes(network)
    if unpack:
        weights += unpacked_bytes(network) - packed_bytes(network)
    adapters = adapter_weights(network, settings)
    # Passes use a weight and a gradient; the optimizer has a gradient, a weight and two moments in fp32.
    weights += adapters * (2 * size + (4 if is_away(settings) else 4 * 4))
    # At the end of the forward pass: logits, in fp32 too, their softmax, and a gradient or both.
    logits = shape.targets * config.vocab_size * (2 * size + 3 * 4)
    if is_plain(network):
        at_once = min(shape.targets, rows_at_once(config.vocab_size))
        logits = at_once * config.vocab_size * (2 * size + 2 * 4) + 3 * shape.targets * config.hidden_size * size
    unpacked = 0
    if not unpack:
        largest = max(layer.in_features * layer.out_features for layer in linears)
        unpacked = 2 * largest * size  # gate and up together
    return (weights + activation_bytes(network, settings.checkpointing, shape.tokens) + logits + unpacked) / 1e9


def activation_bytes(network: PreTrainedModel, checkpointing: float, tokens: int) -> int:
    """What all layers keep for the backward pass, and what the layer needs that is being computed again there."""
    config = network.config
    n_again = round(config.num_hidden_layers * min(1.0, checkpointing))
    n_bare = round(config.num_hidden_layers * min(1.0, max(0.0, checkpointing - 1)))
    n_away = round(config.num_hidden_layers * max(0.0, checkpointing - 2))
    n_kept = config.num_hidden_layers - n_again
    bare, lean, full = (layer_bytes(network, tokens, keep) for keep in (INPUT, SOME, ALL))
    # Going backwards, one layer computed again and its gradients live beside what all the layers keep.
    at_once = min(tokens, PART) if n_bare == config.num_hidden_layers else tokens  # of its MLP
    passing = (5 * at_once * config.intermediate_size + 6 * tokens * config.hidden_size) * network.dtype.itemsize
    total = (n_bare - n_away) * bare + (n_again - n_bare) * lean + n_kept * full + passing
    total += min(n_away, 4) * lean  # two that leave, two that come back
    if n_again and not is_known(network.get_decoder().layers[0], config):
        total += full
    return total


def layer_bytes(network: PreTrainedModel, tokens: int, keep: str) -> int:
    """What one layer keeps for its backward pass: all, some or its input alone."""
    config = network.config
    size = network.dtype.itemsize
    narrow = config.hidden_size
    wide = config.intermediate_size
    head_size = getattr(config, "head_dim", None) or narrow // config.num_attention_heads
    queries = config.num_attention_heads * head_size
    keys = config.num_key_value_heads * head_size
    if is_known(network.get_decoder().layers[0], config):
        kept = narrow  # what layers.Layer saves
        if keep != INPUT:
            kept += narrow + queries
        if keep == ALL:
            kept += queries + 2 * keys + 2 * wide
    elif keep != ALL:
        kept = narrow
    else:  # as transformers and peft do it: the norms' inputs are kept in fp32
        kept = 5 * narrow + 2 * queries + 2 * keys + 4 * wide + 8 * narrow // size
    return tokens * kept * size


def adapted_linears(network: PreTrainedModel) -> list[torch.nn.Linear]:
    """The linear layers that get an adapter: all but the one that makes the logits."""
    head = network.get_output_embeddings()
    return [layer for layer in network.modules() if isinstance(layer, torch.nn.Linear) and layer is not head]


def base_bytes(network: PreTrainedModel) -> int:
    """The bytes of the frozen network as it is loaded."""
    stored = sum(p.numel() * p.element_size() for p in network.parameters())
    scales = sum(weights // 64 for weights in packed_sizes(network))
    return stored + scales


def packed_bytes(network: PreTrainedModel) -> int:
    """The bytes of the 4-bit weights and their scales: half a byte a weight, and one for each block of 64."""
    return sum(weights * 33 // 64 for weights in packed_sizes(network))


def packed_sizes(network: PreTrainedModel) -> list[int]:
    """The number of weights of each 4-bit layer."""
    layers = [layer for layer in network.modules() if isinstance(layer, Linear4bit)]
    return [layer.in_features * layer.out_features for layer in layers]
