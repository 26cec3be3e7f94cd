"""How fast answering is: our batches against other engines on the same prompts, and two rounds against one.

"plain" is transformers' `generate` on the network as transformers, peft and bitsandbytes load it, "vllm" vLLM. "rounds"
measures what CoV-RAG costs over RAG. Each row is written as it comes. (transformers' continuous batching was measured,
results/speed-*/inference.continuous*.json, and has left.)

    python -m benchmarks.inference --parts plain rounds --out inference.json
"""

import argparse
import json
import math
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pandas as pd
import torch

from benchmarks.generate import Peer, Plain
from benchmarks.rows import Made, Rows, write_json
from covrag_lite import evaluate, prompts
from covrag_lite.config import Config
from covrag_lite.data import load_passages, load_questions
from covrag_lite.engine.interface import load_engine
from covrag_lite.engine.local import LocalEngine
from covrag_lite.journal import Journal
from covrag_lite.records import Question, Search
from covrag_lite.retrieval import load_retriever
from covrag_lite.runs.manifest import find_commit

PARTS = ("plain", "rounds", "vllm")
SECONDS = 300.0  # after which no further row is begun
FIRST = 32  # prompts of a peer's round that is not timed
LATER = 3  # times that are timed after a first one, where that records and compiles
ONE_ROUND = "RAG trained, paper layout"


def benchmark(
    parts: Sequence[str], config: Config, n: int, seconds: float = SECONDS, out: Path | None = None
) -> dict[str, pd.DataFrame]:
    """The named parts over the first questions; every row is written to `out` as it comes."""
    for part in parts:
        if part not in PARTS:
            raise ValueError(f"part {part!r} is not known; use some of {', '.join(PARTS)}")
    questions = load_questions(config)[:n]
    search = load_retriever(config.retrieval, load_passages(config))
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    content = {**find_commit(), "device": device, "torch": torch.__version__, "model": config.model.model}
    frames = {}
    for part in parts:

        def note(made: Made, part: str = part) -> None:
            frames[part] = table(made)
            content[part] = json.loads(frames[part].to_json(orient="index"))
            write_json(out, content)

        rows = Rows(seconds, note)
        if part == "rounds":
            time_rounds(rows, config, search, questions)
        else:
            model = load_engine(config.model).with_adapter("cov")
            time_peer(rows, config, model, *load_peer(part, model), search, questions)
    return frames


def load_peer(part: str, model: LocalEngine) -> tuple[str, Peer]:
    """The engine that a part measures, after the name of its rows."""
    if part == "plain":
        return "generate", Plain(model)
    from benchmarks.vllm_peer import Vllm

    return "vLLM", Vllm(model)


def time_peer(
    rows: Rows,
    config: Config,
    model: LocalEngine,
    name: str,
    peer: Peer,
    search: Search,
    questions: Sequence[Question],
) -> None:
    """Questions a second, ours first: answers, verdicts on them, and all of CoV-RAG's two rounds.

    `same` counts texts that are those of our own batches, `parsed` the verdicts that parse at all.
    """
    asked = [question.question for question in questions]
    found = search(asked)
    limit = config.model.max_answer_tokens
    given = {"answers": [prompts.build_answer(x, k) for x, k in zip(asked, found)]}
    made: dict[str, dict[str, str]] = {}  # texts by their prompts

    def take(stage: str, way: str, one: LocalEngine) -> dict:
        if stage == "two rounds":
            rows.need(f"verdicts, {way}")
            return time_system("CoV-RAG", config, one, search, questions)
        if stage == "verdicts":
            rows.need("answers, ours")
            written = [made["answers, ours"][text] for text in given["answers"]]
            given[stage] = [prompts.build_verify(x, k, y) for x, k, y in zip(asked, found, written)]
        row, texts = time_texts(one, stage, given[stage], limit)
        ours = made.setdefault(f"{stage}, ours", texts)
        return row | {"same": sum(texts[text] == ours[text] for text in given[stage])}

    for stage in peer.stages:
        rows.take(f"{stage}, ours", partial(take, stage, "ours", model))
    for stage in peer.stages:
        rows.take(f"{stage}, {name}", partial(take, stage, name, peer))
        if stage == peer.stages[-1]:
            peer.stop()


def time_texts(
    one: LocalEngine, stage: str, given: Sequence[str], limit: int
) -> tuple[dict[str, float], dict[str, str]]:
    """One way's row and its texts; a first round is not timed, in which kernels are chosen and pages laid out."""

    revised = one.settings.max_revised_tokens

    def write(some: Sequence[str]) -> dict[str, str]:
        made = {}
        for batch in one.batches(list(some), prompts.VERDICT_ROOM + revised):
            done = one.complete(batch, limit) if stage == "answers" else one.fill(batch, prompts.SCHEMA, revised)
            made |= {prompt: completion.text for prompt, completion in zip(batch, done)}
        return made

    start = time.perf_counter()
    if one.execution == "eager":
        write(["?"])  # weights are loaded, and nothing is recorded
    elif isinstance(one, Peer):
        # The longest, because pages are laid out for them, but backwards: what an engine has read it may remember.
        write([backwards(text) for text in sorted(given, key=len)[-FIRST:]])
        one.forget()
    else:
        write(given)  # our steps are recorded for the shapes that come
        one.batches(["?"], 1)  # each way tokenises its prompts in its own time
    begun = time.perf_counter()
    made = write(given)
    seconds = time.perf_counter() - begun
    row = {"per_second": len(given) / seconds, "seconds": seconds, "n": len(given), "first_s": begun - start}
    if stage == "verdicts":
        row["parsed"] = sum(prompts.parse_verdict(text).parsed for text in made.values())
    return row, made


def backwards(text: str) -> str:
    """The words of a text in the other order: as long, and it begins otherwise."""
    return " ".join(reversed(text.split(" ")))


def time_rounds(rows: Rows, config: Config, search: Search, questions: Sequence[Question]) -> None:
    """RAG, and CoV-RAG in both layouts of the prompts, each with its own adapters."""
    for layout in prompts.LAYOUTS:
        own = config.change(layout=layout)
        model = load_engine(own.model)
        model.complete(["?"], 1)  # weights are loaded before the clock starts
        for system in ("RAG trained", "CoV-RAG") if layout == "paper" else ("CoV-RAG",):
            rows.take(f"{system}, {layout} layout", partial(time_system, system, own, model, search, questions))


def time_system(
    name: str, config: Config, model: LocalEngine, search: Search, questions: Sequence[Question]
) -> dict[str, float]:
    """Seconds of a whole system; where steps are recorded or compiled, the middle one of later times."""

    def run_once() -> float:
        if isinstance(model, Peer):
            model.forget()
        with tempfile.TemporaryDirectory() as folder:
            resources = evaluate.Resources(search, model, Journal(Path(folder) / "journal.jsonl"))
            start = time.perf_counter()
            evaluate.run(config.change(systems=(name,)), resources, questions)
            return time.perf_counter() - start

    first = seconds = run_once()
    if model.execution != "eager" and not isinstance(model, Peer):
        seconds = sorted(run_once() for _ in range(LATER))[LATER // 2]
    return {"per_second": len(questions) / seconds, "seconds": seconds, "n": len(questions), "first_s": first}


def table(rows: Made) -> pd.DataFrame:
    """One row a way, with our speed over its speed first, or its time over that of one round."""
    frame = pd.DataFrame.from_dict(rows, orient="index")
    if "seconds" not in frame:
        return frame  # of failures alone
    if ONE_ROUND in frame.index:
        frame.insert(0, "times_rag", frame.seconds / frame.seconds[ONE_ROUND])
    else:
        ours = [frame.seconds.get(f"{name.split(',')[0]}, ours", math.nan) for name in frame.index]
        frame.insert(0, "ours_faster", frame.seconds / ours)
    return frame


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS[:2])
    parser.add_argument("--questions", type=int, default=256 if torch.cuda.is_available() else 1)
    parser.add_argument("--model", default=Config().model.model, help="as in covrag_lite.config, as is the next")
    parser.add_argument("--adapters", default=Config().model.adapters)
    parser.add_argument("--out", type=Path, help="a JSON file for the rows")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="after which a part begins no further row")
    given = parser.parse_args()
    config = Config().change(
        name="speed", n_questions=math.ceil(given.questions / 4), model=given.model, adapters=given.adapters
    )
    for part, frame in benchmark(given.parts, config, given.questions, given.seconds, given.out).items():
        print(part, frame.round(3).to_string(max_colwidth=80, na_rep=""), sep="\n", flush=True)


if __name__ == "__main__":
    main()
