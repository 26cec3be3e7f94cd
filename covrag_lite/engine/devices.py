"""The device of a run: which one, its number type and execution, and how much memory is free.

Torch is imported only if a GPU is possible.
"""

import importlib.util
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    import torch

DEVICES = ("auto", "cpu", "cuda")
# Under /dev: NVIDIA (also on its embedded boards), WSL, AMD.
DRIVERS = ("nvidia*", "nvhost*", "dxg", "kfd")
EXECUTIONS = ("auto", "eager", "graph", "compiled", "compiled+graph")


def choose_device(device: str) -> str:
    """Return "cpu" or "cuda" for the parameter `device`."""
    if device not in DEVICES:
        raise ValueError(f"device {device!r} is not known; use 'auto', 'cpu' or 'cuda'")
    return find_device() if device == "auto" else device


def find_device() -> str:
    """Return "cuda" or "cpu"; without a GPU driver, torch is not imported to find out."""
    if not any(list(Path("/dev").glob(pattern)) for pattern in DRIVERS):
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def choose_execution(execution: str, device: str) -> str:
    """Choose how passes run.

    Graphs need CUDA; compiling needs triton, which comes with torch on Linux.
    """
    if execution not in EXECUTIONS:
        allowed = ", ".join(EXECUTIONS)
        raise ValueError(f"execution {execution!r} is not known; use one of {allowed}")
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

    if device == "cpu":
        return torch.float32
    return torch.bfloat16 if has_bf16() else torch.float16


def free_memory(device: str) -> int:
    """Return the free bytes: of the GPU, including PyTorch's reserve, or of the machine."""
    if device != "cuda":
        return psutil.virtual_memory().available
    import torch

    free, total = torch.cuda.mem_get_info()
    reserved = torch.cuda.memory_reserved()
    # Less than the total if a cap is set.
    allowed = torch.cuda.get_per_process_memory_fraction() * total
    return int(min(free, allowed - reserved)) + reserved - torch.cuda.memory_allocated()
