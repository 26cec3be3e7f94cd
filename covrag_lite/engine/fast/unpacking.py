"""4-bit weights, unpacked once instead of at every use, if they fit into memory.

The values are the same. Unpacking takes most of a decoding step on a CPU.
"""

from collections.abc import Callable

import torch
from bitsandbytes.functional import dequantize_4bit
from bitsandbytes.nn import Linear4bit
from transformers import PreTrainedModel

LARGEST_SHARE = 0.1  # of the free memory, that unpacked weights may take


def are_worth_unpacking(network: PreTrainedModel, free: int) -> bool:
    """Are the unpacked weights small relative to the free memory?"""
    return unpacked_bytes(network) < LARGEST_SHARE * free


def unpacked_bytes(network: PreTrainedModel) -> int:
    """Return the bytes that the 4-bit weights take when unpacked."""
    packed = [layer for layer in network.modules() if isinstance(layer, Linear4bit)]
    n_weights = sum(layer.in_features * layer.out_features for layer in packed)
    return n_weights * network.dtype.itemsize


def unpack_linears(
    network: PreTrainedModel, laid_out: Callable[[torch.Tensor], torch.Tensor] = torch.Tensor.detach
) -> None:
    """Replace 4-bit linear layers by plain ones with the same values.

    `laid_out` decides on their layout in memory.
    """
    for parent in list(network.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, Linear4bit):
                setattr(parent, name, unpack_linear(layer, laid_out))


def unpack_linear(
    layer: Linear4bit, laid_out: Callable[[torch.Tensor], torch.Tensor]
) -> torch.nn.Linear:
    """Return a plain linear layer with the same values."""
    plain = torch.nn.Linear(layer.in_features, layer.out_features, bias=False, device="meta")
    weight = laid_out(frozen_weight(layer))
    plain.weight = torch.nn.Parameter(weight, requires_grad=False)
    plain.bias = layer.bias
    return plain


def by_columns(weight: torch.Tensor) -> torch.Tensor:
    """Return the same weight; on a CPU in column order, which makes products a tenth faster."""
    return weight if weight.is_cuda else weight.t().contiguous().t()


def frozen_weight(linear: torch.nn.Module) -> torch.Tensor:
    """Return a frozen layer's weights (out, in), unpacked if they have 4 bits."""
    base = base_of(linear)
    if isinstance(base, Linear4bit):
        return dequantize_4bit(base.weight.data, base.weight.quant_state)
    return base.weight


def base_of(layer: torch.nn.Module) -> torch.nn.Module:
    """Return the layer inside an adapter."""
    return getattr(layer, "base_layer", layer)
