"""Causal attention within each of several texts that lie one behind the other, without padding or a mask.

transformers' own SDPA would build a mask of tokens x tokens and so lose the flash kernel. On CUDA PyTorch's flash
kernel takes the texts' ends as they are; elsewhere each text attends by itself. Both are exact. `packed` reads prompts
by it and training its samples.
"""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

# `ends` holds where the texts end, with a 0 before the first: (texts + 1).
# Queries, keys and values are (tokens, heads, head size); heads of a group share their keys.


def attend_packed(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    ends: torch.Tensor,
    longest: int,
    scaling: float,
    key_ends: torch.Tensor | None = None,
    longest_key: int = 0,
) -> tuple[torch.Tensor, ...]:
    """The attention, (tokens, heads, head size), and after it what the flash kernel's backward pass needs.

    Where a text has more keys than queries, its queries are its last tokens.
    """
    if key_ends is None:
        key_ends, longest_key = ends, longest
    if not query.is_cuda:
        return (attend_each(query, key, value, ends, scaling, key_ends),)
    # The operator behind torch.nn.attention.varlen, whose signature still moves.
    flash = torch.ops.aten._flash_attention_forward
    made = flash(query, key, value, ends, key_ends, longest, longest_key, 0.0, True, False, scale=scaling)
    return made[:4]


def attend_each(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    ends: torch.Tensor,
    scaling: float,
    key_ends: torch.Tensor,
) -> torch.Tensor:
    """The attention of each text by itself: (tokens, heads, head size) to the same."""
    key_lengths = key_ends.diff().tolist()
    texts = zip(query.split(ends.diff().tolist()), key.split(key_lengths), value.split(key_lengths))
    attended = []
    for text in texts:
        heads_first = [x.transpose(0, 1)[None] for x in text]  # each (1, heads, tokens, head size)
        n_new, n_keys = len(text[0]), len(text[1])
        mask = None
        if n_new < n_keys:
            mask = torch.ones(n_new, n_keys, dtype=torch.bool, device=query.device).tril(n_keys - n_new)
        attended.append(
            torch.nn.functional.scaled_dot_product_attention(
                *heads_first, attn_mask=mask, is_causal=mask is None, scale=scaling, enable_gqa=True
            )
        )
    return torch.cat(attended, 2)[0].transpose(0, 1)


def check_kernel(device: torch.device, dtype: torch.dtype) -> None:
    """Refuse a kernel that takes the queries of a text for other than its last tokens."""
    made = torch.Generator(device).manual_seed(0)
    query, key, value = (
        torch.randn(tokens, heads, 64, device=device, dtype=dtype, generator=made)
        for tokens, heads in ((5, 4), (9, 2), (9, 2))
    )
    ends, key_ends = (torch.tensor(x, dtype=torch.int32, device=device) for x in ([0, 2, 2, 5], [0, 4, 5, 9]))
    attended, *_ = attend_packed(query, key, value, ends, 3, 0.125, key_ends, 5)
    with sdpa_kernel(SDPBackend.MATH):
        expected = attend_each(query, key, value, ends, 0.125, key_ends)
    far = (attended - expected).abs().max().item()
    if not far < 0.05:  # a NaN is not near
        raise RuntimeError(f"the flash kernel is off by {far:.2g}")
