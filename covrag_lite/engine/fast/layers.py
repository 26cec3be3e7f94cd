"""One decoder layer with LoRA on its seven linear layers; forward and backward are written by hand.

Autograd would keep every intermediate result, or recompute the whole layer with checkpointing. This
backward pass recomputes only what it needs: not the outputs of the two residual blocks, which are a
third of a layer's arithmetic. Linear layers with the same input share the products with their
adapters, sums are part of the matrix products, and the rest is elementwise. All of it is exact:
tests compare it with peft's layers.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import NamedTuple

import torch
from torch.autograd.function import FunctionCtx

from covrag_lite.engine.fast.offload import Offload
from covrag_lite.engine.fast.unpacking import frozen_weight
from covrag_lite.engine.fast.varlen_attention import attend_packed, attend_packed_back
from covrag_lite.engine.fast.varlen_prefill import norm_of
from covrag_lite.engine.trainee import KEEP, OFFLOAD

# Tokens per part of an offloading layer's MLP; all at once would use most of the saved memory.
MLP_PART = 2048


class Block(NamedTuple):
    """A decoder layer and how it is trained."""

    layer: torch.nn.Module
    functions: SimpleNamespace  # elementwise.training_functions
    # KEEP all; RECOMPUTE queries, keys, values, gate and up; OFFLOAD also the rest
    activations: str
    offload: Offload
    number: int  # of the layer, counted from the input


class Row(NamedTuple):
    """The positions of the tokens in a packed row."""

    cos: torch.Tensor  # (tokens, 1, head size), for their positions
    sin: torch.Tensor  # (tokens, 1, head size)
    ends: torch.Tensor  # (samples + 1), the ends of the samples, with a 0 before the first
    longest: int  # tokens of the longest sample


def forward(
    block: Block,
    hidden_states: torch.Tensor,
    *_,
    position_embeddings: tuple[torch.Tensor, torch.Tensor],
    cu_seq_lens_q: torch.Tensor,
    max_length_q: int,
    **__,
) -> torch.Tensor:
    """Replace the forward of a decoder layer for one packed row: (1, tokens, width) to the same."""
    cos, sin = (x[0, :, None] for x in position_embeddings)  # each (tokens, 1, head size)
    row = Row(cos, sin, cu_seq_lens_q, max_length_q)
    goes_back = torch.is_grad_enabled()  # inside `Layer.forward` this is always False
    return Layer.apply(hidden_states[0], block, row, goes_back)[None]


class Layer(torch.autograd.Function):
    """A decoder layer with its own backward pass.

    middle = hidden + o(attention(norm(hidden))); out = middle + down(silu(gate) * up), where gate
    and up are computed from norm(middle).
    """

    @staticmethod
    def forward(
        ctx: FunctionCtx, hidden: torch.Tensor, block: Block, row: Row, goes_back: bool
    ) -> torch.Tensor:
        """Return the layer's output: (tokens, width) to the same."""
        attention = block.layer.self_attn
        mlp = block.layer.mlp
        normed = block.functions.normed

        input_norm = norm_of(block.layer.input_layernorm)
        query, key, value = heads(block, normed(hidden, *input_norm), row)
        attended, *flash_state = attend_packed(
            query, key, value, row.ends, row.longest, attention.scaling
        )
        (middle,) = project(attended.flatten(1), [attention.o_proj], plus=hidden)

        linears = [mlp.gate_proj, mlp.up_proj]
        weights = None
        if block.activations == OFFLOAD:  # unpacked once for all parts
            weights = [frozen_weight(linear) for linear in linears]
        parts = []
        for middle_part in split(middle, block.activations):
            x = normed(middle_part, *norm_of(block.layer.post_attention_layernorm))
            gate, up = project(x, linears, weights=weights)  # each (tokens, intermediate size)
            x = block.functions.gated(gate, up)
            parts += project(x, [mlp.down_proj], plus=middle_part)
        out = join(parts)

        if block.activations != KEEP:
            query = key = value = gate = up = None
        if block.activations == OFFLOAD and goes_back:
            block.offload.put(block.number, [hidden, middle, attended])
            hidden = middle = attended = None
        ctx.save_for_backward(hidden, middle, attended, query, key, value, gate, up, *flash_state)
        ctx.block = block
        ctx.row = row
        return out

    @staticmethod
    def backward(ctx: FunctionCtx, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradient of `hidden`; the adapters' gradients are added to their `grad`."""
        block = ctx.block
        hidden, middle, attended, query, key, value, gate, up, *flash_state = ctx.saved_tensors
        if hidden is None:
            hidden, middle, attended = block.offload.take(block.number)

        grad_x = mlp_back(grad, block, middle, gate, up)
        grad = block.functions.normed_back(
            grad_x, middle, grad, *norm_of(block.layer.post_attention_layernorm)
        )

        grad_x = attention_back(
            grad, block, hidden, attended, (query, key, value), ctx.row, flash_state
        )
        grad = block.functions.normed_back(
            grad_x, hidden, grad, *norm_of(block.layer.input_layernorm)
        )
        return grad, None, None, None


def mlp_back(
    grad: torch.Tensor,
    block: Block,
    middle: torch.Tensor,
    gate: torch.Tensor | None,
    up: torch.Tensor | None,
) -> torch.Tensor:
    """Return the gradient of the MLP's normed input, (tokens, width).

    `gate` and `up` are None if they were not kept.
    """
    layer = block.layer
    linears = [layer.mlp.gate_proj, layer.mlp.up_proj]
    weights = [frozen_weight(linear) for linear in linears]
    down = [frozen_weight(layer.mlp.down_proj)] if block.activations == OFFLOAD else None
    grads_x = []
    middle_parts = split(middle, block.activations)
    for grad_part, middle_part in zip(split(grad, block.activations), middle_parts):
        x = block.functions.normed(middle_part, *norm_of(layer.post_attention_layernorm))
        if gate is None:
            part_gate, part_up = project(x, linears, weights=weights)
        else:
            part_gate = gate
            part_up = up
        product = block.functions.gated(part_gate, part_up)
        grad_product = backproject([grad_part], product, [layer.mlp.down_proj], down)
        del product  # as large as gate, and no longer needed
        grads = block.functions.gated_back(grad_product, part_gate, part_up)
        del part_gate, part_up, grad_product
        grads_x.append(backproject(grads, x, linears, weights))
        del grads
    return join(grads_x)


def split(x: torch.Tensor, activations: str) -> tuple[torch.Tensor, ...]:
    """Split tokens into the parts that an MLP computes in turn: one, or several if offloading."""
    n_parts = -(-len(x) // MLP_PART) if activations == OFFLOAD else 1
    return x.tensor_split(n_parts)


def join(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Concatenate the parts."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def attention_back(
    grad: torch.Tensor,
    block: Block,
    hidden: torch.Tensor,
    attended: torch.Tensor,
    kept: tuple[torch.Tensor | None, ...],
    row: Row,
    flash_state: list[torch.Tensor],
) -> torch.Tensor:
    """Return the gradient of the attention's normed input, (tokens, width).

    `kept` contains queries, keys and values, or None three times.
    """
    attention = block.layer.self_attn
    linears = [attention.q_proj, attention.k_proj, attention.v_proj]
    grad_attended = backproject([grad], attended.flatten(1), [attention.o_proj]).view_as(attended)
    x = block.functions.normed(hidden, *norm_of(block.layer.input_layernorm))
    weights = [frozen_weight(linear) for linear in linears]
    query, key, value = kept
    if query is None:
        query, key, value = heads(block, x, row, weights)
    grad_query, grad_key, grad_value = attend_packed_back(
        grad_attended,
        query,
        key,
        value,
        attended,
        flash_state,
        row.ends,
        row.longest,
        attention.scaling,
    )
    grad_query = block.functions.rotated_back(grad_query, row.cos, row.sin)
    grad_key = block.functions.rotated_back(grad_key, row.cos, row.sin)
    flat_grads = [grad.flatten(1) for grad in (grad_query, grad_key, grad_value)]
    return backproject(flat_grads, x, linears, weights)


def heads(
    block: Block, x: torch.Tensor, row: Row, weights: Sequence[torch.Tensor] | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return queries and keys, both rotated, and values: each (tokens, heads, head size)."""
    attention = block.layer.self_attn
    rotated = block.functions.rotated
    flat = project(x, [attention.q_proj, attention.k_proj, attention.v_proj], weights=weights)
    query, key, value = (part.unflatten(1, (-1, attention.head_dim)) for part in flat)
    return rotated(query, row.cos, row.sin), rotated(key, row.cos, row.sin), value


def project(
    x: torch.Tensor,
    linears: Sequence[torch.nn.Module],
    plus: torch.Tensor | None = None,
    weights: Sequence[torch.Tensor] | None = None,
) -> list[torch.Tensor]:
    """Compute x W' + s x A' B' + `plus` for layers with the same input x.

    Shapes are (tokens, in) to (tokens, out).

    `weights` are the frozen weights W, if they are already unpacked.
    """
    lora_a, lora_b, scale = adapters(linears)
    low = (x @ torch.cat(lora_a).t()).chunk(len(linears), 1)  # each (tokens, rank)
    results = []
    for i, linear in enumerate(linears):
        weight = weights[i] if weights else frozen_weight(linear)
        bias = linear.base_layer.bias
        addends = [term for term in (plus, bias) if term is not None]
        out = torch.addmm(sum(addends), x, weight.t()) if addends else x @ weight.t()
        results.append(out.addmm_(low[i], lora_b[i].t(), alpha=scale))
    return results


def backproject(
    grads: Sequence[torch.Tensor],
    x: torch.Tensor,
    linears: Sequence[torch.nn.Module],
    weights: Sequence[torch.Tensor] | None = None,
) -> torch.Tensor:
    """Return the gradient of the shared input x, (tokens, in).

    The adapters' gradients are added to their `grad`.
    """
    lora_a, lora_b, scale = adapters(linears)
    joined_a = torch.cat(lora_a)  # (ranks, in), where ranks is the sum over all layers
    low = (x @ joined_a.t()).chunk(len(linears), 1)  # each (tokens, rank)
    grads_low = [grad @ b for grad, b in zip(grads, lora_b)]  # each (tokens, rank)
    grad_low = torch.cat(grads_low, 1).mul_(scale)  # (tokens, ranks)
    grad_a = (grad_low.t() @ x).chunk(len(linears))  # each (rank, in)
    for a, part in zip(lora_a, grad_a):
        a.grad += part
    grad_x = None
    for i, (grad, linear) in enumerate(zip(grads, linears)):
        lora_b[i].grad.addmm_(grad.t(), low[i], alpha=scale)
        weight = weights[i] if weights else frozen_weight(linear)
        grad_x = grad @ weight if grad_x is None else grad_x.addmm_(grad, weight)
    return grad_x.addmm_(grad_low, joined_a)


def adapters(
    linears: Sequence[torch.nn.Module],
) -> tuple[list[torch.Tensor], list[torch.Tensor], float]:
    """Return all A, each (rank, in), all B, each (out, rank), and the scale of their product."""
    lora_a = [linear.lora_A["default"].weight for linear in linears]
    lora_b = [linear.lora_B["default"].weight for linear in linears]
    return lora_a, lora_b, linears[0].scaling["default"]
