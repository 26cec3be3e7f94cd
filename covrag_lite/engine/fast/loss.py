"""The loss of each target token, computed in parts so that not all logits are in memory.

A vocabulary is fifty or more times as wide as a layer. The logits of all targets, their softmax
and both gradients would be the largest tensors of a pass.
"""

import torch
from torch.autograd.function import FunctionCtx
from transformers import PreTrainedModel

from covrag_lite.engine.interface import PackedRow

LOGITS_AT_ONCE = 2**25  # logits in memory at a time


def rows_at_once(vocabulary: int) -> int:
    """Return the number of target tokens whose logits are in memory at a time."""
    return max(1, LOGITS_AT_ONCE // vocabulary)


class TokenLosses(torch.autograd.Function):
    """The cross-entropy of softmax(hidden W') with the labels, for each token; W is frozen."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        """Compute the losses, (targets, width) to (targets), and already their gradient."""
        losses = torch.empty(len(hidden), dtype=torch.float32, device=hidden.device)
        grads = torch.empty_like(hidden)
        size = rows_at_once(len(weight))
        for first in range(0, len(hidden), size):
            part = slice(first, first + size)
            logits = (hidden[part] @ weight.t()).float()  # (part, vocabulary)
            losses[part] = torch.nn.functional.cross_entropy(logits, labels[part], reduction="none")
            # The gradient of the logits: their softmax, minus 1 at the label.
            grad_logits = torch.softmax(logits, 1)
            minus_one = grad_logits.new_full((1, 1), -1.0).expand(len(grad_logits), 1)
            grad_logits.scatter_add_(1, labels[part, None], minus_one)
            grads[part] = grad_logits.to(weight.dtype) @ weight
        ctx.save_for_backward(grads)
        return losses

    @staticmethod
    def backward(ctx: FunctionCtx, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """Return the gradient of `hidden`."""
        (grads,) = ctx.saved_tensors
        return (grads * grad[:, None]).to(grads.dtype), None, None


def token_losses(network: PreTrainedModel, row: PackedRow) -> torch.Tensor:
    """Return the loss of each target token in one packed row: (targets)."""
    output = network.get_decoder()(
        input_ids=row["input_ids"],
        position_ids=row["position_ids"],
        use_cache=False,
        cu_seq_lens_q=row["sequence_ends"],
        max_length_q=row["longest_sequence"],
        attention_mask=row["input_ids"].new_ones(1, 1, 1, 1),  # accepted as a finished mask
    )
    hidden = output.last_hidden_state[0]  # (tokens, width)
    weight = network.get_output_embeddings().weight
    return TokenLosses.apply(hidden[row["target_positions"]], weight, row["labels"])
