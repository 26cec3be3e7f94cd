"""LoRA adapters on a frozen 4-bit base, quick: what training changes in a network before its first step.

peft makes, names and saves the adapters. By hand is only what it does slowly: its layers copy and cast each result, and
bitsandbytes unpacks the same frozen weights again at every use. `training` and `speed` call this.
"""

from types import MethodType

import torch
from bitsandbytes.functional import dequantize_4bit
from bitsandbytes.nn import Linear4bit
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import LoraLayer

from covrag_lite.config import Training
from covrag_lite.packing import ATTENTION


def attach(network, settings: Training, unpack: bool):
    """The network with fresh adapters on all its linear layers, ready for packed rows."""
    # peft's prepare_model_for_kbit_training is left out: it turns embeddings and norms into fp32, which costs time and memory.
    if unpack:
        unpack_linears(network)
    torch.manual_seed(settings.training_seed)
    adapted = get_peft_model(network, LoraConfig(r=settings.lora_rank, lora_alpha=settings.lora_alpha, lora_dropout=0.0,
                                                 target_modules="all-linear", task_type="CAUSAL_LM"))
    for layer in adapted.modules():
        if isinstance(layer, LoraLayer):
            layer.forward = MethodType(forward, layer)
    network.set_attn_implementation(ATTENTION)
    checkpoint_layers(network, settings.checkpointing)
    return adapted.train()


def checkpoint_layers(network, share: float) -> None:
    """Let a share of the layers, evenly spread, keep only their input and compute the rest again going backwards."""
    if not 0 <= share <= 1:
        raise ValueError(f"checkpointing is {share}, but must be a share of the layers, from 0.0 to 1.0")
    # Without dropout there is no random state to bring back, and reading it would break the recording of a graph.
    network.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
    for i, layer in enumerate(network.get_decoder().layers):
        layer.gradient_checkpointing = int((i + 1) * share) > int(i * share)


def unpack_linears(network) -> None:
    """Replace 4-bit linear layers by plain ones of exactly the same values."""
    for parent in list(network.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, Linear4bit):
                plain = torch.nn.Linear(layer.in_features, layer.out_features, bias=False, device="meta")
                plain.weight = torch.nn.Parameter(frozen_weight(layer), requires_grad=False)
                plain.bias = layer.bias
                setattr(parent, name, plain)


def frozen_weight(layer) -> torch.Tensor:
    """A frozen layer's weights (out, in), unpacked from 4 bits where they are packed."""
    return dequantize_4bit(layer.weight.data, layer.weight.quant_state) if isinstance(layer, Linear4bit) else layer.weight


def forward(self, x, *_, **__):
    """The forward of peft's LoRA layer for one adapter without dropout."""
    a, b = self.lora_A["default"].weight, self.lora_B["default"].weight
    return Adapted.apply(x, a, b, self.scaling["default"], self.base_layer)


class Adapted(torch.autograd.Function):
    """x W' + s x A' B' with W frozen: the adapter's share is added inside the matrix product, with no copy and no cast."""

    @staticmethod
    def forward(ctx, x, a, b, scaling, base):
        flat = x.reshape(-1, x.shape[-1])  # (tokens, in)
        low = flat @ a.t()  # (tokens, rank)
        out = torch.nn.functional.linear(flat, frozen_weight(base), base.bias)  # (tokens, out)
        out.addmm_(low, b.t(), alpha=scaling)
        ctx.save_for_backward(flat, low, a, b)
        ctx.scaling, ctx.base = scaling, base
        return out.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx, grad):
        flat, low, a, b = ctx.saved_tensors
        shape, grad = grad.shape, grad.reshape(-1, grad.shape[-1])
        grad_low = (grad @ b).mul_(ctx.scaling)
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = grad @ frozen_weight(ctx.base)
            grad_x = grad_x.addmm_(grad_low, a).view(*shape[:-1], -1)
        return grad_x, grad_low.t() @ flat, (grad.t() @ low).mul_(ctx.scaling), None, None


class Master:
    """The adapters' weights in fp32, in one flat tensor that the optimizer sees as a single parameter.

    At this learning rate an update is smaller than half the distance between neighbouring bf16 numbers, so bf16 weights
    alone would stand still. Passes use a copy in the network's type; the adapters are views into it.
    """

    def __init__(self, adapted, dtype: torch.dtype):
        parameters = [p for p in adapted.parameters() if p.requires_grad]
        self.weights = torch.nn.Parameter(torch.cat([p.detach().float().flatten() for p in parameters]))
        self.weights.grad = torch.zeros_like(self.weights)
        self.copy = self.weights.detach().to(dtype, copy=True)
        self.copy_grad = torch.zeros_like(self.copy)
        sizes = [p.numel() for p in parameters]
        for p, data, grad in zip(parameters, self.copy.split(sizes), self.copy_grad.split(sizes)):
            p.data, p.grad = data.view(p.shape), grad.view(p.shape)

    def collect(self) -> None:
        """Add the gradients of one pass to those of the step."""
        self.weights.grad += self.copy_grad
        self.copy_grad.zero_()

    def publish(self) -> None:
        """Hand the weights to the passes."""
        self.copy.copy_(self.weights.detach())
