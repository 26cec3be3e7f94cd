"""The fast way of training: our own layers, packed rows, and passes recorded as CUDA graphs."""

from functools import partial
from itertools import count

from transformers import PreTrainedModel

from covrag_lite.config import Training
from covrag_lite.engine import layers, memory
from covrag_lite.engine.devices import choose_execution
from covrag_lite.engine.elementwise import training_functions
from covrag_lite.engine.interface import report_fallback
from covrag_lite.engine.local import LocalEngine
from covrag_lite.engine.lora import add_adapters
from covrag_lite.engine.loss import token_losses
from covrag_lite.engine.offload import Offload
from covrag_lite.engine.prepare import unpack_linears
from covrag_lite.engine.trainee import Trainee
from covrag_lite.engine.training import Shape
from covrag_lite.engine.varlen_attention import ATTENTION
from covrag_lite.engine.varlen_prefill import KNOWN, is_known


def load(model: LocalEngine, settings: Training, shape: Shape) -> Trainee:
    """The model's network with a fresh adapter; what cannot fit is refused."""
    execution = choose_execution(settings.execution, model.device)
    network = model.read_anew()
    unpack = memory.check(network, settings, shape, model.device)
    if not is_known(network):
        why = f"they are not those of {' or '.join(KNOWN)}"
        report_fallback(model.used, "layers are trained by peft", why, "this takes longer and more memory")
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
    compiled, known = "compiled" in execution, is_known(network)
    functions, offload, numbers = training_functions(compiled), Offload(), count()
    for layer in network.get_decoder().layers:
        layer.gradient_checkpointing = settings.activations != layers.KEEP and not known
        if known:
            block = layers.Block(layer, functions, settings.activations, offload, next(numbers))
            layer.forward = partial(layers.forward, block)
        elif compiled:
            layer.compile(dynamic=False)
    return Trainee(adapted.train(), partial(token_losses, network), settings, network.dtype, execution)
