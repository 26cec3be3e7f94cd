"""Each target token's loss without the logits of all of them: they are made a part at a time, with their gradient.

A vocabulary is fifty times as wide as a layer and more, so the logits of a row's targets, their softmax and both
gradients would be the largest tensors of a pass.
"""

import torch
from torch.autograd.function import FunctionCtx
from transformers import PreTrainedModel

AT_ONCE = 2**25  # logits that are there at a time
PATIENCE = 500  # finite steps after which the scale of fp16 is doubled


def rows_at_once(vocabulary: int) -> int:
    """How many target tokens' logits are there at a time."""
    return max(1, AT_ONCE // vocabulary)


class TokenLosses(torch.autograd.Function):
    """Cross-entropy of softmax(hidden W') with the labels, token by token; W stays as it is."""

    @staticmethod
    def forward(ctx: FunctionCtx, hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """(targets, width) to (targets); the gradient is made here already, while the logits are there."""
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
        """The gradient of `hidden`."""
        (grads,) = ctx.saved_tensors
        return (grads * grad[:, None]).to(grads.dtype), None, None


class LossScale:
    """What keeps gradients in fp16 from vanishing: they are computed from a larger loss, and divided again.

    A step whose gradient overflows is left out and halves the scale. In other types all of this does nothing. PyTorch's
    own scaler divides what lies in `.grad`, and with offloading the trained weights have none on the GPU.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device):
        self.needed = dtype == torch.float16
        self.state = torch.tensor([2.0**12, 0, 0], device=device)  # the scale, finite steps with it, steps left out

    def enlarge(self, losses: torch.Tensor) -> torch.Tensor:
        """The same losses, whose gradient is larger."""
        if self.needed and losses.requires_grad:
            losses.register_hook(lambda grad: grad * self.state[0])
        return losses

    def shrink(self, grad: torch.Tensor) -> bool:
        """Divide the gradient again, in place; returns whether it may be followed."""
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
    """Each target token's loss over one packed row: (targets)."""
    given = {"input_ids": row["input_ids"], "position_ids": row["position_ids"], "use_cache": False}
    given |= {"cu_seq_lens_q": row["ends"], "max_length_q": row["longest"]}
    mask = row["input_ids"].new_ones(1, 1, 1, 1)  # of this shape it is taken for one that is built already
    hidden = network.get_decoder()(**given, attention_mask=mask).last_hidden_state[0]  # (tokens, width)
    return TokenLosses.apply(hidden[row["where"]], network.get_output_embeddings().weight, row["labels"])
