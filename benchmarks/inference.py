"""Speed of answering: our batches against other engines on the same prompts, and two rounds.

"plain" is `generate` of transformers on the network as transformers, peft and bitsandbytes load it;
"vllm" is vLLM; "llama.cpp" is its server on a CPU, without an adapter. "rounds" measures the cost
of CoV-RAG relative to RAG. Each row is written as soon as it is measured.
results/speed-*/inference.continuous*.json also has transformers' continuous batching.

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

from benchmarks.other_engines import GenerateEngine, OtherEngine
from benchmarks.rows import RowsByName, TimedRows, write_json
from covrag_lite import prompts
from covrag_lite.config import Config
from covrag_lite.data import load_passages, load_questions
from covrag_lite.engine import load_engine
from covrag_lite.engine.fast.local import LocalEngine
from covrag_lite.engine.journal import Journal
from covrag_lite.records import Question, Search
from covrag_lite.retrieval import load_retriever
from covrag_lite.runs.manifest import find_commit
from covrag_lite.systems import evaluate
from covrag_lite.systems.names import COV_RAG, RAG_TRAINED

PARTS = ("plain", "rounds", "vllm", "llama.cpp")
DEFAULT_PARTS = ("plain", "rounds")
TIME_LIMIT = 300.0  # seconds after which a part starts no new row
WARM_UP_PROMPTS = 32  # of another engine's first round, which is not timed
LATER_ROUNDS = 3  # timed rounds after the first, which records and compiles
LAYOUT_SYSTEMS = {"paper": (RAG_TRAINED, COV_RAG)}  # other layouts: CoV-RAG only
ONE_ROUND = f"{RAG_TRAINED}, paper layout"  # the row that the others of "rounds" are compared with


def benchmark(
    parts: Sequence[str],
    config: Config,
    n_questions: int,
    seconds: float = TIME_LIMIT,
    out: Path | None = None,
) -> dict[str, pd.DataFrame]:
    """Measure these parts on the first questions; every row is written to `out` at once."""
    for part in parts:
        if part not in PARTS:
            raise ValueError(f"part {part!r} is not known; use some of {', '.join(PARTS)}")
    questions = load_questions(config)[:n_questions]
    search = load_retriever(config.retrieval, load_passages(config))
    record = {
        **find_commit(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        "torch": torch.__version__,
        "model": config.model.model,
    }
    frames = {}
    for part in parts:

        def save(rows: RowsByName, part: str = part) -> None:
            frames[part] = build_table(rows)
            record[part] = json.loads(frames[part].to_json(orient="index"))
            write_json(out, record)

        rows = TimedRows(seconds, save)
        if part == "rounds":
            time_rounds(rows, config, search, questions)
        else:
            has_adapter = config.model.adapters != "none"
            model = load_engine(config.model).with_adapter("cov" if has_adapter else "")
            name, other = load_other_engine(part, model)
            compare_engines(rows, Workload(config, search, questions), model, name, other)
    return frames


def load_other_engine(part: str, model: LocalEngine) -> tuple[str, OtherEngine]:
    """Return the name of a part's rows, and the engine that it measures."""
    if part == "plain":
        return "generate", GenerateEngine(model)
    if part == "llama.cpp":
        from benchmarks.llama_cpp import LlamaCppEngine

        return part, LlamaCppEngine(model)
    from benchmarks.vllm_engine import VllmEngine

    return "vLLM", VllmEngine(model)


class Workload:
    """The prompts of each stage, and the texts that our batches wrote for them."""

    def __init__(self, config: Config, search: Search, questions: Sequence[Question]):
        self.config = config
        self.search = search
        self.questions = questions
        self.texts = [question.question for question in questions]
        self.passages = search(self.texts)
        pairs = zip(self.texts, self.passages)
        self.answer_prompts = [prompts.build_answer(text, passages) for text, passages in pairs]
        self.our_texts: dict[str, dict[str, str]] = {}  # stage -> prompt -> text

    def prompts_of(self, stage: str) -> list[str]:
        """Return the prompts of a stage; verdicts are on the answers of our batches."""
        if stage == "answers":
            return self.answer_prompts
        answers = [self.our_texts["answers"][prompt] for prompt in self.answer_prompts]
        rows = zip(self.texts, self.passages, answers)
        return [prompts.build_verify(text, passages, answer) for text, passages, answer in rows]


def compare_engines(
    rows: TimedRows, workload: Workload, model: LocalEngine, name: str, other: OtherEngine
) -> None:
    """Measure questions per second, ours first: answers, verdicts, and CoV-RAG's two rounds.

    `same` counts texts that equal those of our batches, and `parsed` the verdicts that parse.
    """
    for stage in other.stages:
        work = partial(measure_stage, rows, workload, stage, "ours", model)
        rows.measure(f"{stage}, ours", work)
    for stage in other.stages:
        work = partial(measure_stage, rows, workload, stage, name, other)
        rows.measure(f"{stage}, {name}", work)
        if stage == other.stages[-1]:
            other.stop()


def measure_stage(
    rows: TimedRows, workload: Workload, stage: str, name: str, engine: LocalEngine
) -> dict:
    """Return the row of one engine in one stage."""
    if stage == "two rounds":
        rows.require(f"verdicts, {name}")
        return time_system(COV_RAG, workload.config, engine, workload.search, workload.questions)
    if stage == "verdicts":
        rows.require("answers, ours")
    stage_prompts = workload.prompts_of(stage)
    limit = workload.config.model.max_answer_tokens
    row, texts = time_texts(engine, stage, stage_prompts, limit)
    ours = workload.our_texts.setdefault(stage, texts)
    return row | {"same": sum(texts[prompt] == ours[prompt] for prompt in stage_prompts)}


def time_texts(
    engine: LocalEngine, stage: str, stage_prompts: Sequence[str], limit: int
) -> tuple[dict[str, float], dict[str, str]]:
    """Return one engine's row and its texts; a first round, for setup, is not timed."""
    write = partial(write_texts, engine, stage, limit=limit)
    cpu_seconds = engine.cpu_seconds if isinstance(engine, OtherEngine) else time.process_time
    start = time.perf_counter()
    warm_up(engine, write, stage_prompts)
    ready = time.perf_counter()
    cpu_ready = cpu_seconds()
    texts = write(stage_prompts)
    seconds = time.perf_counter() - ready
    row = {
        "per_second": len(stage_prompts) / seconds,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds() - cpu_ready,  # hardly depends on what else is running
        "n": len(stage_prompts),
        "first_s": ready - start,
    }
    if stage == "verdicts":
        row["parsed"] = sum(prompts.parse_verdict(text).parsed for text in texts.values())
    return row, texts


def write_texts(
    engine: LocalEngine, stage: str, stage_prompts: Sequence[str], limit: int
) -> dict[str, str]:
    """Return the text of each prompt, written in the engine's batches."""
    max_revised_tokens = engine.settings.max_revised_tokens
    room = prompts.VERDICT_ROOM + max_revised_tokens
    texts = {}
    for batch in engine.batches(list(stage_prompts), room):
        if stage == "answers":
            completions = engine.complete(batch, limit)
        else:
            completions = engine.fill(batch, prompts.SCHEMA, max_revised_tokens)
        for prompt, completion in zip(batch, completions):
            texts[prompt] = completion.text
    return texts


def warm_up(engine: LocalEngine, write: partial, stage_prompts: Sequence[str]) -> None:
    """Load weights and record steps, so that a timed round that follows does neither."""
    if engine.execution == "eager":
        write(["?"])  # loads the weights; nothing is recorded yet
    elif isinstance(engine, OtherEngine):
        # The longest prompts, because memory is reserved for them. Their words are reversed, so
        # that nothing of them is cached.
        longest = sorted(stage_prompts, key=len)[-WARM_UP_PROMPTS:]
        write([reverse_words(prompt) for prompt in longest])
        engine.forget()
    else:
        write(stage_prompts)  # records our steps for these shapes
        engine.batches(["?"], 1)  # every engine tokenises its prompts within its own time


def reverse_words(text: str) -> str:
    """Reverse the words of a text: the length is the same, but it begins differently."""
    return " ".join(reversed(text.split(" ")))


def time_rounds(
    rows: TimedRows, config: Config, search: Search, questions: Sequence[Question]
) -> None:
    """Measure RAG, and CoV-RAG in both layouts of the prompts, each with its own adapters."""
    for layout in prompts.LAYOUTS:
        settings = config.change(layout=layout)
        model = load_engine(settings.model)
        model.complete(["?"], 1)  # loads the weights before the clock starts
        for system in LAYOUT_SYSTEMS.get(layout, (COV_RAG,)):
            work = partial(time_system, system, settings, model, search, questions)
            rows.measure(f"{system}, {layout} layout", work)


def time_system(
    name: str, config: Config, model: LocalEngine, search: Search, questions: Sequence[Question]
) -> dict[str, float]:
    """Return the seconds of a whole system; with recorded or compiled steps, the later median."""

    def run_once() -> float:
        if isinstance(model, OtherEngine):
            model.forget()
        with tempfile.TemporaryDirectory() as folder:
            resources = evaluate.Resources(search, model, Journal(Path(folder) / "journal.jsonl"))
            start = time.perf_counter()
            evaluate.run(config.change(systems=(name,)), resources, questions)
            return time.perf_counter() - start

    first = run_once()
    seconds = first
    if model.execution != "eager" and not isinstance(model, OtherEngine):
        seconds = sorted(run_once() for _ in range(LATER_ROUNDS))[LATER_ROUNDS // 2]
    return {
        "per_second": len(questions) / seconds,
        "seconds": seconds,
        "n": len(questions),
        "first_s": first,
    }


def build_table(rows: RowsByName) -> pd.DataFrame:
    """Return one row per engine, with our relative speed, or its time relative to one round."""
    frame = pd.DataFrame.from_dict(rows, orient="index")
    if "seconds" not in frame:
        return frame  # only failures
    if ONE_ROUND in frame.index:
        frame.insert(0, "times_rag", frame.seconds / frame.seconds[ONE_ROUND])
        return frame
    our_rows = [f"{name.split(',')[0]}, ours" for name in frame.index]
    our_seconds = [frame.seconds.get(name, math.nan) for name in our_rows]
    frame.insert(0, "ours_faster", frame.seconds / our_seconds)
    return frame


def parse_arguments() -> argparse.Namespace:
    """Return the arguments of the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=DEFAULT_PARTS)
    parser.add_argument("--questions", type=int, default=256 if torch.cuda.is_available() else 1)
    about_model = "the parameter `model` of covrag_lite.config"
    parser.add_argument("--model", default=Config().model.model, help=about_model)
    parser.add_argument("--adapters", default=Config().model.adapters)
    parser.add_argument("--out", type=Path, help="a JSON file for the rows")
    about_seconds = "a part starts no new row after this time"
    parser.add_argument("--seconds", type=float, default=TIME_LIMIT, help=about_seconds)
    return parser.parse_args()


def main() -> None:
    """Measure, and print the rows of each part."""
    arguments = parse_arguments()
    config = Config().change(
        name="speed",
        n_questions=math.ceil(arguments.questions / 4),
        model=arguments.model,
        adapters=arguments.adapters,
    )
    frames = benchmark(
        arguments.parts, config, arguments.questions, arguments.seconds, arguments.out
    )
    for part, frame in frames.items():
        print(part, frame.round(3).to_string(max_colwidth=80, na_rep=""), sep="\n", flush=True)


if __name__ == "__main__":
    main()
