"""Speed of answering: our batches against other engines on the same prompts, and two rounds.

"plain" is `generate` of transformers on the network as transformers, peft and bitsandbytes load it;
"vllm" is vLLM. "rounds" measures the cost of CoV-RAG relative to RAG. Each row is written as soon
as it is measured. results/speed-*/inference.continuous*.json also has transformers' continuous
batching.

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
SECONDS = 300.0  # no new row is started after this time
FIRST = 32  # prompts of another engine's first round, which is not timed
LATER = 3  # timed rounds after the first, which records and compiles
ONE_ROUND = "RAG trained, paper layout"


def benchmark(
    parts: Sequence[str], config: Config, n: int, seconds: float = SECONDS, out: Path | None = None
) -> dict[str, pd.DataFrame]:
    """Measure these parts on the first questions; every row is written to `out` at once."""
    for part in parts:
        if part not in PARTS:
            known = ", ".join(PARTS)
            raise ValueError(f"part {part!r} is not known; use some of {known}")
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
    """Return the name of a part's rows, and the engine that it measures."""
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
    """Measure questions per second, ours first: answers, verdicts, and CoV-RAG's two rounds.

    `same` counts texts that equal those of our batches, and `parsed` the verdicts that parse.
    """
    asked = [question.question for question in questions]
    found = search(asked)
    limit = config.model.max_answer_tokens
    given = {"answers": [prompts.build_answer(x, k) for x, k in zip(asked, found)]}
    made: dict[str, dict[str, str]] = {}  # prompt -> text, by row

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
    """Return one engine's row and its texts; a first round, for setup, is not timed."""

    revised = one.settings.max_revised_tokens

    def write(some: Sequence[str]) -> dict[str, str]:
        made = {}
        for batch in one.batches(list(some), prompts.VERDICT_ROOM + revised):
            done = one.complete(batch, limit) if stage == "answers" else one.fill(batch, prompts.SCHEMA, revised)
            made |= {prompt: completion.text for prompt, completion in zip(batch, done)}
        return made

    start = time.perf_counter()
    if one.execution == "eager":
        write(["?"])  # loads the weights; nothing is recorded yet
    elif isinstance(one, Peer):
        # The longest prompts, because memory is reserved for them. Their words are reversed, so
        # that nothing of them is cached.
        write([backwards(text) for text in sorted(given, key=len)[-FIRST:]])
        one.forget()
    else:
        write(given)  # records our steps for these shapes
        one.batches(["?"], 1)  # every engine tokenises its prompts within its own time
    begun = time.perf_counter()
    made = write(given)
    seconds = time.perf_counter() - begun
    row = {"per_second": len(given) / seconds, "seconds": seconds, "n": len(given), "first_s": begun - start}
    if stage == "verdicts":
        row["parsed"] = sum(prompts.parse_verdict(text).parsed for text in made.values())
    return row, made


def backwards(text: str) -> str:
    """Reverse the words of a text: the length is the same, but it begins differently."""
    return " ".join(reversed(text.split(" ")))


def time_rounds(rows: Rows, config: Config, search: Search, questions: Sequence[Question]) -> None:
    """Measure RAG, and CoV-RAG in both layouts of the prompts, each with its own adapters."""
    for layout in prompts.LAYOUTS:
        own = config.change(layout=layout)
        model = load_engine(own.model)
        model.complete(["?"], 1)  # loads the weights before the clock starts
        for system in ("RAG trained", "CoV-RAG") if layout == "paper" else ("CoV-RAG",):
            rows.take(f"{system}, {layout} layout", partial(time_system, system, own, model, search, questions))


def time_system(
    name: str, config: Config, model: LocalEngine, search: Search, questions: Sequence[Question]
) -> dict[str, float]:
    """Return the seconds of a whole system; with recorded or compiled steps, the later median."""

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
    """Return one row per engine, with our relative speed, or its time relative to one round."""
    frame = pd.DataFrame.from_dict(rows, orient="index")
    if "seconds" not in frame:
        return frame  # only failures
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
    about_model = "the parameter `model` of covrag_lite.config"
    parser.add_argument("--model", default=Config().model.model, help=about_model)
    parser.add_argument("--adapters", default=Config().model.adapters)
    parser.add_argument("--out", type=Path, help="a JSON file for the rows")
    about_seconds = "a part starts no new row after this time"
    parser.add_argument("--seconds", type=float, default=SECONDS, help=about_seconds)
    given = parser.parse_args()
    config = Config().change(
        name="speed", n_questions=math.ceil(given.questions / 4), model=given.model, adapters=given.adapters
    )
    for part, frame in benchmark(given.parts, config, given.questions, given.seconds, given.out).items():
        print(part, frame.round(3).to_string(max_colwidth=80, na_rep=""), sep="\n", flush=True)


if __name__ == "__main__":
    main()
