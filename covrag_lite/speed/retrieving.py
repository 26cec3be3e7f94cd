"""Queries a second, recall, memory, disk and time to index of search engines and of our own, over the same passages.

An index is built in one process and searched in another, from files, so that the memory is the engine's own. Recall
is against exact search (our BM25, or every dot product): a passage found counts where its exact score is at least
that of the fifth best, since equal scores are many in the world.

    python -m covrag_lite.speed.retrieving --passages 10000,100000 --out engines.json
"""

import argparse
import json
import multiprocessing
import platform
import tempfile
import time
import zlib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd

from covrag_lite.config import Config
from covrag_lite.data import load_passages, load_questions
from covrag_lite.retrieval import bm25, dense
from covrag_lite.speed.engines import ENGINES, Batches, Find, K
from covrag_lite.speed.scaling import memory

BATCH = 10_000  # passages that are handed over together
DIMENSIONS = 384  # MiniLM's
SECONDS = 30  # after which no further query is asked
WIKIPEDIA = 21_015_324  # passages of a hundred words, as retrieval over all of Wikipedia is mostly measured
OURS = {"words": "ours (bm25s)", "vectors": "ours (exact)"}


def write_world(folder: Path, size: int, n_queries: int, kinds: Sequence[str]) -> None:
    """The world's passages and questions as files: their stems, and vectors made of these."""
    config = Config().change(n_passages=size, n_questions=0)
    words = bm25.tokenise(f"{p.title} {p.text}" for p in load_passages(config))
    every = load_questions(config)
    asked = bm25.tokenise(question.question for question in every[:: max(1, len(every) // n_queries)])
    for name, texts in (("passages", words), ("queries", asked)):
        (folder / f"{name}.txt").write_text("".join(" ".join(text) + "\n" for text in texts))
        if "vectors" in kinds:
            np.save(folder / f"{name}.npy", embed(texts))


def embed(texts: Sequence[Sequence[str]]) -> np.ndarray:
    """Unit vectors that are near each other where texts share words: the sum of a random vector a word."""
    table = np.random.default_rng(1).normal(size=(2**14, DIMENSIONS)).astype(np.float32)
    made = np.zeros((len(texts), DIMENSIONS), np.float32)
    for row, words in enumerate(texts):
        made[row] = table[[zlib.crc32(word.encode()) % len(table) for word in words]].sum(0)
    return made / np.maximum(np.linalg.norm(made, axis=1, keepdims=True), 1e-9)


def read(folder: Path, name: str, kind: str) -> Sequence:
    """All stems as lines, or all vectors, mapped."""
    if kind == "vectors":
        return np.load(folder / f"{name}.npy", mmap_mode="r")
    return (folder / f"{name}.txt").read_text().splitlines()


def stream(folder: Path, kind: str) -> Batches:
    """The passages in batches, with their rows."""
    items = read(folder, "passages", kind)
    for start in range(0, len(items), BATCH):
        batch = items[start : start + BATCH]
        yield range(start, start + len(batch)), batch


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
    start = time.perf_counter()
    if name == OURS[kind]:
        build_ours(folder, place, kind)
    else:
        engine = ENGINES[name]
        (engine.build_words if kind == "words" else engine.build_vectors)(place, stream(folder, kind))
    return {
        "index_seconds": time.perf_counter() - start,
        "index_cpu_seconds": time.process_time(),  # all threads', whatever else the machine does
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


def measure(names: Sequence[str], kind: str, size: int, n_queries: int) -> pd.DataFrame:
    """One row an engine, our own first."""
    alone = multiprocessing.get_context("spawn")
    rows = {}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write_world(folder, size, n_queries, (kind,))
        for name in (OURS[kind], *names):
            place = folder / name
            place.mkdir()
            made_by = []
            for work in (build, ask):
                with ProcessPoolExecutor(1, mp_context=alone) as pool:
                    made_by.append(pool.submit(work, name, folder, place, kind).result())
            built, (asked, found) = made_by
            rows[f"{name}, {size:,} passages"] = {
                **asked,
                "recall": recall(folder, folder / OURS["words"], kind, found),
                **built,
            }
            print(pd.Series(rows[f"{name}, {size:,} passages"], name=name).round(3).to_dict(), name, kind, flush=True)
    return pd.DataFrame.from_dict(rows, orient="index")


def extrapolate(frame: pd.DataFrame, size: int = WIKIPEDIA) -> pd.DataFrame:
    """What so many passages would take, on paper: the straight line through each engine's two largest worlds."""
    frame = frame.dropna()
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engines", default=",".join(ENGINES), help="names of speed/engines.py")
    parser.add_argument("--kinds", default="words,vectors")
    parser.add_argument("--passages", default="10000", help="sizes of the worlds that are searched")
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--out", type=Path, help="a JSON file for the table")
    given = parser.parse_args()
    content = {"device": platform.machine()}
    for kind in given.kinds.split(","):
        can = {name: e for name, e in ENGINES.items() if (e.build_words if kind == "words" else e.build_vectors)}
        names = [name for name in given.engines.split(",") if name in can and can[name].version()]
        content["versions"] = {name: ENGINES[name].version() for name in names} | content.get("versions", {})
        frames = [measure(names, kind, int(size), given.queries) for size in given.passages.split(",")]
        frame = pd.concat(frames)
        content[kind] = json.loads(frame.to_json(orient="index"))
        if given.out:
            given.out.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
