"""The protocol of all engines, and the choice of an engine by the model's name.

An engine completes prompts and fills a schema. All other code uses only the calls defined here:

    engine = load_engine(Model("smollm2-135m"))
    engine.with_adapter("rag").complete(["Who wrote Emma?"], max_tokens=24)[0].text
"""

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from covrag_lite.config import Model, need
from covrag_lite.prompts import LAYOUTS

# Prefix of a model's name -> the module whose `load` builds its engine. Any other name is a model
# on this machine.
ENGINES = {"endpoint:": "covrag_lite.engine.endpoint", "plain:": "covrag_lite.engine.plain"}
LOCAL = "covrag_lite.engine.local"
QUANTIZE = ("nf4", "int8", "none")
VERDICTS = ("forced", "free")

# Fixed texts, and slots as (kind, name); see `prompts.SCHEMA`.
Schema = Sequence[str | tuple[str, str]]


class Completion(NamedTuple):
    """A text written by a model, with the probabilities that the engine knows."""

    text: str
    # {"likelihood": ...} for free text; the expected scores for a verdict
    probabilities: dict[str, float] | None = None


@dataclass(frozen=True)
class Shape:
    """The sizes that rows of samples are padded to where all need the same shape.

    CUDA graphs and compiled layers need this.
    """

    tokens: int
    sequences: int
    targets: int
    longest: int


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

    def complete(self, prompts: Sequence[str], max_tokens: int, sample: int | None = None) -> list[Completion]:
        """Complete one batch greedily, or by sampling if `sample` is a number.

        The same number gives the same texts.
        """

    def fill(self, prompts: Sequence[str], schema: Schema | None, max_tokens: int) -> list[Completion]:
        """Complete one batch to verdicts of this schema; without one, as the model writes them.

        A revised question has at most `max_tokens` tokens.
        """

    def count_tokens(self, prompts: Sequence[str], texts: Sequence[str]) -> list[tuple[float, float]]:
        """Return the tokens read and written for each text; NaN if only the server knows."""


def report_fallback(
    used: Counter, way: str, why: Exception | str, effect: str = "this takes longer and gives the same texts"
) -> None:
    """Count that an engine uses a slower or weaker method, and warn the first time."""
    name = f"fallback: {way}"
    used[name] += 1
    if used[name] == 1:
        said = str(why).splitlines()[0] if str(why) else type(why).__name__
        warnings.warn(f"{way}, because {said}; {effect}", stacklevel=3)


def load_engine(settings: Model, execution: str = "auto") -> Engine:
    """Build the engine for a model's name; the weights are read at the first prompt."""
    for name, allowed in (("quantize", QUANTIZE), ("verdicts", VERDICTS), ("layout", LAYOUTS)):
        value = getattr(settings, name)
        if value not in allowed:
            raise ValueError(f"{name} {value!r} is not known; use one of {', '.join(allowed)}")
    prefix = next((prefix for prefix in ENGINES if settings.model.startswith(prefix)), "")
    return need(ENGINES.get(prefix, LOCAL)).load(settings, execution)
