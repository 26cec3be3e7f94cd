"""What makes answering quick without changing an answer: unpacked weights, lean adapters and attention, full batches.

`local` calls this before and around what `decoding` writes, `reading` takes its cache from here, and training unpacks
weights by it too.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import psutil
import torch
from bitsandbytes.functional import dequantize_4bit
from bitsandbytes.nn import Linear4bit
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    DynamicCache,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.cache_utils import DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from covrag_lite.engine.linears import lean_linears

# Tokens of a batch: more gives hardly any speed, and a batch is what a killed run loses.
CPU_TOKENS = 16384
CUDA_TOKENS = 2**19
ROOM = 96  # tokens behind the end of the cache: most answers, revised questions and guessed verdicts are shorter
GROUPED = "grouped"  # the name under which transformers knows `attend`
BLOCK = 64  # queries that `attend` takes at a time
FULL = re.compile("out of memory|not enough memory|can't allocate memory")  # what CUDA's and CPUs' allocators say


def quicken(network: PreTrainedModel, device: str) -> None:
    """Make a network quick to answer: the same values, computed with less around them."""
    # Unpacking takes most of a decoding step on a CPU. Training's own rule says where there is room for the weights.
    if unpacked_bytes(network) < 0.1 * free_memory(device):
        unpack_linears(network)
    lean_linears(network)
    if network.config._attn_implementation == "sdpa":
        network.set_attn_implementation(GROUPED)


def unpack_linears(network: PreTrainedModel) -> None:
    """Replace 4-bit linear layers by plain ones of exactly the same values."""
    for parent in list(network.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, Linear4bit):
                plain = torch.nn.Linear(layer.in_features, layer.out_features, bias=False, device="meta")
                plain.weight = torch.nn.Parameter(frozen_weight(layer), requires_grad=False)
                plain.bias = layer.bias
                setattr(parent, name, plain)


def frozen_weight(linear: torch.nn.Module) -> torch.Tensor:
    """A frozen layer's weights (out, in), unpacked from 4 bits where they are packed."""
    base = getattr(linear, "base_layer", linear)
    if isinstance(base, Linear4bit):
        return dequantize_4bit(base.weight.data, base.weight.quant_state)
    return base.weight


def unpacked_bytes(network: PreTrainedModel) -> int:
    """The bytes the 4-bit weights take once unpacked."""
    packed = [layer for layer in network.modules() if isinstance(layer, Linear4bit)]
    weights = sum(layer.in_features * layer.out_features for layer in packed)
    return weights * network.dtype.itemsize


def free_memory(device: str) -> int:
    """Bytes that can still be had: of the GPU, with what PyTorch holds in reserve, or of the machine."""
    if device != "cuda":
        return psutil.virtual_memory().available
    free, whole = torch.cuda.mem_get_info()
    reserved = torch.cuda.memory_reserved()
    allowed = torch.cuda.get_per_process_memory_fraction() * whole  # less than the whole where somebody has capped it
    return int(min(free, allowed - reserved)) + reserved - torch.cuda.memory_allocated()


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **others,
) -> tuple[torch.Tensor, None]:
    """transformers' "sdpa" with less to do: (rows, heads, tokens, size) to (rows, tokens, heads, size).

    Heads of a group share their keys without a copy. On a CPU no query looks at keys that come after its block.
    """
    n_new = query.shape[2]
    if n_new == 1:
        return attend_one(query, key, value, attention_mask, scaling), None
    if query.is_cuda:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **others)
    attention = partial(torch.nn.functional.scaled_dot_product_attention, scale=scaling, enable_gqa=True)
    if attention_mask is None:
        out = attention(query, key, value, is_causal=True)
    else:
        n_past = key.shape[2] - n_new
        blocks = []
        for start in range(0, n_new, BLOCK):
            end = min(start + BLOCK, n_new)
            seen = n_past + end
            mask = attention_mask[:, :, start:end, :seen]
            blocks.append(attention(query[:, :, start:end], key[:, :, :seen], value[:, :, :seen], mask))
        out = torch.cat(blocks, 2)
    return out.transpose(1, 2).contiguous(), None


def attend_one(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, scaling: float | None
) -> torch.Tensor:
    """The attention of one new token a row: its heads of a group are taken for tokens of the head that they share.

    transformers would write each key once for every head of its group, at every step.
    """
    rows, heads, _, size = query.shape
    shared = key.shape[1]
    grouped = query.reshape(rows, shared, heads // shared, size)
    out = torch.nn.functional.scaled_dot_product_attention(grouped, key, value, mask, scale=scaling)
    return out.reshape(rows, 1, heads, size)


AttentionInterface.register(GROUPED, attend)
AttentionMaskInterface.register(GROUPED, sdpa_mask)


class Roomy(DynamicLayer):
    """A layer of the cache with room behind its end, where a step writes its tokens.

    transformers' own layer copies everything that was there before at each step.
    """

    room = ()  # keys and values with that room; what is in use begins where they begin

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_, **__
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add keys and values, each (rows, heads, tokens, size), and return all there are."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        used = self.get_seq_length()
        end = used + key_states.shape[-2]
        if not self.has_room(end):
            self.make_room(key_states, value_states, used, end + ROOM)
        for whole, new in zip(self.room, (key_states, value_states)):
            whole[..., used:end, :] = new
        self.keys, self.values = (whole[..., :end, :] for whole in self.room)
        return self.keys, self.values

    def has_room(self, end: int) -> bool:
        """Whether what is in use is the beginning of the room, and the room reaches this far."""
        return (
            bool(self.room)
            and self.keys.data_ptr() == self.room[0].data_ptr()
            and len(self.keys) == len(self.room[0])
            and end <= self.room[0].shape[-2]
        )

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep these rows alone, with their room: what is in use is copied once, and not again by the next step."""
        used = self.get_seq_length()
        if not (used and self.has_room(used)):
            return super().batch_select_indices(indices)
        self.room = tuple(whole.index_select(0, indices) for whole in self.room)
        self.keys, self.values = (whole[..., :used, :] for whole in self.room)

    def make_room(self, key_states: torch.Tensor, value_states: torch.Tensor, used: int, size: int) -> None:
        """Move what is in use to the beginning of a new room for `size` tokens."""
        room = []
        for new, old in ((key_states, self.keys), (value_states, self.values)):
            whole = new.new_empty(*new.shape[:2], size, new.shape[-1])
            if used:
                whole[..., :used, :] = old
            room.append(whole)
        self.room = tuple(room)


def roomy_cache(config: PretrainedConfig) -> DynamicCache:
    """transformers' cache for such a network, its plain layers with room."""
    cache = DynamicCache(config=config)
    cache.layers = [Roomy() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def fitting_tokens(network: PreTrainedModel, device: str) -> int:
    """How many tokens may go through the network together."""
    if device == "cpu":
        return CPU_TOKENS  # the same whatever is free, so that a resumed run makes the same batches
    shape = network.config
    head_size = getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads
    kept = shape.num_hidden_layers * 2 * shape.num_key_value_heads * head_size  # keys and values of a token
    passing = 3 * shape.intermediate_size + 8 * shape.hidden_size  # one layer's tensors while it is read
    tokens = free_memory(device) / 2 / ((kept + passing) * network.dtype.itemsize)
    power_of_two = 1 << max(int(tokens), 1).bit_length() - 1  # mostly the same from run to run
    return min(CUDA_TOKENS, power_of_two)


def plan(lengths: Mapping[str, int], room: int, tokens: int) -> list[list[str]]:
    """The prompts longest first, in batches of at most `tokens`: rows times the longest one with room to write."""
    batches = []
    size = 0
    for prompt in sorted(lengths, key=lambda prompt: (-lengths[prompt], prompt)):
        if not batches or len(batches[-1]) == size:
            batches.append([])
            size = max(1, tokens // (lengths[prompt] + room))
        batches[-1].append(prompt)
    return batches


def fit(write: Callable[[Sequence[str]], list], prompts: Sequence[str]) -> list:
    """What `write` makes of a batch, in halves where the whole does not fit into memory."""
    try:
        return write(prompts)
    except RuntimeError as error:  # torch.OutOfMemoryError is one
        if not FULL.search(str(error)):
            raise
        if len(prompts) == 1:
            raise MemoryError(
                f"one prompt of {len(prompts[0])} letters does not fit into memory by itself; "
                f"lower k, choose a smaller model, or free memory"
            ) from None
    # Outside of `except`, where the failed attempt's tensors are gone.
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    half = len(prompts) // 2
    return fit(write, prompts[:half]) + fit(write, prompts[half:])
