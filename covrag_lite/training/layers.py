"""One decoder layer with LoRA on its seven linear layers, forward and backward by hand.

Autograd would keep every intermediate result, or with checkpointing compute the whole layer again. Written out, the
backward pass computes again only what it needs: not the two outputs that merely go on to the next block, which are a
third of a layer's arithmetic. What shares an input shares its adapters' products, sums go into the matrix products,
and what is left is elementwise and compiles. `lora` puts this into a network; it is exact (tests compare it with peft's).
"""

from types import SimpleNamespace

import torch

from covrag_lite.model.serving import frozen_weight
from covrag_lite.training.packing import attend_each


def is_known(layer, config) -> bool:
    """Whether a network's layer is of the kind written out here: Llama's and its kin's."""
    return (
        type(layer).__name__ in ("LlamaDecoderLayer", "Qwen2DecoderLayer")
        and config.hidden_act == "silu"
        and not getattr(layer.self_attn, "sliding_window", None)
    )


def forward(self, hidden_states, *_, position_embeddings, cu_seq_lens_q, max_length_q, **__):
    """The forward of a decoder layer for one packed row: (1, tokens, width) to the same."""
    cos, sin = (x[0, :, None] for x in position_embeddings)  # (tokens, 1, head size)
    return Layer.apply(hidden_states[0], self, cos, sin, cu_seq_lens_q, max_length_q)[None]


class Layer(torch.autograd.Function):
    """h + o(attention(norm(h))), then h2 + down(silu(gate) * up of norm(h2)); adapters' gradients are added where the optimizer looks."""

    @staticmethod
    def forward(ctx, h, layer, cos, sin, ends, longest):
        one, attention, mlp = layer.elementwise, layer.self_attn, layer.mlp
        q, k, v = Layer.heads(layer, one.normed(h, *norm_of(layer.input_layernorm)), cos, sin)
        a, *flash = attend(q, k, v, ends, longest, attention.scaling)  # (tokens, heads, head size)
        (h2,) = project(a.flatten(1), [attention.o_proj], h)
        gate, up = project(one.normed(h2, *norm_of(layer.post_attention_layernorm)), [mlp.gate_proj, mlp.up_proj])
        (out,) = project(one.gated(gate, up), [mlp.down_proj], h2)
        ctx.save_for_backward(h, h2, a, cos, sin, ends, *flash, *((q, k, v, gate, up) if layer.keep else ()))
        ctx.layer, ctx.longest = layer, longest
        return out

    @staticmethod
    def backward(ctx, grad):
        layer, longest = ctx.layer, ctx.longest
        one, attention, mlp = layer.elementwise, layer.self_attn, layer.mlp
        h, h2, a, cos, sin, ends, *rest = ctx.saved_tensors
        flash, kept = (rest[:-5], rest[-5:]) if layer.keep else (rest, None)

        norm, inner = norm_of(layer.post_attention_layernorm), [mlp.gate_proj, mlp.up_proj]
        x, weights = one.normed(h2, *norm), [frozen_weight(linear) for linear in inner]
        gate, up = kept[3:] if kept else project(x, inner, weights=weights)
        grad_m = backproject([grad], m := one.gated(gate, up), [mlp.down_proj])
        del m
        grad_x = backproject(one.gated_back(grad_m, gate, up), x, inner, weights)
        del gate, up, grad_m, weights
        grad = one.normed_back(grad_x, h2, grad, *norm)

        norm, inner = norm_of(layer.input_layernorm), [attention.q_proj, attention.k_proj, attention.v_proj]
        grad_a = backproject([grad], a.flatten(1), [attention.o_proj]).view_as(a)
        x, weights = one.normed(h, *norm), [frozen_weight(linear) for linear in inner]
        q, k, v = kept[:3] if kept else Layer.heads(layer, x, cos, sin, weights)
        grad_q, grad_k, grad_v = attend_back(grad_a, q, k, v, a, flash, ends, longest, attention.scaling)
        grads = [
            one.rotated_back(grad_q, cos, sin).flatten(1),
            one.rotated_back(grad_k, cos, sin).flatten(1),
            grad_v.flatten(1),
        ]
        return one.normed_back(backproject(grads, x, inner, weights), h, grad, *norm), None, None, None, None, None

    @staticmethod
    def heads(layer, x, cos, sin, weights=None):
        """Queries, keys and values, each (tokens, heads, head size), the first two turned by their positions."""
        attention = layer.self_attn
        parts = project(x, [attention.q_proj, attention.k_proj, attention.v_proj], weights=weights)
        q, k, v = (part.unflatten(1, (-1, attention.head_dim)) for part in parts)
        return layer.elementwise.rotated(q, cos, sin), layer.elementwise.rotated(k, cos, sin), v


def adapters(linears) -> tuple[list, list, float]:
    """The first and the second matrices of the layers' adapters, and their scale."""
    return (
        [linear.lora_A["default"].weight for linear in linears],
        [linear.lora_B["default"].weight for linear in linears],
        linears[0].scaling["default"],
    )


def project(x, linears, plus=None, weights=None) -> list[torch.Tensor]:
    """x W' + s x A' B' for each of several layers with the same input: (tokens, in) to (tokens, out); `plus` is added."""
    first, second, scale = adapters(linears)
    low = (x @ torch.cat(first).t()).chunk(len(linears), 1)  # each (tokens, rank)
    made = []
    for i, linear in enumerate(linears):
        weight = weights[i] if weights else frozen_weight(linear)
        extra = [term for term in (plus, linear.base_layer.bias) if term is not None]
        out = torch.addmm(sum(extra), x, weight.t()) if extra else x @ weight.t()
        made.append(out.addmm_(low[i], second[i].t(), alpha=scale))
    return made


def backproject(grads, x, linears, weights=None) -> torch.Tensor:
    """The gradient of the shared input, while the adapters' own gradients are added to theirs."""
    first, second, scale = adapters(linears)
    joined = torch.cat(first)
    low = (x @ joined.t()).chunk(len(linears), 1)
    grad_low = torch.cat([grad @ b for grad, b in zip(grads, second)], 1).mul_(scale)  # (tokens, ranks)
    for a, part in zip(first, (grad_low.t() @ x).chunk(len(linears))):
        a.grad += part
    grad_x = None
    for i, (grad, linear) in enumerate(zip(grads, linears)):
        second[i].grad.addmm_(grad.t(), low[i], alpha=scale)
        weight = weights[i] if weights else frozen_weight(linear)
        grad_x = grad @ weight if grad_x is None else grad_x.addmm_(grad, weight)
    return grad_x.addmm_(grad_low, joined)


def attend(q, k, v, ends, longest, scaling) -> tuple:
    """Causal attention within each sample of a row, and what its backward pass needs."""
    if not q.is_cuda:
        return (attend_each(q, k, v, ends, scaling),)
    flash = (
        torch.ops.aten._flash_attention_forward
    )  # the operator behind torch.nn.attention.varlen, whose signature still moves
    return flash(q, k, v, ends, ends, longest, longest, 0.0, True, False, scale=scaling)[:4]


def attend_back(grad, q, k, v, out, flash, ends, longest, scaling) -> tuple:
    """The gradients of queries, keys and values."""
    if q.is_cuda:
        lse, *state = flash
        back = torch.ops.aten._flash_attention_backward
        return back(grad, q, k, v, out, lse, ends, ends, longest, longest, 0.0, True, *state, scale=scaling)
    with torch.enable_grad():
        inputs = [x.detach().requires_grad_() for x in (q, k, v)]
        return torch.autograd.grad(attend_each(*inputs, ends, scaling), inputs, grad)


def norm_of(module) -> tuple:
    return module.weight, module.variance_epsilon


def normed(h, weight, epsilon):
    wide = h.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)).to(h.dtype) * weight


def normed_back(grad, h, plus, weight, epsilon):
    """The gradient of a norm's input, with that of the way around it added."""
    wide = h.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)
    unit, inner = wide * scale, grad.float() * weight.float()
    return (plus.float() + scale * (inner - unit * (inner * unit).mean(-1, keepdim=True))).to(h.dtype)


def halves_turned(x):
    left, right = x.chunk(2, -1)
    return torch.cat([-right, left], -1)


def rotated(x, cos, sin):
    return x * cos + halves_turned(x) * sin


def rotated_back(grad, cos, sin):
    return grad * cos - halves_turned(grad * sin)


def gated(gate, up):
    return torch.nn.functional.silu(gate) * up


def gated_back(grad, gate, up):
    """The gradients of gate and up."""
    wide = gate.float()
    share = torch.sigmoid(wide)
    silu, grad = wide * share, grad.float()
    return (grad * up.float() * (share + silu * (1 - share))).to(gate.dtype), (grad * silu).to(gate.dtype)


def elementwise(compiled: bool) -> SimpleNamespace:
    """The functions that touch each number once, as they are or each compiled into one kernel."""
    functions = (normed, normed_back, rotated, rotated_back, gated, gated_back)
    return SimpleNamespace(**{f.__name__: torch.compile(f, dynamic=False) if compiled else f for f in functions})
