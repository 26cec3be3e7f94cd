"""The recorded decoding steps of a network, and how a batch uses them.

If steps would not pay, a batch continues without them. If they do not fit into memory or cannot be
recorded, it also continues without them, and this is reported.
"""

from collections import Counter
from collections.abc import Sequence

import torch
from transformers import DynamicCache, PreTrainedModel

from covrag_lite.engine.cuda_graphs import Shape, Step, record_step, rounded
from covrag_lite.engine.interface import report_fallback
from covrag_lite.engine.prefill import Roomy
from covrag_lite.engine.prepare import SPARE, free_memory

WORTH = 6  # number of steps from which recording pays
KERNEL_BY_KERNEL = "decoding steps run kernel by kernel"


class Steps:
    """All recorded steps of a network, by adapter and shape."""

    def __init__(self, network: PreTrainedModel, device: str, used: Counter, packed: bool):
        self.network = network
        self.used = used
        self.device = device
        self.packed = packed  # whether the layers are those of `varlen_prefill`
        self.store: list[torch.Tensor] = []  # per layer, keys and values: (2, tokens, heads, size)
        self.known: dict[tuple[object, Shape], Step] = {}
        self.stream = torch.cuda.Stream() if device == "cuda" else None  # for recording
        self.pool = None  # the memory of the graphs; they share it because only one runs at a time
        self.is_given_up = False  # set when a step could not be recorded

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
        """Start at most `limit` steps for a batch; None if they do not fit or would not pay."""
        if self.is_given_up or limit < WORTH:
            return None
        if not all(isinstance(layer, Roomy) for layer in cache.layers):
            self.give_up("this network has another kind of cache")
            return None
        past = [(layer.keys, layer.values) for layer in cache.layers]
        rows, used = seen.shape
        try:
            step = self.find(adapter, rows, used + limit, past)
            if step is None:
                why = "there is not enough memory for the keys and values of a batch"
                report_fallback(self.used, KERNEL_BY_KERNEL, why)
                return None
            if forbidden is None:
                forbidden = torch.zeros_like(step.forbidden)
            tokens = torch.tensor(tokens, device=seen.device)
            step.load(past, seen.bool(), tokens, seen.sum(1), forbidden)
            if self.stream is not None and step.replay is None:
                step.replay = record_step(step, rows, self.stream, self.pool)
        except Exception as error:  # of any kind: the batch can continue without recorded steps
            self.give_up(error)
            return None
        return DecodeSession(step, rows, limit)

    def find(self, adapter: object, rows: int, room: int, past: Sequence[tuple]) -> Step | None:
        """Return a step with this much room: a new one, or a known one that is not too large."""
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
            self.known.clear()  # they write to the old store
            self.store = []
            token_bytes = sum(part[0, :, :1].nbytes for pair in past for part in pair)
            tokens = min(int(SPARE * needed), free_memory(self.device) // (2 * token_bytes))
            if tokens < needed:
                return None
            self.store = [keys.new_zeros(2, tokens, keys.shape[1], keys.shape[3]) for keys, _ in past]
            if self.stream is not None:  # CUDA frees a pool with its last graph
                self.pool = torch.cuda.graph_pool_handle()
        step = Step(self.network, shape, self.store, self.packed)
        self.known[adapter, shape] = step
        return step

    def give_up(self, why: Exception | str) -> None:
        """Run steps kernel by kernel from now on, and report it."""
        self.is_given_up = True
        self.known.clear()
        self.store = []
        report_fallback(self.used, KERNEL_BY_KERNEL, why)


class DecodeSession:
    """The steps of one batch; finished rows stay in it to the end.

    A recorded step does not need the CPU, so the next step starts before the last one is read.
    """

    def __init__(self, step: Step, rows: int, limit: int):
        self.step = step
        self.places = list(range(rows))  # the positions of the batch's remaining rows
        self.left = limit
        self.is_ahead = False  # whether the next step has started

    def take(self) -> tuple[list[int], list[float]]:
        """Return the next token of each remaining row, and its log-probability."""
        if not self.is_ahead:
            self.step.launch()
        tokens, logs = self.step.collect()
        self.left -= 1
        self.is_ahead = self.step.replay is not None and self.left > 0
        if self.is_ahead:
            self.step.launch()
        return [int(tokens[place]) for place in self.places], [logs[place] for place in self.places]

    def keep(self, kept: Sequence[int]) -> None:
        """Continue with only these of the remaining rows, counted from 0."""
        self.places = [self.places[one] for one in kept]
