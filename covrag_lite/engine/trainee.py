"""A network in training: its adapter, the optimizer of it, and the checkpoints that a killed run goes on from."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from peft import PeftModel

from covrag_lite.config import Training
from covrag_lite.engine import checkpoint
from covrag_lite.engine.cuda_graphs import record_graph
from covrag_lite.engine.layers import OFFLOAD
from covrag_lite.engine.lora import Master
from covrag_lite.engine.loss import LossScale
from covrag_lite.records import Sample

OfRow = Callable[[dict], torch.Tensor]  # a function of a packed row, which `qlora.lay_out` makes


class Trainee:
    """A network with an adapter, and the optimizer of it."""

    def __init__(
        self,
        adapted: PeftModel,
        losses: OfRow,
        settings: Training,
        dtype: torch.dtype,
        execution: str = "eager",
        way: str = "",
    ):
        self.adapted = adapted
        self.losses = losses  # each target token's, from which autograd goes back to the adapter
        self.settings = settings
        self.execution = execution
        self.way = way  # begins the key of its checkpoints, where they are not those of the fast way
        self.one_shape = execution != "eager"  # graphs and compiled layers take rows of one shape alone
        self.master = Master(adapted, dtype, settings.activations == OFFLOAD)
        self.scale = LossScale(adapted.get_base_model().dtype, self.master.grad.device)
        self.tensors = {**self.master.tensors, "scale": self.scale.state}  # what the next step depends on

    def token_losses(self, row: dict) -> torch.Tensor:
        """Each target token's loss: (targets)."""
        return self.scale.enlarge(self.losses(row))

    def record(self, learn: OfRow) -> OfRow:
        """The same function of a row, from its first call on replayed as a graph where passes run so."""
        if "graph" not in self.execution:
            return learn
        held, recorded = {}, []

        def replay(row: dict) -> torch.Tensor:
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

    def add_up_workers(self) -> None:
        """Sum the gradients of all workers."""
        torch.distributed.all_reduce(self.master.grad)

    def update(self, lr: float, clip: float) -> None:
        """Follow the step's gradient, shortened to `clip` if it is longer."""
        if self.scale.shrink(self.master.grad):
            self.master.step(lr, clip)
        self.master.grad.zero_()

    def restore(self, out: Path, samples: Sequence[Sample], fingerprint: str) -> list[dict]:
        """Go back to the checkpoint in `out`, if there is one, and return the rows of its steps."""
        self.key = self.way + checkpoint.run_key(self.settings, samples, fingerprint)
        rows = checkpoint.restore(out, self.key, self.tensors)
        self.master.n_steps = len(rows) - int(self.scale.state[2])  # without those that overflowed
        self.master.publish()
        return rows

    def save(self, out: Path, rows: list[dict]) -> None:
        """Write the losses and a checkpoint."""
        checkpoint.save(out, self.key, rows, self.tensors)

    def save_adapter(self, out: Path, base: str) -> None:
        """Write the adapter of the model with that name, in peft's format."""
        checkpoint.save_adapter(out, self.adapted, base)
