"""One way of training in a process of its own, and another for the weights: what `peers` starts, and what they say.

Little is imported at the top: Unsloth must come before transformers, whose code it changes.
"""

import gc
import importlib.metadata
import importlib.util
import json
import statistics
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path

from benchmarks.peers import LATE, SAMPLES, WARM_UP, WAYS, Case, Way, about
from benchmarks.saying import tell_failure
from covrag_lite.config import Config, Training
from covrag_lite.runs.manifest import find_commit

PACKAGES = ("torch", "transformers", "peft", "bitsandbytes", "trl", "liger-kernel", "flash-attn-4", "unsloth")
PACKAGES += ("unsloth-zoo", "datasets")


def work(task: dict) -> None:
    """In a way's own process: all its cases, each written as soon as it is known."""
    begin = time.perf_counter()
    way = WAYS[task["way"]]
    missing = [name for name in way.modules if importlib.util.find_spec(name) is None]
    if way.kind == "unsloth" and not missing:
        import unsloth  # noqa: F401  before transformers, whose code it changes
    for case in (Case(**given) for given in task["cases"]):
        row = about(task["way"], case)
        if missing:
            row["failure"] = f"not installed: {', '.join(missing)}"
        elif time.perf_counter() - begin > task["seconds"]:
            row["failure"] = LATE
        else:
            row |= measure(way, case, task["device"], Path(task["folder"]))
        with open(task["outcome"], "a") as lines:
            lines.write(json.dumps(row) + "\n")


def write_folders(task: dict) -> None:
    """The weights of all shapes, so that no way has the writing in its time; one that cannot be written is told."""
    from benchmarks import folders

    for shape in task["shapes"]:
        try:
            folders.write_folder(shape, Path(task["folder"]), task["device"])
        except Exception:  # every way that needs it will say so in its row
            traceback.print_exc()


def measure(way: Way, case: Case, device: str, folder: Path) -> dict:
    """Useful tokens a second, peak memory and losses of one way; what it stumbles over is a result like any other."""
    import torch

    from benchmarks import folders, training

    settings = Training(pack_tokens=SAMPLES[case.samples], step_tokens=case.step_tokens)
    try:
        place = folders.write_folder(case.shape, folder, device)
        left_over = clear(way, device)
        steps = steps_of(case, place, settings.pack_tokens)
        seconds, losses, told = train(way, place, steps, settings, device, folder)
    except Exception as error:  # whatever a peer says is its result
        traceback.print_exc()
        return {"failure": tell_failure(error)}
    useful = [sum(len(one.ids) for row in step for one in row) for step in steps]
    rates = [tokens / duration for tokens, duration in zip(useful[WARM_UP:], seconds[WARM_UP:])]
    speed = statistics.median(rates)
    shape = json.loads((place / "config.json").read_text())
    return {
        "tokens_per_second": speed,
        "steady": max(rates),
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9 if device == "cuda" else None,
        "of_limit": speed * operations(shape) / training.matrix_rate(device),
        "first_loss": losses[0],
        "last_loss": losses[-1],
        "losses": losses,
        "step_seconds": seconds,
        "settings": told | {"left_over_gb": round(left_over, 3)},
        "versions": versions() | find_commit() | {"device": device_name(device)},
    }


def clear(way: Way, device: str) -> float:
    """Give back what earlier cases hold; the GB that are left of them count in this one's peak."""
    import torch

    gc.collect()
    if way.kind == "ours":
        torch._dynamo.reset()
    if device != "cuda":
        return 0.0
    torch.cuda.empty_cache()
    return torch.cuda.memory_allocated() / 1e9


def steps_of(case: Case, place: Path, pack_tokens: int) -> list:
    """The case's samples in rows, and its rows in steps; for a model's own weights they are pieces of our passages."""
    from benchmarks import folders, shapes, training
    from covrag_lite.data import load_passages

    n_steps = case.n_steps + WARM_UP
    text = ()
    if case.shape not in shapes.SHAPES:
        passages = " ".join(passage.text for passage in load_passages(Config())[:3000])
        text = folders.load_tokenizer(place)(passages, add_special_tokens=False).input_ids
    vocabulary = json.loads((place / "config.json").read_text())["vocab_size"]
    if case.samples.startswith("our mix"):
        samples = shapes.length_mix(case.step_tokens * n_steps * 2 // 600 + 60, vocabulary, text=text)
    else:
        samples = shapes.full_rows(case.step_tokens // pack_tokens * n_steps, vocabulary, pack_tokens, text=text)
    return training.plan(samples, pack_tokens, case.step_tokens, n_steps)


def train(
    way: Way, place: Path, steps: list, settings: Training, device: str, folder: Path
) -> tuple[list[float], list[float], dict]:
    """Each step's seconds and loss, and the settings that were given."""
    from benchmarks import sft

    if way.kind in ("ours", "plain"):
        return train_here(way, place, steps, settings, device)
    attention = way.attention if device == "cuda" else "sdpa"
    given = dict(way.given)
    if way.kind == "trl":
        clock = sft.run_trl(place, steps, settings, device, folder / "out", given, attention)
        return clock.seconds, clock.losses, given | {"attn_implementation": attention, "packing": True}
    clock = sft.run_unsloth(place, steps, settings, device, folder / "out", given, "unsloth")
    return clock.seconds, clock.losses, given | {"use_gradient_checkpointing": "unsloth", "packing": True}


def train_here(
    way: Way, place: Path, steps: list, settings: Training, device: str
) -> tuple[list[float], list[float], dict]:
    """The same, by our own steps or by plain ones on the same samples."""
    import torch

    from benchmarks import folders, training

    network = folders.load_four_bit(place, device)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    if way.kind == "plain":
        together = [[[one for row in step for one in row]] for step in steps]
        taken = training.plain_steps(network, together, settings, False, device)
        told = {"padded": True, "gradient_checkpointing": True}
    else:
        told = {"execution": "compiled+graph" if device == "cuda" else "eager", "unpack": False} | dict(way.given)
        own = replace(settings, **{name: value for name, value in told.items() if name != "unpack"})
        short = [shorten(step, own.pack_tokens) for step in steps]
        taken = training.our_steps(network, short, own, True, device, told["unpack"])
    seconds, losses = [], []
    start = time.perf_counter()
    for loss, _ in taken:
        end = time.perf_counter()
        seconds.append(end - start)
        losses.append(loss)
        start = end
    return seconds, losses, told


def shorten(step: list[list], pack_tokens: int) -> list[list]:
    """A step's samples in rows of at most so many tokens; as they are where they fit."""
    from covrag_lite.qlora import pack

    if all(sum(len(one.ids) for one in row) <= pack_tokens for row in step):
        return step
    samples = [one for row in step for one in row]
    packs = pack([len(one.ids) for one in samples], pack_tokens)
    return [[samples[i] for i in chosen] for chosen in packs]


def operations(shape: dict) -> float:
    """What a token cannot cost less than: forward, and back to the inputs, through the linear layers of a Llama."""
    width, wide, heads = shape["hidden_size"], shape["intermediate_size"], shape["num_attention_heads"]
    keys = width * shape["num_key_value_heads"] // heads
    return 4.0 * shape["num_hidden_layers"] * width * (2 * width + 2 * keys + 3 * wide)


def device_name(device: str) -> str:
    """What the GPU calls itself."""
    import torch

    return torch.cuda.get_device_name() if device == "cuda" else "CPU"


def versions() -> dict[str, str]:
    """The versions of what is installed of the libraries that matter."""
    made = {}
    for name in PACKAGES:
        try:
            made[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return made


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    work(given) if "way" in given else write_folders(given)
