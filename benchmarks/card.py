"""Tests whether a card can hold work of one size, in a process with memory capped at the card's."""

import json
import random
import sys
from pathlib import Path

import torch

from benchmarks import folders, training
from benchmarks.shapes import SHAPES, length_mix
from covrag_lite.config import Model, Training
from covrag_lite.engine.decoding import Writer
from covrag_lite.engine.interface import load_engine
from covrag_lite.engine.prepare import FULL

CONTEXT = 0.75  # GiB that a process takes on a card before its first tensor
PROMPT = 600  # tokens of a prompt with five passages
ANSWER = 8  # written tokens: the cache has room for more from the start
STEPS = 3  # of training: the later ones also meet what the first one leaves in memory


def attempt(task: dict) -> float | None:
    """Return the peak in GB of work of this size; None if it does not fit."""
    device = task["device"]
    if device == "cuda":
        whole = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, (task["card"] - CONTEXT) * 2**30 / whole))
    try:
        answer(task) if task["work"] == "answering" else train(task)
    except RuntimeError as error:
        if not ran_out(error):  # not caused by the card
            raise
        return None
    return torch.cuda.max_memory_allocated() / 1e9 if device == "cuda" else 0.0


def ran_out(error: BaseException | None) -> bool:
    """Was there too little memory? In a graph, this leads to another error, with this as cause."""
    while error is not None:
        if FULL.search(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


def train(task: dict) -> None:
    """Train a few steps on rows of this size, with weights loaded from 4 bits."""
    shape, device, tokens = task["shape"], task["device"], task["size"]
    settings = Training(
        step_tokens=tokens,
        pack_tokens=tokens,
        activations="offload" if task["work"] == "away" else "recompute",
        execution="compiled+graph" if device == "cuda" else "eager",
    )
    samples = length_mix(8 * tokens // 600 + 16, SHAPES[shape].vocabulary)
    steps = training.plan(samples, tokens, tokens, STEPS)
    network = folders.load_four_bit(folders.write_folder(shape, Path(task["folder"]), device), device)
    for _ in training.our_steps(network, steps, settings, device):
        pass


def answer(task: dict) -> None:
    """Answer this many prompts in one batch, with weights loaded from 4 bits."""
    place = folders.write_folder(task["shape"], Path(task["folder"]), task["device"])
    model = load_engine(Model(model=str(place), adapters="none", device=task["device"])).loaded

    def write(prompts: list[str]) -> None:
        """Write answers in one batch, which is not halved if it does not fit."""
        Writer(model, None, model.encode(prompts, ANSWER)).write_answers(ANSWER)

    write(["<2> <3>"])  # the first use unpacks the weights, if they fit
    if task["device"] == "cuda":
        torch.cuda.reset_peak_memory_stats()
    generator = random.Random(0)
    words = SHAPES[task["shape"]].vocabulary
    prompts = [" ".join(f"<{generator.randrange(1, words)}>" for _ in range(PROMPT)) for _ in range(task["size"])]
    write(prompts)


if __name__ == "__main__":
    print(json.dumps({"peak": attempt(json.loads(sys.argv[1]))}), flush=True)
