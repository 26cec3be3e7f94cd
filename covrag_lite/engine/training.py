"""What a network in training learns from, and which engine trains a model."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

import torch

from covrag_lite.config import Config
from covrag_lite.engine.local import LocalEngine

if TYPE_CHECKING:
    from covrag_lite.engine.trainee import Trainee

# The beginning of a model's name -> the module whose `load` trains it; any other is trained the fast way.
TRAINEES = {"plain:": "covrag_lite.engine.plain_training", "": "covrag_lite.engine.fast_training"}

Row = dict[str, torch.Tensor | int]  # packed samples, as `qlora.lay_out` makes it
Learn = Callable[[Row], torch.Tensor]  # forward and backward over a row


@dataclass(frozen=True)
class Shape:
    """What rows are padded to where all must look alike (CUDA graphs, compiled layers)."""

    tokens: int
    sequences: int
    targets: int
    longest: int


@contextmanager
def load_trainee(config: Config, model: LocalEngine, shape: Shape) -> Iterator["Trainee"]:
    """The model's network, read anew, with a fresh adapter; it is forgotten afterwards."""
    module = next(TRAINEES[prefix] for prefix in TRAINEES if config.model.model.startswith(prefix))
    try:
        yield import_module(module).load(model, config.training, shape)
    finally:
        model.loaded.forget()
