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
        key_ends, longest_key = ends, longest
    if not has_flash(query):
        return (attend_each(query, key, value, ends, scaling, key_ends),)
    # The operator behind torch.nn.attention.varlen, whose signature may still change.
    flash = torch.ops.aten._flash_attention_forward
    made = flash(query, key, value, ends, key_ends, longest, longest_key, 0.0, True, False, scale=scaling)
    return made[:4]


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
    key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
    key_lengths = key_ends.diff().tolist()
    texts = zip(query.split(ends.diff().tolist()), key.split(key_lengths), value.split(key_lengths))
    attended = []
    for text in texts:
        heads_first = [x.transpose(0, 1)[None] for x in text]  # each (1, heads, tokens, head size)
        n_new, n_keys = len(text[0]), len(text[1])
        mask = None
        if n_new < n_keys:
            mask = torch.ones(n_new, n_keys, dtype=torch.bool, device=query.device).tril(n_keys - n_new)
        options = {"attn_mask": mask, "is_causal": mask is None, "scale": scaling}
        attended.append(torch.nn.functional.scaled_dot_product_attention(*heads_first, **options))
    return torch.cat(attended, 2)[0].transpose(0, 1)


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
        back = torch.ops.aten._flash_attention_backward
        lengths = (ends, ends, longest, longest)
        return back(grad, query, key, value, out, log_sums, *lengths, 0.0, True, *random_state, scale=scaling)
    with torch.enable_grad():
        inputs = [x.detach().requires_grad_() for x in (query, key, value)]
        again = attend_each(*inputs, ends, scaling, ends)
        return torch.autograd.grad(again, inputs, grad)
