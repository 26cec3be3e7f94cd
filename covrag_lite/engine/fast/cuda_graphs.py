"""CUDA graphs: thousands of kernels that start at once, not one by one from Python.

`record_graph` records any computation whose tensors stay at the same addresses. A greedy decoding
step satisfies this here: tokens, positions, mask, and keys and values with room for later tokens.
Rows and room are rounded up, so that there are few shapes. Without CUDA the same steps run
unrecorded.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import torch
from torch.nn.attention import sdpa_kernel
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from covrag_lite.engine.fast.prefill import KERNELS
from covrag_lite.engine.fast.varlen_prefill import attend_rows

# How far a replay may differ from the step itself: bf16 numbers near 20 are 0.125 apart, and ties
# may be resolved either way.
LARGEST_DIFFERENCE = 0.05  # mean difference of the tokens' log-probabilities
LARGEST_SHARE = 0.05  # of the rows, that may get another token; one row always may

# Keys and values of each layer, (rows, heads, tokens, size).
Past = Iterable[tuple[torch.Tensor, torch.Tensor]]


class ReplayDiffersError(RuntimeError):
    """A recorded step does not compute what the step itself computes."""


def record_graph(
    compute: Callable[[], torch.Tensor | None],
    warmups: int,
    stream: torch.cuda.Stream | None = None,
    pool: tuple[int, int] | None = None,
) -> tuple[torch.cuda.CUDAGraph, torch.Tensor | None]:
    """Record `compute` as a graph; return the graph and the result, which each replay overwrites.

    Everything that it reads and writes must stay at its address. Setup at the first use must not be
    recorded, so `warmups` passes run first, on the same stream, which then has its workspace for
    matrix products.
    """
    stream = stream or torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    try:
        # This also ends a failed recording, where torch.cuda.graph would leave its stream active.
        with torch.cuda.stream(stream):
            for _ in range(warmups):
                compute()
            # Only errors of this thread count: other threads of a notebook may free memory.
            with torch.cuda.graph(graph, pool, stream, capture_error_mode="thread_local"):
                result = compute()
    finally:
        torch.cuda.current_stream().wait_stream(stream)
    return graph, result


class StepShape(NamedTuple):
    """The room of a decoding step."""

    rows: int
    room: int  # tokens per row, read and written

    @property
    def size(self) -> int:
        """Return the number of tokens in all rows."""
        return self.rows * self.room

    def fits(self, rows: int, room: int) -> bool:
        """Are there so many rows with so much room?"""
        return self.rows >= rows and self.room >= room


def round_up(number: int, least: int) -> int:
    """Round up to a quarter of the power of two below, or to a multiple of `least`."""
    quarter = max(least, 1 << max(0, number.bit_length() - 3))
    return -(-number // quarter) * quarter


class Placed(DynamicLayer):
    """A cache layer whose keys and values stay at their addresses; new tokens are written there."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, place: torch.Tensor):
        super().__init__()
        self.keys = keys
        self.values = values
        self.place = place
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_, **__
    ) -> tuple[torch.Tensor, ...]:
        """Write the keys and values of one token and return the whole room.

        The mask hides what is not written yet.
        """
        self.keys.index_copy_(2, self.place, key_states)
        self.values.index_copy_(2, self.place, value_states)
        return self.keys, self.values


class RecordedStep:
    """One decoding step of a fixed shape.

    Its `store` contains the keys and values of all layers, each (2, tokens, heads, size). Steps of
    all shapes share it. In a packed network the layers are those of `varlen_prefill`.
    """

    def __init__(
        self,
        network: PreTrainedModel,
        shape: StepShape,
        store: list[torch.Tensor],
        is_packed: bool,
    ):
        self.network = network
        self.layers = {"attend": partial(attend_rows, shape.rows)} if is_packed else {}
        self.shape = shape
        device = network.device
        self.tokens = torch.zeros(shape.rows, 1, dtype=torch.long, device=device)
        self.positions = torch.zeros_like(self.tokens)
        # Added to the scores.
        self.mask = torch.zeros(shape.rows, 1, 1, shape.room, dtype=network.dtype, device=device)
        self.place = torch.zeros(1, dtype=torch.long, device=device)  # the next token's position
        self.forbidden = torch.zeros(network.config.vocab_size, dtype=torch.bool, device=device)
        # Tokens, and their log-probabilities.
        self.result = torch.zeros(2, shape.rows, dtype=torch.double, device=device)
        self.cache = DynamicCache(config=network.config)
        self.cache.layers = []
        for stored in store:
            _, _, heads, size = stored.shape
            views = stored[:, : shape.size].view(2, shape.rows, heads, shape.room, size)
            self.cache.layers.append(Placed(*views, self.place))
        self.replay: Callable[[], None] | None = None  # replays the recorded step
        on_gpu = self.result.is_cuda
        # The result, on the CPU.
        self.arrived = torch.zeros(2, shape.rows, dtype=torch.double, pin_memory=on_gpu)
        self.arrival = torch.cuda.Event() if on_gpu else None

    def load_batch(
        self,
        past: Past,
        seen: torch.Tensor,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        forbidden: torch.Tensor,
    ) -> None:
        """Copy the state of a batch: what its rows have read, and the next token of each.

        `seen` (rows, tokens) marks what each row has read.
        """
        rows, n_read = seen.shape
        for layer, (keys, values) in zip(self.cache.layers, past):
            for placed, part in ((layer.keys, keys), (layer.values, values)):
                placed.zero_()  # hidden values have no effect, but NaN would
                placed[:rows, :, :n_read] = part[:, :, :n_read]
        self.mask.fill_(float("-inf"))
        self.mask[:rows, 0, 0, :n_read].masked_fill_(seen, 0.0)
        self.tokens.zero_()
        self.tokens[:rows, 0] = tokens
        self.positions.zero_()
        self.positions[:rows, 0] = positions
        self.place.fill_(n_read)
        self.forbidden.copy_(forbidden)

    @torch.inference_mode()
    def compute(self) -> None:
        """Read each row's token and replace it by the most probable next one.

        Nothing here waits for the device.
        """
        self.mask.index_fill_(3, self.place, 0.0)
        with sdpa_kernel(KERNELS):
            output = self.network(
                input_ids=self.tokens,
                attention_mask=self.mask,
                position_ids=self.positions,
                past_key_values=self.cache,
                use_cache=True,
                **self.layers,
            )
        logits = output.logits[:, -1].float()  # (rows, vocabulary)
        logits = logits.masked_fill(self.forbidden, float("-inf"))
        highest, tokens = logits.max(1)
        self.result[0].copy_(tokens)
        self.result[1].copy_(highest - logits.logsumexp(1))
        self.tokens.copy_(tokens[:, None])
        self.positions.add_(1)
        self.place.add_(1)

    @torch.inference_mode()
    def launch(self) -> None:
        """Start the next step and the transfer of its result to the CPU."""
        if self.replay is not None:
            self.replay()
        else:
            self.compute()
        self.arrived.copy_(self.result, non_blocking=True)
        if self.arrival is not None:
            self.arrival.record()

    def collect(self) -> tuple[list[float], list[float]]:
        """Return the last step's token for each row, and its log-probability."""
        if self.arrival is not None:
            self.arrival.synchronize()
        tokens, log_probabilities = self.arrived.tolist()
        return tokens, log_probabilities


def record_step(
    step: RecordedStep, rows: int, stream: torch.cuda.Stream, pool: tuple[int, int]
) -> Callable[[], None]:
    """Record a loaded step and check a replay against the step itself; its state is restored."""
    moving = (step.tokens, step.positions, step.place)
    initial = [tensor.clone() for tensor in moving]

    def rewind() -> None:
        for tensor, value in zip(moving, initial):
            tensor.copy_(value)

    try:
        graph, _ = record_graph(step.compute, 1, stream, pool)
        expected = step.result.clone()
        rewind()
        graph.replay()
        compare_replay(expected[:, :rows], step.result[:, :rows])
    finally:
        rewind()
    return graph.replay


def compare_replay(expected: torch.Tensor, replayed: torch.Tensor) -> None:
    """Refuse a replay whose tokens or log-probabilities differ from those of the step itself."""
    rows = expected.shape[1]
    n_others = int((expected[0] != replayed[0]).sum())
    difference = (expected[1] - replayed[1]).abs().mean().item()
    is_near = difference <= LARGEST_DIFFERENCE  # a NaN is not near
    if n_others > max(1, LARGEST_SHARE * rows) or not is_near:
        raise ReplayDiffersError(
            f"a replayed step gave {n_others} of {rows} rows another token, "
            f"and log-probabilities that differ by {difference:.2g} on average"
        )
