"""The gradients of a decoder layer's elementwise steps, and all that `layers` uses between its matrix products."""

from types import SimpleNamespace

import torch

from covrag_lite.engine.elementwise import gated, halves_turned, normed, rotated


def normed_back(
    grad: torch.Tensor, hidden: torch.Tensor, plus: torch.Tensor, weight: torch.Tensor, epsilon: float
) -> torch.Tensor:
    """The gradient of a norm's input; `plus` is the gradient that reaches the input on the way around the norm."""
    wide = hidden.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)
    unit = wide * scale
    inner = grad.float() * weight.float()
    along = (inner * unit).mean(-1, keepdim=True)  # the part that only changes the length, which the norm takes away
    return (plus.float() + scale * (inner - unit * along)).to(hidden.dtype)


def rotated_back(grad: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """The gradient of what was turned."""
    return grad * cos - halves_turned(grad * sin)


def gated_back(grad: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of gate and up."""
    wide = gate.float()
    share = torch.sigmoid(wide)
    silu = wide * share
    grad = grad.float()
    grad_gate = grad * up.float() * (share + silu * (1 - share))
    grad_up = grad * silu
    return grad_gate.to(gate.dtype), grad_up.to(gate.dtype)


def elementwise(compiled: bool) -> SimpleNamespace:
    """These functions under their names, as they are or compiled."""
    functions = {}
    for function in (normed, normed_back, rotated, rotated_back, gated, gated_back):
        functions[function.__name__] = torch.compile(function, dynamic=False) if compiled else function
    return SimpleNamespace(**functions)
