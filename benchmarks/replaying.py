"""Answers, verdicts and two rounds, kernel by kernel; with decoding steps as CUDA graphs; and as "auto" has it on CUDA.

The last also reads prompts packed, and its layers are compiled. All run on one network, one after the other.
`inference.benchmark` calls `against`:

    python -m benchmarks.inference --parts graphs --questions 400 --out graphs.json
"""

import copy
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pandas as pd
import torch

from benchmarks.rows import Made, Rows, ignore
from benchmarks.stages import measured, seconds_of, time_settled
from covrag_lite import prompts as tasks
from covrag_lite.config import Config
from covrag_lite.engine import decode_session as stepping
from covrag_lite.engine import decoding
from covrag_lite.engine.local import LanguageModel
from covrag_lite.records import Question

SECONDS = 150.0  # after which no further row is begun
WAYS = {"eager": "eager", "graphs": "graph", "packed": "compiled+graph"}  # how each runs
TEXTS = ("eager", "graphs, recording", "graphs", "packed, compiling", "packed")  # what is set up is timed by itself
ROUNDS = (("paper", "eager"), ("paper", "graphs"), ("paper", "packed"), ("shared", "packed"))


@contextmanager
def clocked() -> Iterator[Counter]:
    """Seconds by what they are spent on: prompts read, gaps of verdicts filled, steps begun (and recorded), taken."""
    spent: Counter = Counter()
    kept = {}

    def clock(owner: type, method: str, kind: Callable[[object], str]) -> None:
        work = kept[owner, method] = getattr(owner, method)

        def timed(self: object, *given: object) -> object:
            name = kind(self)
            start = time.perf_counter()
            made = work(self, *given)  # each ends by waiting for the device
            spent[f"{name}_s"] += time.perf_counter() - start
            spent[name] += 1
            return made

        setattr(owner, method, timed)

    def is_prompt(writer: decoding.Writer) -> str:
        return "reads" if max(len(writer.pending[row]) for row in writer.rows) > 1 else "steps"

    clock(decoding.Writer, "next_tokens", is_prompt)
    clock(decoding.Writer, "fill_ahead", lambda writer: "gaps")
    clock(decoding.Writer, "begin_course", lambda writer: "begins")
    clock(stepping.Course, "take", lambda course: "steps")
    try:
        yield spent
    finally:
        for (owner, method), work in kept.items():
            setattr(owner, method, work)


def ways_of(model: LanguageModel) -> dict[str, LanguageModel]:
    """The same model in each way; where there is no CUDA, by the same steps unrecorded."""
    made = {}
    for way, execution in WAYS.items():
        made[way] = copy.copy(model)
        made[way].execution = execution
    return made


def against(
    config: Config,
    model: LanguageModel,
    search: Callable,
    questions: Sequence[Question],
    seconds: float = SECONDS,
    note: Callable[[pd.DataFrame], None] = ignore,
) -> pd.DataFrame:
    """Questions a second of each way, stage by stage; `same` of `n` texts are those of the eager way.

    `note` is called with the table so far after every row.
    """
    model = model.with_adapter("cov")
    asked = [question.question for question in questions]
    found = search(asked)
    ways = ways_of(model)
    made: dict[str, dict[str, str]] = {}  # texts by their prompts
    rows = Rows(seconds, lambda some: note(table(some)))

    def answers() -> list[str]:
        return [tasks.build_answer(x, k) for x, k in zip(asked, found)]

    def verdicts() -> list[str]:
        rows.need("answers, eager")
        written = [made["answers, eager"][text] for text in answers()]
        return [tasks.build_verify(x, k, y) for x, k, y in zip(asked, found, written)]

    def take(stage: str, way: str, prompts_of: Callable[[], list[str]]) -> None:
        name = f"{stage}, {way}"

        def work() -> Made:
            given = prompts_of()
            row, made[name] = time_texts(config, ways[way.split(",")[0]], stage, given)
            first = made.get(f"{stage}, eager", {})
            same = sum(made[name][text] == first.get(text) for text in given)
            return {name: row | ({"same": same} if first else {}) | {"n": len(given)}}

        rows.take(name, work, always=name == "answers, eager")

    for stage, prompts_of in (("answers", answers), ("verdicts", verdicts)):
        for way in TEXTS:
            take(stage, way, prompts_of)
    for layout, way in ROUNDS:
        rows.take(
            f"two rounds, {layout} layout, {way}",
            partial(time_rounds, config, ways[way], search, questions, layout, way),
        )
    return table(rows.made)


def time_texts(
    config: Config, model: LanguageModel, stage: str, given: list[str]
) -> tuple[dict[str, float], dict[str, str]]:
    """One way's row and its texts; what the eager way sets up at a first use is not timed."""
    limit = config.model.max_answer_tokens
    is_answer = stage == "answers"
    room = limit if is_answer else tasks.VERDICT_ROOM + config.model.max_revised_tokens

    def write(batch: Sequence[str]) -> list[str]:
        return model.generate(batch, limit) if is_answer else model.verify(batch)

    if model.execution == "eager":
        write(given[:2])
    if model.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    model.base.planned = {}  # each way tokenises its prompts in its own time
    written = {}
    with clocked() as spent, measured(model) as row:
        for batch in model.batches(given, room):
            written.update(zip(batch, write(batch)))
    return row | dict(spent) | told(model), written


def time_rounds(
    config: Config, model: LanguageModel, search: Callable, questions: Sequence[Question], layout: str, way: str
) -> Made:
    """One round, which is plain RAG, and CoV-RAG's two; in the shared layout the first round holds its verdicts.

    What a way records or compiles at a first time is told as `first_s`, and the second time counts.
    """
    own = replace(config, model=replace(config.model, layout=layout))
    first, stages = time_settled(own, model, search, questions)
    row = {"seconds": seconds_of(stages), "n": len(questions), "first_s": first}
    made = {f"two rounds, {layout} layout, {way}": row | told(model)}
    if layout == "paper":
        one = stages["search"]["seconds"] + stages["answer"]["seconds"]
        made = {f"one round, {way}": {"seconds": one, "n": len(questions)}} | made
    for name, stage in stages.items():
        made[f"{name}, {layout} layout, {way}"] = stage
    return made


def told(model: LanguageModel) -> dict[str, float]:
    """How many steps are recorded, whether recording failed, and the peak of memory in GB."""
    steps = model.steps
    made = {"recorded": len(steps.known) if steps else 0, "given_up": bool(steps and steps.is_given_up)}
    if model.device == "cuda":
        made["peak_gb"] = torch.cuda.max_memory_allocated() / 1e9
    return made


def table(rows: Made) -> pd.DataFrame:
    """One row a way and stage; first how much faster than the eager way, and the time of plain RAG done as well."""
    frame = pd.DataFrame.from_dict(rows, orient="index")
    if "seconds" not in frame:
        return frame  # of failures alone
    frame.insert(0, "per_second", frame.n / frame.seconds)
    ways = [next(way for way in WAYS if f", {way}" in name) for name in frame.index]
    eager = [name.partition(f", {way}")[0] + ", eager" for name, way in zip(frame.index, ways)]
    rag = [f"one round, {way}" for way in ways]
    for column, others in (("faster", eager), ("times_rag", rag)):
        seconds = pd.Series([frame.seconds.get(one, float("nan")) for one in others], frame.index)
        ratio = seconds / frame.seconds if column == "faster" else frame.seconds / seconds
        frame.insert(0, column, ratio)
    if "steps_s" in frame:
        frame["step_ms"] = 1000 * frame.steps_s / frame.steps
    return frame
