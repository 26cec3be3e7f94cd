"""Linear layers with their adapters as answering computes them: those that read the same input in one product.

A decoding step spends its time on starting kernels. Queries, keys and values read the same input, as do an MLP's gate
and up, so their weights are laid one behind the other, and so are their adapters. `serving` calls this.
"""

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from types import MethodType

import torch
from peft.tuners.lora import LoraLayer

TOGETHER = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))  # by their names in an attention or an MLP


def lean_linears(network: torch.nn.Module) -> None:
    """Let adapters be computed without peft's own forward, and layers with the same input together."""
    for layer in network.modules():
        if isinstance(layer, LoraLayer):
            for weights in (*layer.lora_A.values(), *layer.lora_B.values()):
                weights.to(network.dtype)  # as they were trained; peft keeps them in fp32
            layer.forward = MethodType(adapted, layer)
    for parent in network.modules():
        for names in TOGETHER:
            layers = [getattr(parent, name, None) for name in names]
            if can_join(layers):
                Together(layers)


def adapted(layer: LoraLayer, x: torch.Tensor, *_, **__) -> torch.Tensor:
    """x W' + s (x A') B' without the copies and casts of peft's own forward, which serves adapters of other kinds."""
    name = active(layer)
    if name is None:
        return layer.base_layer(x)
    if not is_plain(layer, name):
        return type(layer).forward(layer, x)
    out = layer.base_layer(x)
    add_adapter(out, x, layer, name)
    return out


def active(layer: torch.nn.Module) -> str | None:
    """The name of the adapter that is switched on, if this layer has it."""
    if not isinstance(layer, LoraLayer) or layer.disable_adapters:
        return None
    name = layer.active_adapters[0]
    return name if name in layer.lora_A else None


def is_plain(layer: LoraLayer, name: str) -> bool:
    """Whether an adapter is the product of two matrices, and nothing else."""
    return name not in layer.lora_variant and layer.lora_B[name].bias is None


def add_adapter(out: torch.Tensor, x: torch.Tensor, layer: LoraLayer, name: str) -> None:
    """Add what an adapter makes of x, (..., in), to a layer's output, (..., out)."""
    low = x.reshape(-1, x.shape[-1]) @ layer.lora_A[name].weight.t()  # (tokens, rank)
    out.view(-1, out.shape[-1]).addmm_(low, layer.lora_B[name].weight.t(), alpha=layer.scaling[name])


def base_of(layer: torch.nn.Module) -> torch.nn.Module:
    """The layer under an adapter."""
    return getattr(layer, "base_layer", layer)


def can_join(layers: Sequence[torch.nn.Module | None]) -> bool:
    """Whether these layers are matrices of plain numbers, with plain adapters or none, and all or none have a bias."""
    bases = [base_of(layer) for layer in layers]
    if any(type(base) is not torch.nn.Linear for base in bases):  # those of 4 and 8 bits are kinds of it
        return False
    with_adapters = [layer for layer in layers if isinstance(layer, LoraLayer)]
    are_plain = all(is_plain(layer, name) for layer in with_adapters for name in layer.lora_A)
    return are_plain and len({base.bias is None for base in bases}) == 1


class Together:
    """Several linear layers that are called one after another with the same input: the first call computes them all."""

    def __init__(self, layers: Sequence[torch.nn.Module]):
        self.layers = layers
        bases = [base_of(layer) for layer in layers]
        self.sizes = [base.out_features for base in bases]
        self.weight = torch.cat([base.weight.data for base in bases])  # (outs, in)
        for base, rows in zip(bases, self.weight.split(self.sizes)):
            base.weight = torch.nn.Parameter(rows, requires_grad=False)  # no second copy of it
            base.__dict__.pop("forward", None)  # from when there was no adapter around it
        self.bias = None if bases[0].bias is None else torch.cat([base.bias.data for base in bases])
        self.adapters = {}  # by name: A (ranks, in) and B (ranks, outs) of all the layers, and their scale
        for name in getattr(layers[0], "lora_A", ()):
            self.join_adapters(name)
        self.x = None
        self.parts = ()
        for place, layer in enumerate(layers):
            layer.forward = partial(self.part, place)

    def join_adapters(self, name: str) -> None:
        """Lay the adapters of this name one behind the other, where all the layers have it with the same scale."""
        if not all(isinstance(layer, LoraLayer) and name in layer.lora_A for layer in self.layers):
            return
        if len({layer.scaling[name] for layer in self.layers}) > 1:
            return
        lora_a = [layer.lora_A[name].weight.data for layer in self.layers]
        lora_b = [layer.lora_B[name].weight.data.t() for layer in self.layers]
        # Outside of its own block B is zero: an adapter adds nothing to the other layers.
        self.adapters[name] = (torch.cat(lora_a), torch.block_diag(*lora_b), self.layers[0].scaling[name])

    def part(self, place: int, x: torch.Tensor, *_, **__) -> torch.Tensor:
        """One layer's output for x."""
        if place == 0 or x is not self.x:
            self.x = x
            self.parts = self.compute(x)
        made = self.parts[place]
        if place == len(self.layers) - 1:
            self.x = None
            self.parts = ()
        return made

    def compute(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Every layer's output for x: (..., in) to (..., out) each."""
        out = torch.nn.functional.linear(x, self.weight, self.bias)  # (..., outs)
        names = [active(layer) for layer in self.layers]
        is_joined = names[0] in self.adapters
        if is_joined:
            a, b, scale = self.adapters[names[0]]
            low = x.reshape(-1, x.shape[-1]) @ a.t()  # (tokens, ranks)
            out.view(-1, out.shape[-1]).addmm_(low, b, alpha=scale)
        ends = list(accumulate(self.sizes))
        parts = [out[..., end - size : end] for end, size in zip(ends, self.sizes)]
        for part, layer, name in zip(parts, self.layers, names):
            if name is not None and not is_joined:
                add_adapter(part, x, layer, name)
        return parts
