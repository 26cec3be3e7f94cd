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
            if self.stream is not None and step.replay is None:
                step.replay = record_step(step, rows, self.stream, self.pool)
        except Exception as error:  # whatever it is, the batch has all it needs to go on without
            self.give_up(error)
            return None
        return DecodeSession(step, rows, limit)

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

    def give_up(self, why: Exception | str) -> None:
        """Take steps one kernel after another from now on, and report it."""
        self.is_given_up = True
        self.known.clear()
        self.store = []
        report_fallback(self.used, KERNEL_BY_KERNEL, why)


class DecodeSession:
    """The steps of one batch; rows that are done stay in it to the end.

    A recorded step needs nothing of the CPU, so the next one is begun before anybody has looked at the last.
    """

    def __init__(self, step: Step, rows: int, limit: int):
        self.step = step
        self.places = list(range(rows))  # where the batch's rows stand, in their order
        self.left = limit
        self.is_ahead = False  # whether the next step has begun

    def take(self) -> tuple[list[int], list[float]]:
        """The next token of each row that is still there, and its logarithmic probability."""
        if not self.is_ahead:
            self.step.launch()
        tokens, logs = self.step.collect()
        self.left -= 1
        self.is_ahead = self.step.replay is not None and self.left > 0
        if self.is_ahead:
            self.step.launch()
        return [int(tokens[place]) for place in self.places], [logs[place] for place in self.places]

    def keep(self, kept: Sequence[int]) -> None:
        """Go on with these of the rows alone, counted from 0."""
        self.places = [self.places[one] for one in kept]
