"""How fast and how lean training is, against plain transformers + peft + bitsandbytes, side by side in one run.

Shapes are Llamas with random weights, quantised layer by layer on the device, so that 13B needs no more of the host than
of the GPU. The plain way pads its batches, keeps logits for every token and recomputes every layer; the same samples a
step go both ways, and only their own tokens count.

    python -m covrag_lite.speed.training --shapes smollm2,7b,13b --out speed.json
"""

import argparse
import gc
import itertools
import json
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import torch
from accelerate import PartialState
from bitsandbytes.nn import Linear4bit, Params4bit
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from covrag_lite.config import Training
from covrag_lite.training import loop, lora, memory
from covrag_lite.training.packing import Encoded, lay_out, pack, shape_of

SHAPES = {  # hidden, intermediate, layers, heads, key-value heads, vocabulary, one matrix for embedding and logits
    "tiny": (64, 192, 2, 4, 2, 512, True),
    "smollm2": (576, 1536, 30, 9, 3, 49152, True),
    "7b": (4096, 11008, 32, 32, 32, 32000, False),
    "13b": (5120, 13824, 40, 40, 40, 32000, False),
}


@dataclass(frozen=True)
class Variant:
    """One way to train: the plain one, or ours with these settings."""

    name: str
    pack_tokens: int = 0  # 0 is the plain way
    execution: str = "compiled+graph"
    checkpointing: float = 1.0
    unpack: str = "no"
    own_layers: bool = True  # or transformers' and peft's, packed all the same
    prepared: bool = False  # the plain way as peft's guide has it: what is not in 4 bits is turned into fp32


WARM_UP = 2  # steps that are not timed: compilation, recording, the allocator's growth
PLAIN, PREPARED = Variant("plain"), Variant("plain, prepared by peft", prepared=True)
AGAIN = Variant("plain, once more")  # at the end: what has drifted since the first
VARIANTS = {  # the likeliest winners first: what does not fit into the time is left out
    "tiny": [
        PLAIN,
        PREPARED,
        Variant("ours, 1k", 1024, "eager"),
        Variant("ours, unpacked, all kept, 1k", 1024, "eager", 0.0, "yes"),
    ],
    "smollm2": [
        PLAIN,
        Variant("ours, unpacked, all kept, 8k", 8192, checkpointing=0.0, unpack="yes"),
        PREPARED,
        Variant("ours, unpacked, all kept, 16k", 16384, checkpointing=0.0, unpack="yes"),
        Variant("ours, 8k", 8192),
        Variant("ours, unpacked, all kept, 8k, not compiled", 8192, "graph", 0.0, "yes"),
        Variant("ours, unpacked, all kept, 8k, no graph", 8192, "eager", 0.0, "yes"),
        Variant("packed alone, 8k", 8192, "eager", own_layers=False),
        AGAIN,
    ],
    "7b": [
        PLAIN,
        Variant("ours, 4k", 4096),
        Variant("ours, 2k", 2048),
        PREPARED,
        Variant("ours, 8k", 8192),
        Variant("ours, quarter kept, 4k", 4096, checkpointing=0.75),
        Variant("ours, 4k, not compiled", 4096, "graph"),
        Variant("ours, 4k, no graph", 4096, "eager"),
        Variant("packed alone, 4k", 4096, "eager", own_layers=False),
        AGAIN,
    ],
    "13b": [PLAIN, Variant("ours, 4k", 4096), Variant("ours, 2k", 2048), AGAIN, PREPARED, Variant("ours, 8k", 8192)],
}


def build_network(shape: str, device: str) -> LlamaForCausalLM:
    """A Llama of this shape with random weights, its linear layers quantised one by one on the device."""
    hidden, wide, layers, heads, keys, vocabulary, tied = SHAPES[shape]
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    config = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=wide,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=keys,
        vocab_size=vocabulary,
        tie_word_embeddings=tied,
        max_position_embeddings=4096,
        dtype=dtype,
    )
    with torch.device("meta"):
        network = LlamaForCausalLM(config).to(dtype)
    generator = torch.Generator(device).manual_seed(0)
    draw = lambda old: torch.randn(old.shape, generator=generator, device=device, dtype=dtype) * 0.02
    for parent in list(network.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, torch.nn.Linear) and name != "lm_head":
                setattr(parent, name, quantised(layer, draw(layer.weight), dtype))
        for name, weight in list(parent.named_parameters(recurse=False)):
            if weight.is_meta:
                value = draw(weight) if weight.dim() > 1 else torch.ones(weight.shape, device=device, dtype=dtype)
                setattr(parent, name, torch.nn.Parameter(value, requires_grad=False))
    network.model.rotary_emb = LlamaRotaryEmbedding(config).to(device)
    if tied:
        network.lm_head.weight = network.model.embed_tokens.weight
    network.is_loaded_in_4bit = True  # what peft looks at to choose its 4-bit layer
    return network


def quantised(layer: torch.nn.Linear, weight: torch.Tensor, dtype: torch.dtype) -> Linear4bit:
    """A linear layer with these weights in NF4 with double quantisation."""
    new = Linear4bit(
        layer.in_features, layer.out_features, bias=False, compute_dtype=dtype, quant_type="nf4", device="meta"
    )
    new.weight = Params4bit(weight, requires_grad=False, compress_statistics=True, quant_type="nf4", module=new).to(
        weight.device
    )
    return new


def length_mix(n: int, vocabulary: int, seed: int = 0) -> list[Encoded]:
    """Samples of our training data's lengths: answers of some 500 tokens with 15 to learn, verdicts of 750 with 110."""
    generator, samples = random.Random(seed), []
    for i in range(n):
        low, high, targets = ((450, 550, 15), (700, 800, 110))[i % 2]
        length = generator.randint(low, high)
        samples.append(Encoded(i % 2, tuple(generator.randrange(vocabulary) for _ in range(length)), length - targets))
    return generator.sample(samples, n)


def plan(samples: Sequence[Encoded], pack_tokens: int, step_tokens: int, n_steps: int) -> list[list[list[Encoded]]]:
    """Full steps of packed samples; the plain way, with pack_tokens 0, takes what one long row would hold as its batch."""
    packs = pack([len(one.ids) for one in samples], pack_tokens or step_tokens)
    passes = max(1, step_tokens // pack_tokens) if pack_tokens else 1
    full = packs[
        : n_steps * passes
    ]  # there are twice as many: these are made with a choice of samples, as in a long run
    return [[[samples[i] for i in chosen] for chosen in full[k : k + passes]] for k in range(0, len(full), passes)]


def plain_steps(network, steps: list, settings: Training, prepared: bool, device: str):
    """The plain way: padded batches, autocast as the Trainer does it, logits and loss over every token."""
    if prepared:
        network = prepare_model_for_kbit_training(network, gradient_checkpointing_kwargs={"use_reentrant": False})
    adapted = get_peft_model(
        network,
        LoraConfig(
            r=settings.lora_rank, lora_alpha=settings.lora_alpha, target_modules="all-linear", task_type="CAUSAL_LM"
        ),
    )
    network.gradient_checkpointing_enable({"use_reentrant": False})
    adapted.train()
    optimizer = torch.optim.AdamW([p for p in adapted.parameters() if p.requires_grad], lr=1e-4)
    for (samples,) in steps:
        width = max(len(one.ids) for one in samples)
        pad = lambda values, fill: torch.tensor([[*row, *[fill] * (width - len(row))] for row in values]).to(device)
        batch = {
            "input_ids": pad([one.ids for one in samples], 0),
            "attention_mask": pad([[1] * len(one.ids) for one in samples], 0),
            "labels": pad([[-100] * one.start + list(one.ids[one.start :]) for one in samples], -100),
        }
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = adapted(**batch, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(adapted.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        yield loss.item(), width * len(samples)


def our_steps(network, steps: list, settings: Training, own_layers: bool, device: str):
    """Our way: the very functions that `loop.train` calls."""
    adapted = lora.attach(network, settings, settings.unpack == "yes", "compiled" in settings.execution)
    for layer in () if own_layers else network.get_decoder().layers:
        del layer.forward
        layer.gradient_checkpointing = not layer.keep
    master = lora.Master(adapted, network.dtype)
    optimizer = torch.optim.AdamW([master.weights], fused=True)
    run, workers = loop.runner(network, settings.execution), PartialState(cpu=device == "cpu")
    everything, places = [one for step in steps for chosen in step for one in chosen], itertools.count()
    shape = shape_of(
        [[next(places) for _ in chosen] for step in steps for chosen in step], everything, settings.pack_tokens
    )
    build = lambda step: [
        lay_out(chosen, (1e-3, 1e-3), device, shape if settings.execution != "eager" else None) for chosen in step
    ]
    ready = build(steps[0])
    for following in [*steps[1:], []]:
        sums = loop.take_step(run, ready, master, optimizer, 1e-4, 1.0, workers)
        computed, ready = sum(row["input_ids"].numel() for row in ready), build(following)
        yield sums[0].sum().item(), computed


def measure(
    shape: str, variant: Variant, samples: Sequence[Encoded], settings: Training, device: str, n_steps: int
) -> dict:
    """Useful tokens a second and peak memory of one variant; running out of memory is a result like any other."""
    gc.collect()
    torch._dynamo.reset()
    settings = replace(
        settings,
        pack_tokens=variant.pack_tokens,
        checkpointing=variant.checkpointing,
        unpack=variant.unpack,
        execution=variant.execution,
    )
    steps = plan(samples, variant.pack_tokens, settings.step_tokens, n_steps + WARM_UP)
    row = {"shape": shape, "variant": variant.name}
    try:
        network = build_network(shape, device)
        parameters = sum(layer.in_features * layer.out_features for layer in memory.adapted_linears(network))
        if device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        taken = (
            our_steps(network, steps, settings, variant.own_layers, device)
            if variant.pack_tokens
            else plain_steps(network, steps, settings, variant.prepared, device)
        )
        computed, ends = [], [time.perf_counter()]
        for _, tokens in taken:  # every step ends by reading its loss, so the device is done
            computed.append(tokens)
            ends.append(time.perf_counter())
    except RuntimeError as error:  # out of memory among others: this machine cannot run this variant
        return row | {"failure": f"{type(error).__name__}: {str(error).strip().splitlines()[0][:160]}"}
    useful = [sum(len(one.ids) for chosen in step for one in chosen) for step in steps[WARM_UP:]]
    rates = [tokens / (end - start) for tokens, start, end in zip(useful, ends[WARM_UP:], ends[WARM_UP + 1 :])]
    peak = torch.cuda.max_memory_allocated() / 1e9 if device == "cuda" else None
    return row | {
        "tokens_per_second": statistics.median(rates),
        "peak_gb": peak,
        "useful": sum(useful) / sum(computed[WARM_UP:]),
        "step_tokens": sum(useful) / n_steps,
        "operations_per_token": 4 * parameters,
    }  # forward and backward to the inputs, what cannot be spared


def benchmark(
    shapes: Sequence[str],
    device: str,
    step_tokens: int = 16384,
    n_steps: int = 5,
    seconds: float = 340,
    out: Path | None = None,
) -> pd.DataFrame:
    """Every variant of every shape, ratios to the plain way first; written to `out` as it goes."""
    if unknown := [shape for shape in shapes if shape not in SHAPES]:
        raise ValueError(f"shape {unknown[0]!r} is not known; use some of {', '.join(SHAPES)}")
    rows, begin, rate = [], time.perf_counter(), matrix_rate(device)
    for number, shape in enumerate(shapes, 1):
        timed = n_steps * 4 if shape == "smollm2" else n_steps  # its steps are short
        tokens = min(2048, step_tokens) if shape == "tiny" else step_tokens
        samples = length_mix(tokens * (timed + WARM_UP) * 2 // 600 + 60, SHAPES[shape][5])
        for variant in VARIANTS[shape]:
            if time.perf_counter() - begin > seconds * number / len(shapes):
                rows.append({"shape": shape, "variant": variant.name, "failure": "left out: the time is up"})
                continue
            rows.append(measure(shape, variant, samples, Training(step_tokens=tokens), device, timed))
            frame = compare(rows, rate)
            print(frame.iloc[-1].dropna().to_dict(), flush=True)
            if out:
                machine = torch.cuda.get_device_name() if device == "cuda" else "CPU"
                content = {
                    "device": machine,
                    "torch": torch.__version__,
                    "matrix_rate": rate,
                    "rows": json.loads(frame.to_json(orient="records")),
                }
                out.write_text(json.dumps(content, indent=1) + "\n")
    return compare(rows, rate)


def compare(rows: list[dict], rate: float) -> pd.DataFrame:
    """The rows with their ratios to the plain way, and their share of what the matrix units could do."""
    columns = [
        "shape",
        "variant",
        "speed_ratio",
        "memory_ratio",
        "tokens_per_second",
        "peak_gb",
        "useful",
        "of_limit",
        "step_tokens",
        "operations_per_token",
        "failure",
    ]
    frame = pd.DataFrame(rows).reindex(columns=columns)
    plain = frame[frame.variant == PLAIN.name].set_index("shape")
    frame["speed_ratio"] = frame.tokens_per_second / frame["shape"].map(plain.tokens_per_second)
    frame["memory_ratio"] = frame.peak_gb.astype(float) / frame["shape"].map(plain.peak_gb.astype(float))
    frame["of_limit"] = frame.tokens_per_second * frame.operations_per_token / rate
    return frame


def matrix_rate(device: str, size: int = 8192) -> float:
    """Operations a second in large matrix products of the training's own type, kept up for half a second on a GPU."""
    size, dtype, times = (size, torch.bfloat16, 300) if device == "cuda" else (1024, torch.float32, 10)
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in "ab")
    for repeats in (times // 10, times):  # the first round warms up
        start = time.perf_counter()
        for _ in range(repeats):
            c = a @ b
        c[0, 0].item()
    return times * 2 * size**3 / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--shapes", default="smollm2,7b,13b" if device == "cuda" else "tiny")
    parser.add_argument("--step-tokens", type=int, default=16384)
    parser.add_argument("--steps", type=int, default=5, help="steps that are timed, after two that are not")
    parser.add_argument("--seconds", type=float, default=420, help="after which no further variant is begun")
    parser.add_argument("--out", type=Path, help="a JSON file for the rows")
    given = parser.parse_args()
    frame = benchmark(given.shapes.split(","), device, given.step_tokens, given.steps, given.seconds, given.out)
    print(frame.drop(columns=["operations_per_token"]).round(3).to_string(index=False))


if __name__ == "__main__":
    main()
