"""The training methods, and one of them on one case in its own process, which prints a JSON row.

Little is imported at the top: Unsloth must be imported before transformers, because it patches it.
"""

import importlib.metadata
import json
import statistics
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.rows import tell_failure
from covrag_lite.config import Config, Training
from covrag_lite.runs.manifest import find_commit

PACKAGES = ("torch", "transformers", "peft", "bitsandbytes", "trl", "liger-kernel", "flash-attn-4", "unsloth")
PACKAGES += ("unsloth-zoo", "datasets")
WARM_UP = 2  # steps that are not timed
OPTIMIZER = {"optim": "adamw_torch_fused"}
# An option of trl: only the results of matrix products are kept.
SELECTIVE = {"gradient_checkpointing_kwargs": {"selective": True}}


@dataclass(frozen=True)
class Way:
    """One training method."""

    kind: str  # "ours", "plain", "trl" or "unsloth"
    modules: tuple[str, ...] = ()  # the modules that must be installed
    given: Mapping[str, object] = field(default_factory=dict)  # our settings, or those of SFTConfig
    # For trl on CUDA: "flex_attention" separates the samples of a row without a quadratic mask.
    attention: str = "sdpa"


WAYS = {  # the most important first: those that exceed the time are left out
    "ours": Way("ours"),
    "trl + Liger": Way("trl", ("trl", "liger_kernel"), OPTIMIZER | {"use_liger_kernel": True}, "flex_attention"),
    "Unsloth": Way("unsloth", ("unsloth", "trl"), {"optim": "adamw_8bit"}),
    "trl": Way("trl", ("trl",), OPTIMIZER, "flex_attention"),
    "trl + Liger + selective": Way(
        "trl", ("trl", "liger_kernel"), OPTIMIZER | SELECTIVE | {"use_liger_kernel": True}, "flex_attention"
    ),
    "trl + Liger + flash": Way(
        "trl", ("trl", "liger_kernel", "flash_attn"), OPTIMIZER | {"use_liger_kernel": True}, "flash_attention_4"
    ),
    "ours away": Way("ours", given={"activations": "offload"}),
    "ours away leanest": Way("ours", given={"activations": "offload", "pack_tokens": 2048}),
    "ours keeping all": Way("ours", given={"activations": "keep"}),
    "ours unpacked": Way("ours", given={"unpack": True, "activations": "keep"}),
    "ours not compiled": Way("ours", given={"execution": "graph"}),
    "ours eager": Way("ours", given={"execution": "eager"}),
    "plain": Way("plain"),
}
# Samples and the tokens of a row. The last needs a GPU with room, where long rows may be faster.
SAMPLES = {"our mix": 4096, "rows of 2,048": 2048, "our mix in rows of 16,384": 16384}


@dataclass(frozen=True)
class Case:
    """A shape and the samples to train on."""

    shape: str  # of `shapes`, or a model folder or GGUF file
    samples: str
    step_tokens: int
    n_steps: int


def measure(way: Way, case: Case, device: str, folder: Path) -> dict:
    """Measure useful tokens per second, peak memory and losses; a failure is a result too."""
    if way.kind == "unsloth":
        import unsloth  # noqa: F401  before transformers, because it patches it
    import torch

    from benchmarks import folders, training

    settings = Training(pack_tokens=SAMPLES[case.samples], step_tokens=case.step_tokens)
    try:
        place = folders.write_folder(case.shape, folder, device)
        steps = steps_of(case, place, settings.pack_tokens)
        taken, told = train(way, place, steps, settings, device, folder)
    except Exception as error:  # any error of another library is a result
        traceback.print_exc()
        return {"failure": tell_failure(error)}
    seconds, losses, computed = (list(column) for column in zip(*taken))
    useful = [sum(len(one.ids) for row in step for one in row) for step in steps]
    rates = [tokens / duration for tokens, duration in zip(useful[WARM_UP:], seconds[WARM_UP:])]
    speed = statistics.median(rates)
    shape = json.loads((place / "config.json").read_text())
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    return {
        "tokens_per_second": speed,
        "steady": max(rates),
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9 if device == "cuda" else None,
        "useful": sum(useful) / sum(computed) if all(computed) else None,
        "of_limit": speed * operations(shape) / training.matrix_rate(device),
        "first_loss": losses[0],
        "last_loss": losses[-1],
        "losses": losses,
        "step_seconds": seconds,
        "settings": told,
        "versions": versions() | find_commit() | {"device": name},
    }


def steps_of(case: Case, place: Path, pack_tokens: int) -> list:
    """Return the case's rows in steps; for a model's own weights, samples are our passages."""
    from transformers import AutoTokenizer

    from benchmarks import shapes, training
    from covrag_lite.data import load_passages

    n_steps = case.n_steps + WARM_UP
    text = ()
    if case.shape not in shapes.SHAPES:
        passages = " ".join(passage.text for passage in load_passages(Config())[:3000])
        text = AutoTokenizer.from_pretrained(place)(passages, add_special_tokens=False).input_ids
    vocabulary = json.loads((place / "config.json").read_text())["vocab_size"]
    if case.samples.startswith("our mix"):
        samples = shapes.length_mix(case.step_tokens * n_steps * 2 // 600 + 60, vocabulary, text=text)
    else:
        samples = shapes.full_rows(case.step_tokens // pack_tokens * n_steps, vocabulary, pack_tokens, text=text)
    return training.plan(samples, pack_tokens, case.step_tokens, n_steps)


def train(
    way: Way, place: Path, steps: list, settings: Training, device: str, folder: Path
) -> tuple[list[tuple[float, float, int | None]], dict]:
    """Return each step's seconds, loss and computed tokens (None if unknown), and the settings."""
    import torch

    from benchmarks import folders, sft, training

    given = dict(way.given)
    if way.kind in ("trl", "unsloth"):
        attention = way.attention if device == "cuda" else "sdpa"
        load = sft.load_trl if way.kind == "trl" else sft.load_unsloth
        clock = sft.fit(*load(place, settings, device, attention), place, steps, settings, device, folder, given)
        return [(*one, None) for one in zip(clock.seconds, clock.losses)], given | {"attn_implementation": attention}
    network = folders.load_four_bit(place, device)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    if way.kind == "plain":
        stepped = training.plain_steps(network, steps, settings, device)
    else:
        given = {"execution": "compiled+graph" if device == "cuda" else "eager"} | given
        own = replace(settings, **{name: value for name, value in given.items() if name != "unpack"})
        short = [shorten(step, own.pack_tokens) for step in steps]
        stepped = training.our_steps(network, short, own, device, given.get("unpack", False))
    taken = []
    start = time.perf_counter()
    for loss, computed in stepped:  # reading the loss waits for the device
        end = time.perf_counter()
        taken.append((end - start, loss, computed))
        start = end
    return taken, given


def shorten(step: list[list], pack_tokens: int) -> list[list]:
    """Split a step's samples into rows of at most `pack_tokens` tokens, if they are longer."""
    from benchmarks.training import plan

    if all(sum(len(one.ids) for one in row) <= pack_tokens for row in step):
        return step
    samples = [one for row in step for one in row]
    return [row for (row,) in plan(samples, pack_tokens, pack_tokens, len(samples))]


def operations(shape: dict) -> float:
    """Return the least operations per token, forward and backward, in a Llama's linear layers."""
    width, wide, heads = shape["hidden_size"], shape["intermediate_size"], shape["num_attention_heads"]
    keys = width * shape["num_key_value_heads"] // heads
    return 4.0 * shape["num_hidden_layers"] * width * (2 * width + 2 * keys + 3 * wide)


def versions() -> dict[str, str]:
    """Return the versions of the relevant libraries that are installed."""
    there = {dist.name: dist.version for dist in importlib.metadata.distributions() if dist.name in PACKAGES}
    return {name: there[name] for name in PACKAGES if name in there}


if __name__ == "__main__":
    task = json.loads(sys.argv[1])
    print(
        json.dumps(measure(WAYS[task["way"]], Case(**task["case"]), task["device"], Path(task["folder"]))), flush=True
    )
