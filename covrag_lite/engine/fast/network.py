"""A backbone whose network is prepared for answering; all adapters share it.

One object owns everything that is prepared, so it is freed together with the network.
"""

from array import array
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from transformers import PreTrainedModel

from covrag_lite.engine.backbone import Backbone
from covrag_lite.engine.devices import free_memory
from covrag_lite.engine.fast import varlen_prefill
from covrag_lite.engine.fast.batch_plan import count_fitting_tokens, plan_batches
from covrag_lite.engine.fast.decode_session import Steps
from covrag_lite.engine.fast.light_adapters import lighten_adapters
from covrag_lite.engine.fast.prefill import GROUPED
from covrag_lite.engine.fast.unpacking import are_worth_unpacking, by_columns, unpack_linears


class PreparedNetwork:
    """A network that computes the same values as the backbone's with less overhead."""

    def __init__(self, backbone: Backbone, execution: str, used: Counter):
        self.backbone = backbone
        self.device = backbone.device
        self.execution = execution  # "graph" records decoding steps; "compiled" compiles layers
        self.used = used  # the engine's counter, which also counts fallbacks
        self.planned: dict[str, array] = {}  # the tokens of the prompts in the last planned batches
        self._reset()

    def forget(self) -> None:
        """Drop the network; the next use reads the weights again."""
        self.backbone.network.forget()
        self._reset()

    def _reset(self) -> None:
        self.prepared_adapters: set[Path | None] = set()
        self.is_packed = False  # whether prompts are read by `varlen_prefill`
        self.steps: Steps | None = None

    def prepare(self, adapter: Path | None) -> PreTrainedModel:
        """Return the same network, prepared for answering; training needs an unprepared one."""
        network = self.backbone.network.switch(adapter)
        if adapter not in self.prepared_adapters:  # each adapter has its own weights
            lighten(network, self.device)
            if not self.prepared_adapters and self.execution != "eager":
                is_compiled = "compiled" in self.execution
                self.is_packed = varlen_prefill.install(network, is_compiled, self.used)
            self.prepared_adapters.add(adapter)
            self.steps = None  # they were recorded with weights that have moved
            if "graph" in self.execution:
                self.steps = Steps(network, self.device, self.used, self.is_packed)
        return network

    def encode(self, prompts: Sequence[str], room: int) -> list[list[int]]:
        """Tokenise the prompts; those of the last planned batches are tokenised only once."""
        return self.backbone.encode(prompts, room, self.planned)

    def plan(self, prompts: Sequence[str], room: int) -> list[list[str]]:
        """Split the prompts into batches that fit into memory, with similar lengths together."""
        encoded = self.encode(prompts, room) if prompts else []
        self.planned = {prompt: array("i", ids) for prompt, ids in zip(prompts, encoded)}
        lengths = {prompt: len(ids) for prompt, ids in self.planned.items()}
        return plan_batches(lengths, room, self.fitting_tokens)

    @cached_property
    def fitting_tokens(self) -> int:
        """Return how many tokens may pass through the network at once."""
        return count_fitting_tokens(self.prepare(None), self.device)


def lighten(network: PreTrainedModel, device: str) -> None:
    """Let a network compute the same values with less overhead."""
    if are_worth_unpacking(network, free_memory(device)):
        unpack_linears(network, by_columns)
    lighten_adapters(network)
    if network.config._attn_implementation == "sdpa":
        network.set_attn_implementation(GROUPED)
