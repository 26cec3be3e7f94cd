"""What the cards of our users hold: the longest rows to train on and the largest batches to answer, memory capped.

The allocator is held to a card's memory, less what a process takes before its first tensor, and sizes are doubled until
it refuses. The shapes have random weights, loaded from a folder in 4 bits; prompts are as long as those of RAG. Each
shape, card and work is measured in a process of its own (`card`), and what is in the file already is not measured
again, unless it failed.

    python -m benchmarks.holding --shapes smollm2,1.5b,7b,13b --cards 12,24 --workers 4 --out holding.json
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd

from benchmarks.options import numbers, some_of
from benchmarks.rows import known_rows, write_json
from benchmarks.saying import last_words
from benchmarks.shapes import SHAPES
from covrag_lite.config import ROOT
from covrag_lite.runs.manifest import find_commit

ROWS = (1024, 2048, 4096, 8192, 16384)  # tokens of a row
BATCHES = (4, 8, 16, 32, 64, 128, 256, 512, 1024)  # prompts that are answered together
# The column of what a work holds; "away" is training with what can wait in the CPU's memory (`activations` offload).
SIZE = {"training": "row", "away": "away_row", "answering": "batch"}
NOTHING = "does not fit"
LATE = "left out: the time is up"
GRACE = 180  # seconds beyond the time after which a process is stopped, whatever it does


class ChildFailed(RuntimeError):
    """A process that ended without a result; the message is its last words."""


class Table:
    """The rows, one a backbone and card, and their file; several threads fill it."""

    def __init__(self, out: Path | None):
        self.out = out
        self.lock = threading.Lock()
        self.folders = defaultdict(threading.Lock)  # by shapes: one process writes a shape's weights
        self.written: set[str] = set()
        self.rows = {(row["backbone"], row["card_gb"]): row for row in known_rows(out)}

    def known(self, shape: str, card: float, work: str) -> dict[int, float] | None:
        """What a card held in an earlier run, None where that is not known."""
        row = self.rows.get((shape, card), {})
        if SIZE[work] not in row:
            return None
        held = row[SIZE[work]]
        return {} if held == NOTHING else {held: row[f"{work}_peak_gb"]}

    def add(self, shape: str, card: float, work: str, told: dict) -> None:
        """Take over what is told of one work, and write the file."""
        with self.lock:
            row = self.rows.setdefault((shape, card), {"backbone": shape, "card_gb": card})
            for stale in ("failure", f"{work}_failure"):
                row.pop(stale, None)
            row |= told
            print(row, flush=True)
            if self.out:
                write_json(self.out, {**find_commit(), "rows": list(self.rows.values())})


def measure(
    shapes: Sequence[str],
    cards: Sequence[float],
    device: str,
    seconds: float = 240,
    out: Path | None = None,
    rows: Sequence[int] = ROWS,
    batches: Sequence[int] = BATCHES,
    workers: int = 1,
    works: Sequence[str] = tuple(SIZE),
) -> pd.DataFrame:
    """The table: backbone, card, the longest rows with their peaks, the largest batch with its peak."""
    until = time.monotonic() + seconds
    table = Table(out)
    sizes = {"training": rows, "away": rows, "answering": batches}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        jobs = []
        for shape in shapes:
            for work in works:
                task = {"work": work, "shape": shape, "device": device, "sizes": sizes[work], "folder": folder}
                jobs.append(pool.submit(measure_cards, table, task, sorted(cards, reverse=True), until))
        try:
            for job in jobs:
                job.result()
        finally:
            pool.shutdown(cancel_futures=True)  # whoever interrupts this wants no further process
    return pd.DataFrame(table.rows.values())


def measure_cards(table: Table, task: dict, cards: Sequence[float], until: float) -> None:
    """One work of one shape on each card, from the largest: what that held says where to begin on the next."""
    shape, work = task["shape"], task["work"]
    before: dict[int, float] = {}
    for card in cards:
        known = table.known(shape, card, work)
        if known is not None:
            before = known
            continue
        if time.monotonic() > until:
            table.add(shape, card, work, {f"{work}_failure": LATE})
            continue
        try:
            with table.folders[shape]:
                if shape not in table.written:
                    run_child(task | {"work": "folder"}, until)
                    table.written.add(shape)
            before = search_in_children(task | {"card": card, "before": before}, until)
        except ChildFailed as error:
            table.add(shape, card, work, {f"{work}_failure": str(error)})
        else:
            table.add(shape, card, work, told(work, before))


def search_in_children(task: dict, until: float) -> dict[int, float]:
    """The sizes that fit; as often as memory is left behind, a new process goes on where the last one stopped."""
    tried: dict = {}
    while True:
        said = run_child(task | {"tried": tried}, until)
        if "held" in said:
            return {int(size): peak for size, peak in said["held"].items()}
        tried = said["tried"]


def run_child(task: dict, until: float) -> dict:
    """What a process of its own says about a task."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    own = {"PYTHONPATH": os.pathsep.join(path for path in paths if path), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "benchmarks.card", json.dumps(task)]
    limit = max(0.0, until - time.monotonic()) + GRACE
    # Files and no pipes: those that compile for it may hold on to a pipe when it is gone.
    with tempfile.TemporaryFile("w+") as result, tempfile.TemporaryFile("w+", errors="replace") as talk:
        try:
            child = subprocess.run(
                command, env=os.environ | own, cwd=task["folder"], stdout=result, stderr=talk, timeout=limit
            )
        except subprocess.TimeoutExpired:
            raise ChildFailed(f"stopped after {limit:.0f} seconds") from None
        result.seek(0)
        talk.seek(0)
        lines, said = result.read().splitlines(), talk.read()
    print(said, end="", file=sys.stderr, flush=True)
    if child.returncode or not lines:
        raise ChildFailed(last_words(said))
    return json.loads(lines[-1])


def told(work: str, held: dict[int, float]) -> dict:
    """The largest size that fits, and its peak."""
    best = max(held) if held else NOTHING
    return {SIZE[work]: best, f"{work}_peak_gb": held.get(best)}


def main() -> None:
    import torch

    has_cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    usual = ["smollm2", "1.5b", "7b", "13b"] if has_cuda else ["tiny"]
    parser.add_argument("--shapes", type=some_of(SHAPES), default=usual)
    parser.add_argument("--cards", type=numbers(float), default=[12.0, 24.0], help="GiB of each card")
    parser.add_argument("--works", type=some_of(SIZE), default=list(SIZE))
    parser.add_argument("--workers", type=int, default=1, help="processes side by side, where the GPU has room")
    parser.add_argument("--seconds", type=float, default=240, help="after which no further card is begun")
    parser.add_argument("--out", type=Path, help="a JSON file for the table")
    given = parser.parse_args()
    device = "cuda" if has_cuda else "cpu"
    side = {"workers": given.workers, "works": given.works}
    frame = measure(given.shapes, given.cards, device, given.seconds, given.out, **side)
    print(frame.to_string(index=False))


if __name__ == "__main__":
    main()
