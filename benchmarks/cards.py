"""What users' cards can hold: the longest rows in training and the largest batches in answering.

The allocator's memory is capped at that of a card, minus what a process takes before its first
tensor, and sizes are doubled until it fails. The shapes have random weights, loaded from a 4-bit
folder; prompts are as long as those of RAG. Each size is tried in its own process (`card`). Rows in
the file are not measured again, unless they failed.

    python -m benchmarks.cards --shapes smollm2 1.5b 7b 13b --cards 12 24 --workers 4 --out x.json
"""

import argparse
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from benchmarks.rows import LATE, ChildFailed, load_rows, run_child, write_json
from benchmarks.shapes import SHAPES
from covrag_lite.runs.manifest import find_commit

ROW_SIZES = (1024, 2048, 4096, 8192, 16384)  # tokens per row
BATCH_SIZES = (4, 8, 16, 32, 64, 128, 256, 512, 1024)  # prompts answered together
# Each kind of work, and its sizes; "away" is training with offloading.
SIZES = {"training": ROW_SIZES, "away": ROW_SIZES, "answering": BATCH_SIZES}
COLUMNS = {"training": "row", "away": "away_row", "answering": "batch"}  # with the largest size
DOES_NOT_FIT = "does not fit"
FIRST_TRY = 2  # the index of the size that is tried first on the largest card


class CardRows:
    """The rows of a measurement, by shape and card; every new result is written at once."""

    def __init__(self, out: Path | None):
        self.out = out
        self.lock = threading.Lock()
        self.by_card = {(row["backbone"], row["card_gb"]): row for row in load_rows(out)}

    def get(self, shape: str, card: float, work: str) -> object:
        """Return the largest size of this work that fits; None if it was not measured."""
        return self.by_card.get((shape, card), {}).get(COLUMNS[work])

    def add(self, shape: str, card: float, work: str, result: dict) -> None:
        """Add the result of one kind of work."""
        with self.lock:
            start = {"backbone": shape, "card_gb": card}
            row = self.by_card.setdefault((shape, card), start)
            row.pop(f"{work}_failure", None)
            row |= result
            print(row, flush=True)
            write_json(self.out, {**find_commit(), "rows": list(self.by_card.values())})


@dataclass(frozen=True)
class Job:
    """One kind of work with one shape, to be tried on every card."""

    work: str
    shape: str
    device: str
    folder: str  # with the 4-bit weights
    until: float  # no new card is started after this time
    log: Path | None


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
    log = out.with_suffix(".log") if out else None
    rows = CardRows(out)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        for shape in shapes:
            run_child("benchmarks.folders", {"shape": shape, "device": device, "folder": folder})
        futures = []
        for shape in shapes:
            for work in works:
                job = Job(work, shape, device, folder, until, log)
                futures.append(pool.submit(measure_cards, job, cards, rows))
        try:
            for future in futures:
                future.result()
        finally:
            pool.shutdown(cancel_futures=True)  # after an interrupt, no new process is started
    return pd.DataFrame(rows.by_card.values())


def measure_cards(job: Job, cards: Sequence[float], rows: CardRows) -> None:
    """Measure one job on each card, the largest first; a card's result starts the next."""
    sizes = SIZES[job.work]
    begin = FIRST_TRY
    for card in sorted(cards, reverse=True):
        largest = rows.get(job.shape, card, job.work)
        if largest is None:
            result = measure_card(job, card, begin)
            largest = result.get(COLUMNS[job.work])
            rows.add(job.shape, card, job.work, result)
        if largest in sizes:
            begin = sizes.index(largest)


def measure_card(job: Job, card: float, begin: int) -> dict:
    """Return what a card can hold, as columns of the table."""
    if time.monotonic() > job.until:
        return {f"{job.work}_failure": LATE}
    task = {
        "work": job.work,
        "shape": job.shape,
        "card": card,
        "device": job.device,
        "folder": job.folder,
    }

    def peak_of(size: int) -> float | None:
        return run_child("benchmarks.card", task | {"size": size}, job.until, job.log)["peak"]

    try:
        peaks = find_fitting(peak_of, SIZES[job.work], begin)
    except ChildFailed as error:
        return {f"{job.work}_failure": str(error)}
    largest = max(peaks) if peaks else DOES_NOT_FIT
    return {COLUMNS[job.work]: largest, f"{job.work}_peak_gb": peaks.get(largest)}


def find_fitting(
    peak_of: Callable[[int], float | None], sizes: Sequence[int], begin: int = 0
) -> dict[int, float]:
    """Return sizes that fit, with their peaks: up from `begin`, or down to the first that fits."""
    peaks = {}
    at = begin
    while 0 <= at < len(sizes):
        peak = peak_of(sizes[at])
        if peak is None and (peaks or at == 0):
            break
        if peak is None:
            at -= 1
            continue
        peaks[sizes[at]] = peak
        if at < begin:  # reached on the way down
            break
        at += 1
    return peaks


def parse_arguments(has_cuda: bool) -> argparse.Namespace:
    """Return the arguments of the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    usual = ["smollm2", "1.5b", "7b", "13b"] if has_cuda else ["tiny"]
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=usual)
    parser.add_argument(
        "--cards", nargs="+", type=float, default=[12.0, 24.0], help="GiB of each card"
    )
    parser.add_argument("--works", nargs="+", choices=SIZES, default=list(SIZES))
    about_workers = "parallel processes, if the GPU has room"
    parser.add_argument("--workers", type=int, default=1, help=about_workers)
    about_seconds = "no new card is started after this time"
    parser.add_argument("--seconds", type=float, default=240, help=about_seconds)
    parser.add_argument("--out", type=Path, help="a JSON file for the table")
    return parser.parse_args()


def main() -> None:
    """Measure, and print the table."""
    import torch

    has_cuda = torch.cuda.is_available()
    arguments = parse_arguments(has_cuda)
    frame = measure(
        arguments.shapes,
        arguments.cards,
        "cuda" if has_cuda else "cpu",
        arguments.seconds,
        arguments.out,
        arguments.works,
        arguments.workers,
    )
    print(frame.to_string(index=False))


if __name__ == "__main__":
    main()
