"""The choice of device, number type and execution; torch is imported only if a GPU is possible."""

import importlib.util
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# Under /dev: NVIDIA (also on its embedded boards), WSL, AMD.
DRIVERS = ("nvidia*", "nvhost*", "dxg", "kfd")
EXECUTIONS = ("auto", "eager", "graph", "compiled", "compiled+graph")


def choose_execution(execution: str, device: str) -> str:
    """Choose how passes run.

    Graphs need CUDA; compiling needs triton, which comes with torch on Linux.
    """
    if execution not in EXECUTIONS:
        raise ValueError(f"execution {execution!r} is not known; use one of {', '.join(EXECUTIONS)}")
    if "graph" in execution and device != "cuda":
        raise ValueError(f"execution {execution!r} needs CUDA; use 'eager' on this machine")
    if execution != "auto":
        return execution
    if device != "cuda" or not has_bf16():
        return "eager"
    return "compiled+graph" if importlib.util.find_spec("triton") else "graph"


@cache
def has_bf16() -> bool:
    """Has the GPU bf16 and the flash kernel? NVIDIA cards do from 2020 on; T4 and RTX 20 do not."""
    import torch

    return not torch.cuda.is_available() or torch.cuda.get_device_capability() >= (8, 0)


def number_type(device: str) -> "torch.dtype":
    """Return the type to compute in: fp32 on a CPU; on a GPU bf16, or fp16 if it has no bf16."""
    import torch

    return torch.float32 if device == "cpu" else torch.bfloat16 if has_bf16() else torch.float16


def find_device() -> str:
    """Return "cuda" or "cpu"; without a GPU driver, torch is not imported to find out."""
    if not any(list(Path("/dev").glob(pattern)) for pattern in DRIVERS):
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
