"""A network in training: its adapter, the optimizer of it, and the checkpoints that a killed run goes on from.

The fast way has our own layers, packed rows, and passes recorded as CUDA graphs. The plain one has transformers' and
peft's, for any architecture.
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

Row = dict[str, torch.Tensor | int]  # packed samples, as `qlora.lay_out` makes it
OfRow = Callable[[Row], torch.Tensor]  # each target token's loss; or, of forward and backward, each task's


class Trainee:
    """A network with an adapter, and the optimizer of it."""

    def __init__(
        self, adapted: PeftModel, losses: OfRow, settings: Training, dtype: torch.dtype, execution: str = "eager"
    ):
        self.adapted = adapted
        self.losses = losses  # each target token's, from which autograd goes back to the adapter
        self.settings = settings
        self.execution = execution
        self.one_shape = execution != "eager"  # graphs and compiled layers take rows of one shape alone
        self.master = Master(adapted, dtype, settings.activations == layers.OFFLOAD)
        self.scale = LossScale(adapted.get_base_model().dtype, self.master.grad.device)
        self.tensors = {**self.master.tensors, "scale": self.scale.state}  # what the next step depends on

    def token_losses(self, row: Row) -> torch.Tensor:
        """Each target token's loss: (targets)."""
        return self.scale.enlarge(self.losses(row))

    def record(self, learn: OfRow) -> OfRow:
        """The same function of a row, from its first call on replayed as a graph where passes run so."""
        if "graph" not in self.execution:
            return learn
        held, recorded = {}, []

        def replay(row: Row) -> torch.Tensor:
            if not recorded:
                held.update({name: x.clone() if isinstance(x, torch.Tensor) else x for name, x in row.items()})
                recorded.extend(record_graph(partial(learn, held), warmups=2))
                self.master.copy_grad.zero_()  # of the warm-up
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
        """Follow the step's gradient, shortened to `clip` if it is longer."""
        if self.scale.shrink(self.master.grad):
            self.master.step(lr, clip)
        self.master.grad.zero_()

    def restore(self, out: Path, samples: Sequence[Sample], fingerprint: str) -> list[dict]:
        """Go back to the checkpoint in `out`, if there is one, and return the rows of its steps.

        The order of samples and the learning rate follow from the step's number, and nothing else is random.
        """
        told = asdict(self.settings)
        del told["adapters_out"]  # changes nothing of what is learnt
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
        self.master.n_steps = len(rows) - int(self.scale.state[2])  # without those that overflowed
        self.master.publish()
        return rows

    def save(self, out: Path, rows: list[dict]) -> None:
        """Write the losses for the reader and, in one move, everything the next step depends on."""
        out.mkdir(parents=True, exist_ok=True)
        pd.DataFrame(rows).to_csv(out / "losses.csv", index=False)
        new = out / "checkpoint.new"
        save_file(self.tensors, new, metadata={"key": self.key, "rows": json.dumps(rows)})
        new.replace(out / "checkpoint.safetensors")

    def save_adapter(self, out: Path, base: str) -> None:
        """Write the adapter as peft loads it, with the name of its model, not with a path on this machine."""
        settings = self.adapted.peft_config["default"]
        settings.base_model_name_or_path = base
        settings.inference_mode = True
        settings.save_pretrained(out)
        weights = get_peft_model_state_dict(self.adapted, save_embedding_layers=False)
        contiguous = {name: weight.contiguous() for name, weight in weights.items()}
        save_file(contiguous, out / "adapter_model.safetensors", metadata={"format": "pt"})


def load(network: PreTrainedModel, settings: Training, shape: Shape, device: str, used: Counter) -> Trainee:
    """The network with a fresh adapter; what cannot fit is refused."""
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
    """The network with a fresh adapter and our layers, ready for packed rows."""
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
    """The network with a fresh adapter, which peft computes in fp32."""
    adapted = add_adapters(network, settings).train()
    if settings.activations != layers.KEEP:
        network.gradient_checkpointing_enable({"use_reentrant": False})
        network.enable_input_require_grads()
    return Trainee(adapted, partial(losses_one_by_one, adapted), settings, torch.float32)


def losses_one_by_one(adapted: PeftModel, row: Row) -> torch.Tensor:
    """Each target token's loss, by samples that go through the network one after another: (targets)."""
    logits = []
    for start, end in pairwise(row["ends"].tolist()):
        made = adapted(input_ids=row["input_ids"][:, start:end], use_cache=False)
        logits.append(made.logits[0])  # (tokens, vocabulary)
    wanted = torch.cat(logits)[row["where"]].float()
    return torch.nn.functional.cross_entropy(wanted, row["labels"], reduction="none")
