"""The scale of a loss whose gradients are fp16 numbers."""

import torch

FINITE_STEPS = 500  # after so many finite steps the scale is doubled


class LossScale:
    """Scales the loss so that fp16 gradients do not vanish, and scales the gradients back.

    A step whose gradient overflows is skipped, and the scale is halved. For other types this does
    nothing. PyTorch's own scaler works on `.grad`, and with offloading the trained weights have
    none on the GPU.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device):
        self.is_needed = dtype == torch.float16
        # The scale, the number of finite steps with it, and the number of skipped steps.
        self.state = torch.tensor([2.0**12, 0, 0], device=device)

    def enlarge(self, losses: torch.Tensor) -> torch.Tensor:
        """Return the same losses; their gradient is scaled up."""
        if self.is_needed and losses.requires_grad:
            losses.register_hook(lambda grad: grad * self.state[0])
        return losses

    def shrink(self, grad: torch.Tensor) -> bool:
        """Scale the gradient back, in place; return whether it is finite."""
        if not self.is_needed:
            return True
        grad.div_(self.state[0])
        is_finite = bool(torch.isfinite(grad).all())
        self.state[1:] += torch.tensor([is_finite, not is_finite], device=self.state.device)
        if not is_finite or self.state[1] == FINITE_STEPS:
            self.state[0] *= 2.0 if is_finite else 0.5
            self.state[1] = 0
        if self.state[0] < 1:
            raise FloatingPointError("gradients overflow in fp16 at any scale; use a GPU with bf16")
        return is_finite
