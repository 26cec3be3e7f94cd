"""Manifests: the code, versions, weights, data and machine of a result, and what it cost."""

import os
import platform
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import distributions

from covrag_lite.config import ROOT, Config
from covrag_lite.engine.interface import Engine
from covrag_lite.records import digest
from covrag_lite.systems import find_system

# The packages on which results depend; not every run uses all of them.
PACKAGES = {
    "torch",
    "transformers",
    "peft",
    "bitsandbytes",
    "bm25s",
    "sentence-transformers",
    "lancedb",
    "datasets",
    "numpy",
    "scipy",
    "pandas",
}


@dataclass(frozen=True)
class ModelFacts:
    """What a manifest contains about the model of a run."""

    sha256: str
    weights: str | None  # what they are, unless they are the model's own safetensors
    adapters: Mapping[str, str]  # the hash of each adapter
    gpu: str | None = None  # on which it ran
    used: Mapping[str, int] = field(default_factory=dict)  # requests and tokens


def describe_model(config: Config, model: Engine) -> ModelFacts:
    """Return the facts of a loaded model and of the adapters that the configured systems use."""
    torch = sys.modules.get("torch")
    return ModelFacts(
        model.weights_hash,
        describe_weights(model),
        hash_adapters(config, model),
        torch.cuda.get_device_name() if model.device == "cuda" else None,
        dict(model.used),
    )


def build_manifest(
    config: Config, model: Engine | ModelFacts, seconds: float, **data: Sequence
) -> dict:
    """Build the manifest of a run; it includes the size and hash of each part of its data.

    `model` is the facts of another run's model if this run only uses that run's results.
    """
    facts = model if isinstance(model, ModelFacts) else describe_model(config, model)
    versions = {}
    for package in distributions():
        if package.name in PACKAGES:
            versions[package.name] = package.version
    return {
        **find_commit(),
        "parameters": config.flat(),
        "python": platform.python_version(),
        "versions": versions,
        "model_sha256": facts.sha256,
        "weights": facts.weights,
        "adapters": dict(facts.adapters),
        "data": {name: {"n": len(rows), "sha256": digest(rows)} for name, rows in data.items()},
        "hardware": {
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "gpu": facts.gpu,
        },
        "wall_seconds": round(seconds, 1),
        "used": dict(facts.used),
        "peak_memory_gb": round(peak_memory() / 1e9, 2),
    }


def describe_weights(model: Engine) -> str | None:
    """Describe a GGUF file; None if the weights are the model's own safetensors."""
    if not model.weights or not model.weights.is_file():
        return None
    size = model.weights.stat().st_size
    return f"a GGUF file of {size:,} bytes, dequantised; model_sha256 is of that file"


def hash_adapters(config: Config, model: Engine) -> dict[str, str]:
    """Return the hashes of the adapters that the configured systems use, by their names."""
    names = set()
    for system in config.chain.systems:
        names.update(find_system(system).adapters)
    hashes = {}
    for name in sorted(names):
        view = model.with_adapter(name)
        if view.adapter:
            hashes[name] = view.fingerprint.partition("+")[2]
    return hashes


def peak_memory() -> int:
    """Return the peak memory in bytes: of the GPU if one was used, else of the process."""
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_available():
        allocated = torch.cuda.max_memory_allocated()
        if allocated:
            return allocated
    unit = 1 if sys.platform == "darwin" else 1024  # bytes per unit of the system's answer
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def find_commit() -> dict[str, str | bool | None]:
    """Return the commit that ran and whether its code was modified.

    In a copy without git history, the environment variable COVRAG_COMMIT gives the commit.
    """
    from_environment = os.environ.get("COVRAG_COMMIT")
    if from_environment:
        return {"commit": from_environment, "modified": None}
    commit = git("rev-parse", "--verify", "-q", "HEAD")
    if not commit:
        return {"commit": "unknown", "modified": None}
    changes = git("status", "--porcelain", "--", "covrag_lite", "notebooks")
    return {"commit": commit, "modified": bool(changes)}


def git(*words: str) -> str:
    """Run git in the clone and return its output; "" if the folder is not a repository."""
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()
