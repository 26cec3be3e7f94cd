"""llama.cpp's server as an engine that writes our texts: the same GGUF file, without an adapter.

Its verdicts follow the JSON schema of `engine/endpoint.py`, which it enforces by a grammar. The
server runs in a process of its own, whose CPU time is counted too.

    python -m benchmarks.inference --parts llama.cpp --adapters none --questions 8
"""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import psutil
import torch

from benchmarks.llama_server import LlamaServer
from benchmarks.other_engines import OtherEngine
from covrag_lite.engine.endpoint import PREFIX, Endpoint
from covrag_lite.engine.fast.local import LocalEngine
from covrag_lite.engine.interface import Completion, Schema
from covrag_lite.engine.weights import find_model

PATIENCE = 1800  # seconds until a reply: a busy machine writes slowly
SLOTS = 8  # texts that the server writes at the same time


class LlamaCppEngine(OtherEngine):
    """Texts written by llama.cpp's server on this machine, which starts with this object."""

    stages = ("answers", "verdicts")

    def __init__(self, model: LocalEngine):
        super().__init__(model)
        if self.adapter:
            raise ValueError("llama.cpp's server has only the base model; use --adapters none")
        name = model.settings.model
        self.server = LlamaServer(find_model(name), torch.get_num_threads(), SLOTS)
        self.server.start()
        os.environ["OPENAI_BASE_URL"] = f"{self.server.url}/v1"
        os.environ.setdefault("OPENAI_API_KEY", "any")
        settings = replace(model.settings, model=f"{PREFIX}{name}")
        self.endpoint = Endpoint(settings, retries=0, timeout=PATIENCE)

    def complete(
        self, prompts: Sequence[str], max_tokens: int, sample: int | None = None
    ) -> list[Completion]:
        """Write greedy texts, several at the same time."""
        write = partial(self.endpoint.complete, max_tokens=max_tokens, sample=sample)
        return self._write_at_once(write, prompts)

    def fill(
        self, prompts: Sequence[str], schema: Schema | None, max_tokens: int
    ) -> list[Completion]:
        """Write verdicts that follow the schema, several at the same time."""
        write = partial(self.endpoint.fill, schema=schema, max_tokens=max_tokens)
        return self._write_at_once(write, prompts)

    def _write_at_once(
        self, write: Callable[[Sequence[str]], list[Completion]], prompts: Sequence[str]
    ) -> list[Completion]:
        """Send one request per prompt, as many at the same time as the server has slots."""
        with ThreadPoolExecutor(SLOTS) as pool:
            return [completion for [completion] in pool.map(write, ([p] for p in prompts))]

    def cpu_seconds(self) -> float:
        """Return the CPU time of this process and of the server so far."""
        times = psutil.Process(self.server.process.pid).cpu_times()
        return time.process_time() + times.user + times.system

    def stop(self) -> None:
        """End the server."""
        self.server.kill()
