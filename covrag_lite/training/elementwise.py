"""The steps of a decoder layer that touch each number once, and their gradients: norm, rotation by position, gate.

`layers` uses them between its matrix products; on a GPU each one compiles into a single kernel.
"""

from types import SimpleNamespace

import torch


def normed(hidden: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """The root mean square norm of each token, computed in fp32: (tokens, width) to the same."""
    wide = hidden.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)
    return (wide * scale).to(hidden.dtype) * weight


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


def halves_turned(x: torch.Tensor) -> torch.Tensor:
    """The two halves of each head swapped, the first one with its sign changed."""
    left, right = x.chunk(2, -1)
    return torch.cat([-right, left], -1)


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Queries or keys turned by their positions: (tokens, heads, head size) to the same."""
    return x * cos + halves_turned(x) * sin


def rotated_back(grad: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """The gradient of what was turned."""
    return grad * cos - halves_turned(grad * sin)


def gated(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up, the middle of the MLP."""
    return torch.nn.functional.silu(gate) * up


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
