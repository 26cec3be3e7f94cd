"""A folder of the user's own documents: its configuration, its passages and the model to use."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from covrag_lite.config import Config, Model, Retrieval, expand_home
from covrag_lite.data import load_passages
from covrag_lite.engine.progress import count
from covrag_lite.engine.weights import MODELS
from covrag_lite.records import Passage

DEMO_MODEL = Model().model


@dataclass(frozen=True)
class Folder:
    """A folder's passages, the configuration that searches them, and what the user should know."""

    config: Config
    passages: Sequence[Passage]
    notes: tuple[str, ...]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `ask` and `eval` share."""
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        help="a folder with documents (.txt, .md, .pdf or .html), subfolders included",
    )
    parser.add_argument(
        "--model",
        default=DEMO_MODEL,
        help="a Hugging Face id, a local folder, a .gguf file, or endpoint:<name> for a server "
        "with the OpenAI API (address in OPENAI_BASE_URL, key in OPENAI_API_KEY); default: "
        f"{DEMO_MODEL}, a small model to try the command with",
    )
    parser.add_argument(
        "--k",
        type=int,
        default=Retrieval().k,
        help="passages to read per search; default: %(default)s, as in the paper",
    )


def load_folder(folder: str, model: str, k: int, name: str) -> Folder:
    """Load the passages of a folder; if there are fewer than k, all of them are read."""
    path = expand_home(folder).resolve()  # relative to where the user is
    if not path.is_dir():
        reason = "it is a file" if path.is_file() else "there is no such folder"
        raise FileNotFoundError(f"{folder!r} is not a folder of documents: {reason}")
    if k < 1:
        raise ValueError(f"--k is {k}, but must be 1 or more")
    config = Config().change(data=str(path), model=find_local_model(model), k=k, name=name)
    passages = load_passages(config)
    documents = {passage.id.rpartition("#")[0] for passage in passages}
    notes = [
        f"{count(len(documents), 'document')}, {count(len(passages), 'passage')}; "
        f"model {config.model.short}"
    ]
    if len(passages) < k:
        notes.append(f"there are fewer than k = {k} passages, so every search reads all of them")
        config = config.change(k=len(passages))
    if config.model.model == DEMO_MODEL:
        notes.append(
            f"{DEMO_MODEL} is a small model that was trained on invented texts: expect mistakes, "
            "and choose a larger one with --model"
        )
    return Folder(config, passages, tuple(notes))


def find_local_model(model: str) -> str:
    """Return a model's name; a path is made absolute, so that it starts where the user is."""
    path = expand_home(model)
    if model not in MODELS and (path.is_dir() or path.is_file()):
        return str(path.resolve())
    if model.endswith(".gguf") or model.startswith(("/", ".", "~")):
        raise FileNotFoundError(f"there is no model {model!r}: check the path after --model")
    return model
