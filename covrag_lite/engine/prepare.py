"""Preparations that make a network answer faster without changing an answer.

They are unpacked weights, adapters without overhead, and full batches.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MethodType

import psutil
import torch
from bitsandbytes.functional import dequantize_4bit
from bitsandbytes.nn import Linear4bit
from peft.tuners.lora import LoraLayer
from transformers import PreTrainedModel

from covrag_lite.engine.interface import report_fallback
from covrag_lite.engine.prefill import GROUPED

# Tokens per batch. More gives hardly any speed, and a killed run loses its current batch.
CPU_TOKENS = 16384
CUDA_TOKENS = 2**19
# The store of the decoding steps, relative to what a first batch takes: later shapes differ.
SPARE = 1.25
FULL = re.compile("out of memory|not enough memory|can't allocate memory")  # CUDA and CPU messages


def quicken(network: PreTrainedModel, device: str) -> None:
    """Prepare a network for answering: the same values, computed with less overhead."""
    # Unpacking takes most of a decoding step on a CPU. The limit is the same as in training.
    if unpacked_bytes(network) < 0.1 * free_memory(device):
        unpack_linears(network, by_columns)
    lighten_adapters(network)
    if network.config._attn_implementation == "sdpa":
        network.set_attn_implementation(GROUPED)


def unpack_linears(
    network: PreTrainedModel, laid_out: Callable[[torch.Tensor], torch.Tensor] = torch.Tensor.detach
) -> None:
    """Replace 4-bit linear layers by plain ones with the same values.

    `laid_out` decides on their layout in memory.
    """
    for parent in list(network.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, Linear4bit):
                plain = torch.nn.Linear(layer.in_features, layer.out_features, bias=False, device="meta")
                plain.weight = torch.nn.Parameter(laid_out(frozen_weight(layer)), requires_grad=False)
                plain.bias = layer.bias
                setattr(parent, name, plain)


def by_columns(weight: torch.Tensor) -> torch.Tensor:
    """Return the same weight; on a CPU in column order, which makes products a tenth faster."""
    return weight if weight.is_cuda else weight.t().contiguous().t()


def frozen_weight(linear: torch.nn.Module) -> torch.Tensor:
    """Return a frozen layer's weights (out, in), unpacked if they have 4 bits."""
    base = base_of(linear)
    if isinstance(base, Linear4bit):
        return dequantize_4bit(base.weight.data, base.weight.quant_state)
    return base.weight


def base_of(layer: torch.nn.Module) -> torch.nn.Module:
    """Return the layer inside an adapter."""
    return getattr(layer, "base_layer", layer)


def unpacked_bytes(network: PreTrainedModel) -> int:
    """Return the bytes that the 4-bit weights take when unpacked."""
    packed = [layer for layer in network.modules() if isinstance(layer, Linear4bit)]
    weights = sum(layer.in_features * layer.out_features for layer in packed)
    return weights * network.dtype.itemsize


def free_memory(device: str) -> int:
    """Return the free bytes: of the GPU, including PyTorch's reserve, or of the machine."""
    if device != "cuda":
        return psutil.virtual_memory().available
    free, whole = torch.cuda.mem_get_info()
    reserved = torch.cuda.memory_reserved()
    # Less than the whole if a cap is set.
    allowed = torch.cuda.get_per_process_memory_fraction() * whole
    return int(min(free, allowed - reserved)) + reserved - torch.cuda.memory_allocated()


def lighten_adapters(network: torch.nn.Module) -> None:
    """Replace the forward of peft's adapters by `adapted`."""
    for layer in network.modules():
        if isinstance(layer, LoraLayer):
            for weights in (*layer.lora_A.values(), *layer.lora_B.values()):
                weights.to(network.dtype)  # as in training; peft keeps them in fp32
            layer.forward = MethodType(adapted, layer)


def adapted(layer: LoraLayer, x: torch.Tensor, *_, **__) -> torch.Tensor:
    """Compute x W' + s (x A') B' without the copies and casts of peft's general forward."""
    name = layer.active_adapters[0]
    if layer.disable_adapters or name not in layer.lora_A:
        return layer.base_layer(x)
    # More than the product of two matrices:
    if name in layer.lora_variant or layer.lora_B[name].bias is not None:
        return type(layer).forward(layer, x)
    out = layer.base_layer(x)
    low = x.reshape(-1, x.shape[-1]) @ layer.lora_A[name].weight.t()  # (tokens, rank)
    out.view(-1, out.shape[-1]).addmm_(low, layer.lora_B[name].weight.t(), alpha=layer.scaling[name])
    return out


def fitting_tokens(network: PreTrainedModel, device: str) -> int:
    """Return how many tokens may pass through the network at once."""
    if device == "cpu":
        return CPU_TOKENS  # a constant, so that a resumed run makes the same batches
    shape = network.config
    head_size = getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads
    # Keys and values of one token; then the tensors of one layer while it is computed.
    kept = shape.num_hidden_layers * 2 * shape.num_key_value_heads * head_size
    passing = 3 * shape.intermediate_size + 8 * shape.hidden_size
    # The batch gets half of the memory. If keys and values are most of it, the batch and the store
    # of the decoding steps get four fifths.
    needed = max(2 * (kept + passing), 1.25 * (kept + SPARE * kept + passing))
    tokens = free_memory(device) / (needed * network.dtype.itemsize)
    power_of_two = 1 << max(int(tokens), 1).bit_length() - 1  # mostly the same in every run
    return min(CUDA_TOKENS, power_of_two)


def plan(lengths: Mapping[str, int], room: int, tokens: int) -> list[list[str]]:
    """Sort the prompts, longest first, into batches of at most `tokens` tokens.

    A batch counts as its number of rows times its longest prompt plus `room`.
    """
    batches = []
    size = 0
    for prompt in sorted(lengths, key=lambda prompt: (-lengths[prompt], prompt)):
        if not batches or len(batches[-1]) == size:
            batches.append([])
            size = max(1, tokens // (lengths[prompt] + room))
        batches[-1].append(prompt)
    return batches


def fit(write: Callable[[Sequence[str]], list], prompts: Sequence[str], used: Counter) -> list:
    """Apply `write` to a batch, in halves if the whole does not fit into memory."""
    try:
        return write(prompts)
    except RuntimeError as error:  # torch.OutOfMemoryError is one
        if not FULL.search(str(error)):
            raise
        if len(prompts) == 1:
            raise MemoryError(
                f"one prompt of {len(prompts[0])} characters does not fit into memory by itself; "
                f"lower k, choose a smaller model, or free memory"
            ) from None
    # Outside `except`, where the tensors of the failed attempt are freed.
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    report_fallback(used, "batches are halved", "they do not fit into memory")
    half = len(prompts) // 2
    return fit(write, prompts[:half], used) + fit(write, prompts[half:], used)
