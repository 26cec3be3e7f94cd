"""Where and how passes run: what "auto" means on a machine for the parameters `device` and `execution`."""

import importlib.util
from pathlib import Path

DRIVERS = ("nvidia*", "nvhost*", "dxg", "kfd")  # under /dev: NVIDIA's, on its boards too, that of WSL, AMD's
EXECUTIONS = ("auto", "eager", "graph", "compiled", "compiled+graph")


def choose_execution(execution: str, device: str) -> str:
    """How passes run: recorded graphs exist on CUDA alone, and compiling needs triton, which torch brings on Linux."""
    if execution not in EXECUTIONS:
        raise ValueError(f"execution {execution!r} is not known; use one of {', '.join(EXECUTIONS)}")
    if "graph" in execution and device != "cuda":
        raise ValueError(f"execution {execution!r} needs CUDA; use 'eager' on this machine")
    if execution != "auto":
        return execution
    if device != "cuda":
        return "eager"
    return "compiled+graph" if importlib.util.find_spec("triton") else "graph"


def choose_answering(execution: str, device: str) -> str:
    """How answering runs: "graph" is how it steps (`stepping`), "compiled" or "packed" how its layers compute."""
    chosen = choose_execution(execution, device)
    return "packed+graph" if (execution, chosen) == ("auto", "graph") else chosen


def choose_layers(execution: str) -> str:
    """How layers compute where answering runs so: "compiled" or "packed" (`packed` has both), or "", as they are."""
    return next((way for way in ("compiled", "packed") if way in execution), "")


def find_device() -> str:
    """CUDA where there is one. Without a GPU's driver there is none, and torch need not be imported to know it."""
    if not any(list(Path("/dev").glob(pattern)) for pattern in DRIVERS):
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
