"""Causal attention within each of several concatenated texts, without padding or a mask.

The SDPA of transformers would build a mask of tokens x tokens and could not use the flash kernel.
PyTorch's flash kernel takes the ends of the texts. Without that kernel, each text attends by
itself. Both are exact.
"""

import torch

from covrag_lite.engine import devices

# `ends` contains the ends of the texts, with a 0 before the first: (texts + 1).
# Queries, keys and values are (tokens, heads, head size); the heads of a group share their keys.


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
    """Return the attention, (tokens, heads, head size), and the state for the backward pass.

    If a text has more keys than queries, its queries are its last tokens.
    """
    if key_ends is None:
        key_ends = ends
        longest_key = longest
    if not has_flash(query):
        return (attend_each(query, key, value, ends, scaling, key_ends),)
    # The operator behind torch.nn.attention.varlen, whose signature may still change.
    attention_and_state = torch.ops.aten._flash_attention_forward(
        query, key, value, ends, key_ends, longest, longest_key, 0.0, True, False, scale=scaling
    )
    return attention_and_state[:4]


def has_flash(query: torch.Tensor) -> bool:
    """Can the flash kernel run on the device of this tensor?"""
    return query.is_cuda and devices.has_bf16()


def attend_each(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    ends: torch.Tensor,
    scaling: float,
    key_ends: torch.Tensor,
) -> torch.Tensor:
    """Compute the attention of each text by itself: (tokens, heads, head size) to the same."""
    # Keys are repeated for the heads of a group: without flash, the kernels do not support groups.
    group = query.shape[1] // key.shape[1]
    key = key.repeat_interleave(group, 1)
    value = value.repeat_interleave(group, 1)
    lengths = ends.diff().tolist()
    key_lengths = key_ends.diff().tolist()
    texts = zip(query.split(lengths), key.split(key_lengths), value.split(key_lengths))
    attended = [attend_text(*text, scaling) for text in texts]
    return torch.cat(attended, 2)[0].transpose(0, 1)


def attend_text(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float
) -> torch.Tensor:
    """Compute the attention of one text: (tokens, heads, head size) to (1, heads, tokens, size)."""
    n_new = len(query)
    n_keys = len(key)
    mask = None
    if n_new < n_keys:
        every_key = torch.ones(n_new, n_keys, dtype=torch.bool, device=query.device)
        mask = every_key.tril(n_keys - n_new)
    heads_first = [x.transpose(0, 1)[None] for x in (query, key, value)]
    return torch.nn.functional.scaled_dot_product_attention(
        *heads_first, attn_mask=mask, is_causal=mask is None, scale=scaling
    )


def attend_packed_back(
    grad: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    flash_state: list[torch.Tensor],
    ends: torch.Tensor,
    longest: int,
    scaling: float,
) -> tuple[torch.Tensor, ...]:
    """Return the gradients of queries, keys and values."""
    if has_flash(query):
        log_sums, *random_state = flash_state
        return torch.ops.aten._flash_attention_backward(
            grad,
            query,
            key,
            value,
            out,
            log_sums,
            ends,
            ends,
            longest,
            longest,
            0.0,
            True,
            *random_state,
            scale=scaling,
        )
    with torch.enable_grad():
        inputs = [x.detach().requires_grad_() for x in (query, key, value)]
        attended = attend_each(*inputs, ends, scaling, ends)
        return torch.autograd.grad(attended, inputs, grad)
