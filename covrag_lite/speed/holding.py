"""What the cards of our users hold: the longest rows to train on and the largest batches to answer, memory capped.

The allocator is held to a card's memory, less what a process takes before its first tensor, and sizes are doubled until
it refuses. The shapes have random weights in 4 bits; prompts are as long as those of RAG.

    python -m covrag_lite.speed.holding --shapes smollm2,1.5b,7b,13b --cards 12,24 --out holding.json
"""

import argparse
import gc
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import torch

from covrag_lite.config import Model, Training
from covrag_lite.manifest import find_commit
from covrag_lite.model import decoding
from covrag_lite.model.local import LanguageModel, load_model
from covrag_lite.model.serving import FULL
from covrag_lite.speed import folders, training
from covrag_lite.speed.options import numbers
from covrag_lite.speed.shapes import SHAPES, Variant, length_mix

CONTEXT = 0.75  # GiB that a process takes of a card before its first tensor
ROWS = (1024, 2048, 4096, 8192, 16384)  # tokens of a row
BATCHES = (4, 8, 16, 32, 64, 128, 256, 512, 1024)  # prompts that are answered together
MIDDLING = 2  # the place of the size that is tried first
PROMPT = 600  # tokens of a prompt with five passages
ANSWER = 8  # tokens written: the cache has room for more from the start
NOTHING = "does not fit"


@contextmanager
def capped(card: float, device: str) -> Iterator[None]:
    """As on a card of so many GiB; a CPU has no cap."""
    if device == "cuda":
        whole = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, (card - CONTEXT) * 2**30 / whole))
    yield
    if device == "cuda":
        torch.cuda.set_per_process_memory_fraction(1.0)


def clear() -> None:
    """Give back what nobody uses any more."""
    gc.collect()
    torch.cuda.empty_cache()


def largest(attempt: Callable[[int], float | None], sizes: Sequence[int], begin: int = 0) -> dict[int, float]:
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


def train_once(shape: str, device: str) -> Callable[[int], float | None]:
    """A function that trains three steps on rows of so many tokens, and tells the peak of memory in GB."""
    execution = "compiled+graph" if device == "cuda" else "eager"

    def attempt(tokens: int) -> float | None:
        samples = length_mix(8 * tokens // 600 + 16, SHAPES[shape].vocabulary)
        variant = Variant("ours", tokens, execution)
        row = training.measure(shape, variant, samples, Training(step_tokens=tokens), device, 1)
        if "failure" in row:
            print(f"{shape}, rows of {tokens}: {row['failure']}", flush=True)
            return None
        return row["peak_gb"] or 0.0

    return attempt


def answer_once(model: LanguageModel) -> Callable[[int], float | None]:
    """A function that answers so many prompts in one batch, and tells the peak of memory in GB."""
    generator = random.Random(0)
    vocabulary = model.network.config.vocab_size

    def attempt(batch: int) -> float | None:
        prompts = [" ".join(f"<{generator.randrange(1, vocabulary)}>" for _ in range(PROMPT)) for _ in range(batch)]
        clear()
        if model.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        try:
            decoding.write_answers(model, prompts, ANSWER)
        except RuntimeError as error:
            if not FULL.search(str(error)):
                raise
            return None
        return torch.cuda.max_memory_allocated() / 1e9 if model.device == "cuda" else 0.0

    return attempt


def measure(
    shapes: Sequence[str],
    cards: Sequence[float],
    device: str,
    seconds: float = 240,
    out: Path | None = None,
    rows: Sequence[int] = ROWS,
    batches: Sequence[int] = BATCHES,
) -> pd.DataFrame:
    """The table: backbone, card, the longest row with its peak, the largest batch with its peak."""
    start = time.perf_counter()
    made: list[dict] = []
    with tempfile.TemporaryDirectory() as folder:
        for shape in shapes:
            seen: dict[str, dict[int, float]] = {}  # what the larger card held says where to begin on the smaller one
            for card in sorted(cards, reverse=True):
                row = {"backbone": shape, "card_gb": card}
                if time.perf_counter() - start > seconds:
                    made.append(row | {"failure": "left out: the time is up"})
                    continue
                with capped(card, device):
                    seen["train"] = search(train_once(shape, device), rows, seen.get("train"), card)
                    row |= told("row", "training", seen["train"])
                    clear()  # of what was trained: networks hold on to themselves
                    settings = Model(model=str(folders.write_folder(shape, Path(folder), device)), adapters="none")
                    model = load_model(settings)
                    seen["answer"] = search(answer_once(model), batches, seen.get("answer"), card)
                    row |= told("batch", "answering", seen["answer"])
                    del model
                    clear()
                made.append(row)
                print(row, flush=True)
                if out:
                    out.write_text(json.dumps({**find_commit(), "rows": made}, indent=1) + "\n")
    return pd.DataFrame(made)


def search(attempt: Callable, sizes: Sequence[int], before: dict[int, float] | None, card: float) -> dict[int, float]:
    """What fits, from a middling size, or after a larger card from the largest whose peak there has room here."""
    begin = min(MIDDLING, len(sizes) - 1)
    if before:
        room = (card - CONTEXT) * 2**30 / 1e9
        below = max(0, sizes.index(min(before)) - 1)
        begin = max((sizes.index(size) for size, peak in before.items() if peak < room), default=below)
    return largest(attempt, sizes, begin)


def told(size: str, work: str, held: dict[int, float]) -> dict:
    """The largest size that fits, and its peak."""
    if not held:
        return {size: NOTHING, f"{work}_peak_gb": None}
    best = max(held)
    return {size: best, f"{work}_peak_gb": held[best]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", default="smollm2,1.5b,7b,13b" if torch.cuda.is_available() else "tiny")
    parser.add_argument("--cards", type=numbers(float), default=[12.0, 24.0], help="GiB of each card")
    parser.add_argument("--seconds", type=float, default=240, help="after which no further card is begun")
    parser.add_argument("--out", type=Path, help="a JSON file for the table")
    given = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(measure(given.shapes.split(","), given.cards, device, given.seconds, given.out).to_string(index=False))


if __name__ == "__main__":
    main()
