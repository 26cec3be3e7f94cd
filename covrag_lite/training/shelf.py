"""Layers' inputs between the forward pass and the way back: in the CPU's memory, copied there and back meanwhile.

On CUDA copies run on a stream of their own, beside the arithmetic: an input leaves while its layer and the next one are
computed, and comes back while the layer above it goes backwards. Two passes may not be under way at once. `layers` puts
inputs here and takes them again.
"""

import torch


class Shelf:
    """What is away, by the numbers of layers; what was put last is taken first."""

    def __init__(self):
        self.order: list[int] = []  # of the layers whose inputs are away, the lowest first
        self.slots: dict[int, torch.Tensor] = {}  # on the CPU, by layer
        self.leaving: tuple[int, torch.Tensor, torch.cuda.Event | None] | None = None  # the last one that was put
        self.coming: dict[int, torch.cuda.Event | None] = {}  # copies that are under way, or done, by layer
        self.places: dict[int, torch.Tensor] = {}  # where inputs come back to: two, in turn
        self.stream: torch.cuda.Stream | None = None

    def put(self, number: int, hidden: torch.Tensor) -> None:
        """Send a layer's input away; until it has left, its memory is not given to anything else."""
        self.order = [known for known in self.order if known < number] + [number]
        slot = self.slots.get(number)
        if slot is None or slot.shape != hidden.shape or slot.dtype != hidden.dtype:
            slot = self.slots[number] = torch.empty(
                hidden.shape, dtype=hidden.dtype, device="cpu", pin_memory=hidden.is_cuda
            )
        left = self.copy(slot, hidden)
        if self.leaving is not None:
            self.wait(self.leaving[2])  # then its memory may be used again
        self.leaving = number, hidden, left

    def take(self, number: int) -> torch.Tensor:
        """A layer's input, and the one below begins to come back."""
        if not self.order or self.order.pop() != number:
            raise RuntimeError(f"the input of layer {number} is not the one that was put away last")
        if self.leaving is not None and self.leaving[0] == number:
            _, hidden, event = self.leaving
            self.leaving = None
        else:
            hidden, event = self.fetch(number, len(self.order)), self.coming.pop(number)
        self.wait(event)
        if self.order:
            self.fetch(self.order[-1], len(self.order) - 1)
        return hidden

    def fetch(self, number: int, turn: int) -> torch.Tensor:
        """Where a layer's input comes back to; it begins to, if it has not yet."""
        slot = self.slots[number]
        place = self.places.get(turn % 2)
        if place is None or place.shape != slot.shape or place.dtype != slot.dtype:
            device = "cuda" if slot.is_pinned() else "cpu"
            place = self.places[turn % 2] = torch.empty(slot.shape, dtype=slot.dtype, device=device)
        if number not in self.coming:
            self.coming[number] = self.copy(place, slot)
        return place

    def copy(self, to: torch.Tensor, source: torch.Tensor) -> torch.cuda.Event | None:
        """Begin a copy after all that is under way; the event is its end."""
        if not (to.is_cuda or source.is_cuda):
            to.copy_(source)
            return None
        self.stream = self.stream or torch.cuda.Stream()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            to.copy_(source, non_blocking=True)
        return self.stream.record_event()

    def wait(self, event: torch.cuda.Event | None) -> None:
        """Let what is computed from now on wait for a copy."""
        if event is not None:
            torch.cuda.current_stream().wait_event(event)
