"""Networks and samples for measuring training: Llamas with random weights, samples of our lengths.

Networks are quantised layer by layer on the device, so that 13B needs no more memory on the host
than on the GPU.
"""

import random
from collections.abc import Sequence
from typing import NamedTuple

import torch
from bitsandbytes.nn import Linear4bit, Params4bit
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from covrag_lite.qlora import Encoded


class NetworkShape(NamedTuple):
    """The sizes of a Llama."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    key_value_heads: int
    vocabulary: int
    tied: bool  # one matrix for embedding and logits


SHAPES = {
    "tiny": NetworkShape(64, 192, 2, 4, 2, 512, True),
    "smollm2": NetworkShape(576, 1536, 30, 9, 3, 49152, True),
    "1.5b": NetworkShape(1536, 8960, 28, 12, 2, 151936, True),  # that of Qwen2.5
    "7b": NetworkShape(4096, 11008, 32, 32, 32, 32000, False),
    "13b": NetworkShape(5120, 13824, 40, 40, 40, 32000, False),
}
# The shortest and the longest sample of each task, answers and verdicts, and its target tokens.
LENGTHS = ((450, 550, 15), (700, 800, 110))


def build_network(shape: str, device: str) -> LlamaForCausalLM:
    """Build a Llama of this shape with random weights, quantised layer by layer on the device."""
    sizes = SHAPES[shape]
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    config = LlamaConfig(
        hidden_size=sizes.hidden,
        intermediate_size=sizes.intermediate,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.key_value_heads,
        vocab_size=sizes.vocabulary,
        tie_word_embeddings=sizes.tied,
        max_position_embeddings=4096,
        dtype=dtype,
    )
    with torch.device("meta"):
        network = LlamaForCausalLM(config).to(dtype)
    fill_with_random_weights(network, device, dtype)
    network.model.rotary_emb = LlamaRotaryEmbedding(config).to(device)
    if sizes.tied:
        network.lm_head.weight = network.model.embed_tokens.weight
    network.is_loaded_in_4bit = True  # peft checks this to choose its 4-bit layer
    return network


def fill_with_random_weights(network: torch.nn.Module, device: str, dtype: torch.dtype) -> None:
    """Fill a network with random weights, in 4 bits for linear layers except the last."""
    generator = torch.Generator(device).manual_seed(0)

    def draw(weight: torch.Tensor) -> torch.Tensor:
        return torch.randn(weight.shape, generator=generator, device=device, dtype=dtype) * 0.02

    for parent in list(network.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, torch.nn.Linear) and name != "lm_head":
                setattr(parent, name, quantise(layer, draw(layer.weight), dtype))
        for name, weight in list(parent.named_parameters(recurse=False)):
            if weight.is_meta:
                if weight.dim() > 1:
                    value = draw(weight)
                else:  # the scale of a norm
                    value = torch.ones(weight.shape, device=device, dtype=dtype)
                setattr(parent, name, torch.nn.Parameter(value, requires_grad=False))


def quantise(layer: torch.nn.Linear, weight: torch.Tensor, dtype: torch.dtype) -> Linear4bit:
    """Build a linear layer with these weights in NF4 with double quantisation."""
    quantised = Linear4bit(
        layer.in_features,
        layer.out_features,
        bias=False,
        compute_dtype=dtype,
        quant_type="nf4",
        device="meta",
    )
    packed = Params4bit(
        weight, requires_grad=False, compress_statistics=True, quant_type="nf4", module=quantised
    )
    quantised.weight = packed.to(weight.device)  # moving the weight quantises it
    return quantised


def length_mix(n: int, vocabulary: int, seed: int = 0, text: Sequence[int] = ()) -> list[Encoded]:
    """Return samples as long as our training data, of random tokens or pieces of a text.

    Answers have about 500 tokens with 15 targets, verdicts 750 with 110.
    """
    generator = random.Random(seed)
    samples = []
    for number in range(n):
        task = number % 2
        shortest, longest, n_targets = LENGTHS[task]
        length = generator.randint(shortest, longest)
        tokens = draw_tokens(length, vocabulary, generator, text)
        samples.append(Encoded(task, tokens, length - n_targets))
    return generator.sample(samples, n)


def full_rows(
    n: int, vocabulary: int, length: int, seed: int = 0, text: Sequence[int] = ()
) -> list[Encoded]:
    """Return samples that fill one row each, with 110 targets."""
    generator = random.Random(seed)
    start = length - min(110, length // 2)
    rows = [draw_tokens(length, vocabulary, generator, text) for _ in range(n)]
    return [Encoded(1, tokens, start) for tokens in rows]


def draw_tokens(
    length: int, vocabulary: int, generator: random.Random, text: Sequence[int] = ()
) -> tuple[int, ...]:
    """Return random tokens, or a piece of the text if there is one."""
    if text:
        begin = generator.randrange(len(text) - length)
        return tuple(text[begin : begin + length])
    return tuple(generator.randrange(vocabulary) for _ in range(length))
