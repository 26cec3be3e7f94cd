"""Where and how passes run: what "auto" means on a machine for the parameters `device` and `execution`."""

import importlib.util
from pathlib import Path

DRIVERS = ("nvidia*", "nvhost*", "dxg", "kfd")  # under /dev: NVIDIA's, on its boards too, that of WSL, AMD's
# How "auto" lets answering read prompts on CUDA: "padded", "packed", or "compiled", which is packed by compiled steps.
READING = "padded"
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
    """How answering runs: "compiled" and "packed" are how it reads (`packed`), "graph" how it steps (`stepping`)."""
    chosen = choose_execution(execution, device)
    if execution != "auto" or device != "cuda":
        return chosen
    if READING == "compiled" and "compiled" in chosen:
        return chosen
    return "graph" if READING == "padded" else "packed+graph"


def find_device() -> str:
    """CUDA where there is one. Without a GPU's driver there is none, and torch need not be imported to know it."""
    if not any(list(Path("/dev").glob(pattern)) for pattern in DRIVERS):
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
