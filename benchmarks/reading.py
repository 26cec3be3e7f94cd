"""Prompts read in several ways by one network: with padding or packed, kernel by kernel or by compiled steps.

The first way is the padded one. `inference.benchmark` calls `against`; rows are told as they come:

    python -m benchmarks.inference --parts reading --questions 400 --out reading.json
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import pandas as pd
import torch
from transformers import DynamicCache

from benchmarks.profiling import tell_work
from benchmarks.replaying import time_texts
from benchmarks.rows import Made, Rows, ignore
from covrag_lite import prompts as tasks
from covrag_lite.config import Config
from covrag_lite.engine import decoding, padded
from covrag_lite.engine import prefill as reading
from covrag_lite.engine import varlen_prefill as packed
from covrag_lite.engine.local import LanguageModel
from covrag_lite.engine.sampling import greedily
from covrag_lite.records import Question

SECONDS = 60.0  # after which no further row is begun
PLAIN, BEST = "padded", "packed, compiled steps"
FEW = 8  # prompts of a first pass, which is for what is set up or compiled


class PaddedReader(packed.Reader):
    """Compiled steps around the attention of padded rows: what compiling gives by itself."""

    def compute(
        self,
        ids: packed.Ids,
        past: torch.Tensor,
        cache: DynamicCache,
        places: Sequence[int],
        beginning: Sequence[int] = (),
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The logits and the mask of `padded.read`."""
        if beginning:
            with packed.computed_by(self.network, self.functions, partial(packed.attend_rows, 1)):
                past = padded.begin(self.network, beginning, past, cache)
        with packed.computed_by(self.network, self.functions, partial(packed.attend_rows, len(ids))):
            return padded.read(self.network, ids, past, cache, places)


def ways_of(model: LanguageModel) -> dict[str, packed.Reader | None]:
    """Readers by name; None reads the padded way."""
    network, compiled = model.quick_network, model.device == "cuda"
    return {
        PLAIN: None,
        "packed": packed.Reader(network, compiled=False),
        BEST: packed.Reader(network, compiled),
        "compiled steps": PaddedReader(network, compiled),
    }


@contextmanager
def read_by(reader: packed.Reader | None) -> Iterator[None]:
    """Let every batch be read by this reader; one that gives up is refused afterwards."""
    kept = reading.reader_of
    reading.reader_of = lambda _: reader
    try:
        yield
    finally:
        reading.reader_of = kept
    if reader is not None and reader.failure:
        raise RuntimeError(reader.failure)


def against(
    config: Config,
    model: LanguageModel,
    search: Callable,
    questions: Sequence[Question],
    seconds: float = SECONDS,
    note: Callable[[pd.DataFrame], None] = ignore,
) -> pd.DataFrame:
    """Tokens a second of each way over the first batch; `same` of `n` first tokens, or texts, are the first way's.

    `note` is called with the table so far after every row.
    """
    rows = Rows(seconds, lambda some: note(table(some)))
    model = model.with_adapter("cov")
    asked = [question.question for question in questions]
    found = search(asked)
    texts = {tasks.build_answer(x, k): (x, k) for x, k in zip(asked, found)}
    limit = config.model.max_answer_tokens
    batch = model.batches(list(texts), limit)[0]
    ways = ways_of(model)
    made: dict[str, dict] = {}  # first tokens or texts by their prompts

    def verdicts() -> list[str]:
        rows.need(f"answers, {PLAIN}")
        written = made[f"answers, {PLAIN}"]
        return [tasks.build_verify(*texts[prompt], written[prompt]) for prompt in batch]

    def take(stage: str, way: str) -> None:
        name = f"{stage}, {way}"
        work = {
            "read": lambda: time_reading(model, batch, limit),
            "profile": lambda: (tell_work(lambda: read(model, batch, limit), model.device), {}),
            "answers": lambda: time_texts(config, model, stage, batch),
            "verdicts": lambda: time_texts(config, model, stage, verdicts()),
        }[stage]

        def measure() -> Made:
            with read_by(ways[way]):
                row, made[name] = work()
            first = made.get(f"{stage}, {PLAIN}", {})
            same = sum(first.get(prompt) == one for prompt, one in made[name].items())
            return {name: row | ({"same": same, "n": len(first)} if first else {})}

        rows.take(name, measure)

    for way in (PLAIN, "packed", BEST):
        take("read", way)
    for stage in ("profile", "answers", "verdicts"):
        for way in (PLAIN, BEST):
            take(stage, way)
    take("read", "compiled steps")
    return table(rows.made)


def read(model: LanguageModel, batch: Sequence[str], limit: int) -> dict[str, int]:
    """The first token that each prompt of a batch is answered with."""
    tokens, _ = decoding.Writer(model, batch, limit).next_tokens(None, greedily)
    return dict(zip(batch, tokens))


def time_reading(model: LanguageModel, batch: Sequence[str], limit: int) -> tuple[dict, dict]:
    """Seconds of reading a batch for the second time, and the first tokens.

    `first_s` is what a first pass over a few prompts takes, and `again_s` what it takes in a next process, which finds
    compiled steps on the disk.
    """
    first_s, _ = timed(lambda: read(model, batch[:FEW], limit))
    torch._dynamo.reset()
    again_s, _ = timed(lambda: read(model, batch[:FEW], limit))
    if model.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    for _ in range(2):
        seconds, tokens = timed(lambda: read(model, batch, limit))
    lengths = [len(ids) for ids in model.encode(batch, limit)]
    row = {"tokens_per_second": sum(lengths) / seconds, "seconds": seconds, "first_s": first_s, "again_s": again_s}
    row |= {"tokens": sum(lengths), "padded_tokens": len(lengths) * max(lengths)}
    if model.device == "cuda":
        row["peak_gb"] = torch.cuda.max_memory_allocated() / 1e9
    return row, tokens


def timed(work: Callable[[], object]) -> tuple[float, object]:
    """Seconds that some work takes, and what it makes; each ends by waiting for the device."""
    start = time.perf_counter()
    made = work()
    return time.perf_counter() - start, made


def table(rows: Made) -> pd.DataFrame:
    """One row a stage and way; first how much faster it is than the first way."""
    frame = pd.DataFrame.from_dict(rows, orient="index")
    if "seconds" not in frame:
        return frame  # of failures alone
    first = [frame.seconds.get(f"{name.split(', ')[0]}, {PLAIN}", float("nan")) for name in frame.index]
    frame.insert(0, "faster", first / frame.seconds)
    return frame
