"""What a network in training can do, and which engine trains a model."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol

import torch

from covrag_lite.config import Config
from covrag_lite.engine.local import LocalEngine
from covrag_lite.records import Sample

# The beginning of a model's name -> the module whose `load` trains it; any other is trained the fast way.
TRAINEES = {"plain:": "covrag_lite.engine.plain_training", "": "covrag_lite.engine.trainee"}

Row = dict[str, torch.Tensor | int]  # packed samples, as `qlora.lay_out` makes it
Learn = Callable[[Row], torch.Tensor]  # forward and backward over a row


@dataclass(frozen=True)
class Shape:
    """What rows are padded to where all must look alike (CUDA graphs, compiled layers)."""

    tokens: int
    sequences: int
    targets: int
    longest: int


class Trainee(Protocol):
    """A network with a fresh adapter, and the optimizer of it."""

    one_shape: bool  # whether all rows must be padded to one shape

    def token_losses(self, row: Row) -> torch.Tensor:
        """Each target token's loss, (targets), from which autograd goes back to the adapter."""

    def record(self, learn: Learn) -> Learn:
        """The same function of a row, or a faster one."""

    def collect(self) -> None:
        """Add the gradients of one row to those of the step."""

    def add_up_workers(self) -> None:
        """Sum the gradients of all workers."""

    def update(self, lr: float, clip: float) -> None:
        """Follow the step's gradient, shortened to `clip` if it is longer."""

    def restore(self, out: Path, samples: Sequence[Sample], fingerprint: str) -> list[dict]:
        """Go back to the checkpoint in `out`, if there is one, and return the rows of its steps."""

    def save(self, out: Path, rows: list[dict]) -> None:
        """Write the losses and a checkpoint."""

    def save_adapter(self, out: Path, base: str) -> None:
        """Write the adapter of the model with that name, in peft's format."""


def load_trainee(config: Config, model: LocalEngine, shape: Shape) -> AbstractContextManager[Trainee]:
    """The model's network with a fresh adapter, for as long as it is trained."""
    module = next(TRAINEES[prefix] for prefix in TRAINEES if config.model.model.startswith(prefix))
    return import_module(module).load(model, config.training, shape)
