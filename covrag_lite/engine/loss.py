"""The loss of each target token, computed in parts so that not all logits are in memory.

A vocabulary is fifty or more times as wide as a layer. The logits of all targets, their softmax
and both gradients would be the largest tensors of a pass.
"""

import torch
from torch.autograd.function import FunctionCtx
from transformers import PreTrainedModel

AT_ONCE = 2**25  # logits in memory at a time
PATIENCE = 500  # finite steps after which the scale of fp16 is doubled


def rows_at_once(vocabulary: int) -> int:
    """Return the number of target tokens whose logits are in memory at a time."""
    return max(1, AT_ONCE // vocabulary)


class TokenLosses(torch.autograd.Function):
    """The cross-entropy of softmax(hidden W') with the labels, for each token; W is frozen."""

    @staticmethod
    def forward(ctx: FunctionCtx, hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Compute the losses, (targets, width) to (targets), and already their gradient."""
        losses = torch.empty(len(hidden), dtype=torch.float32, device=hidden.device)
        grads = torch.empty_like(hidden)
        size = rows_at_once(len(weight))
        for first in range(0, len(hidden), size):
            part = slice(first, first + size)
            logits = (hidden[part] @ weight.t()).float()  # (part, vocabulary)
            losses[part] = torch.nn.functional.cross_entropy(logits, labels[part], reduction="none")
            likely = torch.softmax(logits, 1)
            likely.scatter_add_(1, labels[part, None], likely.new_full((1, 1), -1.0).expand(len(likely), 1))
            grads[part] = likely.to(weight.dtype) @ weight
        ctx.save_for_backward(grads)
        return losses

    @staticmethod
    def backward(ctx: FunctionCtx, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """Return the gradient of `hidden`."""
        (grads,) = ctx.saved_tensors
        return (grads * grad[:, None]).to(grads.dtype), None, None


class LossScale:
    """Scales the loss so that fp16 gradients do not vanish, and scales the gradients back.

    A step whose gradient overflows is skipped, and the scale is halved. For other types this does
    nothing. PyTorch's own scaler works on `.grad`, and with offloading the trained weights have
    none on the GPU.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device):
        self.needed = dtype == torch.float16
        # The scale, the number of finite steps with it, and the number of skipped steps.
        self.state = torch.tensor([2.0**12, 0, 0], device=device)

    def enlarge(self, losses: torch.Tensor) -> torch.Tensor:
        """Return the same losses; their gradient is scaled up."""
        if self.needed and losses.requires_grad:
            losses.register_hook(lambda grad: grad * self.state[0])
        return losses

    def shrink(self, grad: torch.Tensor) -> bool:
        """Scale the gradient back, in place; return whether it is finite."""
        if not self.needed:
            return True
        grad.div_(self.state[0])
        finite = bool(torch.isfinite(grad).all())
        self.state[1:] += torch.tensor([finite, not finite], device=self.state.device)
        if not finite or self.state[1] == PATIENCE:
            self.state[0] *= 2.0 if finite else 0.5
            self.state[1] = 0
        if self.state[0] < 1:
            raise FloatingPointError("gradients overflow in fp16 at any scale; use a GPU with bf16")
        return finite


def token_losses(network: PreTrainedModel, row: dict) -> torch.Tensor:
    """Return the loss of each target token in one packed row: (targets)."""
    given = {"input_ids": row["input_ids"], "position_ids": row["position_ids"], "use_cache": False}
    given |= {"cu_seq_lens_q": row["ends"], "max_length_q": row["longest"]}
    mask = row["input_ids"].new_ones(1, 1, 1, 1)  # accepted by transformers as a finished mask
    hidden = network.get_decoder()(**given, attention_mask=mask).last_hidden_state[0]  # (tokens, width)
    return TokenLosses.apply(hidden[row["where"]], network.get_output_embeddings().weight, row["labels"])
