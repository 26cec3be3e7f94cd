"""vLLM as an engine that writes our texts: the same adapter, and the same weights in 16 bits.

vLLM reads a folder that is written here, with the adapter merged into the weights, and gets the
schema of verdicts as a regular expression. All other settings are its own, except the memory, which
it shares with our network. It is not among our requirements: vLLM 0.27 to 0.29 need the torch
version that we pin; 0.26, which was measured, needs torch 2.11.

    python -m benchmarks.inference --parts vllm --questions 400 --out vllm.json
"""

import tempfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from benchmarks.other_engines import OtherEngine, write_merged
from covrag_lite.engine.interface import Completion, Schema
from covrag_lite.engine.verdict_forms import regex_of
from covrag_lite.prompts import VERDICT_ROOM

if TYPE_CHECKING:
    from vllm import LLM

MEMORY_SHARE = 0.5  # of the GPU: our own network is there too
MAX_CONTEXT = 8192  # tokens


class VllmEngine(OtherEngine):
    """Texts written by vLLM; the engine starts with the first prompt."""

    @cached_property
    def merged_folder(self) -> tempfile.TemporaryDirectory:
        """The folder with the merged weights, which vLLM reads."""
        folder = tempfile.TemporaryDirectory()
        write_merged(self, Path(folder.name))
        return folder

    @cached_property
    def engine(self) -> "LLM":
        """The engine of vLLM."""
        from vllm import LLM

        max_context = min(MAX_CONTEXT, self.backbone.vocabulary.tokenizer.model_max_length)
        torch.cuda.empty_cache()
        return LLM(
            self.merged_folder.name,
            dtype="bfloat16",
            gpu_memory_utilization=MEMORY_SHARE,
            max_model_len=max_context,
        )

    def fill(
        self, prompts: Sequence[str], schema: Schema | None, max_tokens: int
    ) -> list[Completion]:
        """Write verdicts that follow the schema."""
        regex = regex_of(schema, max_tokens)
        tokens = self.write(prompts, VERDICT_ROOM + max_tokens, regex)
        texts = self.backbone.vocabulary.tokenizer.batch_decode(tokens, skip_special_tokens=True)
        return [Completion(text) for text in texts]

    def write(
        self, prompts: Sequence[str], max_tokens: int, regex: str | None = None
    ) -> list[list[int]]:
        """Write greedy texts as tokens, following a regular expression if there is one."""
        from vllm import SamplingParams
        from vllm.sampling_params import StructuredOutputsParams

        encoded = self.prepared.encode(prompts, max_tokens)
        settings = SamplingParams(
            temperature=0.0,
            max_tokens=max_tokens,
            stop_token_ids=[self.end_id],
            detokenize=False,
            structured_outputs=StructuredOutputsParams(regex=regex) if regex else None,
        )
        requests = [{"prompt_token_ids": ids} for ids in encoded]
        results = self.engine.generate(requests, settings, use_tqdm=False)
        return [list(result.outputs[0].token_ids) for result in results]

    def forget(self) -> None:
        """Drop the cache of prompts."""
        self.engine.reset_prefix_cache()

    def stop(self) -> None:
        """End the engine's process and remove the folder."""
        engine = vars(self).pop("engine", None)
        if engine is not None:
            engine.llm_engine.engine_core.shutdown()
            vars(self).pop("merged_folder").cleanup()
