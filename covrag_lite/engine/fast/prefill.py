"""Prompts read with padding, in any network: shorter rows begin with padding, which a mask hides.

Attention and cache are those of transformers, with less work.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    DynamicCache,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.cache_utils import DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

# All except cuDNN's, which plans again for every new shape. Each decoding step has a new shape, and
# the plan takes several times as long as the step.
KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
PADDING = 0  # any token
ROOM = 96  # spare tokens in the cache: most answers, revised questions and verdicts are shorter
GROUPED = "grouped"  # the name of `attend` in transformers
BLOCK = 64  # queries per block in `attend`


def read(
    network: PreTrainedModel,
    ids: Sequence[Sequence[int]],
    past: torch.Tensor,
    cache: DynamicCache,
    positions: Sequence[int],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each row's logits at these positions, counted from its end, and the mask.

    `past` (rows, tokens in the cache) marks what each row has read.
    """
    width = max(1, *map(len, ids))
    padded = torch.tensor([[PADDING] * (width - len(row)) + list(row) for row in ids])
    lengths = torch.tensor([len(row) for row in ids])[:, None]  # (rows, 1)
    is_real = (torch.arange(width) >= width - lengths).to(past)  # (rows, width)
    position_ids = past.sum(1, keepdim=True) + is_real.cumsum(1) - 1  # (rows, width)
    mask = torch.cat([past, is_real], 1)
    columns = [width + position for position in positions]
    with torch.inference_mode(), sdpa_kernel(KERNELS):
        output = network(
            input_ids=padded.to(mask.device),
            attention_mask=mask,
            position_ids=position_ids.clamp(min=0),
            use_cache=True,
            past_key_values=cache,
            logits_to_keep=torch.tensor(columns, device=mask.device),
        )
    return output.logits, mask


def read_common_prefix(
    network: PreTrainedModel, prefix: Sequence[int], past: torch.Tensor, cache: DynamicCache
) -> torch.Tensor:
    """Read the common prefix once and copy it to every row; return the mask. `past` is empty."""
    read(network, [prefix], past[:1], cache, (-1,))
    cache.batch_repeat_interleave(len(past))
    return past.new_ones(len(past), len(prefix))


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **others,
) -> tuple[torch.Tensor, None]:
    """Compute the "sdpa" attention of transformers with less work.

    Shapes are (rows, heads, tokens, size) to (rows, tokens, heads, size).

    Heads of a group share their keys without a copy. On a CPU, keys after a block of queries are
    skipped.
    """
    n_new = query.shape[2]
    if n_new == 1:
        return attend_one_token(query, key, value, attention_mask, scaling), None
    if query.is_cuda:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **others
        )
    attention = partial(
        torch.nn.functional.scaled_dot_product_attention, scale=scaling, enable_gqa=True
    )
    if attention_mask is None:
        attended = attention(query, key, value, is_causal=True)
    else:
        n_past = key.shape[2] - n_new
        blocks = []
        for start in range(0, n_new, BLOCK):
            end = min(start + BLOCK, n_new)
            n_seen = n_past + end
            queries = query[:, :, start:end]
            mask = attention_mask[:, :, start:end, :n_seen]
            blocks.append(attention(queries, key[:, :, :n_seen], value[:, :, :n_seen], mask))
        attended = torch.cat(blocks, 2)
    return attended.transpose(1, 2).contiguous(), None


def attend_one_token(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float | None,
) -> torch.Tensor:
    """Attend with one new token per row: heads of a group become tokens of their shared head.

    At every step, transformers would copy each key for every head of its group.
    """
    rows, heads, _, size = query.shape
    shared = key.shape[1]
    grouped = query.reshape(rows, shared, heads // shared, size)
    attended = torch.nn.functional.scaled_dot_product_attention(
        grouped, key, value, mask, scale=scaling
    )
    return attended.reshape(rows, 1, heads, size)


AttentionInterface.register(GROUPED, attend)
AttentionMaskInterface.register(GROUPED, sdpa_mask)


class Roomy(DynamicLayer):
    """A cache layer with spare room at its end, where a step writes its tokens.

    At every step, transformers' own layer copies all earlier tokens.
    """

    room = ()  # keys and values including the spare room; the used part is at the beginning

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_, **__
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add keys and values, each (rows, heads, tokens, size), and return all so far."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        n_used = self.get_seq_length()
        end = n_used + key_states.shape[-2]
        if not self.room or end > self.room[0].shape[-2]:
            self._enlarge(key_states, value_states, n_used, end + ROOM)
        for roomy, new in zip(self.room, (key_states, value_states)):
            roomy[..., n_used:end, :] = new
        self.keys, self.values = (roomy[..., :end, :] for roomy in self.room)
        return self.keys, self.values

    def _enlarge(
        self, key_states: torch.Tensor, value_states: torch.Tensor, n_used: int, size: int
    ) -> None:
        """Replace the room by one for so many tokens, and copy the tokens that are there."""
        self.room = tuple(
            new.new_empty(*new.shape[:2], size, new.shape[-1]) for new in (key_states, value_states)
        )
        if n_used:
            for roomy, old in zip(self.room, (self.keys, self.values)):
                roomy[..., :n_used, :] = old

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep only these rows, with their room, so that the next step does not copy them again."""
        n_used = self.get_seq_length()
        self.room = tuple(roomy.index_select(0, indices) for roomy in self.room)
        self.keys, self.values = (roomy[..., :n_used, :] for roomy in self.room)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every row; the next step adds room."""
        super().batch_repeat_interleave(repeats)
        self.room = ()


def roomy_cache(config: PretrainedConfig) -> DynamicCache:
    """Return the cache of transformers for such a network, with spare room in its plain layers."""
    cache = DynamicCache(config=config)
    cache.layers = [Roomy() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache
