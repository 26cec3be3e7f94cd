"""What every engine can do, and which one a model's name stands for.

An engine writes texts: it completes prompts and fills a schema. Everything above the engines uses these calls alone.
"""

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from covrag_lite.config import Model, need
from covrag_lite.prompts import LAYOUTS

# The beginning of a model's name -> the module whose `load` makes its engine; other names are models on this machine.
ENGINES = {"endpoint:": "covrag_lite.engine.endpoint", "plain:": "covrag_lite.engine.plain"}
LOCAL = "covrag_lite.engine.local"
QUANTIZE = ("nf4", "int8", "none")
VERDICTS = ("forced", "free")

Schema = Sequence[str | tuple[str, str]]  # fixed texts, and slots as (kind, name): `prompts.SCHEMA`


class Completion(NamedTuple):
    """A text that a model wrote, with what the engine knows of its probabilities."""

    text: str
    probabilities: dict[str, float] | None = None  # {"likelihood": …} of free text; expected scores of a verdict


@dataclass(frozen=True)
class Shape:
    """What rows of samples are padded to where all must look alike (CUDA graphs, compiled layers)."""

    tokens: int
    sequences: int
    targets: int
    longest: int


class Engine(Protocol):
    """A model, bare or with an adapter."""

    settings: Model
    device: str  # "cpu", "cuda" or "endpoint"
    at_once: int  # batches that may be under way at once
    adapter: Path | None  # the folder of the adapter that is switched on
    weights: Path | None  # a folder of safetensors or a GGUF file, where it can be seen
    used: Counter  # requests, prompt_tokens and completion_tokens so far, of all adapters; and fallbacks, if any

    @property
    def weights_hash(self) -> str:
        """The hash of the base's weights."""

    @property
    def fingerprint(self) -> str:
        """The same with the adapter's: everything that a text depends on but its prompt and settings."""

    def with_adapter(self, name: str) -> "Engine":
        """The same base with the adapter of that name, or bare for ""."""

    def batches(self, prompts: Sequence[str], room: int) -> list[list[str]]:
        """The prompts in batches that leave `room` tokens for each text."""

    def complete(self, prompts: Sequence[str], max_tokens: int, sample: int | None = None) -> list[Completion]:
        """One batch, completed greedily or, for a number, by chance; the same number gives the same texts."""

    def fill(self, prompts: Sequence[str], schema: Schema | None, max_tokens: int) -> list[Completion]:
        """One batch, completed to verdicts of this schema, or as the model writes them without one.

        A revised question has at most `max_tokens`.
        """

    def count_tokens(self, prompts: Sequence[str], texts: Sequence[str]) -> list[tuple[float, float]]:
        """Tokens read and written for each text; NaN where a server counts its own."""


def report_fallback(
    used: Counter, way: str, why: Exception | str, effect: str = "this takes longer and gives the same texts"
) -> None:
    """Count that an engine goes on by another way than it would take, and say so the first time."""
    name = f"fallback: {way}"
    used[name] += 1
    if used[name] == 1:
        said = str(why).splitlines()[0] if str(why) else type(why).__name__
        warnings.warn(f"{way}, because {said}; {effect}", stacklevel=3)


def load_engine(settings: Model, execution: str = "auto") -> Engine:
    """The engine of a model by its name; weights are read at the first prompt."""
    for name, allowed in (("quantize", QUANTIZE), ("verdicts", VERDICTS), ("layout", LAYOUTS)):
        value = getattr(settings, name)
        if value not in allowed:
            raise ValueError(f"{name} {value!r} is not known; use one of {', '.join(allowed)}")
    prefix = next((prefix for prefix in ENGINES if settings.model.startswith(prefix)), "")
    return need(ENGINES.get(prefix, LOCAL)).load(settings, execution)
