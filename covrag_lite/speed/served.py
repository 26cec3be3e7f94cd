"""Requests a second of a served model, one at a time and with its batches full, against our own batches.

The prompts are those with which RAG answers Table 2's questions. Start a server first; this one needs
`pip install "transformers[serving]"` and fills its batches from the requests that are under way:

    transformers serve path/to/folder --continuous-batching --attn-implementation sdpa --device cpu --dtype float32 \\
        --cb-num-blocks 64 --cb-block-size 256 --cb-max-batch-tokens 1024 --port 8000
    OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=any \\
        python -m covrag_lite.speed.served --model path/to/folder --questions 12 --out served.json
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from covrag_lite import prompts
from covrag_lite.config import Config
from covrag_lite.data import load_passages, load_questions
from covrag_lite.retrieval import load_retriever


def build_prompts(config: Config, n: int) -> list[str]:
    """RAG's prompts for n of Table 2's questions, as many of each set."""
    asked = [question.question for question in load_questions(config.change(n_questions=-(-n // 4)))][:n]
    found = load_retriever(config.retrieval, load_passages(config))(asked)
    return [prompts.build_answer(x, passages) for x, passages in zip(asked, found)]


def timed(write: Callable[[Sequence[str], int], list[str]], texts: Sequence[str], limit: int) -> dict[str, float]:
    """Seconds and requests a second of one way to write."""
    start = time.perf_counter()
    written = write(texts, limit)
    seconds = time.perf_counter() - start
    assert len(written) == len(texts)
    return {"per_second": len(texts) / seconds, "seconds": seconds, "n": len(texts)}


def measure(config: Config, served: str, n: int) -> pd.DataFrame:
    """One row a way: a served model asked one by one, the same with many requests under way, our own batches."""
    from covrag_lite.model.endpoint import Endpoint
    from covrag_lite.model.local import load_model

    texts = build_prompts(config, n)
    limit = config.model.max_answer_tokens
    rows = {}
    for at_once in (1, config.model.requests):
        endpoint = Endpoint(config.change(model=f"endpoint:{served}", requests=at_once).model, timeout=1800)
        endpoint.generate(texts[:1], 1)  # what is loaded once is loaded before the clock starts
        rows[f"served, {at_once} at a time"] = timed(endpoint.generate, texts, limit)
    own = load_model(config.change(model=served, quantize="none", adapters="none").model)
    own.generate(texts[:1], 1)

    def write_batches(texts: Sequence[str], limit: int) -> list[str]:
        return [text for batch in own.batches(texts, limit) for text in own.generate(batch, limit)]

    rows["our own batches"] = timed(write_batches, texts, limit)
    frame = pd.DataFrame.from_dict(rows, orient="index")
    frame.insert(0, "faster", frame.per_second / frame.per_second.iloc[0])
    return frame


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="the folder that is served, also as the server names it")
    parser.add_argument("--questions", type=int, default=12)
    parser.add_argument("--out", type=Path, help="a JSON file for the table")
    given = parser.parse_args()
    frame = measure(Config(), given.model, given.questions)
    print(frame.round(3).to_string())
    if given.out:
        given.out.write_text(json.dumps(json.loads(frame.to_json(orient="index")), indent=1) + "\n")


if __name__ == "__main__":
    main()
