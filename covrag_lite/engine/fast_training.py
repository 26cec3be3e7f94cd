"""The fast way of training: our own layers, packed rows, and passes recorded as CUDA graphs."""

from collections import Counter
from functools import partial
from itertools import count

from transformers import PreTrainedModel

from covrag_lite.config import Training
from covrag_lite.engine import layers, memory
from covrag_lite.engine.devices import choose_execution
from covrag_lite.engine.elementwise import training_functions
from covrag_lite.engine.interface import Shape, report_fallback
from covrag_lite.engine.lora import add_adapters
from covrag_lite.engine.loss import token_losses
from covrag_lite.engine.offload import Offload
from covrag_lite.engine.prepare import unpack_linears
from covrag_lite.engine.training import Trainee
from covrag_lite.engine.varlen_attention import ATTENTION
from covrag_lite.engine.varlen_prefill import KNOWN, is_known


def load(network: PreTrainedModel, settings: Training, shape: Shape, device: str, used: Counter) -> Trainee:
    """The network with a fresh adapter; what cannot fit is refused."""
    execution = choose_execution(settings.execution, device)
    unpack = memory.check(network, settings, shape, device)
    if not all(is_known(layer, network.config) for layer in network.get_decoder().layers):
        why = f"they are not those of {' or '.join(KNOWN)}"
        report_fallback(used, "layers are trained by peft", why, "this takes longer and more memory")
    return build(network, settings, execution, unpack)


def build(network: PreTrainedModel, settings: Training, execution: str, unpack: bool) -> Trainee:
    """The network with a fresh adapter, ready for packed rows, by our layers where they are known, else by peft's."""
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
    compiled = "compiled" in execution
    functions, offload, numbers = training_functions(compiled), Offload(), count()
    for layer in network.get_decoder().layers:
        known = is_known(layer, network.config)
        layer.gradient_checkpointing = settings.activations != layers.KEEP and not known
        if known:
            block = layers.Block(layer, functions, settings.activations, offload, next(numbers))
            layer.forward = partial(layers.forward, block)
        elif compiled:
            layer.compile(dynamic=False)
    return Trainee(adapted.train(), partial(token_losses, network), settings, network.dtype, execution)
