"""CUDA graphs: thousands of kernels that start at once and not one by one from Python.

`record_graph` records anything whose tensors stay in their places. A greedy decoding step does so here: tokens,
positions, mask, and keys and values with room for what is still to be written. Rows and room are rounded up, so that
few shapes occur. Elsewhere than on CUDA the same steps run unrecorded.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import torch
from torch.nn.attention import sdpa_kernel
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from covrag_lite.engine.prefill import KERNELS
from covrag_lite.engine.varlen_prefill import attend_rows

# How far a replay may be from the step itself: bf16 numbers near 20 stand 0.125 apart, and ties may fall either way.
NEAR = 0.05  # mean difference of the tokens' logarithmic probabilities
FEW = 0.05  # share of the rows that get another token; one row always may

Past = Iterable[tuple[torch.Tensor, torch.Tensor]]  # of each layer keys and values, (rows, heads, tokens, size)


def record_graph(
    compute: Callable[[], torch.Tensor | None],
    warmups: int,
    stream: torch.cuda.Stream | None = None,
    pool: tuple[int, int] | None = None,
) -> tuple[torch.cuda.CUDAGraph, torch.Tensor | None]:
    """A graph of what `compute` launches, and what it returns, which every replay overwrites.

    Everything that it reads and writes must stay in its place. What is set up at a first use must not be recorded:
    `warmups` passes come before, on the same stream, which then has its workspace for matrix products.
    """
    stream = stream or torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.stream(stream):  # also ends a recording that fails, where torch.cuda.graph leaves its stream on
            for _ in range(warmups):
                compute()
            # Errors of this thread alone count: a notebook's other threads may free their memory meanwhile.
            with torch.cuda.graph(graph, pool, stream, capture_error_mode="thread_local"):
                made = compute()
    finally:
        torch.cuda.current_stream().wait_stream(stream)
    return graph, made


class Shape(NamedTuple):
    """How much a step has room for."""

    rows: int
    room: int  # tokens of a row, read and written


def rounded(number: int, least: int) -> int:
    """The number rounded up to a quarter of the power of two below it, or to a multiple of `least`."""
    quarter = max(least, 1 << max(0, number.bit_length() - 3))
    return -(-number // quarter) * quarter


class Placed(DynamicLayer):
    """A layer of the cache whose keys and values stay where they are; a new token is written to its place."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, place: torch.Tensor):
        super().__init__()
        self.keys = keys
        self.values = values
        self.place = place
        self.is_initialized = True

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *_, **__) -> tuple[torch.Tensor, ...]:
        """Write one token's keys and values, and return the whole room: the mask hides what is not written yet."""
        self.keys.index_copy_(2, self.place, key_states)
        self.values.index_copy_(2, self.place, value_states)
        return self.keys, self.values


class Step:
    """One decoding step of a fixed shape over a `store` of all layers' keys and values, each (2, tokens, heads, size).

    Steps of all shapes share the store. Where the network is `packed`, its layers are those of `varlen_prefill`.
    """

    def __init__(self, network: PreTrainedModel, shape: Shape, store: list[torch.Tensor], packed: bool):
        self.network = network
        self.layers = {"attend": partial(attend_rows, shape.rows)} if packed else {}
        self.shape = shape
        device = network.device
        self.tokens = torch.zeros(shape.rows, 1, dtype=torch.long, device=device)
        self.positions = torch.zeros_like(self.tokens)
        self.mask = torch.zeros(shape.rows, 1, 1, shape.room, dtype=network.dtype, device=device)  # added to scores
        self.place = torch.zeros(1, dtype=torch.long, device=device)  # of the next token in the room
        self.forbidden = torch.zeros(network.config.vocab_size, dtype=torch.bool, device=device)
        self.result = torch.zeros(2, shape.rows, dtype=torch.double, device=device)  # tokens, and how likely each was
        self.cache = DynamicCache(config=network.config)
        self.cache.layers = []
        for whole in store:
            _, _, heads, size = whole.shape
            views = whole[:, : shape.rows * shape.room].view(2, shape.rows, heads, shape.room, size)
            self.cache.layers.append(Placed(*views, self.place))
        self.replay: Callable[[], None] | None = None  # of the recorded step
        on_gpu = self.result.is_cuda
        self.arrived = torch.zeros(2, shape.rows, dtype=torch.double, pin_memory=on_gpu)  # the result, on the CPU
        self.arrival = torch.cuda.Event() if on_gpu else None

    def load(
        self, past: Past, seen: torch.Tensor, tokens: torch.Tensor, positions: torch.Tensor, forbidden: torch.Tensor
    ) -> None:
        """Take over what rows have read, `seen` (rows, tokens) of it, and the token that each row reads next."""
        rows, used = seen.shape
        for layer, (keys, values) in zip(self.cache.layers, past):
            for whole, part in ((layer.keys, keys), (layer.values, values)):
                whole.zero_()  # hidden values count nothing, but they must be numbers
                whole[:rows, :, :used] = part[:, :, :used]
        self.mask.fill_(float("-inf"))
        self.mask[:rows, 0, 0, :used].masked_fill_(seen, 0.0)
        self.tokens.zero_()
        self.tokens[:rows, 0] = tokens
        self.positions.zero_()
        self.positions[:rows, 0] = positions
        self.place.fill_(used)
        self.forbidden.copy_(forbidden)

    @torch.inference_mode()
    def compute(self) -> None:
        """Read each row's token and put the likeliest next one in its place; nothing here waits for the device."""
        self.mask.index_fill_(3, self.place, 0.0)
        with sdpa_kernel(KERNELS):
            out = self.network(
                input_ids=self.tokens,
                attention_mask=self.mask,
                position_ids=self.positions,
                past_key_values=self.cache,
                use_cache=True,
                **self.layers,
            )
        logits = out.logits[:, -1].float().masked_fill(self.forbidden, float("-inf"))  # (rows, vocabulary)
        picked, tokens = logits.max(1)
        self.result[0].copy_(tokens)
        self.result[1].copy_(picked - logits.logsumexp(1))
        self.tokens.copy_(tokens[:, None])
        self.positions.add_(1)
        self.place.add_(1)

    @torch.inference_mode()
    def launch(self) -> None:
        """Begin the next step; its result will be on its way to the CPU."""
        (self.replay or self.compute)()
        self.arrived.copy_(self.result, non_blocking=True)
        if self.arrival is not None:
            self.arrival.record()

    def collect(self) -> tuple[list[float], list[float]]:
        """The next token of each row, and its logarithmic probability, as the last step has left them."""
        if self.arrival is not None:
            self.arrival.synchronize()
        tokens, logs = self.arrived.tolist()
        return tokens, logs


def record_step(step: Step, rows: int, stream: torch.cuda.Stream, pool: tuple[int, int]) -> Callable[[], None]:
    """A function that takes this loaded step by replaying it, compared with the step itself; it is left as loaded."""
    moving = (step.tokens, step.positions, step.place)
    loaded = [one.clone() for one in moving]

    def rewind() -> None:
        for one, kept in zip(moving, loaded):
            one.copy_(kept)

    try:
        graph, _ = record_graph(step.compute, 1, stream, pool)
        expected = step.result.clone()
        rewind()
        graph.replay()
        compare(expected[:, :rows], step.result[:, :rows])
    finally:
        rewind()
    return graph.replay


def compare(expected: torch.Tensor, replayed: torch.Tensor) -> None:
    """Refuse a replay that gives other tokens than the step itself, or holds them for more or less likely."""
    rows = expected.shape[1]
    other = int((expected[0] != replayed[0]).sum())
    far = (expected[1] - replayed[1]).abs().mean().item()
    if other > max(1, FEW * rows) or not far <= NEAR:  # a NaN is not near
        raise RuntimeError(f"a replayed step gave {other} of {rows} rows another token, off by {far:.2g} in the mean")
