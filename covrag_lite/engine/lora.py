"""LoRA adapters on a frozen 4-bit base, their weights in fp32, and the optimizer of these.

peft makes, names and saves the adapters. `layers` computes the layers of the kinds it knows; peft computes all others,
which is slower and needs more memory.
"""

from functools import partial

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch.optim.adamw import adamw
from transformers import PreTrainedModel

from covrag_lite.config import Training
from covrag_lite.engine import layers
from covrag_lite.engine.elementwise import training_functions
from covrag_lite.engine.offload import Offload
from covrag_lite.engine.prepare import unpack_linears
from covrag_lite.engine.varlen_attention import ATTENTION
from covrag_lite.engine.varlen_prefill import is_known

PART = 2**22  # weights that come from the CPU at a time


def add_adapters(network: PreTrainedModel, settings: Training) -> PeftModel:
    """The network with fresh adapters on all its linear layers."""
    # peft's prepare_model_for_kbit_training is left out: it turns embeddings and norms into fp32, which costs time and
    # memory.
    torch.manual_seed(settings.training_seed)
    lora = LoraConfig(
        r=settings.lora_rank,
        lora_alpha=2 * settings.lora_rank,  # the adapter's output counts double
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    return get_peft_model(network, lora)


def attach(network: PreTrainedModel, settings: Training, unpack: bool, compiled: bool = False) -> PeftModel:
    """The network with fresh adapters, ready for packed rows, by our layers where they are known."""
    if settings.activations not in layers.ACTIVATIONS:
        known = ", ".join(layers.ACTIVATIONS)
        raise ValueError(f"activations {settings.activations!r} is not known; use one of {known}")
    if unpack:
        unpack_linears(network)
    adapted = add_adapters(network, settings)
    network.set_attn_implementation(ATTENTION)
    # Without dropout there is no random state to bring back, and reading it would break the recording of a graph.
    network.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
    network.enable_input_require_grads()
    functions, offload = training_functions(compiled), Offload()
    for number, layer in enumerate(network.get_decoder().layers):
        known = is_known(layer, network.config)
        layer.gradient_checkpointing = settings.activations != layers.KEEP and not known
        if known:
            block = layers.Block(layer, functions, settings.activations, offload, number)
            layer.forward = partial(layers.forward, block)
        elif compiled:
            layer.compile(dynamic=False)
    return adapted.train()


class Master:
    """The adapters' weights in fp32, in one flat tensor that the optimizer sees as a single parameter.

    At this learning rate an update is smaller than half the distance between neighbouring bf16 numbers, so bf16 weights
    alone would stand still. Passes use a copy in the network's type; the adapters are views into it.
    """

    def __init__(self, adapted: PeftModel, dtype: torch.dtype, offloaded: bool = False):
        parameters = [p for p in adapted.parameters() if p.requires_grad]
        flat = torch.cat([p.detach().float().flatten() for p in parameters])
        self.offloaded = offloaded  # whether the weights lie in the CPU's memory; the gradient never does
        self.grad = torch.zeros_like(flat)
        self.copy = flat.to(dtype, copy=True)
        self.copy_grad = torch.zeros_like(self.copy)
        self.weights = torch.nn.Parameter(self.place(flat))
        if not offloaded:
            self.weights.grad = self.grad
        sizes = [p.numel() for p in parameters]
        for p, data, grad in zip(parameters, self.copy.split(sizes), self.copy_grad.split(sizes)):
            p.data = data.view(p.shape)
            p.grad = grad.view(p.shape)

    def place(self, flat: torch.Tensor) -> torch.Tensor:
        """These numbers where the weights lie; beside a GPU in memory that it can copy from by itself."""
        if not self.offloaded:
            return flat
        kept = torch.empty(flat.shape, dtype=flat.dtype, device="cpu", pin_memory=self.grad.is_cuda)
        return kept.copy_(flat)

    def collect(self) -> None:
        """Add the gradients of one pass to those of the step."""
        self.grad += self.copy_grad
        self.copy_grad.zero_()

    def clip(self, limit: float) -> None:
        """Shorten the step's gradient to this length, if it is longer."""
        length = torch.linalg.vector_norm(self.grad)
        self.grad.mul_((limit / (length + 1e-6)).clamp(max=1.0))

    def publish(self) -> None:
        """Copy the weights to where the passes read them."""
        for part, new in zip(self.copy.split(PART), self.weights.detach().split(PART)):
            part.copy_(new.to(part.device, non_blocking=True))


def optimizer_of(master: Master, **settings: float) -> torch.optim.AdamW:
    """The optimizer of these weights, wherever they lie."""
    if master.offloaded:
        return Streamed(master, **settings)
    return torch.optim.AdamW([master.weights], fused=True, **settings)


class Streamed(torch.optim.AdamW):
    """AdamW whose weights and moments lie in the CPU's memory and come to the GPU part by part; its gradient is there.

    They are needed once a step and take more than the adapters themselves. The arithmetic is the same to the last bit.
    """

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
