"""The training methods, and one of them on one case in its own process, which prints a JSON row.

Little is imported at the top: Unsloth must be imported before transformers, because it patches it.
"""

import importlib.metadata
import json
import statistics
import sys
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from benchmarks.rows import summarise_error
from covrag_lite.config import Config, Training
from covrag_lite.runs.manifest import find_commit

PACKAGES = (
    "torch",
    "transformers",
    "peft",
    "bitsandbytes",
    "trl",
    "liger-kernel",
    "flash-attn-4",
    "unsloth",
    "unsloth-zoo",
    "datasets",
)
WARM_UP = 2  # steps that are not timed
# Options of trl.
FUSED = {"optim": "adamw_torch_fused"}
LIGER = FUSED | {"use_liger_kernel": True}


@dataclass(frozen=True)
class Method:
    """One training method."""

    program: str  # "ours", "plain", "trl" or "unsloth"
    modules: tuple[str, ...] = ()  # the modules that must be installed
    settings: Mapping[str, object] = field(default_factory=dict)  # ours, or those of SFTConfig
    # For trl on CUDA: "flex_attention" separates the samples of a row without a quadratic mask.
    attention: str = "sdpa"


METHODS = {  # the most important first: those that exceed the time are left out
    "ours": Method("ours"),
    "trl + Liger": Method("trl", ("trl", "liger_kernel"), LIGER, "flex_attention"),
    "Unsloth": Method("unsloth", ("unsloth", "trl"), {"optim": "adamw_8bit"}),
    "trl": Method("trl", ("trl",), FUSED, "flex_attention"),
    "trl + Liger + flash": Method(
        "trl", ("trl", "liger_kernel", "flash_attn"), LIGER, "flash_attention_4"
    ),
    "ours away": Method("ours", settings={"activations": "offload"}),
    "ours away leanest": Method("ours", settings={"activations": "offload", "pack_tokens": 2048}),
    "ours keeping all": Method("ours", settings={"activations": "keep"}),
    "ours unpacked": Method("ours", settings={"unpack": True, "activations": "keep"}),
    "ours not compiled": Method("ours", settings={"execution": "graph"}),
    "ours eager": Method("ours", settings={"execution": "eager"}),
    "plain": Method("plain"),
}
ROW_TOKENS = {"our mix": 4096, "rows of 2,048": 2048}  # kind of samples -> tokens of a row


@dataclass(frozen=True)
class Case:
    """A model and the samples to train on."""

    shape: str  # of `shapes`, or a model folder or GGUF file
    samples: str
    step_tokens: int
    n_steps: int


class TimedStep(NamedTuple):
    """One step: its seconds, its loss, and the computed tokens (None if unknown)."""

    seconds: float
    loss: float
    computed: int | None


def measure(method: Method, case: Case, device: str, folder: Path) -> dict:
    """Measure useful tokens per second, peak memory and losses; a failure is a result too."""
    if method.program == "unsloth":
        import unsloth  # noqa: F401  before transformers, because it patches it
    import torch

    from benchmarks import folders, training

    settings = Training(pack_tokens=ROW_TOKENS[case.samples], step_tokens=case.step_tokens)
    try:
        model_folder = folders.write_folder(case.shape, folder, device)
        steps = build_steps(case, model_folder, settings.pack_tokens)
        timed, method_settings = train(method, model_folder, steps, settings, device, folder)
    except Exception as error:  # any error of another library is a result
        traceback.print_exc()
        return {"failure": summarise_error(error)}
    useful = [count_tokens(step) for step in steps]
    rates = [n / step.seconds for n, step in zip(useful, timed)][WARM_UP:]
    speed = statistics.median(rates)
    computed = [step.computed for step in timed]
    sizes = json.loads((model_folder / "config.json").read_text())
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    return {
        "tokens_per_second": speed,
        "steady": max(rates),
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9 if device == "cuda" else None,
        "useful": sum(useful) / sum(computed) if all(computed) else None,
        "of_limit": speed * count_operations(sizes) / training.matrix_rate(device),
        "first_loss": timed[0].loss,
        "last_loss": timed[-1].loss,
        "losses": [step.loss for step in timed],
        "step_seconds": [step.seconds for step in timed],
        "settings": method_settings,
        "versions": list_versions() | find_commit() | {"device": name},
    }


def count_tokens(step: Iterable[Sequence]) -> int:
    """Return the tokens of a step's samples, without padding."""
    n = 0
    for row in step:
        n += sum(len(sample.ids) for sample in row)
    return n


def build_steps(case: Case, model_folder: Path, pack_tokens: int) -> list:
    """Return the case's rows in steps; for a model's own weights, samples are our passages."""
    from transformers import AutoTokenizer

    from benchmarks import shapes, training
    from covrag_lite.data import load_passages

    n_steps = case.n_steps + WARM_UP
    text = ()
    if case.shape not in shapes.SHAPES:
        passages = " ".join(passage.text for passage in load_passages(Config())[:3000])
        tokenizer = AutoTokenizer.from_pretrained(model_folder)
        text = tokenizer(passages, add_special_tokens=False).input_ids
    vocabulary = json.loads((model_folder / "config.json").read_text())["vocab_size"]
    if case.samples.startswith("our mix"):
        n_samples = case.step_tokens * n_steps * 2 // 600 + 60
        samples = shapes.length_mix(n_samples, vocabulary, text=text)
    else:
        n_samples = case.step_tokens // pack_tokens * n_steps
        samples = shapes.full_rows(n_samples, vocabulary, pack_tokens, text=text)
    return training.pack_steps(samples, pack_tokens, case.step_tokens, n_steps)


def train(
    method: Method, model_folder: Path, steps: list, settings: Training, device: str, folder: Path
) -> tuple[list[TimedStep], dict]:
    """Train with a method; return its steps, and the settings that it was used with."""
    if method.program in ("trl", "unsloth"):
        return train_with_trl(method, model_folder, steps, settings, device, folder)
    return train_here(method, model_folder, steps, settings, device)


def train_with_trl(
    method: Method, model_folder: Path, steps: list, settings: Training, device: str, folder: Path
) -> tuple[list[TimedStep], dict]:
    """Train with trl, or with Unsloth, which patches trl."""
    from benchmarks import sft

    method_settings = dict(method.settings)
    attention = method.attention if device == "cuda" else "sdpa"
    load = sft.load_trl if method.program == "trl" else sft.load_unsloth
    network, adapters = load(model_folder, settings, device, attention)
    clock = sft.fit(
        network, adapters, model_folder, steps, settings, device, folder, method_settings
    )
    timed = [TimedStep(*pair, None) for pair in zip(clock.seconds, clock.losses)]
    return timed, method_settings | {"attn_implementation": attention}


def train_here(
    method: Method, model_folder: Path, steps: list, settings: Training, device: str
) -> tuple[list[TimedStep], dict]:
    """Train with our method, or with the plain one."""
    import torch

    from benchmarks import folders, training

    method_settings = dict(method.settings)
    network = folders.load_four_bit(model_folder, device)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    if method.program == "plain":
        stepped = training.plain_steps(network, steps, settings, device)
    else:
        execution = "compiled+graph" if device == "cuda" else "eager"
        method_settings = {"execution": execution} | method_settings
        changes = {name: value for name, value in method_settings.items() if name != "unpack"}
        our_settings = replace(settings, **changes)
        short = [split_rows(step, our_settings.pack_tokens) for step in steps]
        unpack = method_settings.get("unpack", False)
        stepped = training.our_steps(network, short, our_settings, device, unpack)
    timed = []
    start = time.perf_counter()
    for loss, computed in stepped:  # reading the loss waits for the device
        end = time.perf_counter()
        timed.append(TimedStep(end - start, loss, computed))
        start = end
    return timed, method_settings


def split_rows(step: list[list], pack_tokens: int) -> list[list]:
    """Pack a step's samples into rows of at most `pack_tokens` tokens, if its rows are longer."""
    from benchmarks.training import pack_steps, samples_of

    if all(count_tokens([row]) <= pack_tokens for row in step):
        return step
    samples = samples_of(step)
    steps_of_one_row = pack_steps(samples, pack_tokens, pack_tokens, len(samples))
    return [row for (row,) in steps_of_one_row]


def count_operations(sizes: dict) -> float:
    """Return the least operations per token, forward and backward, in a Llama's linear layers."""
    hidden = sizes["hidden_size"]
    keys = hidden * sizes["num_key_value_heads"] // sizes["num_attention_heads"]
    weights = hidden * (2 * hidden + 2 * keys + 3 * sizes["intermediate_size"])
    return 4.0 * sizes["num_hidden_layers"] * weights


def list_versions() -> dict[str, str]:
    """Return the versions of the relevant libraries that are installed."""
    installed = {dist.name: dist.version for dist in importlib.metadata.distributions()}
    return {name: installed[name] for name in PACKAGES if name in installed}


if __name__ == "__main__":
    task = json.loads(sys.argv[1])
    case = Case(**task["case"])
    result = measure(METHODS[task["way"]], case, task["device"], Path(task["folder"]))
    print(json.dumps(result), flush=True)
