"""The elementwise steps of a decoder layer: norm, rotation by position, gate, sum.

Between matrix products, these take most of a GPU's memory traffic. Compiled, each is one kernel.
The layers for prefilling and for training consist of them.
"""

from collections.abc import Callable
from functools import cache
from types import SimpleNamespace

import torch


def normed(hidden: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Compute the root-mean-square norm of each token in fp32: (tokens, width) to the same."""
    wide = hidden.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)
    return (wide * scale).to(hidden.dtype) * weight


def summed(
    hidden: torch.Tensor, addend: torch.Tensor, weight: torch.Tensor, epsilon: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a sum and its norm."""
    hidden = hidden + addend
    return hidden, normed(hidden, weight, epsilon)


def swap_halves(x: torch.Tensor) -> torch.Tensor:
    """Swap the two halves of each head and negate the new first half."""
    left, right = x.chunk(2, -1)
    return torch.cat([-right, left], -1)


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate queries or keys by their positions: (tokens, heads, head size) to the same."""
    return x * cos + swap_halves(x) * sin


def both_rotated(
    query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate queries and keys by their positions."""
    return rotated(query, cos, sin), rotated(key, cos, sin)


def gated(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Compute silu(gate) * up, the middle of the MLP."""
    return torch.nn.functional.silu(gate) * up


@cache
def reading_functions(is_compiled: bool) -> SimpleNamespace:
    """Return the functions for answering, compiled or not; they are compiled once per process."""
    functions = {}
    for function in (normed, summed, both_rotated, gated):
        functions[function.__name__] = compile_for_any_number(function) if is_compiled else function
    return SimpleNamespace(**functions)


def compile_for_any_number(function: Callable) -> Callable:
    """Compile a function once for any number of tokens; all other sizes are fixed."""
    compiled = torch.compile(function)

    def call(*args: torch.Tensor | float) -> torch.Tensor | tuple[torch.Tensor, ...]:
        for argument in args:
            # A weight has one dimension.
            if isinstance(argument, torch.Tensor) and argument.ndim > 1:
                torch._dynamo.maybe_mark_dynamic(argument, 0)
        return compiled(*args)

    return call


def normed_back(
    grad: torch.Tensor,
    hidden: torch.Tensor,
    plus: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
) -> torch.Tensor:
    """Return the gradient of a norm's input; `plus` is the gradient that bypasses the norm."""
    wide = hidden.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)
    unit = wide * scale
    inner = grad.float() * weight.float()
    along = (inner * unit).mean(-1, keepdim=True)  # changes only the length, which the norm removes
    return (plus.float() + scale * (inner - unit * along)).to(hidden.dtype)


def rotated_back(grad: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Return the gradient of the input of `rotated`."""
    return grad * cos - swap_halves(grad * sin)


def gated_back(
    grad: torch.Tensor, gate: torch.Tensor, up: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of gate and up."""
    wide = gate.float()
    share = torch.sigmoid(wide)
    silu = wide * share
    grad = grad.float()
    grad_gate = grad * up.float() * (share + silu * (1 - share))
    grad_up = grad * silu
    return grad_gate.to(gate.dtype), grad_up.to(gate.dtype)


def training_functions(is_compiled: bool) -> SimpleNamespace:
    """Return the functions for training, compiled or not."""
    functions = {}
    for function in (normed, normed_back, rotated, rotated_back, gated, gated_back):
        functions[function.__name__] = (
            torch.compile(function, dynamic=False) if is_compiled else function
        )
    return SimpleNamespace(**functions)
