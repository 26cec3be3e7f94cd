"""LoRA adapters on a frozen base, their fp32 weights and their optimizer; peft builds them."""

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch.optim.adamw import adamw
from transformers import PreTrainedModel

from covrag_lite.config import Training

WEIGHTS_AT_ONCE = 2**22  # weights that are updated, or copied from the CPU, at a time
# The defaults of torch's AdamW, without weight decay.
ADAMW = {
    "beta1": 0.9,
    "beta2": 0.999,
    "eps": 1e-8,
    "weight_decay": 0.0,
    "amsgrad": False,
    "maximize": False,
}


def add_adapters(network: PreTrainedModel, settings: Training) -> PeftModel:
    """Add new adapters to all linear layers of the network."""
    # Without peft's prepare_model_for_kbit_training, which converts embeddings and norms to fp32
    # and so costs time and memory.
    torch.manual_seed(settings.training_seed)
    lora = LoraConfig(
        r=settings.lora_rank,
        lora_alpha=2 * settings.lora_rank,  # the adapter's output is scaled by two
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    return get_peft_model(network, lora)


class MasterWeights:
    """The adapters' weights in fp32, in one flat tensor, and AdamW's two moments of each.

    At this learning rate an update is smaller than half the distance between neighbouring bf16
    numbers, so bf16 weights would never change. Passes use a copy in their own type; the adapters
    are views of it. Offloaded weights and moments are in the CPU's memory: they are needed once per
    step and take more memory than the adapters.
    """

    def __init__(self, adapted: PeftModel, dtype: torch.dtype, is_offloaded: bool):
        parameters = [p for p in adapted.parameters() if p.requires_grad]
        flat = torch.cat([p.detach().float().flatten() for p in parameters])
        self.grad = torch.zeros_like(flat)  # never offloaded
        self.copy = flat.to(dtype, copy=True)
        self.copy_grad = torch.zeros_like(self.copy)
        self.n_steps = 0
        place = {"device": flat.device}
        if is_offloaded:
            # With a GPU, the memory is pinned, so that the GPU can copy from it.
            place = {"device": "cpu", "pin_memory": flat.is_cuda}
        self.tensors = {
            name: torch.zeros(flat.shape, **place) for name in ("weights", "exp_avg", "exp_avg_sq")
        }
        self.weights = self.tensors["weights"].copy_(flat)
        sizes = [p.numel() for p in parameters]
        for p, data, grad in zip(parameters, self.copy.split(sizes), self.copy_grad.split(sizes)):
            p.data = data.view(p.shape)
            p.grad = grad.view(p.shape)

    def collect(self) -> None:
        """Add the gradients of one pass to those of the step."""
        self.grad += self.copy_grad
        self.copy_grad.zero_()

    def step(self, lr: float, clip: float) -> None:
        """Make one AdamW update, part by part, with the gradient clipped to the length `clip`."""
        length = torch.linalg.vector_norm(self.grad)
        self.grad.mul_((clip / (length + 1e-6)).clamp(max=1.0))
        for begin in range(0, len(self.grad), WEIGHTS_AT_ONCE):
            self.update_part(slice(begin, begin + WEIGHTS_AT_ONCE), lr)
        self.n_steps += 1
        self.publish()

    def update_part(self, part: slice, lr: float) -> None:
        """Update a part of the weights and their moments."""
        device = self.grad.device
        stored = [tensor[part] for tensor in self.tensors.values()]
        updated = [tensor.to(device, non_blocking=True) for tensor in stored]
        weights, mean, square = updated
        n_before = torch.full((), float(self.n_steps), device=device)  # the call adds 1
        adamw(
            [weights],
            [self.grad[part]],
            [mean],
            [square],
            [],
            [n_before],
            fused=True,
            lr=lr,
            **ADAMW,
        )
        for old, new in zip(stored, updated):
            if old.device != new.device:  # otherwise it was changed in place
                old.copy_(new, non_blocking=True)

    def publish(self) -> None:
        """Copy the weights to where the passes read them."""
        copies = self.copy.split(WEIGHTS_AT_ONCE)
        for copy, weights in zip(copies, self.weights.split(WEIGHTS_AT_ONCE)):
            copy.copy_(weights.to(copy.device, non_blocking=True))
