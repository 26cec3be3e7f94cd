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

from covrag_lite.engine.fast import prefill
from covrag_lite.engine.fast.elementwise import reading_functions
from covrag_lite.engine.fast.unpacking import base_of
from covrag_lite.engine.fast.varlen_attention import attend_packed
from covrag_lite.engine.interface import report_fallback

# How far the log-probabilities may be from those with padding; rounding causes less.
LARGEST_DIFFERENCE = 0.2
FAMILIES = ("Llama", "Mistral", "Qwen2")  # the architectures whose layers are implemented here
# Tokens per pass through an MLP: more are no faster, and intermediate results take memory.
MLP_TOKENS = 2**16
TokenIds = Sequence[Sequence[int]]  # tokens of each row


class PackedReadingDiffersError(RuntimeError):
    """Reading without padding gives other results than reading with padding."""


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


def lay_out(ids: TokenIds, past: torch.Tensor) -> Layout:
    """Concatenate rows of tokens; `past` (rows, cached tokens) marks what each row has read."""
    device = past.device
    lengths = torch.tensor([len(row) for row in ids])
    width = int(lengths.max())
    # (rows, width); rows are aligned at their ends
    is_real = torch.arange(width) >= width - lengths[:, None]
    row_of, _ = is_real.nonzero(as_tuple=True)  # (tokens)
    place_in_row = (is_real.cumsum(1) - 1)[is_real]  # (tokens), among its row's new tokens
    where = (is_real.flatten().cumsum(0) - 1).clamp(min=0).view_as(is_real)
    mask = torch.cat([past, is_real.to(past)], 1)
    positions = past.sum(1)[row_of.to(device)] + place_in_row.to(device)
    seen = None
    key_lengths = lengths
    if past.shape[1]:
        seen = mask.nonzero(as_tuple=True)
        key_lengths = mask.sum(1)
    packed = torch.from_numpy(np.fromiter(chain(*ids), np.int64))
    return Layout(
        ids=packed[None].to(device),
        positions=positions[None],
        where=where.to(device),
        mask=mask,
        ends=ends_of(lengths).to(device),
        longest=width,
        seen=seen,
        key_ends=ends_of(key_lengths).to(device),
        longest_key=mask.shape[1],
    )


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
    # Each (rows, heads, width, size).
    padded = [x[layout.where].transpose(1, 2) for x in (key, value)]
    cached = cache.update(*padded, attention.layer_idx)
    if layout.seen is not None:
        rows, places = layout.seen
        # Each (keys, heads, size).
        key, value = (x.transpose(1, 2)[rows, places] for x in cached)
    attended, *_ = attend_packed(
        query,
        key,
        value,
        layout.ends,
        layout.longest,
        attention.scaling,
        layout.key_ends,
        layout.longest_key,
    )
    return attended


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
    attended, _ = prefill.attend(
        attention, query, key, value, attention_mask, scaling=attention.scaling
    )
    return attended.flatten(0, 1)


def forward(
    layer: torch.nn.Module,
    functions: SimpleNamespace,
    hidden_states: torch.Tensor,
    *args,
    attend: Callable | None = None,
    **kwargs,
) -> torch.Tensor:
    """Replace the forward of a decoder layer, (rows, tokens, width); without `attend`, call it."""
    if attend is None:
        return type(layer).forward(layer, hidden_states, *args, **kwargs)
    attention = layer.self_attn
    mlp = layer.mlp
    hidden = hidden_states.flatten(0, 1)
    # Each (tokens, 1, head size).
    cos, sin = (x.flatten(0, 1)[:, None] for x in kwargs["position_embeddings"])

    x = functions.normed(hidden, *norm_of(layer.input_layernorm))
    flat = [linear(x) for linear in (attention.q_proj, attention.k_proj, attention.v_proj)]
    query, key, value = (part.unflatten(1, (-1, attention.head_dim)) for part in flat)
    query, key = functions.both_rotated(query, key, cos, sin)
    attended = attend(attention, query, key, value, **kwargs).flatten(1)
    out = attention.o_proj(attended)
    hidden, x = functions.summed(hidden, out, *norm_of(layer.post_attention_layernorm))

    n_parts = -(-len(x) // MLP_TOKENS)
    for sums, part in zip(hidden.chunk(n_parts), x.chunk(n_parts)):
        gate = mlp.gate_proj(part)
        up = mlp.up_proj(part)
        sums += mlp.down_proj(functions.gated(gate, up))
    return hidden.view_as(hidden_states)


def install(network: PreTrainedModel, is_compiled: bool, used: Counter) -> bool:
    """Let a network's layers compute by `forward`; if that fails, report it and return False."""
    fallback = "prompts are read with padding"
    if not can_be_read_packed(network):
        names = " or ".join(FAMILIES)
        why = f"the layers are not those of {names}, or their weights have 4 bits"
        report_fallback(used, fallback, why)
        return False
    try:
        functions = reading_functions(is_compiled)
        for layer in network.get_decoder().layers:
            layer.forward = partial(forward, layer, functions)
        compare_with_padding(network)
    except Exception as error:  # of a compiler or a kernel, on machines that we do not know
        report_fallback(used, fallback, error)
        return False
    return True


def compare_with_padding(network: PreTrainedModel) -> None:
    """Refuse packed reading if padding gives other results, for texts and their continuations."""
    cache = prefill.roomy_cache(network.config)
    padded_cache = prefill.roomy_cache(network.config)
    mask = torch.zeros(3, 0, dtype=torch.long, device=network.device)
    padded_mask = mask
    for texts in ([range(24), range(5), [7]], [range(2), range(9, 12), [1]]):
        logits, mask = read(network, texts, mask, cache, (-1,))
        padded_logits, padded_mask = prefill.read(network, texts, padded_mask, padded_cache, (-1,))
    log_probabilities = logits[:, -1].float().log_softmax(1)  # (rows, vocabulary)
    expected = padded_logits[:, -1].float().log_softmax(1)
    likeliest = expected.argmax(1, keepdim=True)
    difference = (log_probabilities - expected).gather(1, likeliest).abs().mean().item()
    is_near = difference < LARGEST_DIFFERENCE  # a NaN is not near
    if not is_near:
        raise PackedReadingDiffersError(
            f"log-probabilities differ from those with padding by {difference:.2g}"
        )


@torch.inference_mode()
def read(
    network: PreTrainedModel,
    ids: TokenIds,
    past: torch.Tensor,
    cache: DynamicCache,
    positions: Sequence[int],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each row's logits at these positions, counted from its end, and the mask.

    The interface is that of `prefill.read`.
    """
    layout = lay_out(ids, past)
    from_end = torch.tensor(positions, device=past.device)
    to_keep = (layout.ends[1:, None] + from_end).clamp(min=0)  # (rows, positions)
    output = network(
        input_ids=layout.ids,
        attention_mask=past.new_ones(1, 1, 1, 1),  # accepted by transformers as a finished mask
        position_ids=layout.positions,
        use_cache=False,
        logits_to_keep=to_keep.flatten(),
        attend=partial(attend, layout, cache),
    )
    return output.logits[0].unflatten(0, to_keep.shape), layout.mask


def can_be_read_packed(network: PreTrainedModel) -> bool:
    """Are all layers of a known kind, with unpacked weights?"""
    if not has_known_layers(network):
        return False
    for layer in network.get_decoder().layers:
        for module in layer.modules():
            base = base_of(module)
            if hasattr(base, "in_features") and type(base) is not torch.nn.Linear:
                return False
    return True


def has_known_layers(network: PreTrainedModel) -> bool:
    """Are the network's layers of a kind that is implemented here and in `layers`?"""
    layers = getattr(network.get_decoder(), "layers", None)
    if layers is None:  # as in GPT-2, which calls them otherwise
        return False
    names = {type(layer).__name__.removesuffix("DecoderLayer") for layer in layers}
    slides = getattr(network.config, "sliding_window", None) is not None
    return names <= {*FAMILIES} and network.config.hidden_act == "silu" and not slides


def norm_of(module: torch.nn.Module) -> tuple[torch.Tensor, float]:
    """Return a norm's weight and epsilon."""
    return module.weight, module.variance_epsilon
