"""What one card holds for one kind of work, in a process of its own: what `holding` starts, and what the process says.

The process is held to the card's memory, tries sizes, and prints what fits as JSON. Where an attempt leaves memory
behind, which the next one would miss, it prints what it has tried, and another process goes on.
"""

import gc
import json
import random
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch

from benchmarks import folders, training
from benchmarks.shapes import SHAPES, Variant, length_mix
from covrag_lite.config import Model, Training
from covrag_lite.engine import decoding
from covrag_lite.engine.local import LanguageModel, load_model
from covrag_lite.engine.prepare import FULL

CONTEXT = 0.75  # GiB that a process takes of a card before its first tensor
MIDDLING = 2  # the place of the size that is tried first
PROMPT = 600  # tokens of a prompt with five passages
ANSWER = 8  # tokens written: the cache has room for more from the start
LEFT = 0.1  # GB that an attempt may leave behind
Held = dict[int, float]  # sizes that fit, each with its peak in GB
Attempt = Callable[[int], float | None]  # the peak in GB of a size that fits


class MemoryLeft(RuntimeError):
    """An attempt has left memory behind."""


def work(task: dict) -> dict:
    """The sizes that fit (`held`), or those tried so far (`tried`); for "folder" the weights are written, uncapped."""
    device, shape = task["device"], task["shape"]
    if task["work"] == "folder":
        return {"folder": str(folders.write_folder(shape, Path(task["folder"]), device))}
    cap(task["card"], device)
    tried = {int(size): peak for size, peak in task["tried"].items()}
    before = {int(size): peak for size, peak in task["before"].items()}
    try:
        attempt = answer_once(load(task)) if task["work"] == "answering" else train_once(task)
    except RuntimeError as error:  # the weights alone may be too many
        if not FULL.search(str(error)):
            raise
        return {"held": {}}
    try:
        return {"held": search(in_clean_memory(attempt, tried, device), task["sizes"], before, task["card"])}
    except MemoryLeft:
        return {"tried": tried}


def cap(card: float, device: str) -> None:
    """Hold the process to what a card of so many GiB leaves it; a CPU has no cap."""
    if device == "cuda":
        whole = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, (card - CONTEXT) * 2**30 / whole))


def in_use(device: str) -> float:
    """GB of the GPU in use, once what nobody uses any more is given back."""
    gc.collect()
    if device != "cuda":
        return 0.0
    torch.cuda.empty_cache()
    return torch.cuda.memory_allocated() / 1e9


def in_clean_memory(attempt: Attempt, tried: dict[int, float | None], device: str) -> Attempt:
    """The same attempt, each size once, and refused where an earlier one has left memory behind."""
    at_first = in_use(device)

    def once(size: int) -> float | None:
        if size not in tried:
            if in_use(device) - at_first > LEFT:
                raise MemoryLeft
            tried[size] = attempt(size)
        return tried[size]

    return once


def search(attempt: Attempt, sizes: Sequence[int], before: Held, card: float) -> Held:
    """What fits, from a middling size, or after a larger card from the largest whose peak there has room here."""
    begin = min(MIDDLING, len(sizes) - 1)
    before = {size: peak for size, peak in before.items() if size in sizes}
    if before:
        room = (card - CONTEXT) * 2**30 / 1e9
        below = max(0, sizes.index(min(before)) - 1)
        begin = max((sizes.index(size) for size, peak in before.items() if peak < room), default=below)
    return largest(attempt, sizes, begin)


def largest(attempt: Attempt, sizes: Sequence[int], begin: int = 0) -> Held:
    """The sizes that fit, each with its peak: from `begin` up until one does not, or down to the first that does."""
    made = {}
    at = begin
    while 0 <= at < len(sizes):
        peak = attempt(sizes[at])
        if peak is None and (made or at == 0):
            break
        if peak is None:
            at -= 1
            continue
        made[sizes[at]] = peak
        if at < begin:  # came down to it
            break
        at += 1
    return made


def train_once(task: dict) -> Attempt:
    """A function that trains three steps on rows of so many tokens, each time with weights loaded anew."""
    shape, device = task["shape"], task["device"]
    execution = "compiled+graph" if device == "cuda" else "eager"
    activations = "offload" if task["work"] == "away" else "recompute"
    place = folder_of(task)

    def attempt(tokens: int) -> float | None:
        samples = length_mix(8 * tokens // 600 + 16, SHAPES[shape].vocabulary)
        variant = Variant("ours", tokens, execution, activations)
        settings = Training(step_tokens=tokens)
        row = training.measure(shape, variant, samples, settings, device, 1, partial(folders.load_four_bit, place))
        if "failure" not in row:
            return row["peak_gb"] or 0.0
        if not FULL.search(row["failure"]):  # says nothing about the card
            raise RuntimeError(row["failure"])
        reserved = torch.cuda.memory_reserved() / 1e9 if device == "cuda" else 0.0
        print(f"{shape}, rows of {tokens}, {reserved:.1f} GB held: {row['failure']}", file=sys.stderr, flush=True)
        return None

    return attempt


def folder_of(task: dict) -> Path:
    """The shape's 4-bit folder, which another process has written."""
    return folders.write_folder(task["shape"], Path(task["folder"]), task["device"])


def load(task: dict) -> LanguageModel:
    """The shape's 4-bit folder, made ready to answer."""
    model = load_model(Model(model=str(folder_of(task)), adapters="none", device=task["device"]))
    decoding.write_answers(model, ["<2> <3>"], ANSWER)  # weights are unpacked at a first use, where they fit
    model.quick_network.__dict__.pop("steps", None)
    return model


def answer_once(model: LanguageModel) -> Attempt:
    """A function that answers so many prompts in one batch."""
    generator = random.Random(0)
    vocabulary = model.network.config.vocab_size

    def attempt(batch: int) -> float | None:
        prompts = [" ".join(f"<{generator.randrange(1, vocabulary)}>" for _ in range(PROMPT)) for _ in range(batch)]
        if model.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        try:
            decoding.write_answers(model, prompts, ANSWER)
        except RuntimeError as error:
            if not FULL.search(str(error)):
                raise
            return None
        finally:
            model.quick_network.__dict__.pop("steps", None)  # their memory, which the next batch would take over
        return torch.cuda.max_memory_allocated() / 1e9 if model.device == "cuda" else 0.0

    return attempt


if __name__ == "__main__":
    print(json.dumps(work(json.loads(sys.argv[1]))), flush=True)
