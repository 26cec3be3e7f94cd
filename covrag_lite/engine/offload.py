"""What layers keep between the forward pass and the way back: in the CPU's memory, copied there and back meanwhile.

On CUDA copies run on a stream of their own, beside the arithmetic: a layer's tensors leave while the next one is
computed, and come back while the layer above goes backwards. Two passes may not be under way at once.
"""

from collections.abc import Sequence

import torch

Tensors = list[torch.Tensor]


class Offload:
    """What is away, by the numbers of layers; what was put last is taken first."""

    def __init__(self):
        self.slots: dict[int, Tensors] = {}  # on the CPU, by layer
        self.last = -1  # of the layers whose tensors are away
        self.leaving: tuple[Tensors, torch.cuda.Event | None] | None = None  # those of the last layer that was put
        self.coming: dict[int, tuple[Tensors, torch.cuda.Event | None]] = {}  # those that are under way back, by layer
        self.places: dict[int, Tensors] = {}  # where tensors come back to: two layers', in turn
        self.stream: torch.cuda.Stream | None = None

    def put(self, number: int, tensors: Tensors) -> None:
        """Send a layer's tensors away; until they have left, their memory is not given to anything else."""
        if not are_alike(self.slots.get(number), tensors):
            self.slots[number] = [
                torch.empty(one.shape, dtype=one.dtype, device="cpu", pin_memory=one.is_cuda) for one in tensors
            ]
        left = self.copy(self.slots[number], tensors)
        if self.leaving is not None:
            self.wait(self.leaving[1])  # then their memory may be used again
        self.leaving = tensors, left
        self.last = number
        self.coming.clear()  # of a pass that was broken off

    def take(self, number: int) -> Tensors:
        """A layer's tensors, and those of the one below begin to come back."""
        if number != self.last:
            raise RuntimeError(f"what layer {number} keeps is not what was put away last")
        tensors, event = self.leaving or self.coming.pop(number)
        self.leaving = None
        self.wait(event)
        self.last = number - 1
        if self.last >= 0:
            self.fetch(self.last)
        return tensors

    def fetch(self, number: int) -> None:
        """Let a layer's tensors begin to come back."""
        slots = self.slots[number]
        if not are_alike(self.places.get(number % 2), slots):
            device = "cuda" if slots[0].is_pinned() else "cpu"
            self.places[number % 2] = [torch.empty(one.shape, dtype=one.dtype, device=device) for one in slots]
        places = self.places[number % 2]
        self.coming[number] = places, self.copy(places, slots)

    def copy(self, to: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]) -> torch.cuda.Event | None:
        """Begin to copy after all that is under way; the event is the end of it."""
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
        """Let what is computed from now on wait for a copy."""
        if event is not None:
            torch.cuda.current_stream().wait_event(event)


def are_alike(known: Sequence[torch.Tensor] | None, wanted: Sequence[torch.Tensor]) -> bool:
    """Whether these tensors have room for those."""
    return known is not None and [(x.shape, x.dtype) for x in known] == [(x.shape, x.dtype) for x in wanted]
