"""Offloading: what layers keep for the backward pass waits in the CPU's memory.

On CUDA, copies run on their own stream in parallel with the computation. A layer's tensors leave
while the next layer is computed, and return while the layer above runs its backward pass. Only one
pass may run at a time.
"""

from collections.abc import Sequence

import torch

Tensors = list[torch.Tensor]


class Offload:
    """Offloaded tensors by the number of their layer; the layer added last is taken first."""

    def __init__(self):
        self.slots: dict[int, Tensors] = {}  # on the CPU, by layer
        self.last = -1  # the last layer whose tensors are offloaded
        # The tensors of the layer added last.
        self.leaving: tuple[Tensors, torch.cuda.Event | None] | None = None
        # Tensors on their way back, by layer.
        self.coming: dict[int, tuple[Tensors, torch.cuda.Event | None]] = {}
        self.places: dict[int, Tensors] = {}  # where tensors return to: two layers, in turn
        self.stream: torch.cuda.Stream | None = None

    def put(self, number: int, tensors: Tensors) -> None:
        """Offload a layer's tensors; their memory is not reused until they have left."""
        if not are_alike(self.slots.get(number), tensors):
            self.slots[number] = [
                torch.empty(x.shape, dtype=x.dtype, device="cpu", pin_memory=x.is_cuda)
                for x in tensors
            ]
        left = self.copy(self.slots[number], tensors)
        if self.leaving is not None:
            self.wait(self.leaving[1])  # then their memory may be reused
        self.leaving = (tensors, left)
        self.last = number
        self.coming.clear()  # left over from an interrupted pass

    def take(self, number: int) -> Tensors:
        """Return a layer's tensors and start to copy back those of the layer below."""
        if number != self.last:
            raise RuntimeError(
                f"layer {number} was asked for, but layer {self.last} was offloaded last; "
                "run one forward and backward pass at a time"
            )
        tensors, event = self.leaving or self.coming.pop(number)
        self.leaving = None
        self.wait(event)
        self.last = number - 1
        if self.last >= 0:
            self.start_return(self.last)
        return tensors

    def start_return(self, number: int) -> None:
        """Start to copy a layer's tensors back."""
        slots = self.slots[number]
        parity = number % 2
        if not are_alike(self.places.get(parity), slots):
            device = "cuda" if slots[0].is_pinned() else "cpu"
            self.places[parity] = [
                torch.empty(x.shape, dtype=x.dtype, device=device) for x in slots
            ]
        places = self.places[parity]
        self.coming[number] = (places, self.copy(places, slots))

    def copy(
        self, to: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]
    ) -> torch.cuda.Event | None:
        """Start a copy after all work so far; return the event of its end."""
        if not (to[0].is_cuda or sources[0].is_cuda):
            for place, source in zip(to, sources):
                place.copy_(source)
            return None
        self.stream = self.stream or torch.cuda.Stream()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for place, source in zip(to, sources):
                place.copy_(source, non_blocking=True)
        return self.stream.record_event()

    def wait(self, event: torch.cuda.Event | None) -> None:
        """Make all later computation wait for a copy."""
        if event is not None:
            torch.cuda.current_stream().wait_event(event)


def are_alike(tensors: Sequence[torch.Tensor] | None, others: Sequence[torch.Tensor]) -> bool:
    """Do these tensors have the shapes and types of the others?"""
    if tensors is None:
        return False
    return [(x.shape, x.dtype) for x in tensors] == [(x.shape, x.dtype) for x in others]
