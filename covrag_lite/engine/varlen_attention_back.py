"""The gradients of attention within each sample of a packed row, and the way to it for layers of other kinds.

`layers` calls `model.attending` and its backward pass here; layers of other kinds reach `attend` through transformers.
"""

import torch
from transformers import AttentionInterface

from covrag_lite.engine.varlen_attention import attend_each, attend_packed

ATTENTION = "packed"  # the name under which transformers knows `attend`

# `ends` holds where the samples of a row end, with a 0 before the first: (samples + 1).
# Queries, keys and values are (tokens, heads, head size).


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
    """The gradients of queries, keys and values."""
    if query.is_cuda:
        log_sums, *random_state = flash_state
        back = torch.ops.aten._flash_attention_backward
        lengths = (ends, ends, longest, longest)
        return back(grad, query, key, value, out, log_sums, *lengths, 0.0, True, *random_state, scale=scaling)
    with torch.enable_grad():
        inputs = [x.detach().requires_grad_() for x in (query, key, value)]
        again = attend_each(*inputs, ends, scaling, ends)
        return torch.autograd.grad(again, inputs, grad)


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: None,
    scaling: float | None = None,
    cu_seq_lens_q: torch.Tensor | None = None,
    max_length_q: int | None = None,
    **_,
) -> tuple[torch.Tensor, None]:
    """The attention of a row as transformers calls it: (1, heads, tokens, size) to (1, tokens, heads, size)."""
    query, key, value = (x.squeeze(0).transpose(0, 1) for x in (query, key, value))  # each (tokens, heads, size)
    out, *_ = attend_packed(query, key, value, cu_seq_lens_q, max_length_q, scaling)
    return out.unsqueeze(0), None


# No mask function is registered beside it: transformers then builds no mask at all, which is what a row needs.
AttentionInterface.register(ATTENTION, attend)
