"""A network in training, the fast way: our own layers, packed rows, and passes recorded as CUDA graphs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
from transformers import PreTrainedModel

from covrag_lite.config import Training
from covrag_lite.engine import checkpoint, lora, memory
from covrag_lite.engine.cuda_graphs import record_graph
from covrag_lite.engine.devices import choose_execution
from covrag_lite.engine.interface import report_fallback
from covrag_lite.engine.layers import OFFLOAD
from covrag_lite.engine.local import LocalEngine
from covrag_lite.engine.loss import LossScale, token_losses
from covrag_lite.engine.training import Learn, Row, Shape
from covrag_lite.engine.varlen_prefill import KNOWN, is_known
from covrag_lite.records import Sample

MOMENTS = ("exp_avg", "exp_avg_sq")  # AdamW's running means of the gradient and of its square


@contextmanager
def load(model: LocalEngine, settings: Training, shape: Shape) -> Iterator["Trainee"]:
    """The model's network with fresh adapters, read anew and forgotten afterwards; refuses what cannot fit."""
    execution = choose_execution(settings.execution, model.device)
    network = model.read_anew()
    unpack = memory.check(network, settings, shape, model.device)
    if not all(is_known(layer, network.config) for layer in network.get_decoder().layers):
        why = f"they are not those of {' or '.join(KNOWN)}"
        report_fallback(model.used, "layers are trained by peft", why, "this takes longer and more memory")
    try:
        yield Trainee(network, settings, execution, unpack)
    finally:
        model.loaded.forget()


class Trainee:
    """A network with adapters, their weights in fp32 and their optimizer."""

    def __init__(self, network: PreTrainedModel, settings: Training, execution: str, unpack: bool):
        self.network = network
        self.settings = settings
        self.execution = execution
        self.one_shape = execution != "eager"  # graphs and compiled layers take rows of one shape alone
        self.adapted = lora.attach(network, settings, unpack, "compiled" in execution)
        self.master = lora.Master(self.adapted, network.dtype, settings.activations == OFFLOAD)
        self.optimizer = lora.optimizer_of(self.master, lr=settings.learning_rate, weight_decay=0.0)
        self.scale = LossScale(network.dtype, self.master.grad.device)

    def token_losses(self, row: Row) -> torch.Tensor:
        """Each target token's loss: (targets)."""
        return self.scale.enlarge(token_losses(self.network, row))

    def record(self, learn: Learn) -> Learn:
        """The same function, from its first call on replayed as a graph where passes run so."""
        if "graph" not in self.execution:
            return learn
        recorded = {}

        def replay(row: Row) -> torch.Tensor:
            if not recorded:
                recorded.update(record(self.network, learn, row))
            for name, value in row.items():
                if isinstance(value, torch.Tensor):
                    recorded["row"][name].copy_(value, non_blocking=True)
            recorded["graph"].replay()
            return recorded["made"].clone()

        return replay

    def collect(self) -> None:
        """Add the gradients of one pass to those of the step."""
        self.master.collect()

    def add_up_workers(self) -> None:
        """Sum the gradients of all workers."""
        torch.distributed.all_reduce(self.master.grad)

    def update(self, lr: float, clip: float) -> None:
        """Follow the step's gradient, shortened to `clip` if it is longer."""
        if self.scale.shrink([self.master.grad]):
            self.master.clip(clip)
            self.optimizer.param_groups[0]["lr"] = lr
            self.optimizer.step()
            self.master.publish()
        self.master.grad.zero_()

    def restore(self, out: Path, samples: Sequence[Sample], fingerprint: str) -> list[dict]:
        """Go back to the checkpoint in `out`, if there is one, and return the rows of its steps."""
        self.key = checkpoint.run_key(self.settings, samples, fingerprint)
        weights = self.master.weights
        rows, kept = checkpoint.restore(out, self.key, weights.device)
        if rows:
            weights.data.copy_(kept["weights"])
            self.scale.state.copy_(kept.get("scale", self.scale.state))
            state = {"step": len(rows) - self.scale.state[2]}
            self.optimizer.state[weights] = state | {name: self.master.place(kept[name]) for name in MOMENTS}
            self.master.publish()
        return rows

    def save(self, out: Path, rows: list[dict]) -> None:
        """Write the losses and a checkpoint."""
        state = self.optimizer.state[self.master.weights]
        kept = {"weights": self.master.weights.detach(), "scale": self.scale.state}
        kept |= {name: state[name] for name in MOMENTS}
        checkpoint.save(out, self.key, rows, kept)

    def save_adapter(self, out: Path, base: str) -> None:
        """Write the adapter of the model with that name."""
        checkpoint.save_adapter(out, self.adapted, base)


def record(network: PreTrainedModel, learn: Learn, row: Row) -> dict:
    """One pass over a row as a CUDA graph; the gradients of its warm-up are dropped."""
    row = {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in row.items()}
    grads = [p.grad for p in network.parameters() if p.requires_grad]
    graph, made = record_graph(partial(learn, row), warmups=2)
    torch._foreach_zero_(grads)
    return {"graph": graph, "row": row, "made": made}
