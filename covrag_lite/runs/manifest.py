"""Manifests: the code, versions, weights, data and machine of a result, and what it cost."""

import json
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path

from covrag_lite.config import ROOT, Config
from covrag_lite.engine.interface import Engine
from covrag_lite.records import digest
from covrag_lite.systems import find_system

# The packages on which results depend; not every run uses all of them.
PACKAGES = (
    "torch transformers peft bitsandbytes bm25s sentence-transformers lancedb datasets numpy scipy pandas".split()
)


def build_manifest(config: Config, model: Engine, seconds: float, **data: Sequence) -> dict:
    """Build the manifest of a run; it includes the size and hash of each part of its data."""
    torch, unit = sys.modules.get("torch"), 1 if sys.platform == "darwin" else 1024  # bytes
    peak = torch.cuda.max_memory_allocated() if torch and torch.cuda.is_available() else 0
    peak = peak or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    gguf = model.weights if model.weights and model.weights.is_file() else None
    packed = gguf and f"a GGUF file of {gguf.stat().st_size:,} bytes, dequantised; model_sha256 is of that file"
    wanted = {adapter for name in config.chain.systems for adapter in find_system(name).adapters}
    views = {name: model.with_adapter(name) for name in sorted(wanted)}
    return {
        **find_commit(),
        "parameters": config.flat(),
        "python": platform.python_version(),
        "versions": {one.name: one.version for one in distributions() if one.name in PACKAGES},
        "model_sha256": model.weights_hash,
        "weights": packed,  # what the weights are, unless they are the model's own safetensors
        "adapters": {name: view.fingerprint.partition("+")[2] for name, view in views.items() if view.adapter},
        "data": {name: {"n": len(rows), "sha256": digest(rows)} for name, rows in data.items()},
        "hardware": {
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "gpu": torch.cuda.get_device_name() if model.device == "cuda" else None,
        },
        "wall_seconds": round(seconds, 1),
        "used": dict(model.used),
        "peak_memory_gb": round(peak / 1e9, 2),  # of the GPU if one was used, else of the process
    }


def find_commit() -> dict[str, str | bool | None]:
    """Return the commit that ran and whether its code was modified.

    In a copy without git history, the environment variable COVRAG_COMMIT gives the commit.
    """
    told = os.environ.get("COVRAG_COMMIT")
    commit = told or git("rev-parse", "--verify", "-q", "HEAD")
    if told or not commit:
        return {"commit": commit or "unknown", "modified": None}
    return {"commit": commit, "modified": bool(git("status", "--porcelain", "--", "covrag_lite", "notebooks"))}


def git(*words: str) -> str:
    """Run git in the clone and return its output; "" if the folder is not a repository."""
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True).stdout.strip()


def save_manifest(path: Path, content: dict) -> None:
    """Write a manifest, or another dictionary, as JSON."""
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
