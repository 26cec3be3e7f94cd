"""Decoding steps replayed as CUDA graphs against the same steps kernel by kernel: answers, verdicts and two rounds.

Both ways run on one network in one process, one after the other. `inference.benchmark` calls `against`:

    python -m covrag_lite.speed.inference --parts graphs --questions 400 --out graphs.json
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

from covrag_lite import prompts as tasks
from covrag_lite.config import Config
from covrag_lite.model import decoding, stepping
from covrag_lite.model.local import LanguageModel
from covrag_lite.records import Question
from covrag_lite.speed.rows import Made, Rows, ignore
from covrag_lite.speed.stages import measured, time_stages

SECONDS = 110.0  # after which no further row is begun
ROUNDS = (("paper", "eager"), ("paper", "graphs"), ("shared", "graphs"))


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
    """The same model kernel by kernel, and by graphs; where there is no CUDA, by the same steps unrecorded."""
    made = {"eager": copy.copy(model), "graphs": copy.copy(model)}
    made["eager"].execution = "eager"
    made["graphs"].execution = "graph"
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
        for way in ("eager", "graphs, recording", "graphs"):
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
    written = {}
    with clocked() as spent, measured(model) as row:
        for batch in model.batches(given, room):
            written.update(zip(batch, write(batch)))
    return row | dict(spent) | told(model), written


def time_rounds(
    config: Config, model: LanguageModel, search: Callable, questions: Sequence[Question], layout: str, way: str
) -> Made:
    """One round, which is plain RAG, and CoV-RAG's two; in the shared layout the first round holds its verdicts."""
    own = replace(config, model=replace(config.model, layout=layout))
    stages = time_stages(own, model, search, questions)
    total = sum(stage["seconds"] for stage in stages.values())
    made = {f"two rounds, {layout} layout, {way}": {"seconds": total, "n": len(questions)} | told(model)}
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
    stages = [name.split(", graphs")[0].removesuffix(", eager") for name in frame.index]
    eager = [f"{stage}, eager" for stage in stages]
    frame.insert(0, "faster", [frame.seconds.get(one, float("nan")) for one in eager] / frame.seconds)
    way = ["graphs" if "graphs" in name else "eager" for name in frame.index]
    rag = [frame.seconds.get(f"one round, {one}", float("nan")) for one in way]
    frame.insert(0, "times_rag", frame.seconds / rag)
    if "steps_s" in frame:
        frame["step_ms"] = 1000 * frame.steps_s / frame.steps
    return frame
