"""What the machine computes on, in which numbers, and how; torch is imported only where there may be a GPU."""

import importlib.util
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

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
    if device != "cuda" or not has_bf16():
        return "eager"
    return "compiled+graph" if importlib.util.find_spec("triton") else "graph"


@cache
def has_bf16() -> bool:
    """Whether the GPU has bf16 and the flash kernel: NVIDIA's from 2020 on, so neither a T4 nor an RTX 20."""
    import torch

    return not torch.cuda.is_available() or torch.cuda.get_device_capability() >= (8, 0)


def number_type(device: str) -> "torch.dtype":
    """What a network computes in: fp32 on a CPU, where 16 bits are slower, else bf16 where the GPU has it, or fp16."""
    import torch

    return torch.float32 if device == "cpu" else torch.bfloat16 if has_bf16() else torch.float16


def find_device() -> str:
    """CUDA where there is one. Without a GPU's driver there is none, and torch need not be imported to know it."""
    if not any(list(Path("/dev").glob(pattern)) for pattern in DRIVERS):
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
