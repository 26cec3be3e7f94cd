"""Where a result comes from: code, versions, weights, data, machine; and what it will cost and has cost."""

import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path

from covrag_lite.config import ROOT, Config
from covrag_lite.data import digest
from covrag_lite.engine.interface import Engine
from covrag_lite.method import closed_book, rag
from covrag_lite.runs.journal import Journal, keys_of
from covrag_lite.systems import find_system

PACKAGES = (  # that numbers depend on; not every run needs every one
    *("torch", "transformers", "peft", "bitsandbytes"),
    *("bm25s", "sentence-transformers", "lancedb", "datasets", "numpy", "scipy", "pandas"),
)


def build_manifest(config: Config, model: Engine, seconds: float, **data: Sequence) -> dict:
    """The manifest of a run that took so long, with the size and hash of each part of its data."""
    gguf = model.weights if model.weights and model.weights.is_file() else None
    packed = gguf and f"a GGUF file of {gguf.stat().st_size:,} bytes, dequantised; model_sha256 is of that file"
    return {
        **find_commit(),
        "parameters": config.flat(),
        "python": platform.python_version(),
        "versions": {one.name: one.version for one in distributions() if one.name in PACKAGES},
        "model_sha256": model.weights_hash,
        "weights": packed,  # what they are where that is not the model's own safetensors
        "adapters": hash_adapters(config, model),
        "data": {name: {"n": len(rows), "sha256": digest(rows)} for name, rows in data.items()},
        "hardware": {
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "gpu": sys.modules["torch"].cuda.get_device_name() if model.device == "cuda" else None,
        },
        "wall_seconds": round(seconds, 1),
        "used": dict(model.used),
        "peak_memory_gb": round(peak_memory(), 2),
    }


def find_commit() -> dict[str, str | bool | None]:
    """The commit that ran, and whether its code was modified; COVRAG_COMMIT tells it to a copy without history."""
    told = os.environ.get("COVRAG_COMMIT")
    if told:
        return {"commit": told, "modified": None}
    commit = git("rev-parse", "--verify", "-q", "HEAD")
    if not commit:
        return {"commit": "unknown", "modified": None}
    return {"commit": commit, "modified": bool(git("status", "--porcelain", "--", "covrag_lite", "notebooks"))}


def git(*words: str) -> str:
    """What git says of the project's folder; nothing where it is no repository."""
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True).stdout.strip()


def hash_adapters(config: Config, model: Engine) -> dict[str, str]:
    """The adapters that the configured systems ran with, by the hash of their weights."""
    wanted = {adapter for name in config.chain.systems for adapter in find_system(name).adapters}
    views = {name: model.with_adapter(name) for name in sorted(wanted)}
    return {name: view.fingerprint.partition("+")[2] for name, view in views.items() if view.adapter}


def peak_memory() -> float:
    """The most memory this process has held, in GB: of the GPU where one was used, else of the machine."""
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated() / 1e9
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in bytes there, in KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def save_manifest(path: Path, content: dict) -> None:
    """Write a manifest, or other settings, as JSON."""
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def estimate(config: Config, asked: Sequence[str], model: Engine, journal: Journal) -> str:
    """What a table costs at most whose first answers have these prompts, from one answer outside the journal."""
    limit = config.model.max_answer_tokens
    left = sum(key not in journal for key in keys_of("answer", asked, limit, model).values())
    if not left:
        return f"first answers to all {len(asked)} questions are journaled: only what is missing after them is computed"
    # A GPU takes hardly longer for a batch than for one answer; an endpoint may cost money.
    sample = asked[: 32 if model.device == "cuda" else 1]
    model.batches(sample, limit)  # loads the weights, which is not answering
    before = Counter(model.used)
    start = time.perf_counter()
    model.complete(sample, limit)
    each = (time.perf_counter() - start) / len(sample)
    times = left * count_answers(config)
    tokens = {name: times * (model.used[name] - before[name]) / len(sample) for name in model.used}
    return (
        f"{left} of {len(asked)} questions to do: at most {tell_time(times * each)} ({each:.1f} s an answer here, less "
        f"in full batches), {tell_tokens(tokens)}; {peak_memory():.1f} GB of memory so far"
    )


def count_answers(config: Config) -> int:
    """How many answers' time a question takes at worst; a verdict takes that of two, equal prompts that of one."""
    chosen = [find_system(name) for name in config.chain.systems]
    verifying = {system.adapter for system in chosen if system.verifies}
    total = 0
    for system in chosen:
        rounds = config.change(**system.settings).chain.max_rounds
        if system.verifies:
            total += rounds + 2 * (rounds - 1)
        elif system.run is not rag or system.adapter not in verifying:  # else its answers are the verified ones
            total += 1 if system.run in (rag, closed_book) else 2
    return total


def tell_spent(model: Engine, seconds: float) -> str:
    """What this process has used for a table that took so long."""
    used = model.used
    if not used["requests"]:
        return f"cost: {tell_time(seconds)}, no text: all were journaled"
    return f"cost: {tell_time(seconds)}, {used['requests']} texts, {tell_tokens(used)}"


def tell_time(seconds: float) -> str:
    """Seconds, or minutes where there are many."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def tell_tokens(used: Mapping[str, float]) -> str:
    """Tokens read and written."""
    return f"{used.get('prompt_tokens', 0):,.0f} tokens read and {used.get('completion_tokens', 0):,.0f} written"
