"""Prompts read with padding, in any network: shorter rows begin with it, and a mask hides it."""

from collections.abc import Sequence

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import DynamicCache, PreTrainedModel

# All but cuDNN's, which plans anew for every new shape: each step of decoding brings one, and the plan costs several
# times the step.
KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
PADDING = 0  # any token will do


def read(
    network: PreTrainedModel,
    ids: Sequence[Sequence[int]],
    past: torch.Tensor,
    cache: DynamicCache,
    places: Sequence[int],
) -> tuple[torch.Tensor, torch.Tensor]:
    """What `reading.Batch.read` returns; `past` (rows, tokens of the cache) says what each row has read."""
    width = max(1, *map(len, ids))
    padded = torch.tensor([[PADDING] * (width - len(row)) + list(row) for row in ids])
    lengths = torch.tensor([len(row) for row in ids])[:, None]  # (rows, 1)
    real = (torch.arange(width) >= width - lengths).to(past)  # (rows, width)
    positions = (past.sum(1, keepdim=True) + real.cumsum(1) - 1).clamp(min=0)  # (rows, width)
    mask = torch.cat([past, real], 1)
    with torch.inference_mode(), sdpa_kernel(KERNELS):
        out = network(
            input_ids=padded.to(mask.device),
            attention_mask=mask,
            position_ids=positions,
            use_cache=True,
            past_key_values=cache,
            logits_to_keep=torch.tensor([width + place for place in places], device=mask.device),
        )
    return out.logits, mask


def begin(network: PreTrainedModel, beginning: Sequence[int], past: torch.Tensor, cache: DynamicCache) -> torch.Tensor:
    """Read in one row what all rows begin with, and give every row a copy; returns their mask. `past` is empty."""
    read(network, [beginning], past[:1], cache, (-1,))
    cache.batch_repeat_interleave(len(past))
    return past.new_ones(len(past), len(beginning))
