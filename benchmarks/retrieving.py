"""Queries a second, recall, memory, disk and time to index of search engines and of our own, over the same passages.

An index is built in one process and searched in another, from files, so that the memory is the engine's own. Recall
is against exact search (our BM25, or every dot product): a passage found counts where its exact score is at least
that of the fifth best, since equal scores are many in the world.

All runs on one core. Engines that are not installed are left out; all of them, and the record of results/:

    pip install tantivy duckdb duckdb-extension-fts pymilvus milvus-lite qdrant-client qdrant-edge-py
    python -m benchmarks.retrieving --passages 10000,100000,1000000 --out results/speed-engines/inference.json
"""

import argparse
import multiprocessing
import os
import platform
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks import engines
from benchmarks.clustered import CLUSTERED
from benchmarks.corpus import read, stream, write_world
from benchmarks.engines import Batches, Find, K
from benchmarks.options import numbers, some_of
from benchmarks.report import update_record
from benchmarks.scaling import memory
from covrag_lite.retrieval import bm25, dense
from covrag_lite.runs.manifest import find_commit

SECONDS = 30  # after which no further query is asked
WIKIPEDIA = 21_015_324  # passages of a hundred words, as retrieval over all of Wikipedia is mostly measured
OURS = {"words": "ours (bm25s)", "vectors": "ours (exact)"}
GROWING = ["index_cpu_seconds", "index_peak_mb", "disk_mb", "search_mb", "cpu_ms_per_query"]  # with the passages
ENGINES = engines.ENGINES | CLUSTERED
# Passages: more would take hours, or, of qdrant-local, the engine itself warns.
LARGEST = {
    "milvus-lite words": 100_000,
    "milvus-lite vectors": 100_000,
    "duckdb words": 100_000,
    "qdrant-local vectors": 20_000,
    "qdrant-edge vectors": 100_000,
}


def build_ours(folder: Path, place: Path, kind: str) -> None:
    """Our own index of stems; vectors need none."""
    import bm25s

    if kind == "words":
        index = bm25s.BM25(backend="numpy")
        index.index([line.split() for line in read(folder, "passages", kind)], show_progress=False)
        index.save(place, show_progress=False)
    else:
        np.save(place / "vectors.npy", read(folder, "passages", kind))


def find_ours(place: Path, kind: str) -> Find:
    """Our own search, one query at a time like the others."""
    import bm25s

    if kind == "vectors":
        vectors = np.load(place / "vectors.npy", mmap_mode="r")
        return lambda vector: dense.nearest(vector[None], vectors, K)[0].tolist()
    index = bm25s.BM25.load(place, mmap=True)
    return lambda query: bm25.highest(index.get_scores_from_ids(index.get_tokens_ids(query.split())), K).tolist()


def build(name: str, folder: Path, place: Path, kind: str) -> dict:
    """Build an index, alone in its process."""
    start, used = time.perf_counter(), time.process_time()
    if name == OURS[kind]:
        build_ours(folder, place, kind)
    else:
        engine = ENGINES[name]
        (engine.build_words if kind == "words" else engine.build_vectors)(place, stream(folder, kind))
    return {
        "index_seconds": time.perf_counter() - start,
        "index_cpu_seconds": time.process_time() - used,  # all threads', whatever else the machine does
        "index_peak_mb": peak_memory(),
        "disk_mb": sum(file.stat().st_size for file in place.rglob("*") if file.is_file()) / 1e6,
    }


def peak_memory() -> float:
    """The most MB this process has held; getrusage would count what its parent held when it began."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1e3


def ask(name: str, folder: Path, place: Path, kind: str) -> tuple[dict, list[list[int]]]:
    """Open an index and search it, alone in its process."""
    queries = read(folder, "queries", kind)
    before = memory()
    start = time.perf_counter()
    if name == OURS[kind]:
        find = find_ours(place, kind)
    else:
        find = (ENGINES[name].find_words if kind == "words" else ENGINES[name].find_vectors)(place)
    find(queries[0])
    opened = time.perf_counter()
    used = time.process_time()
    found = []
    for query in queries:
        found.append(find(query))
        if time.perf_counter() - opened > SECONDS:
            break
    seconds = time.perf_counter() - opened
    row = {
        "queries_per_second": len(found) / seconds,
        "cpu_ms_per_query": 1e3 * (time.process_time() - used) / len(found),
        "open_seconds": opened - start,
        "search_mb": memory() - before,
        "n": len(found),
    }
    if name == OURS["vectors"]:  # whose `search` gets all questions at once
        used = time.process_time()
        dense.nearest(queries, np.load(place / "vectors.npy", mmap_mode="r"), K)
        row["cpu_ms_in_a_batch"] = 1e3 * (time.process_time() - used) / len(queries)
    return row, found


def recall(folder: Path, place: Path, kind: str, found: list[list[int]]) -> float:
    """The share of the K best that were found; `place` holds our own index of stems."""
    import bm25s

    if kind == "words":
        index = bm25s.BM25.load(place, mmap=True)
    else:
        vectors = read(folder, "passages", kind)
    shares = []
    for query, rows in zip(read(folder, "queries", kind), found):
        if kind == "words":
            scores = index.get_scores_from_ids(index.get_tokens_ids(query.split()))
        else:
            scores = vectors @ query
        best = scores[bm25.highest(scores, K)]
        best = best[best > 0]  # a passage without a word of the query is nothing to find
        if len(best):
            shares.append(sum(scores[row] >= best[-1] - 1e-5 for row in rows) / len(best))
    return float(np.mean(shares))


def alone(work: Callable, *given: object) -> object:
    """What a function returns in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *given).result()


def measure(names: Sequence[str], kind: str, folder: Path) -> tuple[dict, dict]:
    """One row an engine over the world in this folder, our own first; and what those said that failed."""
    rows, failed = {}, {}
    for name in (OURS[kind], *names):
        place = folder / kind / name
        place.mkdir(parents=True)
        try:
            built = alone(build, name, folder, place, kind)
            asked, found = alone(ask, name, folder, place, kind)
        except Exception as error:  # of an engine, whose kinds nobody knows; the others are measured all the same
            failed[name] = describe(error)
            continue
        share = recall(folder, folder / "words" / OURS["words"], kind, found)
        rows[name] = {column: round(value, 3) for column, value in {**asked, "recall": share, **built}.items()}
        print(kind, name, rows[name], flush=True)
    return rows, failed


def describe(error: Exception) -> dict[str, str]:
    """What an engine said, shortly."""
    return {"said": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}


def build_half(name: str, folder: Path, place: Path, kind: str) -> None:
    """Build an index of the first half of the passages, and be killed where the other half would come."""
    items = read(folder, "passages", kind)
    size = max(1, len(items) // 10)

    def half() -> Batches:
        for start in range(0, 5 * size, size):
            yield range(start, start + size), items[start : start + size]
        os.kill(os.getpid(), signal.SIGKILL)

    (ENGINES[name].build_words if kind == "words" else ENGINES[name].build_vectors)(place, half())


def kill(names: Sequence[str], kind: str, folder: Path) -> dict:
    """How many of the passages that were handed over each engine still has when its process was killed."""
    rows = {}
    for name in names:
        place = folder / "killed" / kind / name
        place.mkdir(parents=True)
        broken = multiprocessing.get_context("spawn").Process(target=build_half, args=(name, folder, place, kind))
        broken.start()
        broken.join()
        assert broken.exitcode == -signal.SIGKILL, f"{name} did not come as far as being killed"
        given = 5 * max(1, len(read(folder, "passages", kind)) // 10)
        try:
            rows[f"{name}, {kind}"] = {"given": given, "kept": alone(ENGINES[name].count, place)}
        except Exception as error:  # again, whatever an engine may raise
            rows[f"{name}, {kind}"] = {"given": given, "kept": None} | describe(error)
        print("killed", kind, name, rows[f"{name}, {kind}"], flush=True)
    return rows


def extrapolate(frame: pd.DataFrame, size: int = WIKIPEDIA) -> pd.DataFrame:
    """What so many passages would take, on paper: the straight line through each engine's two largest worlds."""
    frame = frame.reindex(columns=GROWING).dropna()
    parts = frame.index.str.extract(r"(?P<name>.*), (?P<size>[\d,]+) passages")
    sizes = parts["size"].str.replace(",", "").astype(int).to_numpy()
    rows = {}
    for name in parts["name"].unique():
        own = np.flatnonzero(parts["name"] == name)
        if len(own) < 2:
            continue
        small, large = own[np.argsort(sizes[own])][-2:]
        slope = (frame.iloc[large] - frame.iloc[small]) / (sizes[large] - sizes[small])
        made = frame.iloc[large] + slope * (size - sizes[large])
        rows[name] = {
            "index_cpu_hours": made.index_cpu_seconds / 3600,
            "index_peak_gb": made.index_peak_mb / 1e3,
            "disk_gb": made.disk_mb / 1e3,
            "search_gb": made.search_mb / 1e3,
            "cpu_ms_per_query": made.cpu_ms_per_query,
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def choose(wanted: Sequence[str], kind: str, size: int) -> list[str]:
    """Those of the engines that are installed, search by this kind, and can hold so many passages."""
    able = [name for name in wanted if (ENGINES[name].build_words if kind == "words" else ENGINES[name].build_vectors)]
    return [name for name in able if ENGINES[name].version() and size <= LARGEST.get(f"{name} {kind}", size)]


def tell(wanted: Sequence[str]) -> dict[str, str]:
    """Where and with what it is measured."""
    versions = {name: ENGINES[name].version() or "not installed" for name in wanted} | {"bm25s": version("bm25s")}
    return {
        "commit": find_commit()["commit"],
        "device": f"one of {os.cpu_count()} {platform.machine()} cores, load {os.getloadavg()[0]:.1f} at the start",
        "note": "Written by one run of speed.retrieving.",
        "torch": version("torch"),
        "versions": ", ".join(f"{name} {number}" for name, number in versions.items()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    engines_help = "names of speed/engines.py and clustered.py"
    parser.add_argument("--engines", type=some_of(ENGINES), default=list(ENGINES), help=engines_help)
    parser.add_argument("--kinds", type=some_of(OURS), default=list(OURS))
    parser.add_argument("--passages", type=numbers(int), default=[10_000], help="sizes of the worlds that are searched")
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--out", type=Path, help="a JSON file for the tables; what else it holds is kept")
    given = parser.parse_args()
    wanted, kinds, sizes = given.engines, given.kinds, sorted(given.passages)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])  # of the processes that it starts, too
    content = tell(wanted) | {kind: {} for kind in kinds} | {"killed": {}, "failed": {}}
    for size in sizes:
        with tempfile.TemporaryDirectory() as made:
            write_world(Path(made), size, given.queries, kinds)
            for kind in kinds:
                names = choose(wanted, kind, size)
                rows, failed = measure(names, kind, Path(made))
                content[kind] |= {f"{name}, {size:,} passages": row for name, row in rows.items()}
                content["failed"] |= {f"{name}, {kind}, {size:,} passages": row for name, row in failed.items()}
                if size == sizes[0]:
                    content["killed"] |= kill([name for name in names if name in rows], kind, Path(made))
                if given.out:
                    update_record(given.out, content)


if __name__ == "__main__":
    main()
