"""Answering against transformers' own continuous batching (`generate_batch`): the same prompts, weights and adapter.

It fills its batches as rows finish, and keeps what it has read in pages. It knows no schema, so that its verdicts run
free, as a user of it would have them. `inference.benchmark` calls `against`; `vllm_peer` measures vLLM in
the same rows.
"""

import copy
import time
from collections.abc import Callable, Mapping, Sequence

import pandas as pd
import torch
from transformers import GenerationConfig
from transformers.generation import ContinuousBatchingConfig
from transformers.utils import is_flash_attn_2_available, is_flash_attn_3_available, is_flash_attn_4_available

from benchmarks.rows import Made, Rows, ignore
from benchmarks.stages import measured, seconds_of, time_settled, time_stages
from covrag_lite import prompts as tasks
from covrag_lite.config import Config
from covrag_lite.engine.local import LanguageModel
from covrag_lite.records import Question

SECONDS = 300.0  # after which no further row is begun
FIRST = 32  # prompts of the round that is not timed
FREE_ROOM = 96  # tokens of a verdict that runs free, beside its revised question; as in `LanguageModel.judge`
MOST = 1024  # requests that it takes together unless it is told otherwise
BLOCK = 32  # tokens of a page on a CPU, where a step goes through the whole cache


def best_attention() -> str:
    """The best attention that is installed: continuous batching wants a flash kernel."""
    versions = {3: is_flash_attn_3_available, 2: is_flash_attn_2_available, 4: is_flash_attn_4_available}
    for version, is_there in versions.items():
        if is_there():
            return f"flash_attention_{version}"
    return "sdpa"


class Peer:
    """A model whose texts another engine writes; all else about it is the model's own."""

    stages = ("answers", "verdicts", "two rounds")  # that are measured
    starts_anew = False  # whether it is stopped between answers and verdicts

    def __init__(self, model: LanguageModel):
        self.model = model
        self.expected = 1  # requests of the largest batch to come, of which the first call may see a part alone

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.model, name)

    def with_adapter(self, name: str) -> "Peer":
        """The same way of writing with this adapter."""
        made = copy.copy(self)
        made.model = self.model.with_adapter(name)
        return made

    def batches(self, prompts: Sequence[str], room: int) -> list[list[str]]:
        """One batch: how many rows go together is for the engine to decide."""
        return [list(prompts)] if prompts else []

    def generate(self, prompts: Sequence[str], max_tokens: int) -> list[str]:
        """Greedy texts."""
        raise NotImplementedError

    def answer(self, prompts: Sequence[str], max_tokens: int) -> list[tuple[str, None]]:
        """The texts, without the probabilities behind them."""
        return [(text, None) for text in self.generate(prompts, max_tokens)]

    def judge(self, prompts: Sequence[str]) -> list[tuple[str, None]]:
        """Verdicts that run free."""
        return self.answer(prompts, FREE_ROOM + self.model.config.max_revised_tokens)

    def forget(self) -> None:
        """Drop what was read, before something is timed."""

    def stop(self) -> None:
        """Give its memory back."""


class Continuous(Peer):
    """What `generate_batch` writes, on the model's network or on another one."""

    starts_anew = True  # pages are laid out for the prompts that come first

    def __init__(self, model: LanguageModel, network: torch.nn.Module | None = None):
        super().__init__(model)
        self.own_network = network
        self.attention = (network or model.quick_network).config._attn_implementation
        if network is not None:
            self.stages = ("answers",)

    def generate(self, prompts: Sequence[str], max_tokens: int) -> list[str]:
        """Greedy texts, by a manager that stays for the next call."""
        model = self.model
        network = self.own_network or model.quick_network
        ids = model.encode(prompts, max_tokens)
        settings = GenerationConfig(
            max_new_tokens=max_tokens,
            do_sample=False,
            eos_token_id=model.end_id,
            pad_token_id=model.tokenizer.pad_token_id,
        )
        if not hasattr(network, "_cached_continuous_batching_manager"):
            torch.cuda.empty_cache()  # its pages take most of what is free
            network.set_attn_implementation(best_attention())
        made = network.generate_batch(
            ids, settings, self.pages(ids, max_tokens), persistent_manager=True, max_new_tokens=max_tokens
        )
        if len(made) < len(ids) or any(one.error for one in made.values()):
            said = next((one.error for one in made.values() if one.error), "no word why")
            raise RuntimeError(f"generate_batch wrote {len(made)} of {len(ids)} texts: {said}")
        written = [one.generated_tokens for one in made.values()]
        return [text.strip() for text in model.tokenizer.batch_decode(written, skip_special_tokens=True)]

    def pages(self, ids: Sequence[Sequence[int]], max_tokens: int) -> ContinuousBatchingConfig:
        """What it decides itself on a GPU for as many requests as are expected; on a CPU the pages that they take."""
        together = min(MOST, max(len(ids), self.expected))
        if self.model.device == "cuda":
            return ContinuousBatchingConfig(max_requests_per_batch=together)
        pages = together * max(-(-(len(one) + max_tokens) // BLOCK) + 1 for one in ids)
        return ContinuousBatchingConfig(block_size=BLOCK, num_blocks=pages, max_batch_tokens=max(map(len, ids)) * 2)

    def stop(self) -> None:
        """Give the cache's memory back, and the network its own attention."""
        network = self.own_network or self.model.quick_network
        if hasattr(network, "_cached_continuous_batching_manager"):
            network.destroy_cached_continuous_batching_manager()
        network.set_attn_implementation(self.attention)


def against(
    config: Config,
    model: LanguageModel,
    search: Callable,
    questions: Sequence[Question],
    plain_network: torch.nn.Module | None = None,
    seconds: float = SECONDS,
    note: Callable[[pd.DataFrame], None] = ignore,
) -> pd.DataFrame:
    """Questions a second of our batches and of `generate_batch`, on our network and on one as it is loaded."""
    model = model.with_adapter("cov")
    peers = {"generate_batch": Continuous(model)}
    if plain_network is not None:
        peers["generate_batch as loaded"] = Continuous(model, plain_network)
    return measure(config, model, search, questions, peers, seconds, note)


def measure(
    config: Config,
    model: LanguageModel,
    search: Callable,
    questions: Sequence[Question],
    peers: Mapping[str, Peer],
    seconds: float,
    note: Callable[[pd.DataFrame], None],
) -> pd.DataFrame:
    """Questions a second, ours first: plain RAG's answers, verdicts on them, and all of CoV-RAG's two rounds.

    `same` counts texts that are those of our own batches; of verdicts `parsed` counts those that parse at all. `note`
    is called with the table so far after every row.
    """
    asked = [question.question for question in questions]
    found = search(asked)
    limit = config.model.max_answer_tokens
    made: dict[str, dict[str, str]] = {}  # texts by their prompts
    rows = Rows(seconds, lambda some: note(table(some)))

    def answers() -> list[str]:
        return [tasks.build_answer(x, k) for x, k in zip(asked, found)]

    def verdicts() -> list[str]:
        rows.need("answers, ours")
        written = [made["answers, ours"][text] for text in answers()]
        return [tasks.build_verify(x, k, y) for x, k, y in zip(asked, found, written)]

    def take(stage: str, way: str, one: LanguageModel | Peer) -> None:
        name = f"{stage}, {way}"

        def texts() -> Made:
            given = answers() if stage == "answers" else verdicts()
            row, made[name] = time_texts(one, stage, given, limit)
            ours = made.get(f"{stage}, ours", {})
            same = sum(made[name][text] == ours.get(text) for text in given)
            return {name: row | ({"same": same} if ours else {})}

        def both() -> Made:
            rows.need(f"verdicts, {way}")
            return {name: two_rounds(config, one, search, questions)}

        rows.take(name, both if stage == "two rounds" else texts)

    def stop(way: str, one: Peer) -> None:
        rows.take(f"stopping {way}", lambda: one.stop() or {}, always=True)

    for stage in Peer.stages:
        take(stage, "ours", model)
    for way, peer in peers.items():
        for stage in peer.stages:
            take(stage, way, peer)
            if stage == "answers" and peer.starts_anew:
                stop(way, peer)
        stop(way, peer)
    return table(rows.made)


def time_texts(
    one: LanguageModel | Peer, stage: str, given: list[str], limit: int
) -> tuple[dict[str, float], dict[str, str]]:
    """One way's row and its texts; a first round is not timed, in which kernels are chosen and pages laid out."""

    def write(some: list[str]) -> dict[str, str]:
        if stage == "answers":
            return dict(write_all(one, lambda batch: one.generate(batch, limit), some))
        return dict(write_all(one, lambda batch: [text for text, _ in one.judge(batch)], some))

    start = time.perf_counter()
    if isinstance(one, Peer):
        one.expected = len(given)
        # The longest, because pages are laid out for them, but backwards: what an engine has read it may remember.
        write([backwards(text) for text in sorted(given, key=len)[-FIRST:]])
        one.forget()
    else:
        write(given)  # our steps are recorded for the shapes that come
    first_s = time.perf_counter() - start
    one.base.planned = {}  # each way tokenises its prompts in its own time
    with measured(one) as row:
        made = write(given)
    n = len(given)
    row |= {"per_second": n / row["seconds"], "n": n, "first_s": first_s}
    if stage == "verdicts" and isinstance(one, Peer):
        row["parsed"] = sum(tasks.parse_verdict(text, one.schema, None).parsed for text in made.values())
    return row, made


def backwards(text: str) -> str:
    """The words of a text in the other order: as long, and it begins otherwise."""
    return " ".join(reversed(text.split(" ")))


def write_all(one: LanguageModel | Peer, write: Callable, given: list) -> list[tuple[str, str]]:
    """Prompts with their texts, batch by batch."""
    room = tasks.VERDICT_ROOM + one.config.max_revised_tokens
    return [pair for batch in one.batches(given, room) for pair in zip(batch, write(batch))]


def two_rounds(
    config: Config, model: LanguageModel | Peer, search: Callable, questions: Sequence[Question]
) -> dict[str, float]:
    """Seconds of all stages of CoV-RAG in the paper's layout; ours records its steps in a first time, which is told."""
    if isinstance(model, Peer):
        model.forget()
        told, stages = {}, time_stages(config, model, search, questions)
    else:
        first, stages = time_settled(config, model, search, questions)
        told = {"first_s": first}
    seconds = seconds_of(stages)
    return {"seconds": seconds, "per_second": len(questions) / seconds, "n": len(questions)} | told


def table(rows: Made) -> pd.DataFrame:
    """One row a way, with our speed over its speed first."""
    frame = pd.DataFrame.from_dict(rows, orient="index").drop(columns="passes", errors="ignore")
    if "seconds" not in frame:
        return frame  # of failures alone
    ours = [frame.seconds.get(f"{name.split(',')[0]}, ours", float("nan")) for name in frame.index]
    frame.insert(0, "ours_faster", frame.seconds / ours)
    return frame
