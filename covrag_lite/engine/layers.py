"""One decoder layer with LoRA on its seven linear layers, forward and backward written out by hand.

Autograd would keep every intermediate result, or with checkpointing compute the whole layer again. The backward pass
written out here computes again only what it needs. The outputs of the two residual blocks are not needed, and they are
a third of a layer's arithmetic. Linear layers with the same input share the products with their adapters, sums go into
the matrix products, and the rest is elementwise. All of it is exact: tests compare it with peft's layers.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import NamedTuple

import torch
from torch.autograd.function import FunctionCtx

from covrag_lite.engine.offload import Offload
from covrag_lite.engine.prepare import frozen_weight
from covrag_lite.engine.varlen_attention import attend_packed, attend_packed_back
from covrag_lite.engine.varlen_prefill import norm_of

ACTIVATIONS = KEEP, RECOMPUTE, OFFLOAD = "keep", "recompute", "offload"  # what becomes of a layer's results
PART = 2048  # tokens that an offloading layer's MLP computes at once: all of them would take most of what is saved


class Block(NamedTuple):
    """A decoder layer and how it is trained."""

    layer: torch.nn.Module
    functions: SimpleNamespace  # elementwise.training_functions
    activations: str  # KEEP all; RECOMPUTE queries, keys, values, gate and up; OFFLOAD the rest as well
    offload: Offload
    number: int  # of the layer among those computed here, counted from the input


class Row(NamedTuple):
    """Where the tokens of a packed row stand."""

    cos: torch.Tensor  # (tokens, 1, head size), of their positions
    sin: torch.Tensor  # (tokens, 1, head size)
    ends: torch.Tensor  # (samples + 1), where the samples end, with a 0 before the first
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
    """The forward of a decoder layer as transformers calls it, for one packed row: (1, tokens, width) to the same."""
    cos, sin = (x[0, :, None] for x in position_embeddings)  # each (tokens, 1, head size)
    row = Row(cos, sin, cu_seq_lens_q, max_length_q)
    goes_back = torch.is_grad_enabled()  # within `Layer.forward` it never is
    return Layer.apply(hidden_states[0], block, row, goes_back)[None]


class Layer(torch.autograd.Function):
    """middle = hidden + o(attention(norm(hidden))), then out = middle + down(silu(gate) * up) of norm(middle)."""

    @staticmethod
    def forward(ctx: FunctionCtx, hidden: torch.Tensor, block: Block, row: Row, goes_back: bool) -> torch.Tensor:
        """The layer's output: (tokens, width) to the same."""
        attention, mlp = block.layer.self_attn, block.layer.mlp
        normed = block.functions.normed

        query, key, value = heads(block, normed(hidden, *norm_of(block.layer.input_layernorm)), row)
        attended, *flash_state = attend_packed(query, key, value, row.ends, row.longest, attention.scaling)
        (middle,) = project(attended.flatten(1), [attention.o_proj], plus=hidden)

        linears = [mlp.gate_proj, mlp.up_proj]
        weights = [frozen_weight(linear) for linear in linears] if block.activations == OFFLOAD else None
        parts = []
        for some in split(middle, block.activations):
            x = normed(some, *norm_of(block.layer.post_attention_layernorm))
            gate, up = project(x, linears, weights=weights)  # each (tokens, intermediate size)
            x = block.functions.gated(gate, up)
            parts += project(x, [mlp.down_proj], plus=some)
        out = joined(parts)

        if block.activations != KEEP:
            query = key = value = gate = up = None
        if block.activations == OFFLOAD and goes_back:
            block.offload.put(block.number, [hidden, middle, attended])
            hidden = middle = attended = None
        ctx.save_for_backward(hidden, middle, attended, query, key, value, gate, up, *flash_state)
        ctx.block, ctx.row = block, row
        return out

    @staticmethod
    def backward(ctx: FunctionCtx, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """The gradient of `hidden`; the gradients of the adapters are added to their own `grad`."""
        block = ctx.block
        hidden, middle, attended, query, key, value, gate, up, *flash_state = ctx.saved_tensors
        if hidden is None:
            hidden, middle, attended = block.offload.take(block.number)

        grad_x = mlp_back(grad, block, middle, gate, up)
        grad = block.functions.normed_back(grad_x, middle, grad, *norm_of(block.layer.post_attention_layernorm))

        grad_x = attention_back(grad, block, hidden, attended, (query, key, value), ctx.row, flash_state)
        grad = block.functions.normed_back(grad_x, hidden, grad, *norm_of(block.layer.input_layernorm))
        return grad, None, None, None


def mlp_back(
    grad: torch.Tensor, block: Block, middle: torch.Tensor, gate: torch.Tensor | None, up: torch.Tensor | None
) -> torch.Tensor:
    """The gradient of the MLP's normed input, (tokens, width); gate and up are None where they were not kept."""
    layer = block.layer
    linears = [layer.mlp.gate_proj, layer.mlp.up_proj]
    weights = [frozen_weight(linear) for linear in linears]
    down = [frozen_weight(layer.mlp.down_proj)] if block.activations == OFFLOAD else None
    made = []
    for grad_part, some in zip(split(grad, block.activations), split(middle, block.activations)):
        x = block.functions.normed(some, *norm_of(block.layer.post_attention_layernorm))
        own_gate, own_up = (gate, up) if gate is not None else project(x, linears, weights=weights)
        product = block.functions.gated(own_gate, own_up)
        grad_product = backproject([grad_part], product, [layer.mlp.down_proj], down)
        del product  # as large as gate, and not needed any more
        grads = block.functions.gated_back(grad_product, own_gate, own_up)
        del own_gate, own_up, grad_product
        made.append(backproject(grads, x, linears, weights))
        del grads
    return joined(made)


def split(x: torch.Tensor, activations: str) -> tuple[torch.Tensor, ...]:
    """What a layer's MLP computes one after the other: all tokens, or of an offloading layer parts alike in length."""
    n_parts = -(-len(x) // PART) if activations == OFFLOAD else 1
    return x.tensor_split(n_parts)


def joined(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """The parts one behind the other."""
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
    """The gradient of the attention's normed input, (tokens, width); `kept` are queries, keys, values or three None."""
    attention = block.layer.self_attn
    linears = [attention.q_proj, attention.k_proj, attention.v_proj]
    grad_attended = backproject([grad], attended.flatten(1), [attention.o_proj]).view_as(attended)
    x = block.functions.normed(hidden, *norm_of(block.layer.input_layernorm))
    weights = [frozen_weight(linear) for linear in linears]
    query, key, value = heads(block, x, row, weights) if kept[0] is None else kept
    grad_query, grad_key, grad_value = attend_packed_back(
        grad_attended, query, key, value, attended, flash_state, row.ends, row.longest, attention.scaling
    )
    grad_query = block.functions.rotated_back(grad_query, row.cos, row.sin)
    grad_key = block.functions.rotated_back(grad_key, row.cos, row.sin)
    return backproject([one.flatten(1) for one in (grad_query, grad_key, grad_value)], x, linears, weights)


def heads(
    block: Block, x: torch.Tensor, row: Row, weights: Sequence[torch.Tensor] | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries, keys and values, each (tokens, heads, head size); the first two are turned by their positions."""
    attention, rotated = block.layer.self_attn, block.functions.rotated
    flat = project(x, [attention.q_proj, attention.k_proj, attention.v_proj], weights=weights)
    query, key, value = (part.unflatten(1, (-1, attention.head_dim)) for part in flat)
    return rotated(query, row.cos, row.sin), rotated(key, row.cos, row.sin), value


def project(
    x: torch.Tensor,
    linears: Sequence[torch.nn.Module],
    plus: torch.Tensor | None = None,
    weights: Sequence[torch.Tensor] | None = None,
) -> list[torch.Tensor]:
    """x W' + s x A' B' + `plus` for each of several layers with the same input: (tokens, in) to (tokens, out).

    `weights` are the frozen weights W where they are unpacked already.
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
    """The gradient of the shared input x, (tokens, in); the gradients of the adapters are added to their own `grad`."""
    lora_a, lora_b, scale = adapters(linears)
    joined_a = torch.cat(lora_a)  # (ranks, in), where ranks is that of all the layers together
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


def adapters(linears: Sequence[torch.nn.Module]) -> tuple[list[torch.Tensor], list[torch.Tensor], float]:
    """The adapters' matrices A, each (rank, in), and B, each (out, rank), and the scale of their product."""
    lora_a = [linear.lora_A["default"].weight for linear in linears]
    lora_b = [linear.lora_B["default"].weight for linear in linears]
    return lora_a, lora_b, linears[0].scaling["default"]
