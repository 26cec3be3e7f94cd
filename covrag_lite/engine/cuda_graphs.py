"""A decoding step as a CUDA graph: recorded once, compared with the plain step, and then replayed.

`stepping` calls this, on CUDA alone.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakSet

import torch

if TYPE_CHECKING:
    from covrag_lite.engine.decode_step import Step

# How far a replay may be from the plain step: bf16 numbers near 20 stand 0.125 apart, and ties may fall either way.
NEAR = 0.05  # mean difference of the tokens' logarithmic probabilities
FEW = 0.05  # share of the rows that get another token; one row always may
OWN = 4  # times as far with layers of our own, which round otherwise


class NotRecorded(RuntimeError):
    """A step that CUDA would not record, or whose replay gives something else."""


class Recorder:
    """Records steps on a stream of its own; their graphs share one pool of memory, because one runs at a time."""

    def __init__(self):
        self.stream = torch.cuda.Stream()
        self.graphs: WeakSet[torch.cuda.CUDAGraph] = WeakSet()  # those that somebody can still replay
        self.pool = None

    def record(self, step: "Step", rows: int) -> Callable[[], None]:
        """A function that takes this loaded step by replaying it; the step is left as it was loaded."""
        moving = (step.tokens, step.positions, step.place)
        loaded = [one.clone() for one in moving]

        def rewind() -> None:
            for one, kept in zip(moving, loaded):
                one.copy_(kept)

        living = list(self.graphs)  # so that none of them goes while this one is recorded
        if not living:
            self.pool = torch.cuda.graph_pool_handle()  # CUDA frees a pool with its last graph, and takes no new one
        try:
            graph = torch.cuda.CUDAGraph()
            expected = self.capture(graph, step, rewind)
            graph.replay()
            compare(expected[:, :rows], step.result[:, :rows], 1 if step.functions is None else OWN)
        finally:
            rewind()
        self.graphs.add(graph)
        return graph.replay

    def capture(self, graph: torch.cuda.CUDAGraph, step: "Step", rewind: Callable[[], None]) -> torch.Tensor:
        """Record a step and return what transformers' own layers make of it; a first use sets up whatever there is."""
        self.stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(self.stream):
                step.compute(plain=True)
                expected = step.result.clone()
                rewind()
                if step.functions is not None:
                    step.compute()
                    rewind()
                # Errors of this thread alone count: a notebook's other threads may free their memory meanwhile.
                graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
                try:
                    step.compute()
                finally:
                    graph.capture_end()
        finally:
            torch.cuda.current_stream().wait_stream(self.stream)
        return expected


def compare(expected: torch.Tensor, replayed: torch.Tensor, slack: float = 1) -> None:
    """Refuse a replay that gives other tokens than the plain step, or holds them for more or less likely."""
    rows = expected.shape[1]
    other = int((expected[0] != replayed[0]).sum())
    far = (expected[1] - replayed[1]).abs().mean().item()
    if other > max(1, slack * FEW * rows) or not far <= slack * NEAR:  # a NaN is not near
        raise NotRecorded(f"a replayed step gave {other} of {rows} rows another token, off by {far:.2g} in the mean")
