"""Engines run a language model and train its adapters; the model's name decides which one is used.

`interface` defines what an engine can do, and `plain` is the engine to read: it uses only
transformers and peft. `fast` gives the same results in less time, and `endpoint` uses a server.
What `plain` and `fast` share is next to them: `backbone`, `vocabulary`, `network`, `sampling`,
`slots` and `batch`, and for training `trainee`, `lora` and `loss_scale`. `task_model` is a model
with a journal.
"""

import logging

from covrag_lite.config import Model
from covrag_lite.engine.interface import Engine
from covrag_lite.loader import need, plugins
from covrag_lite.prompts import LAYOUTS

# How a model's name begins -> the module whose `load` builds its engine.
ENGINES = {
    "endpoint:": "covrag_lite.engine.endpoint",
    "plain:": "covrag_lite.engine.plain",
    "": "covrag_lite.engine.fast.local",  # any other name is a model on this machine
}
QUANTIZE = ("nf4", "none")
VERDICTS = ("forced", "free")

# On CPUs with AVX-512 BF16, bitsandbytes warns that a kernel is missing that we do not need. peft
# imports bitsandbytes, so the warning is turned off before any module of this package is imported.
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)


def load_engine(settings: Model, execution: str = "auto") -> Engine:
    """Build the engine for a model's name; the weights are read at the first prompt."""
    check_value("quantize", settings.quantize, QUANTIZE)
    check_value("verdicts", settings.verdicts, VERDICTS)
    check_value("layout", settings.layout, LAYOUTS)
    engines = {**plugins("engine"), **ENGINES}
    beginnings = [name for name in engines if settings.model.startswith(name)]
    longest = max(beginnings, key=len)
    return need(engines[longest]).load(settings, execution)


def check_value(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Refuse a value that this parameter cannot have."""
    if value not in allowed:
        raise ValueError(f"{name} {value!r} is not known; use one of {', '.join(allowed)}")
