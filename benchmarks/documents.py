"""How long own documents take to read and to index, and how much memory, at the limits of size.

Each folder is read in a process of its own, twice: the second start uses what the first one kept.
The texts are random words from a fixed seed.

    python -m benchmarks.documents --out inference.documents.json
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import bm25s
import pypdf

from benchmarks.rows import write_json
from covrag_lite.config import Config
from covrag_lite.data import load_passages
from covrag_lite.retrieval import load_retriever
from covrag_lite.runs.manifest import find_commit

SEED = 1
VOCABULARY = 50_000  # words, of which the first are frequent, as in a language
SKEW = 0.6  # of their Pareto distribution
MB = 1_000_000  # characters
LETTERS = "aeioubcdfglmnprst"


def write_text(n_characters: int, seed: int = SEED) -> str:
    """Return sentences of random words, all on one line."""
    chance = random.Random(seed)
    words = ["".join(chance.choices(LETTERS, k=chance.randint(2, 10))) for _ in range(VOCABULARY)]
    sentences: list[str] = []
    size = 0
    while size < n_characters:
        ranks = [int(chance.paretovariate(SKEW)) for _ in range(12)]
        sentence = " ".join(words[min(rank, VOCABULARY) - 1] for rank in ranks).capitalize() + ". "
        sentences.append(sentence)
        size += len(sentence)
    return "".join(sentences)[:n_characters]


def write_line(folder: Path, megabytes: int) -> None:
    """Write one file with a single line."""
    (folder / "line.txt").write_text(write_text(megabytes * MB))


def write_small_files(folder: Path, n_files: int) -> None:
    """Write many files of a thousand characters."""
    text = write_text(n_files * 1000)
    for number in range(n_files):
        (folder / f"{number:06d}.txt").write_text(text[number * 1000 : number * 1000 + 1000])


def write_large_files(folder: Path, megabytes: int) -> None:
    """Write files of a megabyte, in paragraphs."""
    text = write_text(megabytes * MB).replace(". ", ".\n")
    for number in range(megabytes):
        (folder / f"{number:04d}.txt").write_text(text[number * MB : number * MB + MB])


def write_pdf(folder: Path, n_pages: int) -> None:
    """Write a PDF with about 2,500 characters per page."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_pdf import PdfPages
    from matplotlib.figure import Figure

    sentences = write_text(100_000).split(". ")
    with rc_context({"pdf.use14corefonts": True}), PdfPages(folder / "pages.pdf") as file:
        for number in range(n_pages):
            start = number * 7 % (len(sentences) - 40)
            figure = Figure(figsize=(8, 11))
            figure.text(0.05, 0.05, "\n".join(sentences[start : start + 35]), fontsize=6)
            file.savefig(figure)


# Name of the row -> how to write its folder.
FOLDERS: dict[str, tuple[Callable[[Path, int], None], int]] = {
    "one line, 1 MB": (write_line, 1),
    "one line, 5 MB": (write_line, 5),
    "1,000 files": (write_small_files, 1_000),
    "10,000 files": (write_small_files, 10_000),
    "PDF, 100 pages": (write_pdf, 100),
    "PDF, 1,000 pages": (write_pdf, 1_000),
    "10 MB of text": (write_large_files, 10),
    "100 MB of text": (write_large_files, 100),
}


def measure_start(folder: str) -> dict[str, float]:
    """Read and index a folder in this process, search once, and return what it cost."""
    config = Config().change(data=folder)
    start, cpu_start = time.perf_counter(), time.process_time()
    passages = load_passages(config)
    read_cpu = time.process_time() - cpu_start
    search = load_retriever(config.retrieval, passages)
    search([passages[0].text[:100]])
    return {
        "passages": float(len(passages)),
        "read_cpu_seconds": read_cpu,
        "cpu_seconds": time.process_time() - cpu_start,
        "seconds": time.perf_counter() - start,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
    }


def measure_folder(name: str) -> dict[str, float]:
    """Write a folder and start twice; the values of the second start begin with "again"."""
    write, size = FOLDERS[name]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "documents")
        folder.mkdir()
        write(folder, size)
        environment = os.environ | {"COVRAG_CACHE": str(Path(place, "cache"))}
        command = [sys.executable, "-m", "benchmarks.documents", "--start", str(folder)]
        row: dict[str, float] = {}
        for prefix in ("", "again_"):
            done = subprocess.run(
                command, env=environment, check=True, stdout=subprocess.PIPE, text=True
            )
            row |= {prefix + key: value for key, value in json.loads(done.stdout).items()}
    return row


def main() -> None:
    """Measure all folders, or the one that a process of its own reads."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="inference.documents.json", help="the file to write")
    parser.add_argument("--only", nargs="*", default=list(FOLDERS), help="names of folders")
    parser.add_argument("--start", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.start:
        print(json.dumps(measure_start(options.start)))
        return
    versions = {"bm25s": bm25s.__version__, "pypdf": pypdf.__version__}
    rows: dict[str, dict[str, float]] = {}
    for name in options.only:
        rows[name] = measure_folder(name)
        print(name, rows[name], flush=True)
        write_json(Path(options.out), {**find_commit(), **versions, "documents": rows})


if __name__ == "__main__":
    main()
