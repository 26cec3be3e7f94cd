"""LoRA adapters on a frozen 4-bit base: what training changes in a network before its first step.

peft makes, names and saves the adapters. Layers of the kinds that `layers` knows are computed by its code; all others
by peft's, which is slower and needs more memory. `loop` and `speed.training` call this.
"""

from types import MethodType

import torch
from peft import LoraConfig, get_peft_model

from covrag_lite.config import Training
from covrag_lite.model.serving import unpack_linears
from covrag_lite.training import layers
from covrag_lite.training.packing import ATTENTION


def attach(network, settings: Training, unpack: bool, compiled: bool = False):
    """The network with fresh adapters on all its linear layers, ready for packed rows."""
    # peft's prepare_model_for_kbit_training is left out: it turns embeddings and norms into fp32, which costs time and memory.
    if unpack:
        unpack_linears(network)
    torch.manual_seed(settings.training_seed)
    adapted = get_peft_model(
        network,
        LoraConfig(
            r=settings.lora_rank,
            lora_alpha=settings.lora_alpha,
            lora_dropout=0.0,
            target_modules="all-linear",
            task_type="CAUSAL_LM",
        ),
    )
    network.set_attn_implementation(ATTENTION)
    share, elementwise = settings.checkpointing, layers.elementwise(compiled)
    if not 0 <= share <= 1:
        raise ValueError(f"checkpointing is {share}, but must be a share of the layers, from 0.0 to 1.0")
    # Without dropout there is no random state to bring back, and reading it would break the recording of a graph.
    network.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
    network.enable_input_require_grads()
    for i, layer in enumerate(network.get_decoder().layers):
        again = int((i + 1) * share) > int(i * share)  # those that compute again are evenly spread
        known = layers.is_known(layer, network.config)
        layer.gradient_checkpointing = again and not known
        if known:
            layer.keep, layer.elementwise, layer.forward = not again, elementwise, MethodType(layers.forward, layer)
        elif compiled:
            layer.compile(dynamic=False)
    return adapted.train()


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
