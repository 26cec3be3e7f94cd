"""Prompts read without padding: the rows of a batch are concatenated, with less work per token.

A padded batch needs a mask of rows x tokens x tokens, which excludes the flash kernel, and its
norms, rotations and gates move every number several times. Here each row attends only to its own
keys, and the steps between the matrix products may be compiled. Keys and values have the same
places in the cache as with padding, so later steps find the same cache. `install` decides once per
network whether it reads this way. Decoding steps use the same layers.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import torch
from transformers import DynamicCache, PreTrainedModel

from covrag_lite.engine import prefill
from covrag_lite.engine.elementwise import reading_functions
from covrag_lite.engine.interface import report_fallback
from covrag_lite.engine.prepare import base_of
from covrag_lite.engine.varlen_attention import attend_packed

# How far the log-probabilities may be from those with padding; rounding causes less.
NEAR = 0.2
KNOWN = ("Llama", "Mistral", "Qwen2")  # the architectures whose layers are implemented here
# Tokens per pass through an MLP: more are no faster, and intermediate results take memory.
MLP_TOKENS = 2**16
Ids = Sequence[Sequence[int]]  # tokens of each row


class Layout(NamedTuple):
    """The places of one pass's tokens, packed and in the cache."""

    ids: torch.Tensor  # (1, tokens)
    positions: torch.Tensor  # (1, tokens)
    # (rows, width): the packed token of each place in the padded batch; any token for padding
    where: torch.Tensor
    mask: torch.Tensor  # (rows, tokens in the cache), including the new ones
    ends: torch.Tensor  # (rows + 1), of each row's new tokens
    longest: int
    # The rows and places of all keys in the cache; None if there are only new keys.
    seen: tuple[torch.Tensor, torch.Tensor] | None
    key_ends: torch.Tensor  # (rows + 1)
    longest_key: int


def lay_out(ids: Ids, past: torch.Tensor) -> Layout:
    """Concatenate rows of tokens; `past` (rows, cached tokens) marks what each row has read."""
    device = past.device
    lengths = torch.tensor([len(row) for row in ids])
    width = int(lengths.max())
    real = torch.arange(width) >= width - lengths[:, None]  # (rows, width); rows are aligned at their ends
    rows, _ = real.nonzero(as_tuple=True)  # (tokens), the row of each
    places = (real.cumsum(1) - 1)[real]  # (tokens), the place among its row's new tokens
    where = (real.flatten().cumsum(0) - 1).clamp(min=0).view_as(real)
    mask = torch.cat([past, real.to(past)], 1)
    positions = past.sum(1)[rows.to(device)] + places.to(device)
    seen, key_lengths = None, lengths
    if past.shape[1]:
        seen, key_lengths = mask.nonzero(as_tuple=True), mask.sum(1)
    packed = torch.from_numpy(np.fromiter(chain(*ids), np.int64))[None].to(device)
    ends, key_ends = (ends_of(one).to(device) for one in (lengths, key_lengths))
    return Layout(packed, positions[None], where.to(device), mask, ends, width, seen, key_ends, mask.shape[1])


def ends_of(lengths: torch.Tensor) -> torch.Tensor:
    """Return the ends of texts of these lengths, with a 0 before the first."""
    return torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int()


def attend(
    layout: Layout,
    cache: DynamicCache,
    attention: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    **_,
) -> torch.Tensor:
    """Cache keys and values, and let each row attend to its own."""
    new = [x[layout.where].transpose(1, 2) for x in (key, value)]  # each (rows, heads, width, size)
    everything = cache.update(*new, attention.layer_idx)
    if layout.seen is not None:
        rows, places = layout.seen
        key, value = (x.transpose(1, 2)[rows, places] for x in everything)  # each (keys, heads, size)
    lengths = (layout.ends, layout.longest, attention.scaling, layout.key_ends, layout.longest_key)
    return attend_packed(query, key, value, *lengths)[0]


def attend_rows(
    rows: int,
    attention: torch.nn.Module,
    *heads: torch.Tensor,
    attention_mask: torch.Tensor,
    past_key_values: DynamicCache,
    **_,
) -> torch.Tensor:
    """Attend in rows of equal length, like transformers: (tokens, heads, size) to the same."""
    # Each (rows, heads, tokens, size).
    query, key, value = (x.unflatten(0, (rows, -1)).transpose(1, 2) for x in heads)
    key, value = past_key_values.update(key, value, attention.layer_idx)
    out, _ = prefill.attend(attention, query, key, value, attention_mask, scaling=attention.scaling)
    return out.flatten(0, 1)


def forward(
    layer: torch.nn.Module,
    functions: SimpleNamespace,
    hidden_states: torch.Tensor,
    *given,
    attend: Callable | None = None,
    **others,
) -> torch.Tensor:
    """Replace the forward of a decoder layer, (rows, tokens, width); without `attend`, call it."""
    if attend is None:
        return type(layer).forward(layer, hidden_states, *given, **others)
    attention, mlp = layer.self_attn, layer.mlp
    hidden = hidden_states.flatten(0, 1)
    cos, sin = (x.flatten(0, 1)[:, None] for x in others["position_embeddings"])  # each (tokens, 1, head size)

    x = functions.normed(hidden, *norm_of(layer.input_layernorm))
    flat = [linear(x) for linear in (attention.q_proj, attention.k_proj, attention.v_proj)]
    query, key, value = (part.unflatten(1, (-1, attention.head_dim)) for part in flat)
    query, key = functions.both_rotated(query, key, cos, sin)
    out = attention.o_proj(attend(attention, query, key, value, **others).flatten(1))
    hidden, x = functions.summed(hidden, out, *norm_of(layer.post_attention_layernorm))

    n_parts = -(-len(x) // MLP_TOKENS)
    for sums, part in zip(hidden.chunk(n_parts), x.chunk(n_parts)):
        gate, up = mlp.gate_proj(part), mlp.up_proj(part)
        sums += mlp.down_proj(functions.gated(gate, up))
    return hidden.view_as(hidden_states)


def install(network: PreTrainedModel, compiled: bool, used: Counter) -> bool:
    """Let a network's layers compute by `forward`; if that fails, report it and return False."""
    try:
        if not is_readable(network):
            names = " or ".join(KNOWN)
            raise RuntimeError(f"the layers are not those of {names}, or their weights have 4 bits")
        functions = reading_functions(compiled)
        for layer in network.get_decoder().layers:
            layer.forward = partial(forward, layer, functions)
        check(network)
    except Exception as error:  # of a compiler or a kernel, on machines that we do not know
        report_fallback(used, "prompts are read with padding", error)
        return False
    return True


def check(network: PreTrainedModel) -> None:
    """Refuse packed reading if padding gives other results, for texts and their continuations."""
    ours, theirs = (prefill.roomy_cache(network.config) for _ in range(2))
    mask = other_mask = torch.zeros(3, 0, dtype=torch.long, device=network.device)
    for texts in ([range(24), range(5), [7]], [range(2), range(9, 12), [1]]):
        made, mask = read(network, texts, mask, ours, (-1,))
        expected, other_mask = prefill.read(network, texts, other_mask, theirs, (-1,))
    logs, wanted = (x[:, -1].float().log_softmax(1) for x in (made, expected))  # each (rows, vocabulary)
    likeliest = wanted.argmax(1, keepdim=True)
    far = (logs - wanted).gather(1, likeliest).abs().mean().item()
    if not far < NEAR:  # a NaN is not near
        raise RuntimeError(f"log-probabilities differ from those with padding by {far:.2g}")


@torch.inference_mode()
def read(
    network: PreTrainedModel, ids: Ids, past: torch.Tensor, cache: DynamicCache, places: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each row's logits at these places, counted from its end, and the mask.

    The interface is that of `prefill.read`.
    """
    layout = lay_out(ids, past)
    wanted = (layout.ends[1:, None] + torch.tensor(places, device=past.device)).clamp(min=0)  # (rows, places)
    out = network(
        input_ids=layout.ids,
        attention_mask=past.new_ones(1, 1, 1, 1),  # accepted by transformers as a finished mask
        position_ids=layout.positions,
        use_cache=False,
        logits_to_keep=wanted.flatten(),
        attend=partial(attend, layout, cache),
    )
    return out.logits[0].unflatten(0, wanted.shape), layout.mask


def is_readable(network: PreTrainedModel) -> bool:
    """Are all layers of a known kind, with unpacked weights?"""
    layers = network.get_decoder().layers
    linears = [base_of(one) for layer in layers for one in layer.modules() if hasattr(base_of(one), "in_features")]
    return is_known(network) and all(type(one) is torch.nn.Linear for one in linears)


def is_known(network: PreTrainedModel) -> bool:
    """Are the network's layers of a kind that is implemented here and in `layers`?"""
    layers = network.get_decoder().layers
    names = {type(layer).__name__.removesuffix("DecoderLayer") for layer in layers}
    slides = getattr(network.config, "sliding_window", None) is not None
    return names <= {*KNOWN} and network.config.hidden_act == "silu" and not slides


def norm_of(module: torch.nn.Module) -> tuple[torch.Tensor, float]:
    """Return a norm's weight and epsilon."""
    return module.weight, module.variance_epsilon
