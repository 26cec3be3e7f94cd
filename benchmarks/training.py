"""How fast and how lean training is, against plain transformers + peft + bitsandbytes, side by side in one run.

The plain way pads its batches, keeps logits for every token and recomputes every layer; the same samples a step go both
ways, and only their own tokens count. notebooks/speed.ipynb calls `benchmark`; `report` draws what it measured.

    python -m benchmarks.training --shapes smollm2,7b,13b --out speed.json
"""

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import torch
from accelerate import PartialState
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training

from benchmarks.saying import tell_root
from benchmarks.shapes import PLAIN, SHAPES, VARIANTS, Variant, build_network, length_mix
from covrag_lite import qlora
from covrag_lite.config import Training
from covrag_lite.engine import memory
from covrag_lite.engine.trainee import Trainee
from covrag_lite.qlora import Encoded, lay_out, pack, shape_of

WARM_UP = 2  # steps that are not timed: compilation, recording, the allocator's growth
COLUMNS = ["shape", "variant", "speed_ratio", "memory_ratio", "tokens_per_second", "peak_gb"]
COLUMNS += ["useful", "of_limit", "step_tokens", "operations_per_token", "failure"]

Step = list[list[Encoded]]  # the rows, or for the plain way the one batch, that make one update


def plan(samples: Sequence[Encoded], pack_tokens: int, step_tokens: int, n_steps: int) -> list[Step]:
    """Full steps of packed samples; with pack_tokens 0, the plain way, a step is what one long row would hold."""
    packs = pack([len(one.ids) for one in samples], pack_tokens or step_tokens)
    passes = max(1, step_tokens // pack_tokens) if pack_tokens else 1
    full = packs[: n_steps * passes]  # about half of all: these were packed with a choice of samples, as in a long run
    steps = []
    for first in range(0, len(full), passes):
        rows = full[first : first + passes]
        steps.append([[samples[i] for i in row] for row in rows])
    return steps


def plain_steps(
    network: torch.nn.Module, steps: Sequence[Step], settings: Training, prepared: bool, device: str
) -> Iterator[tuple[float, int]]:
    """Each step's loss and computed tokens, the plain way: autocast as the Trainer does it, a loss over every token."""
    if prepared:
        network = prepare_model_for_kbit_training(network, gradient_checkpointing_kwargs={"use_reentrant": False})
    adapters = LoraConfig(
        r=settings.lora_rank, lora_alpha=2 * settings.lora_rank, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    adapted = get_peft_model(network, adapters)
    network.gradient_checkpointing_enable({"use_reentrant": False})
    adapted.train()
    trained = [weight for weight in adapted.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4)
    for (samples,) in steps:
        batch = pad(samples, device)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = adapted(**batch, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(adapted.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        yield loss.item(), batch["input_ids"].numel()


def pad(samples: Sequence[Encoded], device: str) -> dict[str, torch.Tensor]:
    """Samples as one batch for transformers, each padded to the longest."""
    width = max(len(one.ids) for one in samples)
    ids, mask, labels = [], [], []
    for one in samples:
        length = len(one.ids)
        spare = width - length
        ids.append([*one.ids, *[0] * spare])
        mask.append([1] * length + [0] * spare)
        labels.append([-100] * one.start + list(one.ids[one.start :]) + [-100] * spare)
    batch = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    return {name: torch.tensor(values).to(device) for name, values in batch.items()}


def our_steps(
    network: torch.nn.Module,
    steps: Sequence[Step],
    settings: Training,
    own_layers: bool,
    device: str,
    unpack: bool = False,
) -> Iterator[tuple[float, int]]:
    """Each step's loss and computed tokens, our way: by the very functions that `qlora.train` calls."""
    trainee = Trainee(network, settings, settings.execution, unpack)
    if not own_layers:
        for layer in network.get_decoder().layers:
            del layer.forward
            layer.gradient_checkpointing = settings.activations != "keep"
    learn = trainee.record(qlora.learner(trainee, 1.0, device))
    workers = PartialState(cpu=device == "cpu")
    rows = [row for step in steps for row in step]
    everything = [one for row in rows for one in row]
    places = iter(range(len(everything)))
    packs = [[next(places) for _ in row] for row in rows]
    shape = shape_of(packs, everything, settings.pack_tokens) if settings.execution != "eager" else None

    def build(step: Step) -> list[dict]:
        n_targets = sum(len(one.ids) - one.start for row in step for one in row)
        mean = (1 / max(1, n_targets),) * 2  # so that a step's loss is a mean over its target tokens, as others have it
        return [lay_out(row, mean, device, shape) for row in step]

    ready = build(steps[0])
    for following in [*steps[1:], []]:
        sums = qlora.take_step(learn, ready, trainee, 1e-4, workers)
        computed = sum(row["input_ids"].numel() for row in ready)
        ready = build(following)  # while the GPU still computes
        yield sums[0].sum().item(), computed


def measure(
    shape: str,
    variant: Variant,
    samples: Sequence[Encoded],
    settings: Training,
    device: str,
    n_steps: int,
    load: Callable[[str], torch.nn.Module] | None = None,
) -> dict:
    """Useful tokens a second and peak memory of one variant; running out of memory is a result like any other.

    `load` gives a network for a device; else one of the shape is built, for which there must be room.
    """
    gc.collect()
    torch._dynamo.reset()
    settings = replace(
        settings,
        pack_tokens=variant.pack_tokens,
        activations=variant.activations,
        execution=variant.execution,
    )
    steps = plan(samples, variant.pack_tokens, settings.step_tokens, n_steps + WARM_UP)
    row = {"shape": shape, "variant": variant.name}
    try:
        network = load(device) if load else build_network(shape, device)
        parameters = sum(given * made for given, made in memory.linear_sizes(network))
        if device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        computed, seconds = time_steps(network, variant, steps, settings, device)
    except RuntimeError as error:  # out of memory among others: this machine cannot run this variant
        return row | {"failure": tell_root(error)}
    useful = [sum(len(one.ids) for chosen in step for one in chosen) for step in steps[WARM_UP:]]
    rates = [tokens / duration for tokens, duration in zip(useful, seconds[WARM_UP:])]
    return row | {
        "tokens_per_second": statistics.median(rates),
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9 if device == "cuda" else None,
        "useful": sum(useful) / sum(computed[WARM_UP:]),
        "step_tokens": sum(useful) / n_steps,
        "operations_per_token": 4 * parameters,  # forward and backward to the inputs, what cannot be spared
    }


def time_steps(
    network: torch.nn.Module, variant: Variant, steps: Sequence[Step], settings: Training, device: str
) -> tuple[list[int], list[float]]:
    """The tokens computed in each step, and its seconds."""
    if variant.pack_tokens:
        taken = our_steps(network, steps, settings, variant.own_layers, device, variant.unpack)
    else:
        taken = plain_steps(network, steps, settings, variant.prepared, device)
    computed, seconds = [], []
    start = time.perf_counter()
    for _, tokens in taken:  # every step ends by reading its loss, so the device is done
        end = time.perf_counter()
        computed.append(tokens)
        seconds.append(end - start)
        start = end
    return computed, seconds


def benchmark(
    shapes: Sequence[str],
    device: str,
    step_tokens: int = 16384,
    n_steps: int = 5,
    seconds: float = 340,
    out: Path | None = None,
) -> pd.DataFrame:
    """Every variant of every shape, ratios to the plain way first; written to `out` as it goes."""
    for shape in shapes:
        if shape not in SHAPES:
            raise ValueError(f"shape {shape!r} is not known; use some of {', '.join(SHAPES)}")
    begin = time.perf_counter()
    rate = matrix_rate(device)
    rows = []
    for number, shape in enumerate(shapes, 1):
        timed = n_steps * 4 if shape == "smollm2" else n_steps  # its steps are short
        tokens = min(2048, step_tokens) if shape == "tiny" else step_tokens
        n_samples = tokens * (timed + WARM_UP) * 2 // 600 + 60  # of some 600 tokens: twice what is needed, and a few
        samples = length_mix(n_samples, SHAPES[shape].vocabulary)
        for variant in VARIANTS[shape]:
            if time.perf_counter() - begin > seconds * number / len(shapes):
                rows.append({"shape": shape, "variant": variant.name, "failure": "left out: the time is up"})
                continue
            rows.append(measure(shape, variant, samples, Training(step_tokens=tokens), device, timed))
            frame = compare(rows, rate)
            print(frame.iloc[-1].dropna().to_dict(), flush=True)
            if out:
                save(out, frame, device, rate)
    return compare(rows, rate)


def save(out: Path, frame: pd.DataFrame, device: str, rate: float) -> None:
    """Write the rows and the machine they were measured on as JSON."""
    content = {
        "device": torch.cuda.get_device_name() if device == "cuda" else "CPU",
        "torch": torch.__version__,
        "matrix_rate": rate,
        "rows": json.loads(frame.to_json(orient="records")),
    }
    out.write_text(json.dumps(content, indent=1) + "\n")


def compare(rows: list[dict], rate: float) -> pd.DataFrame:
    """The rows with their ratios to the plain way, and their share of what the matrix units could do."""
    frame = pd.DataFrame(rows).reindex(columns=COLUMNS)
    plain = frame[frame.variant == PLAIN.name].set_index("shape")
    frame["speed_ratio"] = frame.tokens_per_second / frame["shape"].map(plain.tokens_per_second)
    frame["memory_ratio"] = frame.peak_gb.astype(float) / frame["shape"].map(plain.peak_gb.astype(float))
    frame["of_limit"] = frame.tokens_per_second * frame.operations_per_token / rate
    return frame


def matrix_rate(device: str, size: int = 8192) -> float:
    """Operations a second in large matrix products of the training's own type, kept up for half a second on a GPU."""
    size, dtype, times = (size, torch.bfloat16, 300) if device == "cuda" else (1024, torch.float32, 10)
    a = torch.randn(size, size, device=device, dtype=dtype)
    b = torch.randn(size, size, device=device, dtype=dtype)
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
