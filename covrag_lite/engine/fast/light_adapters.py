"""Adapters of peft that compute the same without the copies and casts of peft's own forward."""

from types import MethodType

import torch
from peft.tuners.lora import LoraLayer


def lighten_adapters(network: torch.nn.Module) -> None:
    """Replace the forward of peft's adapters by `forward_light`."""
    for layer in network.modules():
        if isinstance(layer, LoraLayer):
            for weights in (*layer.lora_A.values(), *layer.lora_B.values()):
                weights.to(network.dtype)  # as in training; peft keeps them in fp32
            layer.forward = MethodType(forward_light, layer)


def forward_light(layer: LoraLayer, x: torch.Tensor, *_, **__) -> torch.Tensor:
    """Compute x W' + s (x A') B'."""
    name = layer.active_adapters[0]
    if layer.disable_adapters or name not in layer.lora_A:
        return layer.base_layer(x)
    is_more_than_a_product = name in layer.lora_variant or layer.lora_B[name].bias is not None
    if is_more_than_a_product:
        return type(layer).forward(layer, x)
    out = layer.base_layer(x)
    low = x.reshape(-1, x.shape[-1]) @ layer.lora_A[name].weight.t()  # (tokens, rank)
    lora_b = layer.lora_B[name].weight
    out.view(-1, out.shape[-1]).addmm_(low, lora_b.t(), alpha=layer.scaling[name])
    return out
