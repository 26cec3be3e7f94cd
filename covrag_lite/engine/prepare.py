"""What makes a network quick to answer without changing an answer: unpacked weights, lean adapters, full batches."""

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

# Tokens of a batch: more gives hardly any speed, and a batch is what a killed run loses.
CPU_TOKENS = 16384
CUDA_TOKENS = 2**19
SPARE = 1.25  # of the decoding steps' store over what a first batch takes: later ones are of other shapes
FULL = re.compile("out of memory|not enough memory|can't allocate memory")  # what CUDA's and CPUs' allocators say


def quicken(network: PreTrainedModel, device: str) -> None:
    """Make a network quick to answer: the same values, computed with less around them."""
    # Unpacking takes most of a decoding step on a CPU. Training's own rule says where there is room for the weights.
    if unpacked_bytes(network) < 0.1 * free_memory(device):
        unpack_linears(network, by_columns)
    lighten_adapters(network)
    if network.config._attn_implementation == "sdpa":
        network.set_attn_implementation(GROUPED)


def unpack_linears(
    network: PreTrainedModel, laid_out: Callable[[torch.Tensor], torch.Tensor] = torch.Tensor.detach
) -> None:
    """Replace 4-bit linear layers by plain ones of exactly the same values, laid out in memory as that says."""
    for parent in list(network.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, Linear4bit):
                plain = torch.nn.Linear(layer.in_features, layer.out_features, bias=False, device="meta")
                plain.weight = torch.nn.Parameter(laid_out(frozen_weight(layer)), requires_grad=False)
                plain.bias = layer.bias
                setattr(parent, name, plain)


def by_columns(weight: torch.Tensor) -> torch.Tensor:
    """The same weight, on a CPU laid out column by column: products with it are a tenth faster there."""
    return weight if weight.is_cuda else weight.t().contiguous().t()


def frozen_weight(linear: torch.nn.Module) -> torch.Tensor:
    """A frozen layer's weights (out, in), unpacked from 4 bits where they are packed."""
    base = base_of(linear)
    if isinstance(base, Linear4bit):
        return dequantize_4bit(base.weight.data, base.weight.quant_state)
    return base.weight


def base_of(layer: torch.nn.Module) -> torch.nn.Module:
    """The layer under an adapter."""
    return getattr(layer, "base_layer", layer)


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


def lighten_adapters(network: torch.nn.Module) -> None:
    """Let adapters be computed without peft's own forward."""
    for layer in network.modules():
        if isinstance(layer, LoraLayer):
            for weights in (*layer.lora_A.values(), *layer.lora_B.values()):
                weights.to(network.dtype)  # as they were trained; peft keeps them in fp32
            layer.forward = MethodType(adapted, layer)


def adapted(layer: LoraLayer, x: torch.Tensor, *_, **__) -> torch.Tensor:
    """x W' + s (x A') B' without the copies and casts of peft's own forward, which serves adapters of other kinds."""
    name = layer.active_adapters[0]
    if layer.disable_adapters or name not in layer.lora_A:
        return layer.base_layer(x)
    if name in layer.lora_variant or layer.lora_B[name].bias is not None:  # more than the product of two matrices
        return type(layer).forward(layer, x)
    out = layer.base_layer(x)
    low = x.reshape(-1, x.shape[-1]) @ layer.lora_A[name].weight.t()  # (tokens, rank)
    out.view(-1, out.shape[-1]).addmm_(low, layer.lora_B[name].weight.t(), alpha=layer.scaling[name])
    return out


def fitting_tokens(network: PreTrainedModel, device: str) -> int:
    """How many tokens may go through the network together."""
    if device == "cpu":
        return CPU_TOKENS  # the same whatever is free, so that a resumed run makes the same batches
    shape = network.config
    head_size = getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads
    kept = shape.num_hidden_layers * 2 * shape.num_key_value_heads * head_size  # keys and values of a token
    passing = 3 * shape.intermediate_size + 8 * shape.hidden_size  # one layer's tensors while it is read
    # Half of the memory for the batch; where keys and values are most of it, four fifths for it and the steps' store.
    needed = max(2 * (kept + passing), 1.25 * (kept + SPARE * kept + passing))
    tokens = free_memory(device) / (needed * network.dtype.itemsize)
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


def fit(write: Callable[[Sequence[str]], list], prompts: Sequence[str], used: Counter) -> list:
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
    report_fallback(used, "batches are halved", "they do not fit into memory")
    half = len(prompts) // 2
    return fit(write, prompts[:half], used) + fit(write, prompts[half:], used)
