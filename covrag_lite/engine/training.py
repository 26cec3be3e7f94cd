"""A network in training: its adapter, the optimizer, and the checkpoints for resuming a killed run.

The fast method uses our own layers, packed rows, and passes recorded as CUDA graphs. The plain one
uses those of transformers and peft, for any architecture.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from itertools import count, pairwise
from pathlib import Path

import pandas as pd
import torch
from peft import PeftModel, get_peft_model_state_dict
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import PreTrainedModel

from covrag_lite.config import Training
from covrag_lite.engine import layers, memory
from covrag_lite.engine.cuda_graphs import record_graph
from covrag_lite.engine.devices import choose_execution
from covrag_lite.engine.elementwise import training_functions
from covrag_lite.engine.interface import Shape, report_fallback
from covrag_lite.engine.lora import Master, add_adapters
from covrag_lite.engine.loss import LossScale, token_losses
from covrag_lite.engine.offload import Offload
from covrag_lite.engine.prepare import unpack_linears
from covrag_lite.engine.varlen_prefill import KNOWN, is_known
from covrag_lite.journal import key_of
from covrag_lite.records import Sample, digest

Row = dict[str, torch.Tensor | int]  # packed samples, as built by `qlora.lay_out`
OfRow = Callable[[Row], torch.Tensor]  # the loss of each target token; after a pass, of each task


class Trainee:
    """A network with an adapter and its optimizer."""

    def __init__(
        self, adapted: PeftModel, losses: OfRow, settings: Training, dtype: torch.dtype, execution: str = "eager"
    ):
        self.adapted = adapted
        self.losses = losses  # of each target token; autograd continues from there to the adapter
        self.settings = settings
        self.execution = execution
        self.one_shape = execution != "eager"  # graphs and compiled layers need rows of one shape
        self.master = Master(adapted, dtype, settings.activations == layers.OFFLOAD)
        self.scale = LossScale(adapted.get_base_model().dtype, self.master.grad.device)
        # Everything that the next step depends on.
        self.tensors = {**self.master.tensors, "scale": self.scale.state}

    def token_losses(self, row: Row) -> torch.Tensor:
        """Return the loss of each target token: (targets)."""
        return self.scale.enlarge(self.losses(row))

    def record(self, learn: OfRow) -> OfRow:
        """Return the same function; with graphs, its first call is recorded and then replayed."""
        if "graph" not in self.execution:
            return learn
        held, recorded = {}, []

        def replay(row: Row) -> torch.Tensor:
            if not recorded:
                held.update({name: x.clone() if isinstance(x, torch.Tensor) else x for name, x in row.items()})
                recorded.extend(record_graph(partial(learn, held), warmups=2))
                self.master.copy_grad.zero_()  # left over from the warm-up
            for name, value in row.items():
                if isinstance(value, torch.Tensor):
                    held[name].copy_(value, non_blocking=True)
            graph, made = recorded
            graph.replay()
            return made.clone()

        return replay

    def collect(self) -> None:
        """Add the gradients of one row to those of the step."""
        self.master.collect()

    def update(self, lr: float, clip: float) -> None:
        """Apply the step's gradient, clipped to the length `clip`."""
        if self.scale.shrink(self.master.grad):
            self.master.step(lr, clip)
        self.master.grad.zero_()

    def restore(self, out: Path, samples: Sequence[Sample], fingerprint: str) -> list[dict]:
        """Load the checkpoint in `out`, if there is one, and return the rows of its steps.

        The order of samples and the learning rate follow from the step's number. Nothing else is
        random.
        """
        told = asdict(self.settings)
        del told["adapters_out"]  # does not affect training
        self.key = key_of(settings=told, samples=digest(samples), weights=fingerprint)
        path, rows = out / "checkpoint.safetensors", []
        if path.exists():
            with safe_open(path, "pt") as file:
                if file.metadata()["key"] != self.key:
                    raise ValueError(
                        f"{path} belongs to a run with other settings, samples or weights; "
                        f"choose another folder or delete this one"
                    )
                for name in file.keys():
                    self.tensors[name].copy_(file.get_tensor(name))
                rows = json.loads(file.metadata()["rows"])
        # Without the steps that overflowed.
        self.master.n_steps = len(rows) - int(self.scale.state[2])
        self.master.publish()
        return rows

    def save(self, out: Path, rows: list[dict]) -> None:
        """Write the losses, and then the checkpoint in one move, so that it is never incomplete."""
        out.mkdir(parents=True, exist_ok=True)
        pd.DataFrame(rows).to_csv(out / "losses.csv", index=False)
        new = out / "checkpoint.new"
        save_file(self.tensors, new, metadata={"key": self.key, "rows": json.dumps(rows)})
        new.replace(out / "checkpoint.safetensors")

    def save_adapter(self, out: Path, base: str) -> None:
        """Write the adapter for peft, with the name of its base model and no local path."""
        settings = self.adapted.peft_config["default"]
        settings.base_model_name_or_path = base
        settings.inference_mode = True
        settings.save_pretrained(out)
        weights = get_peft_model_state_dict(self.adapted, save_embedding_layers=False)
        contiguous = {name: weight.contiguous() for name, weight in weights.items()}
        save_file(contiguous, out / "adapter_model.safetensors", metadata={"format": "pt"})


def load(network: PreTrainedModel, settings: Training, shape: Shape, device: str, used: Counter) -> Trainee:
    """Prepare the network with a new adapter; an error if it cannot fit into memory."""
    if settings.activations not in layers.ACTIVATIONS:
        known = ", ".join(layers.ACTIVATIONS)
        raise ValueError(f"activations {settings.activations!r} is not known; use one of {known}")
    execution = choose_execution(settings.execution, device)
    if not is_known(network):
        why = f"its layers are not those of {' or '.join(KNOWN)}"
        report_fallback(used, "the network is trained the plain way", why, "this takes longer and more memory")
        return build_plain(network, settings)
    return build(network, settings, execution, memory.check(network, settings, shape, device))


def build(network: PreTrainedModel, settings: Training, execution: str, unpack: bool) -> Trainee:
    """Prepare the network with a new adapter and our layers, for packed rows."""
    if unpack:
        unpack_linears(network)
    adapted = add_adapters(network, settings)
    network.enable_input_require_grads()
    functions, offload, numbers = training_functions("compiled" in execution), Offload(), count()
    for layer in network.get_decoder().layers:
        block = layers.Block(layer, functions, settings.activations, offload, next(numbers))
        layer.forward = partial(layers.forward, block)
    return Trainee(adapted.train(), partial(token_losses, network), settings, network.dtype, execution)


def build_plain(network: PreTrainedModel, settings: Training) -> Trainee:
    """Prepare the network with a new adapter, which peft computes in fp32."""
    adapted = add_adapters(network, settings).train()
    if settings.activations != layers.KEEP:
        network.gradient_checkpointing_enable({"use_reentrant": False})
        network.enable_input_require_grads()
    return Trainee(adapted, partial(losses_one_by_one, adapted), settings, torch.float32)


def losses_one_by_one(adapted: PeftModel, row: Row) -> torch.Tensor:
    """Return the loss of each target token, (targets), one sample after another."""
    logits = []
    for start, end in pairwise(row["ends"].tolist()):
        made = adapted(input_ids=row["input_ids"][:, start:end], use_cache=False)
        logits.append(made.logits[0])  # (tokens, vocabulary)
    wanted = torch.cat(logits)[row["where"]].float()
    return torch.nn.functional.cross_entropy(wanted, row["labels"], reduction="none")
