"""What makes a network quick to answer without changing an answer: unpacked weights, fused linears, full batches.

A decoding step spends its time on starting kernels. Queries, keys and values read the same input, as do an MLP's gate
and up, so their weights are laid one behind the other, and so are their adapters.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
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
FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))  # by their names in an attention or an MLP


def quicken(network: PreTrainedModel, device: str) -> None:
    """Make a network quick to answer: the same values, computed with less around them."""
    # Unpacking takes most of a decoding step on a CPU. Training's own rule says where there is room for the weights.
    if unpacked_bytes(network) < 0.1 * free_memory(device):
        unpack_linears(network, by_columns)
    fuse_linears(network)
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


def fuse_linears(network: torch.nn.Module) -> None:
    """Let adapters be computed without peft's own forward, and layers with the same input together."""
    for layer in network.modules():
        if isinstance(layer, LoraLayer):
            for weights in (*layer.lora_A.values(), *layer.lora_B.values()):
                weights.to(network.dtype)  # as they were trained; peft keeps them in fp32
            layer.forward = MethodType(adapted, layer)
    for parent in network.modules():
        for names in FUSED:
            layers = [getattr(parent, name, None) for name in names]
            if can_join(layers):
                FusedLinear(layers)


def adapted(layer: LoraLayer, x: torch.Tensor, *_, **__) -> torch.Tensor:
    """x W' + s (x A') B' without the copies and casts of peft's own forward, which serves adapters of other kinds."""
    name = active(layer)
    if name is None:
        return layer.base_layer(x)
    if not is_plain(layer, name):
        return type(layer).forward(layer, x)
    return plus_adapter(
        layer.base_layer(x), x, layer.lora_A[name].weight, layer.lora_B[name].weight.t(), layer.scaling[name]
    )


def active(layer: torch.nn.Module) -> str | None:
    """The name of the adapter that is switched on, if this layer has it."""
    if not isinstance(layer, LoraLayer) or layer.disable_adapters:
        return None
    name = layer.active_adapters[0]
    return name if name in layer.lora_A else None


def is_plain(layer: LoraLayer, name: str) -> bool:
    """Whether an adapter is the product of two matrices, and nothing else."""
    return name not in layer.lora_variant and layer.lora_B[name].bias is None


def plus_adapter(out: torch.Tensor, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, scale: float) -> torch.Tensor:
    """A layer's output, (..., out), and on top of it what A (rank, in) and B (rank, out) make of x, (..., in)."""
    low = x.reshape(-1, x.shape[-1]) @ a.t()  # (tokens, rank)
    out.view(-1, out.shape[-1]).addmm_(low, b, alpha=scale)
    return out


def can_join(layers: Sequence[torch.nn.Module | None]) -> bool:
    """Whether these layers are matrices of plain numbers with plain adapters alike, and all or none have a bias."""
    bases = [base_of(layer) for layer in layers]
    if any(type(base) is not torch.nn.Linear for base in bases):  # those of 4 and 8 bits are kinds of it
        return False
    scales = []  # of each layer's adapters, by their names
    for layer in layers:
        names = getattr(layer, "lora_A", ())
        scales.append({name: layer.scaling[name] for name in names if is_plain(layer, name)})
        if len(scales[-1]) < len(names):
            return False
    return all(one == scales[0] for one in scales) and len({base.bias is None for base in bases}) == 1


class FusedLinear:
    """Several linear layers that are called one after another with the same input: the first call computes them all."""

    def __init__(self, layers: Sequence[torch.nn.Module]):
        self.layers = layers
        bases = [base_of(layer) for layer in layers]
        self.sizes = [base.out_features for base in bases]
        self.weight = by_columns(torch.cat([base.weight.data for base in bases]))  # (outs, in)
        for base, rows in zip(bases, self.weight.split(self.sizes)):
            base.weight = torch.nn.Parameter(rows, requires_grad=False)  # no second copy of it
            base.__dict__.pop("forward", None)  # from when there was no adapter around it
        self.bias = None if bases[0].bias is None else torch.cat([base.bias.data for base in bases])
        self.adapters = {}  # by name: A (ranks, in) and B (ranks, outs) of all the layers, and their scale
        for name in getattr(layers[0], "lora_A", ()):
            lora_a = [layer.lora_A[name].weight.data for layer in layers]
            lora_b = [layer.lora_B[name].weight.data.t() for layer in layers]
            # Outside of its own block B is zero: an adapter adds nothing to the other layers.
            self.adapters[name] = (torch.cat(lora_a), torch.block_diag(*lora_b), layers[0].scaling[name])
        self.x = None
        self.parts = ()
        for place, layer in enumerate(layers):
            layer.forward = partial(self.part, place)

    def part(self, place: int, x: torch.Tensor, *_, **__) -> torch.Tensor:
        """One layer's output for x."""
        if place == 0 or x is not self.x:
            self.x = x
            self.parts = self.compute(x)
        made = self.parts[place]
        if place == len(self.layers) - 1:
            self.x = None
            self.parts = ()
        return made

    def compute(self, x: torch.Tensor) -> Sequence[torch.Tensor]:
        """Every layer's output for x: (..., in) to (..., out) each."""
        out = torch.nn.functional.linear(x, self.weight, self.bias)  # (..., outs)
        name = active(self.layers[0])
        if name is not None:
            out = plus_adapter(out, x, *self.adapters[name])
        return out.split(self.sizes, -1)


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
