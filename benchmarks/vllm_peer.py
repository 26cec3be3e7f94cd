"""Answering against vLLM: the same prompts, the same weights unpacked to 16 bits, the same adapter.

vLLM reads a folder that is written here, with the adapter beside the weights or merged into them, and is told of the
verdict's schema as a regular expression. All else is as it decides, but for the memory, of which our own network
has a part. What it has read is forgotten before each stage that is timed: its cache of prompts knows the last stage's.
It is no requirement of ours: vLLM 0.27 to 0.29 want the torch that we pin, and 0.26, which was measured, wants torch
2.11. `inference.benchmark` calls `against`:

    python -m benchmarks.inference --parts vllm --questions 400 --out vllm.json
"""

import gc
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
import torch
from safetensors.torch import load_file, save_file

from benchmarks.continuous import SECONDS, Peer, measure
from benchmarks.rows import ignore
from covrag_lite import prompts as tasks
from covrag_lite.config import Config
from covrag_lite.engine.linears import active, base_of
from covrag_lite.engine.local import LanguageModel
from covrag_lite.engine.prepare import frozen_weight
from covrag_lite.records import Question

MEMORY = 0.5  # of the GPU's: our own network is there too
SCORE = r"(0\.[0-9][0-9]|1\.00)"
RANK = 8  # the smallest adapters that it lays out room for


def regex_of(schema: Sequence[str | tuple[str, str]]) -> str:
    """The verdict's schema as a regular expression."""
    gaps = {"score": SCORE, "judgment": f"({'|'.join(tasks.JUDGMENTS)})", "text": r' "[^"\\\n]*"'}
    made = "".join(re.escape(part) if isinstance(part, str) else gaps[part[0]] for part in schema)
    return made.replace("\\ ", " ")  # an escaped blank is unknown to its reader of expressions


def write_folder(model: LanguageModel, folder: Path, is_merged: bool) -> None:
    """Write a model's weights as it computes with them, in a folder that transformers and vLLM can read."""
    network = model.quick_network
    layers = {name.replace(".base_layer", ""): layer for name, layer in network.named_modules()}
    for name, layer in network.named_modules():  # an adapter's layer stands for the one under it
        if base_of(layer) is not layer:
            layers[name] = layer
    for file in model.folder.iterdir():
        if file.suffix != ".safetensors":
            shutil.copy(file, folder)
            continue
        kept = load_file(file)
        for name, value in kept.items():
            path, _, kind = name.rpartition(".")
            layer = layers.get(path)
            if kind == "weight" and isinstance(base_of(layer), torch.nn.Linear):
                value = weight_of(layer, is_merged)
            kept[name] = value.to(network.dtype).cpu().contiguous()
        save_file(kept, folder / file.name, metadata={"format": "pt"})


def weight_of(layer: torch.nn.Module, is_merged: bool) -> torch.Tensor:
    """A layer's weights (out, in), with its adapter's where they are merged."""
    weight = frozen_weight(layer)
    adapter = active(layer) if is_merged else None
    if adapter is None:
        return weight
    a, b = layer.lora_A[adapter].weight.float(), layer.lora_B[adapter].weight.float()
    return weight.float() + layer.scaling[adapter] * b @ a


class Vllm(Peer):
    """What vLLM writes; the engine starts with the first prompt."""

    def __init__(self, model: LanguageModel, is_merged: bool):
        super().__init__(model)
        self.is_merged = is_merged or model.adapter is None
        self.running: dict = {}  # the engine and its folder, shared by all views

    @property
    def engine(self) -> object:
        if "engine" not in self.running:
            from vllm import LLM

            torch.cuda.empty_cache()
            self.running["folder"] = tempfile.TemporaryDirectory()
            folder = Path(self.running["folder"].name)
            write_folder(self.model, folder, self.is_merged)
            adapters = {} if self.is_merged else {"enable_lora": True, "max_loras": 1, "max_lora_rank": self.rank}
            self.running["engine"] = LLM(
                str(folder), dtype="bfloat16", gpu_memory_utilization=MEMORY, max_model_len=self.longest, **adapters
            )
        return self.running["engine"]

    @property
    def rank(self) -> int:
        from peft import LoraConfig

        return max(RANK, LoraConfig.from_pretrained(str(self.model.adapter)).r)

    @property
    def longest(self) -> int:
        return min(8192, self.model.base._network.config.max_position_embeddings)

    def generate(self, prompts: Sequence[str], max_tokens: int) -> list[str]:
        """Greedy texts."""
        return self.write(prompts, max_tokens)

    def judge(self, prompts: Sequence[str]) -> list[tuple[str, None]]:
        """Verdicts held to the schema."""
        room = tasks.VERDICT_ROOM + self.model.config.max_revised_tokens
        return [(self.cut(text), None) for text in self.write(prompts, room, regex_of(self.model.schema))]

    def cut(self, text: str) -> str:
        """A verdict whose revised question is no longer than ours may be: an expression cannot count its tokens."""
        before, closing = f'{self.model.schema[-3]} "', self.model.schema[-1]
        begun, is_there, rest = text.rpartition(before)
        revised = rest.removesuffix(closing).removesuffix('"')
        ids = self.model.tokenizer(revised, add_special_tokens=False).input_ids
        limit = self.model.config.max_revised_tokens
        if not is_there or len(ids) <= limit:
            return text
        kept = self.model.tokenizer.decode(ids[:limit], skip_special_tokens=True)
        return f'{begun}{before}{kept}"{closing}'

    def write(self, prompts: Sequence[str], max_tokens: int, regex: str | None = None) -> list[str]:
        """Texts of at most so many tokens, held to a regular expression if there is one."""
        from vllm import SamplingParams
        from vllm.lora.request import LoRARequest
        from vllm.sampling_params import StructuredOutputsParams

        model, engine = self.model, self.engine
        given = [{"prompt_token_ids": ids} for ids in model.encode(prompts, max_tokens)]
        settings = SamplingParams(
            temperature=0.0,
            max_tokens=max_tokens,
            stop_token_ids=[model.end_id],
            detokenize=False,
            structured_outputs=StructuredOutputsParams(regex=regex) if regex else None,
        )
        adapter = None if self.is_merged else LoRARequest("cov", 1, str(model.adapter))
        made = engine.generate(given, settings, use_tqdm=False, lora_request=adapter)
        written = [list(one.outputs[0].token_ids) for one in made]
        return [text.strip() for text in model.tokenizer.batch_decode(written, skip_special_tokens=True)]

    def forget(self) -> None:
        """Drop the cache of prompts."""
        self.engine.reset_prefix_cache()

    def stop(self) -> None:
        """End the engine's process, and remove the folder."""
        engine = self.running.pop("engine", None)
        if engine is not None:
            engine.llm_engine.engine_core.shutdown()
        folder = self.running.pop("folder", None)
        if folder is not None:
            folder.cleanup()
        del engine
        gc.collect()


def against(
    config: Config,
    model: LanguageModel,
    search: Callable,
    questions: Sequence[Question],
    seconds: float = SECONDS,
    note: Callable[[pd.DataFrame], None] = ignore,
) -> pd.DataFrame:
    """Questions a second of our batches and of vLLM, with the adapter merged and beside the weights."""
    model = model.with_adapter("cov")
    peers = {"vLLM merged" if model.adapter else "vLLM": Vllm(model, is_merged=True)}
    if model.adapter:
        peers["vLLM"] = Vllm(model, is_merged=False)
    return measure(config, model, search, questions, peers, seconds, note)
