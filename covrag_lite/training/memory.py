"""What a training run will need of the device's memory, said before it starts, and the setting to change when it is too much."""

from dataclasses import replace

import torch
from bitsandbytes.nn import Linear4bit

from covrag_lite.config import Training
from covrag_lite.model.serving import free_memory, unpacked_bytes
from covrag_lite.training.layers import is_known
from covrag_lite.training.packing import Shape

UNPACK = ("auto", "yes", "no")


def check(network, settings: Training, shape: Shape, device: str) -> bool:
    """Print what training will need and refuse what cannot fit; returns whether the 4-bit weights get unpacked."""
    if settings.unpack not in UNPACK:
        raise ValueError(f"unpack {settings.unpack!r} is not known; use one of {', '.join(UNPACK)}")
    free, held = free_memory(device), base_bytes(network)
    unpack = settings.unpack == "yes" or settings.unpack == "auto" and unpacked_bytes(network) < 0.1 * free
    needed = estimate(network, settings, shape, unpack)
    print(
        f"training will need about {needed:.1f} GB, of which {held / 1e9:.1f} GB hold the model already; {free / 1e9:.1f} GB are free"
    )
    if needed * 1e9 - held > free:
        raise MemoryError(
            f"training needs about {needed:.1f} GB and {(free + held) / 1e9:.1f} GB can be had; "
            + cure(network, settings, shape, unpack, free + held)
        )
    return unpack


def cure(network, settings: Training, shape: Shape, unpack: bool, room: float) -> str:
    """The first change of settings that lets the run fit."""
    fits = lambda settings, shape, unpack: estimate(network, settings, shape, unpack) * 1e9 <= room
    if unpack and fits(settings, shape, False):
        return "set unpack = 'no'"
    lean = replace(settings, checkpointing=1.0)
    if settings.checkpointing < 1 and fits(lean, shape, False):
        return "set checkpointing = 1.0" + " and unpack = 'no'" * unpack
    tokens = shape.tokens
    while tokens // 2 >= shape.longest:
        tokens //= 2
        if fits(lean, replace(shape, tokens=tokens, targets=shape.targets * tokens // shape.tokens), False):
            return (
                f"set pack_tokens = {tokens}"
                + ", checkpointing = 1.0" * (settings.checkpointing < 1)
                + " and unpack = 'no'" * unpack
            )
    return "no setting of training makes it fit: choose a smaller model"


def estimate(network, settings: Training, shape: Shape, unpack: bool) -> float:
    """The peak of a training step in GB: weights, adapters with their optimizer, what the backward pass needs, and logits."""
    config, size, linears = network.config, network.dtype.itemsize, adapted_linears(network)
    weights = base_bytes(network) + (unpacked_bytes(network) - packed_bytes(network) if unpack else 0)
    adapters = settings.lora_rank * sum(layer.in_features + layer.out_features for layer in linears)
    weights += adapters * (
        2 * size + 4 * 4
    )  # passes: weight and gradient; master in fp32: weight, gradient, two moments
    again = round(config.num_hidden_layers * settings.checkpointing)
    keeps = lambda again: layer_bytes(network, shape.tokens, again)
    # Going backwards, one layer computed again and its gradients live beside what all the layers keep.
    passing = shape.tokens * (5 * config.intermediate_size + 6 * config.hidden_size) * size
    activations = again * keeps(True) + (config.num_hidden_layers - again) * keeps(False) + passing
    if again and not is_known(network.get_decoder().layers[0], config):
        activations += keeps(False)
    # At the end of the forward pass: logits, in fp32 too, their softmax, and both gradients.
    logits = shape.targets * config.vocab_size * (2 * size + 3 * 4)
    unpacked = (
        0 if unpack else 2 * max(layer.in_features * layer.out_features for layer in linears) * size
    )  # gate and up together
    return (weights + activations + logits + unpacked) / 1e9


def layer_bytes(network, tokens: int, again: bool) -> int:
    """What one layer keeps for its backward pass, if it computes again what it can, or if it keeps all."""
    config, size = network.config, network.dtype.itemsize
    narrow, wide = config.hidden_size, config.intermediate_size
    heads = getattr(config, "head_dim", None) or narrow // config.num_attention_heads
    queries, keys = config.num_attention_heads * heads, config.num_key_value_heads * heads
    if is_known(network.get_decoder().layers[0], config):
        kept = 2 * narrow + queries + (0 if again else queries + 2 * keys + 2 * wide)  # see what layers.Layer saves
    else:  # as transformers and peft do it: the norms' inputs are kept in fp32
        kept = narrow if again else 5 * narrow + 2 * queries + 2 * keys + 4 * wide + 8 * narrow // size
    return tokens * kept * size


def adapted_linears(network) -> list:
    """The linear layers that get an adapter: all but the one that makes the logits."""
    head = network.get_output_embeddings()
    return [layer for layer in network.modules() if isinstance(layer, torch.nn.Linear) and layer is not head]


def base_bytes(network) -> int:
    """The bytes of the frozen network as it is loaded."""
    return sum(p.numel() * p.element_size() for p in network.parameters()) + sum(
        layer.in_features * layer.out_features // 64 for layer in network.modules() if isinstance(layer, Linear4bit)
    )


def packed_bytes(network) -> int:
    """The bytes of the 4-bit weights and their scales: a half, and one for each block of 64."""
    return sum(
        layer.in_features * layer.out_features * 33 // 64
        for layer in network.modules()
        if isinstance(layer, Linear4bit)
    )
