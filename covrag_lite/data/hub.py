"""Questions of the public sets that hub.toml describes, and the passages that the parameter `corpus` names.

Every row comes through one call of `datasets`; no dataset script ever runs. A local folder can stand in for every id.
"""

import tomllib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from covrag_lite.config import Config, need, resolve
from covrag_lite.data import folder
from covrag_lite.engine.weights import explain_hub
from covrag_lite.records import Passage, Question, digest

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

SAMPLE_SEED = 1  # of the draw of test questions, as in every recorded run
BLOCK = 10_000  # passages of a corpus on disk that are read together


@dataclass(frozen=True)
class Entry:
    """One public set: where its rows are, what its columns and splits mean, and what is known of it (hub.toml)."""

    id: str  # on the hub, or a local folder
    question: str = ""  # a column
    answers: tuple[str, ...] = ()  # columns, a.b where nested; all their texts together are the answers
    row_id: str = ""  # a column; empty: the number of the row
    config: str = ""  # which of the set's configurations
    revision: str = ""  # a commit, tag or branch; empty is the newest
    files: dict[str, str] | None = None  # split -> pattern, where the files are named one by one
    splits: dict[str, str] | None = None  # our name of a split -> the hub's
    cited: bool = False  # has it WebGLM-QA's shape?
    rows: dict[str, int] | None = None  # our name of a split -> how many rows it has
    passages: int = 0  # of a corpus
    gb: float = 0  # to fetch
    disk_gb: float = 0  # with what is made of it
    licence: str = ""
    paper_sample: str = ""
    defects: str = ""


@cache
def load_entries(file: str = "hub.toml") -> dict[str, Entry]:
    """The sets that can be asked for."""
    told = tomllib.loads(Path(__file__).with_name(file).read_text(encoding="utf-8"))
    return {name: Entry(**values) for name, values in told.items()}


load_corpora = partial(load_entries, "corpora.toml")  # the corpora that can be asked for


def find_entry(dataset: str) -> Entry:
    """The set of this name."""
    entries = load_entries()
    if dataset not in entries:
        cure = "any other is one more table in covrag_lite/data/hub.toml, or a folder of files"
        raise ValueError(f"dataset {dataset!r} is not known: choose some of {', '.join(entries)}; {cure}")
    return entries[dataset]


def sets(config: Config, split: str) -> tuple[str, ...]:
    """The names of the sets; those with cited answers are to learn from only."""
    return tuple(name for name, entry in load_entries().items() if split == "train" or not entry.cited)


def questions(config: Config, split: str, dataset: str) -> list[Question]:
    """The questions of one set and split: of test a sample, of train what is not held out for validation."""
    entry = find_entry(dataset)
    if entry.cited and split == "validation":
        return []  # its answers are whole paragraphs over references of their own: no retriever, no accuracy
    if entry.cited and split == "test":
        raise ValueError(f"{dataset} has cited answers to learn from; set split to 'train', or choose another set")
    if split == "test":
        return draw(read_split(entry, "test", dataset), config.data.sample)
    if "validation" in entry.splits:
        return read_split(entry, split, dataset)
    return folder.hold_out(read_split(entry, "train", dataset), split)


def draw(every: list[Question], size: int) -> list[Question]:
    """So many questions, in their order, drawn by a hash of each and the seed; 0 means all."""
    if size < 0:
        raise ValueError(f"sample is {size} and must not be negative (0 means all)")
    lots = [folder.hash_text(f"{SAMPLE_SEED} {one.id} {one.question}") for one in every]
    drawn = set(sorted(lots)[: size or None])
    return [one for one, lot in zip(every, lots) if lot in drawn]


def passages(config: Config) -> list[Passage]:
    """Nothing: no public set has a corpus of its own."""
    names = ", ".join(load_corpora())
    raise ValueError(f"data 'hub' has questions only; set corpus to {names} or a JSONL file with id, title and text")


def read_cited(config: Config, dataset: str) -> Iterator[tuple[int, dict]] | None:
    """The numbered rows of a set that has WebGLM-QA's shape."""
    entry = find_entry(dataset)
    return enumerate(fetch(entry)[entry.splits["train"]], 1) if entry.cited else None


def describe(dataset: str) -> dict[str, object]:
    """What is known of a set."""
    entry = find_entry(dataset)
    return {name: getattr(entry, name) for name in ("id", "config", "revision", "licence", "paper_sample", "defects")}


def read_split(entry: Entry, split: str, dataset: str) -> list[Question]:
    """The questions of one split, before any is drawn or held out."""
    rows = fetch(entry)[entry.splits[split]].flatten()  # a nested column becomes several, named a.b
    columns = [column for column in (entry.question, *entry.answers, entry.row_id) if column]
    made = []
    for number, row in enumerate(rows.select_columns(columns)):
        values = [row[column] if isinstance(row[column], list) else [row[column]] for column in entry.answers]
        answers = dict.fromkeys(str(one) for one in chain.from_iterable(values) if one is not None)
        name = row[entry.row_id] if entry.row_id else f"{dataset}-{rows.split}-{number}"
        told = {"id": name, "question": row[entry.question] or "", "answers": list(answers)}
        made.append((f"{entry.id!r}, row {number}", told))
    return folder.to_questions(made, dataset)


def fetch(entry: Entry) -> "DatasetDict":
    """All splits of a set by their names; what `datasets` raises becomes a sentence that names the set and the cure."""
    datasets = need("datasets")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HTTPError

    place, name = resolve(entry.id), entry.config or None
    try:
        if entry.files and not place.is_dir():  # `datasets` finds no such files again offline
            wanted = {"allow_patterns": list(entry.files.values()), "revision": entry.revision or None}
            place = Path(snapshot_download(entry.id, repo_type="dataset", **wanted))
        if place.is_dir():
            return datasets.load_dataset(str(place), name, data_files=entry.files)
        return datasets.load_dataset(entry.id, name, revision=entry.revision or None)
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError, HTTPError, StopIteration) as error:
        said = " ".join(explain_hub(error.__cause__ or error).split()).partition(" Example of usage")[0]
        kind = next((one for one in (ConnectionError, FileNotFoundError) if isinstance(error, one)), ValueError)
        cure = "check its id, revision and files; HF_HUB_OFFLINE=1 uses the copy of an earlier run"
        raise kind(f"{entry.id!r} cannot be read: {said or 'it is empty'}; {cure}") from None


class Corpus(Sequence[Passage]):
    """Passages that stay on disk: a row is read when it is asked for."""

    def __init__(self, rows: "Dataset"):
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int | slice) -> Passage | list[Passage]:
        rows = self.rows[place if isinstance(place, slice) else slice(place, place + 1)]
        columns = zip(rows["id"], rows["title"], rows["text"])
        made = [Passage(str(identity), title or "", text) for identity, title, text in columns]
        return made if isinstance(place, slice) else made[0]

    def __iter__(self) -> Iterator[Passage]:
        for start in range(0, len(self), BLOCK):
            yield from self[start : start + BLOCK]

    @cached_property
    def sha256(self) -> str:
        """The hash of all passages, computed once: reading millions takes minutes."""
        return digest(iter(self))


@cache
def open_corpus(name: str) -> Corpus:
    """A corpus of corpora.toml, fetched where it is not here yet; one that was cut is told."""
    entry = load_corpora()[name]
    rows = next(iter(fetch(entry).values()))
    if len(rows) != entry.passages:
        told = "its revision has moved, or a part of it is missing"
        warnings.warn(f"corpus {name!r} has {len(rows):,} passages, not {entry.passages:,}: {told}", stacklevel=2)
    return Corpus(rows.rename_columns({entry.row_id: "id"}).select_columns(["id", "title", "text"]))


def read_corpus(config: Config) -> Sequence[Passage]:
    """The passages of the corpus, or of the file, that the parameter `corpus` names."""
    name = config.data.corpus
    if name in load_corpora():
        return open_corpus(name)
    path = resolve(name)
    if not path.is_file() or not path.name.endswith((".jsonl", ".jsonl.gz")):
        known = f"{', '.join(load_corpora())} or a file .jsonl or .jsonl.gz ({path} is none)"
        raise FileNotFoundError(f"corpus {name!r} is not known; use {known}; data/corpora.toml takes others")
    return folder.read_passages(path)
