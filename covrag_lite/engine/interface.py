"""The protocols of all engines: what a model can do, and what a model in training can do.

An `Engine` completes prompts and fills a schema. A `Trainable` engine can also train an adapter.
All other code uses only the calls defined here:

    engine = load_engine(Model("smollm2-135m"))
    engine.with_adapter("rag").complete(["Who wrote Emma?"], max_tokens=24)[0].text
"""

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypedDict

from covrag_lite.config import Model, Training
from covrag_lite.prompts import Schema
from covrag_lite.records import Sample

if TYPE_CHECKING:
    import torch


class Completion(NamedTuple):
    """A text written by a model, with the probabilities that the engine knows."""

    text: str
    # {"likelihood": ...} for free text; the expected scores for a verdict
    probabilities: dict[str, float] | None = None


class Engine(Protocol):
    """A language model, with or without an adapter."""

    settings: Model
    device: str  # "cpu", "cuda" or "endpoint"
    at_once: int  # how many batches may run at the same time
    adapter: Path | None  # the folder of the active adapter
    weights: Path | None  # a folder of safetensors or a GGUF file; None if not on this machine
    # Requests, prompt_tokens and completion_tokens so far, over all adapters; fallbacks, if any.
    used: Counter

    @property
    def weights_hash(self) -> str:
        """Return the hash of the base model's weights."""

    @property
    def fingerprint(self) -> str:
        """Return a hash of all weights, adapter included.

        A text depends only on this, its prompt and the settings.
        """

    def with_adapter(self, name: str) -> "Engine":
        """Return the same base model with the adapter of that name; "" means no adapter."""

    def batches(self, prompts: Sequence[str], room: int) -> list[list[str]]:
        """Split the prompts into batches that leave `room` tokens for each text."""

    def complete(
        self, prompts: Sequence[str], max_tokens: int, sample: int | None = None
    ) -> list[Completion]:
        """Complete one batch greedily, or by sampling if `sample` is a number.

        The same number gives the same texts.
        """

    def fill(
        self, prompts: Sequence[str], schema: Schema | None, max_tokens: int
    ) -> list[Completion]:
        """Write a verdict for each prompt of one batch.

        With a schema, the model fills only its slots; with None, it writes freely.

        A revised question has at most `max_tokens` tokens.
        """

    def count_tokens(
        self, prompts: Sequence[str], texts: Sequence[str]
    ) -> list[tuple[float, float]]:
        """Return the tokens read and written for each text; NaN if only the server knows."""


# Training. `qlora` packs samples into rows and runs the loop; the engine computes.


class PackedRow(TypedDict):
    """Several samples in one row of tensors, built by `qlora.lay_out`."""

    input_ids: "torch.Tensor"  # (1, tokens)
    position_ids: "torch.Tensor"  # (1, tokens)
    sequence_ends: "torch.Tensor"  # (sequences + 1): 0, then the end of each sequence
    longest_sequence: int  # its number of tokens
    target_positions: "torch.Tensor"  # (targets): each is the position before its target
    labels: "torch.Tensor"  # (targets)
    tasks: "torch.Tensor"  # (targets): indices in `qlora.TASKS`; -1 is padding
    weights: "torch.Tensor"  # (targets): of each target in the loss of its task


# Learns from one row; returns the loss of each task and the sum of its token weights: (2, tasks).
Learn = Callable[[PackedRow], "torch.Tensor"]


@dataclass(frozen=True)
class RowShape:
    """The sizes that rows are padded to if all need the same shape, as CUDA graphs do."""

    tokens: int
    sequences: int
    targets: int
    longest: int  # number of tokens of the longest sequence


class Trainee(Protocol):
    """A network in training, with its new adapter and its optimizer."""

    one_shape: bool  # must all rows have the same shape?

    def token_losses(self, row: PackedRow) -> "torch.Tensor":
        """Return the loss of each target token: (targets)."""

    def capture(self, learn: Learn) -> Learn:
        """Return the same function; on CUDA its first call may be captured as a CUDA graph."""

    def accumulate(self) -> None:
        """Add the gradients of one row to those of the step."""

    def update(self, lr: float, clip: float) -> None:
        """Apply the step's gradient, clipped to the norm `clip`, and forget it."""

    def restore(self, out: Path, samples: Sequence[Sample], fingerprint: str) -> list[dict]:
        """Load the checkpoint in `out`, if there is one, and return the rows of its steps."""

    def save(self, out: Path, rows: list[dict]) -> None:
        """Write the losses and a checkpoint, so that a stopped run can resume."""

    def save_adapter(self, out: Path, base: str) -> None:
        """Write the adapter for peft, with the name of its base model."""


class Trainable(Protocol):
    """An engine that can train an adapter."""

    settings: Model
    device: str

    @property
    def fingerprint(self) -> str:
        """Return a hash of all weights."""

    def prompt_ids(self, prompt: str) -> Sequence[int]:
        """Tokenise a prompt as in inference."""

    def target_ids(self, part: str) -> Sequence[int]:
        """Tokenise a part of a target as it is decoded."""

    @property
    def end_id(self) -> int:
        """Return the token that ends a text."""

    def prepare_training(
        self, settings: Training, shape: RowShape
    ) -> AbstractContextManager[Trainee]:
        """Load the network with a new adapter; the `with` block's end discards it."""


def report_fallback(
    used: Counter,
    way: str,
    why: Exception | str,
    effect: str = "this takes longer and gives the same texts",
) -> None:
    """Count that an engine uses a slower or weaker method, and warn the first time."""
    name = f"fallback: {way}"
    used[name] += 1
    if used[name] == 1:
        reason = str(why).splitlines()[0] if str(why) else type(why).__name__
        warnings.warn(f"{way}, because {reason}; {effect}", stacklevel=3)
