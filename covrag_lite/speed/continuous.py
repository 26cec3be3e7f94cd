"""Answering against transformers' own continuous batching (`generate_batch`): the same prompts, weights and adapter.

It fills its batches as rows finish, and keeps what it has read in pages. It knows no schema, so that its verdicts run
free, as a user of it would have them. `inference.benchmark` calls `against`.
"""

from collections.abc import Callable, Sequence

import pandas as pd
import torch
from transformers import GenerationConfig
from transformers.generation import ContinuousBatchingConfig
from transformers.utils import is_flash_attn_2_available, is_flash_attn_3_available, is_flash_attn_4_available

from covrag_lite import prompts as tasks
from covrag_lite.config import Config
from covrag_lite.model.local import LanguageModel
from covrag_lite.records import Question
from covrag_lite.speed import inference
from covrag_lite.speed.saying import tell_failure

FREE_ROOM = 96  # tokens of a verdict that runs free, beside its revised question; as in `LanguageModel.judge`
BLOCK = 32  # tokens of a page on a CPU, where a step goes through the whole cache


def best_attention() -> str:
    """The best attention that is installed: continuous batching wants a flash kernel."""
    versions = {3: is_flash_attn_3_available, 2: is_flash_attn_2_available, 4: is_flash_attn_4_available}
    for version, is_there in versions.items():
        if is_there():
            return f"flash_attention_{version}"
    return "sdpa"


class Continuous:
    """A model whose texts `generate_batch` writes; all else about it is the model's own."""

    def __init__(self, model: LanguageModel, network: torch.nn.Module | None = None):
        self.model = model
        self.own_network = network
        self.attention = (network or model.quick_network).config._attn_implementation

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.model, name)

    def with_adapter(self, name: str) -> "Continuous":
        """The same way of writing with this adapter."""
        return Continuous(self.model.with_adapter(name), self.own_network)

    def batches(self, prompts: Sequence[str], room: int) -> list[list[str]]:
        """One batch: how many rows go together is for continuous batching to decide."""
        return [list(prompts)] if prompts else []

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
        """What it decides itself on a GPU; on a CPU as many pages as these prompts take."""
        if self.model.device == "cuda":
            return ContinuousBatchingConfig()
        pages = sum(-(-(len(one) + max_tokens) // BLOCK) + 1 for one in ids)
        return ContinuousBatchingConfig(block_size=BLOCK, num_blocks=pages, max_batch_tokens=max(map(len, ids)) * 2)

    def answer(self, prompts: Sequence[str], max_tokens: int) -> list[tuple[str, None]]:
        """The texts, without the probabilities behind them."""
        return [(text, None) for text in self.generate(prompts, max_tokens)]

    def judge(self, prompts: Sequence[str]) -> list[tuple[str, None]]:
        """Verdicts that run free."""
        return self.answer(prompts, FREE_ROOM + self.model.config.max_revised_tokens)

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
) -> pd.DataFrame:
    """Questions a second, ours first: plain RAG's answers, verdicts on them, and all of CoV-RAG's two rounds.

    `same` counts texts that are those of our own batches; of verdicts `parsed` counts those that parse at all.
    """
    model = model.with_adapter("cov")
    asked = [question.question for question in questions]
    found = search(asked)
    texts = [tasks.build_answer(x, k) for x, k in zip(asked, found)]
    limit = config.model.max_answer_tokens
    rows, made = {}, {}

    def take(name: str, one: LanguageModel | Continuous, write: Callable[[Sequence[str]], list], given: list) -> None:
        """One way's row; a first round is not timed, in which kernels are chosen and pages laid out."""
        try:
            write_all(one, write, given)
            with inference.measured(one) as row:
                made[name] = dict(write_all(one, write, given))
        except Exception as error:  # whatever the peer says is its result
            rows[name] = {"failure": tell_failure(error)}
            return
        stage = name.split(",")[0]
        ours = made[f"{stage}, ours"]
        same = sum(made[name][text] == ours[text] for text in given)
        rows[name] = row | {"per_second": len(given) / row["seconds"], "same": same, "n": len(given)}

    peer = Continuous(model)
    take("answers, ours", model, lambda some: model.generate(some, limit), texts)
    answers = [made["answers, ours"][text] for text in texts]
    verify = [tasks.build_verify(x, k, y) for x, k, y in zip(asked, found, answers)]
    take("verdicts, ours", model, model.verify, verify)
    rows["two rounds, ours"] = two_rounds(config, model, search, questions)
    take("answers, generate_batch", peer, lambda some: peer.generate(some, limit), texts)
    peer.stop()  # pages are laid out for the prompts that come first
    take("verdicts, generate_batch", peer, lambda some: [text for text, _ in peer.judge(some)], verify)
    if "failure" not in rows["verdicts, generate_batch"]:
        rows["two rounds, generate_batch"] = two_rounds(config, peer, search, questions)
        parsed = [tasks.parse_verdict(text, model.schema, None) for text in made["verdicts, generate_batch"].values()]
        rows["verdicts, generate_batch"]["parsed"] = sum(one.parsed for one in parsed)
    peer.stop()
    if plain_network is not None:
        loaded = Continuous(model, plain_network)
        take("answers, generate_batch as loaded", loaded, lambda some: loaded.generate(some, limit), texts)
        loaded.stop()
    return table(rows)


def write_all(one: LanguageModel | Continuous, write: Callable, given: list) -> list[tuple[str, str]]:
    """Prompts with their texts, batch by batch."""
    room = tasks.VERDICT_ROOM + one.config.max_revised_tokens
    return [pair for batch in one.batches(given, room) for pair in zip(batch, write(batch))]


def two_rounds(
    config: Config, model: LanguageModel | Continuous, search: Callable, questions: Sequence[Question]
) -> dict[str, float]:
    """Seconds of all stages of CoV-RAG in the paper's layout."""
    stages = inference.time_stages(config, model, search, questions)
    seconds = sum(stage["seconds"] for stage in stages.values())
    return {"seconds": seconds, "per_second": len(questions) / seconds, "n": len(questions)}


def table(rows: dict[str, dict]) -> pd.DataFrame:
    """One row a way, with our speed over its speed first."""
    frame = pd.DataFrame.from_dict(rows, orient="index").drop(columns="passes", errors="ignore")
    ours = {name.split(",")[0]: row["seconds"] for name, row in rows.items() if name.endswith(", ours")}
    frame.insert(0, "ours_faster", [frame.seconds[name] / ours[name.split(",")[0]] for name in frame.index])
    return frame
