"""AdamW over the adapters' weights in fp32, on the GPU or, where memory is short, streamed through it from the CPU.

Weights and moments are needed once a step and for a moment, but take more than the adapters themselves. Streamed, they
lie in the CPU's memory and come to the GPU part by part. The arithmetic is the same, to the last bit. `loop` and
`speed.training` take their optimizer from here.
"""

import torch
from torch.optim.adamw import adamw

from covrag_lite.engine.lora import PART, Master


def optimizer_of(master: Master, **settings: float) -> torch.optim.AdamW:
    """The optimizer of these weights, wherever they lie."""
    if master.is_away:
        return Streamed(master, **settings)
    return torch.optim.AdamW([master.weights], fused=True, **settings)


class Streamed(torch.optim.AdamW):
    """AdamW whose weights and moments lie beside the CPU, and its gradient on the GPU."""

    def __init__(self, master: Master, **settings: float):
        super().__init__([master.weights], **settings)
        self.master = master

    @torch.no_grad()
    def step(self) -> None:
        """One update, part by part; what comes next on the GPU's stream finds it done."""
        weights, grad = self.master.weights, self.master.grad
        state = self.state[weights]
        if not state:
            state["step"] = torch.zeros((), device=grad.device)
            for name in ("exp_avg", "exp_avg_sq"):
                state[name] = self.master.place(torch.zeros_like(weights))
        group = self.param_groups[0]
        kept = [weights.detach(), state["exp_avg"], state["exp_avg_sq"]]
        for begin in range(0, len(grad), PART):
            part = slice(begin, begin + PART)
            here = [one[part].to(grad.device, non_blocking=True) for one in kept]
            adamw(
                [here[0]],
                [grad[part]],
                [here[1]],
                [here[2]],
                [],
                [state["step"].clone()],  # each call counts it on
                fused=True,
                amsgrad=False,
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                lr=group["lr"],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                maximize=False,
            )
            for one, new in zip(kept, here):
                one[part].copy_(new, non_blocking=True)
        state["step"] += 1
