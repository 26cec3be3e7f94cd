"""Prompts read without padding: the rows of a batch lie one behind the other, with less around the products.

A padded batch wants a mask of rows x tokens x tokens, which excludes the flash kernel, and its norms, rotations and
gates move every number several times. Here each row attends to its own keys alone, and the steps between the products
may be compiled. Keys and values go where the padded way puts them, so that all that follows finds the same cache.
Whatever fails, prompts are read the padded way, which is reported. Decoding steps take the same layers.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import torch
from transformers import DynamicCache, PretrainedConfig, PreTrainedModel

from covrag_lite.engine import prefill
from covrag_lite.engine.elementwise import reading_functions
from covrag_lite.engine.interface import report_fallback
from covrag_lite.engine.prepare import FULL, base_of
from covrag_lite.engine.varlen_attention import attend_packed, check_kernel

NEAR = 0.2  # how far the likeliest tokens' logarithmic probabilities may be from those with padding; rounding is less
KNOWN = ("Llama", "Qwen2")  # the architectures whose layers are computed as they are written out here
MLP_TOKENS = 2**16  # tokens that go through an MLP together: more are no faster, and what is between takes memory
Ids = Sequence[Sequence[int]]  # tokens of each row


class Last(NamedTuple):
    """The last tokens of each row: what the last layer makes of the others is never read."""

    tokens: torch.Tensor  # (kept), of each its packed token
    ends: torch.Tensor  # (texts + 1), where each text's end among them
    longest: int


class Layout(NamedTuple):
    """Where the tokens of one pass lie, packed and in the cache."""

    ids: torch.Tensor  # (1, tokens)
    positions: torch.Tensor  # (1, tokens)
    where: torch.Tensor  # (rows, width), of each place in the padded batch its packed token; any one for padding
    mask: torch.Tensor  # (rows, tokens of the cache), the new ones with it
    ends: torch.Tensor  # (texts + 1); a text is a row's new tokens, and the first one what all rows begin with, if any
    longest: int
    tail: Last
    picked: torch.Tensor | None  # (keys), of all keys their packed tokens, where the rows begin alike
    seen: tuple[torch.Tensor, torch.Tensor] | None  # rows and places in the cache of all keys; None: the new ones alone
    key_ends: torch.Tensor  # (texts + 1)
    longest_key: int


def lay_out(ids: Ids, past: torch.Tensor, beginning: Sequence[int] = (), n_last: int = 1) -> Layout:
    """Rows of tokens one behind the other; `past` (rows, tokens of the cache) says what each row has read.

    Where nothing has been read yet, all rows may have a `beginning` in common, which is laid before them, once. The
    tail has the last `n_last` tokens of each row.
    """
    device = past.device
    lengths = torch.tensor([len(row) for row in ids])
    width, begun = int(lengths.max()), len(beginning)
    real = torch.arange(width) >= width - lengths[:, None]  # (rows, width); rows are aligned at their ends
    rows, _ = real.nonzero(as_tuple=True)  # (tokens), of each its row
    places = (real.cumsum(1) - 1)[real]  # (tokens), among the new ones of its row
    where = begun + (real.flatten().cumsum(0) - 1).clamp(min=0).view_as(real)
    last = where[:, -n_last:][real[:, -n_last:]]  # (kept)
    mask = torch.cat([past, real.to(past)], 1)
    positions = past.sum(1)[rows.to(device)] + places.to(device)
    texts, last_texts = lengths, lengths.clamp(max=n_last)
    seen = picked = None
    key_lengths, longest_key = lengths, width
    if begun:
        first = torch.arange(begun)
        where = torch.cat([first.expand(len(ids), begun), where], 1)
        mask = torch.cat([mask.new_ones(len(ids), begun), mask], 1)
        positions = torch.cat([first.to(device), begun + positions])
        is_key = torch.cat([torch.ones(len(ids), begun, dtype=torch.bool), real], 1)
        picked = torch.cat([first, where[is_key]]).to(device)
        texts, last_texts = torch.cat([torch.tensor([begun]), lengths]), torch.cat([torch.tensor([0]), last_texts])
        key_lengths, longest_key = torch.cat([texts[:1], begun + lengths]), begun + width
    elif past.shape[1]:
        seen = mask.nonzero(as_tuple=True)
        key_lengths, longest_key = mask.sum(1), mask.shape[1]
    packed = torch.from_numpy(np.fromiter(chain(beginning, *ids), np.int64))[None].to(device)
    ends = ends_of(texts).to(device)
    key_ends = ends_of(key_lengths).to(device)
    # Told that none is longer than 1, PyTorch's flash kernel takes it that each has 1, but a beginning has none here.
    tail = Last(last.to(device), ends_of(last_texts).to(device), max(2, n_last))
    layout = (packed, positions[None], where.to(device), mask, ends, max(width, begun), tail, picked, seen)
    return Layout(*layout, key_ends, longest_key)


def ends_of(lengths: torch.Tensor) -> torch.Tensor:
    """Where texts of these lengths end, with a 0 before the first."""
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
    """Cache keys and values, and let each row attend to its own; in the last layer only the tail's tokens do."""
    new = [x[layout.where].transpose(1, 2) for x in (key, value)]  # each (rows, heads, width, size)
    everything = cache.update(*new, attention.layer_idx)
    if layout.picked is not None:
        key, value = key[layout.picked], value[layout.picked]
    elif layout.seen is not None:
        key, value = (pick(x, *layout.seen) for x in everything)
    ends, longest = layout.ends, layout.longest
    if attention.layer_idx == len(cache.layers) - 1:
        query, ends, longest = query[layout.tail.tokens], layout.tail.ends, layout.tail.longest
    lengths = (ends, longest, attention.scaling, layout.key_ends, layout.longest_key)
    return attend_packed(query, key, value, *lengths)[0]


def pick(x: torch.Tensor, rows: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Keys or values at these places of the cache, (rows, heads, tokens, size) to (keys, heads, size).

    The same as indexing, by whole heads as they lie in memory, which a GPU copies at several times the rate.
    """
    size = x.shape[3]
    if x.stride(3) != 1 or any(x.stride(i) % size for i in range(3)):
        return x.transpose(1, 2)[rows, places]
    of_row, of_head, of_token = (x.stride(i) // size for i in range(3))
    heads = torch.as_strided(x, (1 + sum((x.shape[i] - 1) * x.stride(i) // size for i in range(3)), size), (size, 1))
    start = rows * of_row + places * of_token
    wanted = start[:, None] + torch.arange(x.shape[1], device=x.device) * of_head  # (keys, heads)
    return heads[wanted]


def attend_rows(
    rows: int,
    attention: torch.nn.Module,
    *heads: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    past_key_values: DynamicCache,
    **_,
) -> torch.Tensor:
    """Rows of equally many tokens, as transformers' own layer does it: (tokens, heads, size) to the same."""
    query, key, value = (x.unflatten(0, (rows, -1)).transpose(1, 2) for x in heads)  # each (rows, heads, tokens, size)
    key, value = past_key_values.update(key, value, attention.layer_idx)
    out, _ = prefill.attend(attention, query, key, value, attention_mask, scaling=attention.scaling)
    return out.flatten(0, 1)


def forward(
    layer: torch.nn.Module,
    functions: SimpleNamespace,
    attend: Callable,
    kept: torch.Tensor | None,
    hidden_states: torch.Tensor,
    *_,
    position_embeddings: tuple[torch.Tensor, torch.Tensor],
    **others,
) -> torch.Tensor:
    """The forward of a decoder layer as transformers calls it, (rows, tokens, width), or of the tokens `kept` alone."""
    attention, mlp = layer.self_attn, layer.mlp
    hidden = hidden_states.flatten(0, 1)
    cos, sin = (x.flatten(0, 1)[:, None] for x in position_embeddings)  # each (tokens, 1, head size)

    x = functions.normed(hidden, *norm_of(layer.input_layernorm))
    flat = [linear(x) for linear in (attention.q_proj, attention.k_proj, attention.v_proj)]
    query, key, value = (part.unflatten(1, (-1, attention.head_dim)) for part in flat)
    query, key = functions.both_rotated(query, key, cos, sin)
    attended = attend(attention, query, key, value, **others)
    if kept is not None:
        hidden = hidden[kept]
    out = attention.o_proj(attended.flatten(1))
    hidden, x = functions.summed(hidden, out, *norm_of(layer.post_attention_layernorm))

    n_parts = -(-len(x) // MLP_TOKENS)
    for sums, part in zip(hidden.chunk(n_parts), x.chunk(n_parts)):
        gate, up = mlp.gate_proj(part), mlp.up_proj(part)
        sums += mlp.down_proj(functions.gated(gate, up))
    return hidden.unflatten(0, (len(hidden_states), -1))


@contextmanager
def computed_by(
    network: PreTrainedModel, functions: SimpleNamespace, attend: Callable, kept: torch.Tensor | None = None
) -> Iterator[None]:
    """Let the network's layers compute by `forward` for a while, the last one for the tokens that are kept."""
    layers = network.get_decoder().layers
    own = [layer.__dict__.get("forward") for layer in layers]
    try:
        for layer in layers:
            layer.forward = partial(forward, layer, functions, attend, kept if layer is layers[-1] else None)
        yield
    finally:
        for layer, before in zip(layers, own):
            layer.__dict__.pop("forward", None)
            if before is not None:
                layer.forward = before


class Reader:
    """Reads the rows of a batch packed, until that fails."""

    def __init__(self, network: PreTrainedModel, compiled: bool, used: Counter):
        self.network = network
        self.used = used
        self.functions = reading_functions(compiled)
        self.is_checked = False
        self.is_given_up = False
        if not is_readable(network):
            self.give_up(f"the layers are not those of {' or '.join(KNOWN)}, or their weights stay in 4 bits")

    def read(
        self, ids: Ids, past: torch.Tensor, cache: DynamicCache, places: Sequence[int], beginning: Sequence[int] = ()
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """What `prefill.read` returns; None, with the cache as it was, where reading so is given up."""
        if self.is_given_up or not all(type(layer) is prefill.Roomy for layer in cache.layers):
            return None
        before = [(layer.keys, layer.values, layer.is_initialized) for layer in cache.layers]
        try:
            if not self.is_checked:
                self.check(max(ids, key=len), past)
                self.is_checked = True
            return self.compute(ids, past, cache, places, beginning)
        except Exception as error:  # a compiler's or a kernel's, on machines that we do not know
            if FULL.search(str(error)):
                raise  # half of the batch may fit
            self.give_up(error)
        for layer, state in zip(cache.layers, before):
            layer.keys, layer.values, layer.is_initialized = state
        return None

    @torch.inference_mode()
    def compute(
        self, ids: Ids, past: torch.Tensor, cache: DynamicCache, places: Sequence[int], beginning: Sequence[int] = ()
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The logits of each row at these places, counted from its end, and the mask so far."""
        layout = lay_out(ids, past, beginning, -min(places))
        counted = torch.tensor(list(places), device=past.device)
        row_ends = layout.tail.ends[-len(ids) :]
        wanted = (row_ends[:, None] + counted).clamp(min=0)  # (rows, places)
        with computed_by(self.network, self.functions, partial(attend, layout, cache), layout.tail.tokens):
            out = self.network(
                input_ids=layout.ids,
                attention_mask=past.new_ones(1, 1, 1, 1),  # of this shape it is taken for a mask that is built already
                position_ids=layout.positions,
                use_cache=False,
                logits_to_keep=wanted.flatten(),
            )
        return out.logits[0].unflatten(0, wanted.shape), layout.mask

    def check(self, row: Sequence[int], past: torch.Tensor) -> None:
        """Refuse to read so where padding gives something else: for texts that begin alike, and for more behind."""
        check_kernel(past.device, self.network.dtype)
        begun, texts = row[:3], [row, row[: 1 + len(row) // 2], row[:1]]
        more = [row[:2], row[-3:], row[-1:]]
        nothing = past.new_zeros(3, 0)
        ours, theirs = (prefill.roomy_cache(self.network.config) for _ in range(2))
        _, mask = self.compute(texts, nothing, ours, (-1,), begun)
        made, _ = self.compute(more, mask, ours, (-1,))
        _, mask = prefill.read(self.network, [[*begun, *text] for text in texts], nothing, theirs, (-1,))
        expected, _ = prefill.read(self.network, more, mask, theirs, (-1,))
        logs, wanted = (x[:, -1].float().log_softmax(1) for x in (made, expected))  # each (rows, vocabulary)
        likeliest = wanted.argmax(1, keepdim=True)
        far = (logs - wanted).gather(1, likeliest).abs().mean().item()
        if not far < NEAR:  # a NaN is not near
            raise RuntimeError(f"tokens are more or less likely by {far:.2g} than with padding")

    def give_up(self, why: Exception | str) -> None:
        """Read prompts the padded way from now on, and report it."""
        self.is_given_up = True
        report_fallback(self.used, "prompts are read with padding", why)


def is_readable(network: PreTrainedModel) -> bool:
    """Whether all layers of a network are known, and their weights plain numbers."""
    layers = network.get_decoder().layers
    if not all(is_known(layer, network.config) for layer in layers):
        return False
    linears = [one for layer in layers for part in (layer.self_attn, layer.mlp) for one in part.children()]
    return all(type(base_of(one)) is torch.nn.Linear for one in linears if hasattr(base_of(one), "in_features"))


def is_known(layer: torch.nn.Module, config: PretrainedConfig) -> bool:
    """Whether a layer is computed as it is written out here."""
    return (
        type(layer).__name__.removesuffix("DecoderLayer") in KNOWN
        and config.hidden_act == "silu"
        and not getattr(layer.self_attn, "sliding_window", None)
    )


def norm_of(module: torch.nn.Module) -> tuple[torch.Tensor, float]:
    """A norm's weight and epsilon."""
    return module.weight, module.variance_epsilon
