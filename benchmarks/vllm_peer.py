"""vLLM as an engine that writes our texts: the same adapter, and the same weights in 16 bits.

vLLM reads a folder that is written here, with the adapter merged into the weights, and gets the
schema of verdicts as a regular expression. All other settings are its own, except the memory, which
it shares with our network. It is not among our requirements: vLLM 0.27 to 0.29 need the torch
version that we pin; 0.26, which was measured, needs torch 2.11.

    python -m benchmarks.inference --parts vllm --questions 400 --out vllm.json
"""

import re
import tempfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from benchmarks.generate import Peer, write_merged
from covrag_lite.engine.interface import Completion, Schema
from covrag_lite.prompts import JUDGMENTS, VERDICT_ROOM

if TYPE_CHECKING:
    from vllm import LLM

MEMORY = 0.5  # share of the GPU's memory: our own network is there too
SCORE = r"(0\.[0-9][0-9]|1\.00)"
LETTERS = 8  # the most letters of almost all tokens; limits the length of a revised question


def regex_of(schema: Schema, max_revised_tokens: int) -> str:
    """Return the schema of verdicts as a regular expression.

    It cannot count the tokens of a revised question, so it counts letters.
    """
    text = rf' "[^"\\\n]{{0,{LETTERS * max_revised_tokens}}}"'
    gaps = {"score": SCORE, "judgment": f"({'|'.join(JUDGMENTS)})", "text": text}
    made = "".join(re.escape(part) if isinstance(part, str) else gaps[part[0]] for part in schema)
    return made.replace("\\ ", " ")  # vLLM's parser does not accept an escaped blank


class Vllm(Peer):
    """Texts written by vLLM; the engine starts with the first prompt."""

    @cached_property
    def written(self) -> tempfile.TemporaryDirectory:
        made = tempfile.TemporaryDirectory()
        write_merged(self, Path(made.name))
        return made

    @cached_property
    def engine(self) -> "LLM":
        from vllm import LLM

        longest = min(8192, self.loaded.tokenizer.model_max_length)
        torch.cuda.empty_cache()
        return LLM(self.written.name, dtype="bfloat16", gpu_memory_utilization=MEMORY, max_model_len=longest)

    def fill(self, prompts: Sequence[str], schema: Schema | None, max_tokens: int) -> list[Completion]:
        """Write verdicts that follow the schema."""
        written = self.write(prompts, VERDICT_ROOM + max_tokens, regex_of(schema, max_tokens))
        return [Completion(text) for text in self.loaded.tokenizer.batch_decode(written, skip_special_tokens=True)]

    def write(self, prompts: Sequence[str], max_tokens: int, regex: str | None = None) -> list[list[int]]:
        """Write greedy texts as tokens, following a regular expression if there is one."""
        from vllm import SamplingParams
        from vllm.sampling_params import StructuredOutputsParams

        given = [{"prompt_token_ids": ids} for ids in self.loaded.encode(prompts, max_tokens)]
        settings = SamplingParams(
            temperature=0.0,
            max_tokens=max_tokens,
            stop_token_ids=[self.loaded.end_id],
            detokenize=False,
            structured_outputs=StructuredOutputsParams(regex=regex) if regex else None,
        )
        made = self.engine.generate(given, settings, use_tqdm=False)
        return [list(one.outputs[0].token_ids) for one in made]

    def forget(self) -> None:
        """Drop the cache of prompts."""
        self.engine.reset_prefix_cache()

    def stop(self) -> None:
        """End the engine's process and remove the folder."""
        engine = vars(self).pop("engine", None)
        if engine is not None:
            engine.llm_engine.engine_core.shutdown()
            vars(self).pop("written").cleanup()
