"""The recorded decoding steps of a network, and how a batch uses them.

If steps would not pay, a batch continues without them. If they do not fit into memory or cannot be
recorded, it also continues without them, and this is reported.
"""

from collections import Counter
from collections.abc import Sequence

import torch
from transformers import DynamicCache, PreTrainedModel

from covrag_lite.engine.devices import free_memory
from covrag_lite.engine.fast.batch_plan import SPARE
from covrag_lite.engine.fast.cuda_graphs import Past, RecordedStep, StepShape, record_step, round_up
from covrag_lite.engine.fast.prefill import Roomy
from covrag_lite.engine.interface import report_fallback

WORTH_RECORDING = 6  # number of steps from which recording pays
KERNEL_BY_KERNEL = "decoding steps run kernel by kernel"


class Steps:
    """All recorded steps of a network, by adapter and shape."""

    def __init__(self, network: PreTrainedModel, device: str, used: Counter, is_packed: bool):
        self.network = network
        self.used = used
        self.device = device
        self.is_packed = is_packed  # whether the layers are those of `varlen_prefill`
        self.store: list[torch.Tensor] = []  # per layer, keys and values: (2, tokens, heads, size)
        self.steps: dict[tuple[object, StepShape], RecordedStep] = {}
        self.stream = torch.cuda.Stream() if device == "cuda" else None  # for recording
        self.pool = None  # the memory of the graphs; they share it because only one runs at a time
        self.is_given_up = False  # set when a step could not be recorded

    @torch.inference_mode()
    def start_session(
        self,
        adapter: object,
        cache: DynamicCache,
        seen: torch.Tensor,
        tokens: Sequence[int],
        limit: int,
        forbidden: torch.Tensor | None,
    ) -> "DecodeSession | None":
        """Start at most `limit` steps for a batch; None if they do not fit or would not pay."""
        if self.is_given_up or limit < WORTH_RECORDING:
            return None
        if not all(isinstance(layer, Roomy) for layer in cache.layers):
            self.give_up("this network has another kind of cache")
            return None
        past = [(layer.keys, layer.values) for layer in cache.layers]
        n_rows, n_read = seen.shape
        try:
            step = self.find_step(adapter, n_rows, n_read + limit, past)
            if step is None:
                why = "there is not enough memory for the keys and values of a batch"
                report_fallback(self.used, KERNEL_BY_KERNEL, why)
                return None
            if forbidden is None:
                forbidden = torch.zeros_like(step.forbidden)
            next_tokens = torch.tensor(tokens, device=seen.device)
            step.load_batch(past, seen.bool(), next_tokens, seen.sum(1), forbidden)
            if self.stream is not None and step.replay is None:
                step.replay = record_step(step, n_rows, self.stream, self.pool)
        except Exception as error:  # of any kind: the batch can continue without recorded steps
            self.give_up(error)
            return None
        return DecodeSession(step, n_rows, limit)

    def find_step(self, adapter: object, rows: int, room: int, past: Past) -> RecordedStep | None:
        """Return a step with this much room: an existing one that is not too large, or a new one.

        None if a new one does not fit into memory.
        """
        fitting = [
            shape
            for owner, shape in self.steps
            if owner == adapter and shape.fits(rows, room) and shape.size <= 2 * rows * room
        ]
        if fitting:
            smallest = min(fitting, key=lambda shape: shape.size)
            return self.steps[adapter, smallest]
        shape = StepShape(round_up(rows, 1), round_up(room, 64))
        if not self.store or self.store[0].shape[1] < shape.size:
            if not self.enlarge_store(shape.size, past):
                return None
        step = RecordedStep(self.network, shape, self.store, self.is_packed)
        self.steps[adapter, shape] = step
        return step

    def enlarge_store(self, needed: int, past: Past) -> bool:
        """Replace the store by one for at least this many tokens; return whether it fits."""
        self.steps.clear()  # they write to the old store
        self.store = []
        token_bytes = 0
        for keys, values in past:
            token_bytes += keys[0, :, :1].nbytes + values[0, :, :1].nbytes
        n_tokens = min(int(SPARE * needed), free_memory(self.device) // (2 * token_bytes))
        if n_tokens < needed:
            return False
        for keys, _ in past:
            self.store.append(keys.new_zeros(2, n_tokens, keys.shape[1], keys.shape[3]))
        if self.stream is not None:  # CUDA frees a pool with its last graph
            self.pool = torch.cuda.graph_pool_handle()
        return True

    def give_up(self, why: Exception | str) -> None:
        """Run steps kernel by kernel from now on, and report it."""
        self.is_given_up = True
        self.steps.clear()
        self.store = []
        report_fallback(self.used, KERNEL_BY_KERNEL, why)


class DecodeSession:
    """The steps of one batch; finished rows stay in it to the end.

    A recorded step does not need the CPU, so the next step starts before the last one is read.
    """

    def __init__(self, step: RecordedStep, n_rows: int, limit: int):
        self.step = step
        self.places = list(range(n_rows))  # the positions of the batch's remaining rows
        self.n_left = limit
        self.is_ahead = False  # whether the next step has started

    def take(self) -> tuple[list[int], list[float]]:
        """Return the next token of each remaining row, and its log-probability."""
        if not self.is_ahead:
            self.step.launch()
        tokens, log_probabilities = self.step.collect()
        self.n_left -= 1
        self.is_ahead = self.step.replay is not None and self.n_left > 0
        if self.is_ahead:
            self.step.launch()
        remaining_tokens = [int(tokens[place]) for place in self.places]
        return remaining_tokens, [log_probabilities[place] for place in self.places]

    def keep(self, kept: Sequence[int]) -> None:
        """Continue with only these of the remaining rows, counted from 0."""
        self.places = [self.places[number] for number in kept]
