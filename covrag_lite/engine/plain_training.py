"""A network in training, the plain way: peft's layers and transformers' attention, for every architecture.

It is what the fast way is compared with. Samples of a row go through the network one after another.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import torch
from transformers import PreTrainedModel

from covrag_lite.config import Training
from covrag_lite.engine import checkpoint
from covrag_lite.engine.local import LocalEngine
from covrag_lite.engine.lora import add_adapters
from covrag_lite.engine.loss import LossScale
from covrag_lite.engine.trainee import MOMENTS
from covrag_lite.engine.training import Learn, Row, Shape
from covrag_lite.records import Sample


@contextmanager
def load(model: LocalEngine, settings: Training, shape: Shape) -> Iterator["PlainTrainee"]:
    """The model's network with fresh adapters, read anew and forgotten afterwards."""
    try:
        yield PlainTrainee(model.read_anew(), settings)
    finally:
        model.loaded.forget()


class PlainTrainee:
    """A network with peft's adapters and torch's AdamW."""

    one_shape = False

    def __init__(self, network: PreTrainedModel, settings: Training):
        self.settings = settings
        self.adapted = add_adapters(network, settings).train()
        if settings.activations != "keep":
            network.gradient_checkpointing_enable({"use_reentrant": False})
            network.enable_input_require_grads()
        self.trained = [p for p in self.adapted.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self.trained, lr=settings.learning_rate, weight_decay=0.0)
        self.scale = LossScale(network.dtype, self.trained[0].device)

    def token_losses(self, row: Row) -> torch.Tensor:
        """Each target token's loss: (targets)."""
        logits = []
        for start, end in pairwise(row["ends"].tolist()):
            made = self.adapted(input_ids=row["input_ids"][:, start:end], use_cache=False)
            logits.append(made.logits[0])  # (tokens, vocabulary)
        wanted = torch.cat(logits)[row["where"]].float()
        return self.scale.enlarge(torch.nn.functional.cross_entropy(wanted, row["labels"], reduction="none"))

    def record(self, learn: Learn) -> Learn:
        """The function as it is."""
        return learn

    def collect(self) -> None:
        """Nothing: torch adds up the gradients of a step's passes by itself."""

    def add_up_workers(self) -> None:
        """Sum the gradients of all workers."""
        for weights in self.trained:
            torch.distributed.all_reduce(weights.grad)

    def update(self, lr: float, clip: float) -> None:
        """Follow the step's gradient, shortened to `clip` if it is longer."""
        if self.scale.shrink([weights.grad for weights in self.trained]):
            torch.nn.utils.clip_grad_norm_(self.trained, clip)
            self.optimizer.param_groups[0]["lr"] = lr
            self.optimizer.step()
        self.optimizer.zero_grad()

    def restore(self, out: Path, samples: Sequence[Sample], fingerprint: str) -> list[dict]:
        """Go back to the checkpoint in `out`, if there is one, and return the rows of its steps."""
        self.key = "plain " + checkpoint.run_key(self.settings, samples, fingerprint)
        rows, kept = checkpoint.restore(out, self.key, self.trained[0].device)
        self.scale.state.copy_(kept.get("scale", self.scale.state))
        for i, weights in enumerate(self.trained if rows else []):
            weights.data.copy_(kept[f"weights {i}"])
            state = {"step": len(rows) - self.scale.state[2].cpu()}
            self.optimizer.state[weights] = state | {name: kept[f"{name} {i}"] for name in MOMENTS}
        return rows

    def save(self, out: Path, rows: list[dict]) -> None:
        """Write the losses and a checkpoint."""
        kept = {"scale": self.scale.state}
        for i, weights in enumerate(self.trained):
            kept[f"weights {i}"] = weights.detach()
            kept |= {f"{name} {i}": self.optimizer.state[weights][name] for name in MOMENTS}
        checkpoint.save(out, self.key, rows, kept)

    def save_adapter(self, out: Path, base: str) -> None:
        """Write the adapter of the model with that name."""
        checkpoint.save_adapter(out, self.adapted, base)
