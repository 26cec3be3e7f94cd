"""Which decoding steps of fixed shapes a network has, and how a batch goes through them.

Where steps do not pay, a batch goes on without; where they do not fit into memory or cannot be recorded, too, which is
reported.
"""

from collections import Counter
from collections.abc import Sequence

import torch
from transformers import DynamicCache, PreTrainedModel

from covrag_lite.engine.cuda_graphs import Shape, Step, record_step, rounded
from covrag_lite.engine.interface import report_fallback
from covrag_lite.engine.prefill import Roomy
from covrag_lite.engine.prepare import SPARE, free_memory

WORTH = 6  # steps from which recording one pays
FEWER = 4  # rows move to a smaller shape when this part of them is left
KERNEL_BY_KERNEL = "decoding steps run kernel by kernel"


class Steps:
    """All the steps of a network, by adapter and shape."""

    def __init__(self, network: PreTrainedModel, device: str, used: Counter, packed: bool):
        self.network = network
        self.used = used
        self.device = device
        self.packed = packed  # whether layers are those of `varlen_prefill`
        self.store: list[torch.Tensor] = []  # of each layer keys and values, (2, tokens, heads, size)
        self.known: dict[tuple[object, Shape], Step] = {}
        self.stream = torch.cuda.Stream() if device == "cuda" else None  # for recording
        self.pool = None  # the graphs' memory, which they share because one runs at a time
        self.is_given_up = False  # after a step that could not be recorded

    @torch.inference_mode()
    def begin(
        self,
        adapter: object,
        cache: DynamicCache,
        seen: torch.Tensor,
        tokens: Sequence[int],
        limit: int,
        forbidden: torch.Tensor | None,
    ) -> "DecodeSession | None":
        """Steps that go on from what a batch has read, at most `limit`; None where they do not fit or do not pay."""
        if self.is_given_up or limit < WORTH:
            return None
        if not all(isinstance(layer, Roomy) for layer in cache.layers):
            self.give_up("this network's cache is of another kind")
            return None
        past = [(layer.keys, layer.values) for layer in cache.layers]
        rows, used = seen.shape
        try:
            step = self.find(adapter, rows, used + limit, past)
            if step is None:
                report_fallback(self.used, KERNEL_BY_KERNEL, "memory is too short for the keys and values of a batch")
                return None
            if forbidden is None:
                forbidden = torch.zeros_like(step.forbidden)
            tokens = torch.tensor(tokens, device=seen.device)
            step.load(past, seen.bool(), tokens, seen.sum(1), forbidden)
        except Exception as error:  # whatever it is, the batch has all it needs to go on without
            self.give_up(error)
            return None
        self.record(step, rows)
        if self.is_given_up:
            return None
        return DecodeSession(self, adapter, step, rows, used, limit)

    def find(self, adapter: object, rows: int, room: int, past: Sequence[tuple]) -> Step | None:
        """A step with this much room: one that is there, if it is not much too large, or a new one."""
        fitting = [
            shape
            for owner, shape in self.known
            if owner == adapter
            and shape.rows >= rows
            and shape.room >= room
            and shape.rows * shape.room <= 2 * rows * room
        ]
        if fitting:
            return self.known[adapter, min(fitting, key=lambda shape: shape.rows * shape.room)]
        shape = Shape(rounded(rows, 1), rounded(room, 64))
        needed = shape.rows * shape.room
        if not self.store or self.store[0].shape[1] < needed:
            self.known.clear()  # they write to the old one
            self.store = []
            token_bytes = sum(part[0, :, :1].nbytes for pair in past for part in pair)
            tokens = min(int(SPARE * needed), free_memory(self.device) // (2 * token_bytes))
            if tokens < needed:
                return None
            self.store = [keys.new_zeros(2, tokens, keys.shape[1], keys.shape[3]) for keys, _ in past]
            if self.stream is not None:  # CUDA frees a pool with its last graph, and takes no new one
                self.pool = torch.cuda.graph_pool_handle()
        step = Step(self.network, shape, self.store, self.packed)
        self.known[adapter, shape] = step
        return step

    def record(self, step: Step, rows: int) -> None:
        """Record a loaded step, if it is not yet; one that cannot be recorded stays as it is loaded."""
        if self.stream is None or step.replay is not None or self.is_given_up:
            return
        try:
            step.replay = record_step(step, rows, self.stream, self.pool)
        except Exception as error:  # CUDA's, or that of a network of another kind
            self.give_up(error)

    def give_up(self, why: Exception | str) -> None:
        """Take steps one kernel after another from now on, and report it."""
        self.is_given_up = True
        self.known.clear()
        self.store = []
        report_fallback(self.used, KERNEL_BY_KERNEL, why)


class DecodeSession:
    """The steps of one batch: rows that are done stay in it until few are left, which then move to a smaller shape.

    A recorded step needs nothing of the CPU, so the next one is begun before anybody has looked at the last.
    """

    def __init__(self, steps: Steps, adapter: object, step: Step, rows: int, used: int, limit: int):
        self.steps = steps
        self.adapter = adapter
        self.step = step
        self.places = list(range(rows))  # where the batch's rows stand, in their order
        self.used = used
        self.left = limit
        self.is_ahead = False  # whether the next step has begun
        self.known: tuple[list[int], list[float]] | None = None  # its tokens, where rows have moved since

    def take(self) -> tuple[list[int], list[float]]:
        """The next token of each row that is still there, and its logarithmic probability."""
        if self.known is None and not self.is_ahead:
            self.launch()
        made, self.known = self.known or self.collect(), None
        self.left -= 1
        if self.step.replay is not None and self.left > 0:
            self.launch()
        return made

    def launch(self) -> None:
        """Begin the next step."""
        self.step.launch()
        self.used += 1
        self.is_ahead = True

    def collect(self) -> tuple[list[int], list[float]]:
        """What the step that has begun makes of the rows that are still there."""
        tokens, logs = self.step.collect()
        self.is_ahead = False
        return [int(tokens[place]) for place in self.places], [logs[place] for place in self.places]

    def keep(self, kept: Sequence[int]) -> None:
        """Go on with these of the rows alone, counted from 0."""
        self.places = [self.places[one] for one in kept]
        rows = len(self.places)
        is_large = self.step.shape.rows >= FEWER * rows
        if not rows or not is_large or self.left < WORTH or self.steps.is_given_up:
            return
        new = self.steps.find(self.adapter, rows, self.step.shape.room, ())
        if new is not None and new.shape.rows < self.step.shape.rows:
            if self.is_ahead:
                self.known = self.collect()
            self.move(new)

    @torch.inference_mode()
    def move(self, new: Step) -> None:
        """Let the rows that are left go on in another step."""
        old = self.step
        places = torch.tensor(self.places, device=old.tokens.device)
        # One layer after another: both steps lie over the same memory.
        past = ((one.keys[places], one.values[places]) for one in old.cache.layers)
        seen = old.mask[places, 0, 0, : self.used] == 0
        new.load(past, seen, old.tokens[places, 0], old.positions[places, 0], old.forbidden)
        self.steps.record(new, len(places))
        self.step = new
        self.places = list(range(len(places)))
