"""`covrag export FOLDER`: trained adapters in the layout of the Hugging Face hub.

Each adapter becomes a folder of its own with weights and configuration for peft, the tokenizer of
the base model, and a model card that is filled from recorded runs. `hf upload` publishes it.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from covrag_lite.commands.messages import Parser, plain_messages
from covrag_lite.commands.model_card import build_card, find_base
from covrag_lite.config import resolve
from covrag_lite.engine.weights import MODELS, convert_gguf, fetch, find_model, hash_weights
from covrag_lite.files import building_folder, read_json, write_bytes, write_json, write_text

PROG = "covrag export"
CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
TOKENIZER_FILES = [
    "config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
    "*.jinja",
]


def main(words: Sequence[str] | None = None) -> None:
    """Run the command."""
    options = build_parser().parse_args(words)
    with plain_messages(PROG):
        folders = find_adapters(options.folder)
        out = (
            resolve(options.out) if options.out else resolve("runs/export") / folders[0].parent.name
        )
        for folder in folders:
            export(folder, out / folder.name, options.base, options.data_licence)
            print(f"{out / folder.name}")
        print("read the model cards; then publish with: hf upload <you>/<name> <folder>")


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command's arguments."""
    parser = Parser(PROG, description="Export adapters with model cards for the Hugging Face hub.")
    parser.add_argument(
        "folder", help="a folder of adapters, such as results/adapters/smollm2-135m, or one adapter"
    )
    parser.add_argument("--out", help="where to write; runs/export/<name> by default")
    parser.add_argument(
        "--base",
        default="",
        help="the base model's id on the hub, if it was a local file or folder",
    )
    parser.add_argument(
        "--data-licence", default="", help="the licence of your training data, if it was a folder"
    )
    return parser


def find_adapters(name: str) -> list[Path]:
    """Return the folders of the adapters in a folder, in its `adapters`, or the folder itself."""
    folder = resolve(name)
    for place in (folder.parent, folder, folder / "adapters"):
        adapters = [file.parent for file in sorted(place.glob(f"*/{CONFIG}"))]
        if place == folder.parent:
            adapters = [adapter for adapter in adapters if adapter == folder]
        if adapters:
            return adapters
    cure = "train some (notebooks/train.ipynb), or use results/adapters/smollm2-135m"
    raise FileNotFoundError(f"{folder} has no adapters (<name>/{CONFIG}); {cure}")


def export(adapter: Path, out: Path, base: str = "", data_licence: str = "") -> None:
    """Write one adapter in the layout of the hub; an existing folder is never changed."""
    if out.exists():
        raise FileExistsError(f"{out} already exists; remove it, or choose another folder (--out)")
    if not (adapter / WEIGHTS).exists():
        raise FileNotFoundError(f"{adapter} has no {WEIGHTS}; other formats are not exported")
    settings = read_json(adapter / CONFIG)
    model = find_recorded_model(adapter) or base
    base_id, _, revision = find_base(model, base).id.partition("@")
    settings |= {"base_model_name_or_path": base_id, "revision": revision or None}
    with building_folder(out) as unfinished:
        write_json(unfinished / CONFIG, settings)
        write_bytes(unfinished / WEIGHTS, (adapter / WEIGHTS).read_bytes())
        has_chat = save_tokenizer(model, unfinished)
        card = build_card(adapter, model, base, data_licence, has_chat)
        write_text(unfinished / "README.md", card)


def find_recorded_model(adapter: Path) -> str:
    """Return the parameter `model` of the training run, or the base that peft recorded, or ""."""
    manifest = adapter / "manifest.json"
    if manifest.exists():
        return read_json(manifest)["parameters"]["model"]
    return read_json(adapter / CONFIG)["base_model_name_or_path"] or ""


def save_tokenizer(model: str, out: Path) -> bool:
    """Write the tokenizer of a model; return whether it has a chat template."""
    from transformers import AutoTokenizer

    if model in MODELS or model.endswith(".gguf"):
        file = find_model(model)
        folder = convert_gguf(file, hash_weights(file))
    else:
        folder = fetch(model, TOKENIZER_FILES, MODELS)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.save_pretrained(out)
    return bool(tokenizer.chat_template)
