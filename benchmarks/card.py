"""Tests whether a card can hold work of one size, in a process with memory capped at the card's."""

import json
import random
import sys
from pathlib import Path

import torch

from benchmarks import folders, training
from benchmarks.shapes import SHAPES, length_mix
from covrag_lite.config import Model, Training
from covrag_lite.engine import load_engine
from covrag_lite.engine.batch import OUT_OF_MEMORY
from covrag_lite.engine.fast.decoding import Writer

CONTEXT_GIB = 0.75  # that a process takes on a card before its first tensor
PROMPT_TOKENS = 600  # of a prompt with five passages
ANSWER_TOKENS = 8  # written: the cache has room for more from the start
N_STEPS = 3  # of training: the later ones also meet what the first one leaves in memory


def measure_peak(task: dict) -> float | None:
    """Return the peak in GB of work of this size; None if it does not fit."""
    device = task["device"]
    if device == "cuda":
        total = torch.cuda.get_device_properties(0).total_memory
        share = (task["card"] - CONTEXT_GIB) * 2**30 / total
        torch.cuda.set_per_process_memory_fraction(min(1.0, share))
    try:
        if task["work"] == "answering":
            answer(task)
        else:
            train(task)
    except RuntimeError as error:
        if not ran_out(error):  # not caused by the card
            raise
        return None
    return torch.cuda.max_memory_allocated() / 1e9 if device == "cuda" else 0.0


def ran_out(error: BaseException | None) -> bool:
    """Return whether there was too little memory.

    In a graph, this leads to another error, with this one as its cause.
    """
    while error is not None:
        if OUT_OF_MEMORY.search(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


def train(task: dict) -> None:
    """Train a few steps on rows of this size, with weights loaded from 4 bits."""
    device = task["device"]
    tokens = task["size"]
    settings = Training(
        step_tokens=tokens,
        pack_tokens=tokens,
        activations="offload" if task["work"] == "away" else "recompute",
        execution="compiled+graph" if device == "cuda" else "eager",
    )
    samples = length_mix(8 * tokens // 600 + 16, SHAPES[task["shape"]].vocabulary)
    steps = training.pack_steps(samples, tokens, tokens, N_STEPS)
    model_folder = folders.write_folder(task["shape"], Path(task["folder"]), device)
    network = folders.load_four_bit(model_folder, device)
    for _ in training.our_steps(network, steps, settings, device):
        pass


def answer(task: dict) -> None:
    """Answer this many prompts in one batch, with weights loaded from 4 bits."""
    device = task["device"]
    model_folder = folders.write_folder(task["shape"], Path(task["folder"]), device)
    settings = Model(model=str(model_folder), adapters="none", device=device)
    model = load_engine(settings).prepared

    def write(prompts: list[str]) -> None:
        """Write answers in one batch, which is not halved if it does not fit."""
        Writer(model, None, model.encode(prompts, ANSWER_TOKENS)).write_answers(ANSWER_TOKENS)

    write(["<2> <3>"])  # the first use unpacks the weights, if they fit
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    vocabulary = SHAPES[task["shape"]].vocabulary
    write(random_prompts(task["size"], vocabulary))


def random_prompts(n: int, vocabulary: int) -> list[str]:
    """Return prompts of random tokens, as the tokenizer of random weights reads them."""
    generator = random.Random(0)
    prompts = []
    for _ in range(n):
        tokens = [f"<{generator.randrange(1, vocabulary)}>" for _ in range(PROMPT_TOKENS)]
        prompts.append(" ".join(tokens))
    return prompts


if __name__ == "__main__":
    print(json.dumps({"peak": measure_peak(json.loads(sys.argv[1]))}), flush=True)
