"""Requests a second of a served model, one at a time and with its batches full, against our own batches.

The prompts are those with which RAG answers Table 2's questions. Start a server first; this one needs
`pip install "transformers[serving]"` and fills its batches from the requests that are under way:

    transformers serve path/to/folder --continuous-batching --attn-implementation sdpa --device cpu --dtype float32 \\
        --cb-num-blocks 64 --cb-block-size 128 --cb-max-batch-tokens 1024 --port 8000
    OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=any \\
        python -m benchmarks.served --model path/to/folder --out results/speed-engines/inference.json

The cache (blocks times their size, in tokens) must hold the prompts that are under way, here twelve of 500 tokens; on a
CPU keep it small, since every step goes through all of it.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pandas as pd
import psutil

from benchmarks.report import update_record
from covrag_lite import prompts
from covrag_lite.config import Config
from covrag_lite.data import load_passages, load_questions
from covrag_lite.retrieval import load_retriever
from covrag_lite.runs.manifest import find_commit

PATIENCE = 1800.0  # seconds without a byte: a slow server that is asked twice is slower still


def build_prompts(config: Config, n: int) -> list[str]:
    """RAG's prompts for n of Table 2's questions, as many of each set."""
    asked = [question.question for question in load_questions(config.change(n_questions=-(-n // 4)))][:n]
    found = load_retriever(config.retrieval, load_passages(config))(asked)
    return [prompts.build_answer(x, passages) for x, passages in zip(asked, found)]


def server_seconds(url: str) -> float:
    """CPU seconds so far of the process that listens on this machine at the address's port; none of a distant one."""
    port = urlsplit(url).port
    for one in psutil.net_connections("tcp"):
        if one.status == psutil.CONN_LISTEN and one.laddr.port == port and one.pid:
            return sum(psutil.Process(one.pid).cpu_times()[:2])
    return float("nan")


def timed(write: Callable[[], list[str]], used: Callable[[], float]) -> dict[str, float]:
    """Requests a second, and CPU seconds a request, of one way to write; `used` tells the CPU seconds so far."""
    start = time.perf_counter()
    before = used()
    n = len(write())
    seconds = time.perf_counter() - start
    return {"per_second": n / seconds, "cpu_seconds_each": (used() - before) / n, "n": n}


def measure(config: Config, served: str, n: int) -> pd.DataFrame:
    """One row a way: a served model asked one by one, the same with many requests under way, our own batches."""
    from covrag_lite.engine.endpoint import Endpoint
    from covrag_lite.engine.local import load_model

    texts = build_prompts(config, n)
    limit = config.model.max_answer_tokens
    rows = {}
    for at_once in (1, n):
        endpoint = Endpoint(config.change(model=f"endpoint:{served}", requests=at_once).model, timeout=PATIENCE)
        endpoint.generate(texts[:1], 1)  # what is loaded once is loaded before the clock starts
        used = partial(server_seconds, str(endpoint.client.base_url))
        rows[f"served, {at_once} at a time"] = timed(partial(endpoint.generate, texts, limit), used)
    own = load_model(config.change(model=served, quantize="none", adapters="none").model)
    own.generate(texts[:1], 1)

    def write_batches() -> list[str]:
        return [text for batch in own.batches(texts, limit) for text in own.generate(batch, limit)]

    rows["our own batches"] = timed(write_batches, time.process_time)
    frame = pd.DataFrame.from_dict(rows, orient="index")
    frame.insert(0, "faster", frame.per_second / frame.per_second.iloc[0])
    return frame


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="the folder that is served, also as the server names it")
    parser.add_argument("--questions", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=Config().model.max_answer_tokens, help="the longest answer")
    parser.add_argument("--out", type=Path, help="a JSON file for the table; what else it holds is kept")
    given = parser.parse_args()
    frame = measure(Config().change(max_answer_tokens=given.tokens), given.model, given.questions)
    print(frame.round(3).to_string())
    if given.out:
        told = (
            f"commit {find_commit()['commit']}, load {os.getloadavg()[0]:.1f} at the end, {given.tokens} tokens at most"
        )
        update_record(given.out, {"served": json.loads(frame.to_json(orient="index")), "served_at": told})


if __name__ == "__main__":
    main()
