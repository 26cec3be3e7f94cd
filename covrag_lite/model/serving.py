"""What makes answering quick without changing an answer: weights unpacked once, lean adapters and attention, batches as large as fit.

`local` calls this before and around what `decoding` writes; training unpacks weights by it too.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MethodType

import psutil
import torch
from bitsandbytes.functional import dequantize_4bit
from bitsandbytes.nn import Linear4bit
from peft.tuners.lora import LoraLayer
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache
from transformers.cache_utils import DynamicLayer
from transformers.masking_utils import sdpa_mask

CPU_TOKENS, CUDA_TOKENS = (
    16384,
    2**18,
)  # of a batch: more gives hardly any speed, and a batch is what a killed run loses
ROOM = 64  # tokens behind the end of the cache: most answers and revised questions are shorter
GROUPED, BLOCK = "grouped", 64  # the name under which transformers knows `attend`, and the queries it takes at a time
FULL = re.compile(
    "out of memory|not enough memory|can't allocate memory"
)  # what the allocators of CUDA and of CPUs say


def quicken(network, device: str) -> None:
    """Make a network quick to answer: the same values, computed with less around them."""
    # Unpacking takes most of a decoding step on a CPU. Training's own rule says where there is room for the weights.
    if unpacked_bytes(network) < 0.1 * free_memory(device):
        unpack_linears(network)
    for layer in network.modules():
        if isinstance(layer, LoraLayer):
            for weights in (*layer.lora_A.values(), *layer.lora_B.values()):
                weights.to(network.dtype)  # as they were trained; peft keeps them in fp32
            layer.forward = MethodType(adapted, layer)
    if device == "cpu" and network.config._attn_implementation == "sdpa":
        network.set_attn_implementation(GROUPED)


def unpack_linears(network) -> None:
    """Replace 4-bit linear layers by plain ones of exactly the same values."""
    for parent in list(network.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, Linear4bit):
                plain = torch.nn.Linear(layer.in_features, layer.out_features, bias=False, device="meta")
                plain.weight = torch.nn.Parameter(frozen_weight(layer), requires_grad=False)
                plain.bias = layer.bias
                setattr(parent, name, plain)


def frozen_weight(linear) -> torch.Tensor:
    """A frozen layer's weights (out, in), unpacked from 4 bits where they are packed."""
    base = getattr(linear, "base_layer", linear)
    return dequantize_4bit(base.weight.data, base.weight.quant_state) if isinstance(base, Linear4bit) else base.weight


def unpacked_bytes(network) -> int:
    """The bytes the 4-bit weights take once unpacked."""
    return (
        sum(layer.in_features * layer.out_features for layer in network.modules() if isinstance(layer, Linear4bit))
        * network.dtype.itemsize
    )


def free_memory(device: str) -> int:
    """Bytes that can still be had: of the GPU, with what PyTorch holds in reserve, or of the machine."""
    if device != "cuda":
        return psutil.virtual_memory().available
    return torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()


def attend(module, query, key, value, attention_mask, scaling=None, **_):
    """transformers' "sdpa" with less to do on a CPU: heads of a group share their keys, and no query looks at keys that come after its block."""
    attention = partial(torch.nn.functional.scaled_dot_product_attention, scale=scaling, enable_gqa=True)
    if attention_mask is None:
        out = attention(query, key, value, is_causal=query.shape[2] > 1)
    else:
        new, past = query.shape[2], key.shape[2] - query.shape[2]
        blocks = [(start, min(start + BLOCK, new)) for start in range(0, new, BLOCK)]
        out = torch.cat(
            [
                attention(
                    query[:, :, i:j],
                    key[:, :, : past + j],
                    value[:, :, : past + j],
                    attention_mask[:, :, i:j, : past + j],
                )
                for i, j in blocks
            ],
            2,
        )
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register(GROUPED, attend)
AttentionMaskInterface.register(GROUPED, sdpa_mask)


def adapted(layer, x, *_, **__):
    """x W' + s (x A') B' without the copies and casts of peft's own forward, which is left to adapters of other kinds."""
    name = layer.active_adapters[0]
    if layer.disable_adapters or name not in layer.lora_A:
        return layer.base_layer(x)
    if name in layer.lora_variant or layer.lora_B[name].bias is not None:
        return type(layer).forward(layer, x)
    a, b, out = layer.lora_A[name].weight, layer.lora_B[name].weight, layer.base_layer(x)
    out.view(-1, out.shape[-1]).addmm_(x.reshape(-1, x.shape[-1]) @ a.t(), b.t(), alpha=layer.scaling[name])
    return out


class Roomy(DynamicLayer):
    """A layer of the cache with room behind its end: a step writes its tokens there, where transformers' own copies all that were there before."""

    room = ()  # keys and values with that room; what is in use begins where they begin

    def update(self, key_states, value_states, *_, **__):
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        used = self.get_seq_length()
        end = used + key_states.shape[-2]
        if not self.has_room(end):
            self.room = tuple(
                new.new_empty(*new.shape[:2], end + ROOM, new.shape[-1]) for new in (key_states, value_states)
            )
            for whole, old in zip(self.room, (self.keys, self.values) if used else ()):
                whole[..., :used, :] = old
        for whole, new in zip(self.room, (key_states, value_states)):
            whole[..., used:end, :] = new
        self.keys, self.values = (whole[..., :end, :] for whole in self.room)
        return self.keys, self.values

    def has_room(self, end: int) -> bool:
        """Is what is in use the beginning of the room, and does it reach this far?"""
        return (
            bool(self.room)
            and self.keys.data_ptr() == self.room[0].data_ptr()
            and len(self.keys) == len(self.room[0])
            and end <= self.room[0].shape[-2]
        )


def roomy_cache(config) -> DynamicCache:
    """transformers' cache for such a network, its plain layers with room."""
    cache = DynamicCache(config=config)
    cache.layers = [Roomy() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def fitting_tokens(network, device: str) -> int:
    """How many tokens may go through the network together."""
    if device == "cpu":
        return CPU_TOKENS  # the same whatever is free, so that a resumed run makes the same batches
    shape = network.config
    heads = getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads
    kept = shape.num_hidden_layers * 2 * shape.num_key_value_heads * heads  # keys and values of a token
    passing = 3 * shape.intermediate_size + 8 * shape.hidden_size  # one layer's tensors while it is read
    tokens = free_memory(device) / 2 / ((kept + passing) * network.dtype.itemsize)
    return min(
        CUDA_TOKENS, 1 << max(int(tokens), 1).bit_length() - 1
    )  # a power of two: mostly the same from run to run


def plan(lengths: Mapping[str, int], room: int, tokens: int) -> list[list[str]]:
    """The prompts longest first, in batches whose rows times the longest one, with room to write, stay within `tokens`."""
    batches, size = [], 0
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
