"""What users' cards can hold: the longest rows in training and the largest batches in answering.

The allocator's memory is capped at that of a card, minus what a process takes before its first
tensor, and sizes are doubled until it fails. The shapes have random weights, loaded from a 4-bit
folder; prompts are as long as those of RAG. Each size is tried in its own process (`card`). Rows in
the file are not measured again, unless they failed.

    python -m benchmarks.holding --shapes smollm2 1.5b 7b 13b --cards 12 24 --workers 4 --out x.json
"""

import argparse
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd

from benchmarks.rows import LATE, ChildFailed, known_rows, run_child, write_json
from benchmarks.shapes import SHAPES
from covrag_lite.runs.manifest import find_commit

ROWS = (1024, 2048, 4096, 8192, 16384)  # tokens per row
BATCHES = (4, 8, 16, 32, 64, 128, 256, 512, 1024)  # prompts answered together
SIZES = {"training": ROWS, "away": ROWS, "answering": BATCHES}
# The column with the result of each kind of work; "away" is training with offloading.
COLUMN = {"training": "row", "away": "away_row", "answering": "batch"}
NOTHING = "does not fit"
MIDDLING = 2  # the index of the size that is tried first


def measure(
    shapes: Sequence[str],
    cards: Sequence[float],
    device: str,
    seconds: float = 240,
    out: Path | None = None,
    works: Sequence[str] = tuple(SIZES),
    workers: int = 1,
) -> pd.DataFrame:
    """Measure the table: backbone, card, the longest rows and the largest batch, with peaks."""
    until = time.monotonic() + seconds
    lock = threading.Lock()
    rows = {(row["backbone"], row["card_gb"]): row for row in known_rows(out)}

    def add(shape: str, card: float, work: str, told: dict) -> None:
        with lock:
            row = rows.setdefault((shape, card), {"backbone": shape, "card_gb": card})
            row.pop(f"{work}_failure", None)
            row |= told
            print(row, flush=True)
            write_json(out, {**find_commit(), "rows": list(rows.values())})

    def measure_cards(shape: str, work: str, folder: str) -> None:
        """Measure one kind of work on each card, the largest first; its result starts the next."""
        begin = MIDDLING
        for card in sorted(cards, reverse=True):
            held = rows.get((shape, card), {}).get(COLUMN[work])
            if held is None:
                task = {"work": work, "shape": shape, "card": card, "device": device, "folder": folder}
                told = search(task, begin, until, out and out.with_suffix(".log"))
                held = told.get(COLUMN[work])
                add(shape, card, work, told)
            begin = SIZES[work].index(held) if held in SIZES[work] else begin

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        for shape in shapes:
            run_child("benchmarks.folders", {"shape": shape, "device": device, "folder": folder})
        jobs = [pool.submit(measure_cards, shape, work, folder) for shape in shapes for work in works]
        try:
            for job in jobs:
                job.result()
        finally:
            pool.shutdown(cancel_futures=True)  # after an interrupt, no new process is started
    return pd.DataFrame(rows.values())


def search(task: dict, begin: int, until: float, log: Path | None) -> dict:
    """Return what a card can hold, as columns of the table."""
    work = task["work"]
    if time.monotonic() > until:
        return {f"{work}_failure": LATE}

    def attempt(size: int) -> float | None:
        return run_child("benchmarks.card", task | {"size": size}, until, log)["peak"]

    try:
        held = largest(attempt, SIZES[work], begin)
    except ChildFailed as error:
        return {f"{work}_failure": str(error)}
    best = max(held) if held else NOTHING
    return {COLUMN[work]: best, f"{work}_peak_gb": held.get(best)}


def largest(attempt: Callable[[int], float | None], sizes: Sequence[int], begin: int = 0) -> dict[int, float]:
    """Return the sizes that fit, with peaks: up from `begin`, or down to the first that fits."""
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
        if at < begin:  # found on the way down
            break
        at += 1
    return made


def main() -> None:
    import torch

    has_cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    usual = ["smollm2", "1.5b", "7b", "13b"] if has_cuda else ["tiny"]
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=usual)
    parser.add_argument("--cards", nargs="+", type=float, default=[12.0, 24.0], help="GiB of each card")
    parser.add_argument("--works", nargs="+", choices=SIZES, default=list(SIZES))
    about_workers = "parallel processes, if the GPU has room"
    parser.add_argument("--workers", type=int, default=1, help=about_workers)
    about_seconds = "no new card is started after this time"
    parser.add_argument("--seconds", type=float, default=240, help=about_seconds)
    parser.add_argument("--out", type=Path, help="a JSON file for the table")
    given = parser.parse_args()
    device = "cuda" if has_cuda else "cpu"
    frame = measure(given.shapes, given.cards, device, given.seconds, given.out, given.works, given.workers)
    print(frame.to_string(index=False))


if __name__ == "__main__":
    main()
