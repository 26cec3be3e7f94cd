"""Training the fast way: our own layers, packed rows, and passes recorded as CUDA graphs."""

from collections import Counter
from functools import partial

import torch
from transformers import PreTrainedModel

from covrag_lite.config import Training
from covrag_lite.engine.devices import choose_execution
from covrag_lite.engine.fast import layers
from covrag_lite.engine.fast.cuda_graphs import record_graph
from covrag_lite.engine.fast.elementwise import training_functions
from covrag_lite.engine.fast.loss import token_losses
from covrag_lite.engine.fast.memory import report_training_memory
from covrag_lite.engine.fast.offload import Offload
from covrag_lite.engine.fast.unpacking import unpack_linears
from covrag_lite.engine.fast.varlen_prefill import FAMILIES, has_known_layers
from covrag_lite.engine.interface import Learn, PackedRow, RowShape, report_fallback
from covrag_lite.engine.lora import add_adapters
from covrag_lite.engine.plain_training import build_plain_trainee
from covrag_lite.engine.trainee import AdapterTrainee, check_activations


def build_fitting_trainee(
    network: PreTrainedModel, settings: Training, shape: RowShape, device: str, used: Counter
) -> AdapterTrainee:
    """Prepare the network with a new adapter; an error if it cannot fit into memory."""
    check_activations(settings)
    execution = choose_execution(settings.execution, device)
    if not has_known_layers(network):
        report_fallback(
            used,
            "the network is trained the plain way",
            f"its layers are not those of {' or '.join(FAMILIES)}",
            "this takes longer and more memory",
        )
        return build_plain_trainee(network, settings)
    can_unpack = report_training_memory(network, settings, shape, device)
    return build_trainee(network, settings, execution, can_unpack)


def build_trainee(
    network: PreTrainedModel, settings: Training, execution: str, unpack: bool
) -> AdapterTrainee:
    """Prepare the network with a new adapter and our layers, for packed rows."""
    if unpack:
        unpack_linears(network)
    adapted = add_adapters(network, settings)
    network.enable_input_require_grads()
    functions = training_functions("compiled" in execution)
    offload = Offload()
    for number, layer in enumerate(network.get_decoder().layers):
        block = layers.Block(layer, functions, settings.activations, offload, number)
        layer.forward = partial(layers.forward, block)
    return AdapterTrainee(
        adapted.train(),
        partial(token_losses, network),
        settings,
        network.dtype,
        one_shape=execution != "eager",  # graphs and compiled layers need rows of one shape
        record=RecordedLearning if "graph" in execution else None,
    )


class RecordedLearning:
    """Learns from rows of one shape: the first call is recorded as a CUDA graph, then replayed.

    `grad` is where `learn` adds its gradients.
    """

    def __init__(self, learn: Learn, grad: torch.Tensor):
        self.learn = learn
        self.grad = grad
        self.row: PackedRow = {}  # the row that the graph reads
        self.graph: torch.cuda.CUDAGraph | None = None
        self.result: torch.Tensor | None = None  # each replay overwrites it

    def __call__(self, row: PackedRow) -> torch.Tensor:
        if self.graph is None:
            self.record(row)
        for name, value in row.items():
            if isinstance(value, torch.Tensor):
                self.row[name].copy_(value, non_blocking=True)
        self.graph.replay()
        return self.result.clone()

    def record(self, row: PackedRow) -> None:
        """Record what is learned from a row of this shape."""
        for name, value in row.items():
            self.row[name] = value.clone() if isinstance(value, torch.Tensor) else value
        self.graph, self.result = record_graph(partial(self.learn, self.row), warmups=2)
        self.grad.zero_()  # left over from the warm-up
