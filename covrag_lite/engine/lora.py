"""LoRA adapters on a frozen 4-bit base: what training changes in a network before its first step.

peft makes, names and saves the adapters. `layers` computes the layers of the kinds it knows; peft computes all others,
which is slower and needs more memory. `loop` and `speed.training` call this.
"""

from types import MethodType

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import PreTrainedModel

from covrag_lite.config import Training
from covrag_lite.engine import layers
from covrag_lite.engine.elementwise_back import elementwise
from covrag_lite.engine.offload import Shelf
from covrag_lite.engine.prepare import unpack_linears
from covrag_lite.engine.varlen_attention_back import ATTENTION
from covrag_lite.engine.varlen_prefill import is_known

PART = 2**22  # weights that come from the CPU at a time


def attach(network: PreTrainedModel, settings: Training, unpack: bool, compiled: bool = False) -> PeftModel:
    """The network with fresh adapters on all its linear layers, ready for packed rows."""
    # peft's prepare_model_for_kbit_training is left out: it turns embeddings and norms into fp32, which costs time and
    # memory.
    if unpack:
        unpack_linears(network)
    torch.manual_seed(settings.training_seed)
    lora = LoraConfig(
        r=settings.lora_rank,
        lora_alpha=settings.lora_alpha,
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    adapted = get_peft_model(network, lora)
    network.set_attn_implementation(ATTENTION)
    prepare_layers(network, settings.checkpointing, compiled)
    return adapted.train()


def prepare_layers(network: PreTrainedModel, share: float, compiled: bool) -> None:
    """Let every layer compute by our code where it is known; a share of them keeps little for the backward pass."""
    if not 0 <= share <= 3:
        raise ValueError(f"checkpointing is {share}, but must be a share of the layers, from 0.0 to 3.0")
    # Without dropout there is no random state to bring back, and reading it would break the recording of a graph.
    network.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
    network.enable_input_require_grads()
    functions, shelf = elementwise(compiled), Shelf()
    for i, layer in enumerate(network.get_decoder().layers):
        again = int((i + 1) * share) - int(i * share)  # 0 to 3; the layers that compute again are evenly spread
        known = is_known(layer, network.config)
        layer.gradient_checkpointing = again > 0 and not known
        if known:
            layer.keep = (layers.ALL, layers.SOME, layers.INPUT, layers.AWAY)[again]
            layer.number, layer.shelf = i, shelf
            layer.elementwise = functions
            layer.forward = MethodType(layers.forward, layer)
        elif compiled:
            layer.compile(dynamic=False)


def is_away(settings: Training) -> bool:
    """Whether the CPU's memory takes what a GPU can do without for a while: layers' inputs, and the optimizer's."""
    return settings.checkpointing > 2


class Master:
    """The adapters' weights in fp32, in one flat tensor that the optimizer sees as a single parameter.

    At this learning rate an update is smaller than half the distance between neighbouring bf16 numbers, so bf16 weights
    alone would stand still. Passes use a copy in the network's type; the adapters are views into it.
    """

    def __init__(self, adapted: PeftModel, dtype: torch.dtype, is_away: bool = False):
        parameters = [p for p in adapted.parameters() if p.requires_grad]
        flat = torch.cat([p.detach().float().flatten() for p in parameters])
        self.is_away = is_away  # whether the weights lie in the CPU's memory; the gradient never does
        self.grad = torch.zeros_like(flat)
        self.copy = flat.to(dtype, copy=True)
        self.copy_grad = torch.zeros_like(self.copy)
        self.weights = torch.nn.Parameter(self.place(flat))
        if not is_away:
            self.weights.grad = self.grad
        sizes = [p.numel() for p in parameters]
        for p, data, grad in zip(parameters, self.copy.split(sizes), self.copy_grad.split(sizes)):
            p.data = data.view(p.shape)
            p.grad = grad.view(p.shape)

    def place(self, flat: torch.Tensor) -> torch.Tensor:
        """These numbers where the weights lie; beside a GPU in memory that it can copy from by itself."""
        if not self.is_away:
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
