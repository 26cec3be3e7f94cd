"""How passes run: the values of the parameter `execution`, and what "auto" means on a machine."""

import importlib.util

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
