"""Questions of the public sets in hub.toml, and the passages named by the parameter `corpus`.

Every row is loaded by one call of `datasets`. No dataset script is ever run. A local folder can
replace any id.
"""

import tomllib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from covrag_lite.config import Config, resolve
from covrag_lite.data import folder, paper_questions
from covrag_lite.data.missing import DataMissing
from covrag_lite.engine.weights import explain_hub
from covrag_lite.loader import need
from covrag_lite.records import Passage, Question, digest

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

SAMPLING = ("paper", "random")
SAMPLE_SEED = 1  # for sampling test questions, as in every recorded run
BLOCK = 10_000  # passages that are read from disk at a time


@dataclass(frozen=True)
class Entry:
    """One public set as described in hub.toml: its place, its columns and its splits."""

    id: str  # on the hub, or a local folder
    question: str = ""  # a column
    answers: tuple[str, ...] = ()  # columns, a.b if nested; all their texts count as answers
    row_id: str = ""  # a column; empty: the number of the row
    config: str = ""  # the configuration of the set
    revision: str = ""  # a commit, tag or branch; empty: the newest
    files: dict[str, str] | None = None  # split -> pattern, if files must be named explicitly
    splits: dict[str, str] | None = None  # our name of a split -> the hub's
    cited: bool = False  # does it have the form of WebGLM-QA?
    rows: dict[str, int] | None = None  # our name of a split -> its number of rows
    passages: int = 0  # of a corpus
    gb: float = 0  # to download
    disk_gb: float = 0  # on disk, including what is built from it
    licence: str = ""
    paper_sample: str = ""
    defects: str = ""


@cache
def load_entries(file: str = "hub.toml") -> dict[str, Entry]:
    """Load the descriptions of all known sets."""
    tables = tomllib.loads(Path(__file__).with_name(file).read_text(encoding="utf-8"))
    return {name: Entry(**values) for name, values in tables.items()}


load_corpora = partial(load_entries, "corpora.toml")  # all known corpora


def find_entry(dataset: str) -> Entry:
    """Return the description of the set with this name."""
    entries = load_entries()
    if dataset not in entries:
        cure = "add others as a table in covrag_lite/data/hub.toml, or use a folder of files"
        names = ", ".join(entries)
        raise ValueError(f"dataset {dataset!r} is not known; use some of {names}; {cure}")
    return entries[dataset]


def sets(config: Config, split: str) -> tuple[str, ...]:
    """Return the names of the sets; those with cited answers are only for training."""
    names = []
    for name, entry in load_entries().items():
        if split == "train" or not entry.cited:
            names.append(name)
    return tuple(names)


def questions(config: Config, split: str, dataset: str) -> list[Question]:
    """Load the questions of one set: for test a sample, for train without the held-out ones."""
    entry = find_entry(dataset)
    if entry.cited and split == "validation":
        # Its answers are paragraphs about their own references: no retrieval and no accuracy.
        return []
    if entry.cited and split == "test":
        reason = f"{dataset} has cited answers, which are only for training"
        raise ValueError(f"{reason}; set split to 'train', or choose another set")
    if split == "test":
        return sample(read_split(entry, "test", dataset), dataset, config)
    if "validation" in entry.splits:
        return read_split(entry, split, dataset)
    return folder.hold_out(read_split(entry, "train", dataset), split)


def sample(every: list[Question], dataset: str, config: Config) -> list[Question]:
    """Select test questions: the paper's own where their hashes are known, or a random sample."""
    size = config.data.sample
    sampling = config.data.sampling
    if sampling not in SAMPLING:
        allowed = " or ".join(map(repr, SAMPLING))
        raise ValueError(f"sampling is {sampling!r}, but must be {allowed}")
    n_paper = len(paper_questions.load_hashes(dataset))
    if size == 0 or n_paper == 0 or sampling == "random":
        return draw(every, size)
    if size > n_paper:
        cure = f"set sample to {n_paper} or less, or sampling to 'random'"
        raise ValueError(f"sample is {size}, but the paper has {n_paper} of {dataset!r}; {cure}")
    return draw(paper_questions.select(every, dataset), size)


def draw(every: list[Question], size: int) -> list[Question]:
    """Sample `size` questions by a hash of each and the seed, in their order; 0 means all."""
    if size < 0:
        raise ValueError(f"sample is {size}, but must be 0 (all questions) or more")
    hashes = []
    for question in every:
        hashes.append(folder.hash_text(f"{SAMPLE_SEED} {question.id} {question.question}"))
    lowest = set(sorted(hashes)[: size or None])
    return [question for question, hashed in zip(every, hashes) if hashed in lowest]


def passages(config: Config) -> list[Passage]:
    """Raise an error: no public set has its own corpus."""
    names = ", ".join(load_corpora())
    cure = f"set corpus to {names} or a JSONL file with id, title and text"
    raise ValueError(f"data is 'hub', which has only questions; {cure}")


def read_cited(config: Config, dataset: str) -> Iterator[tuple[int, dict]] | None:
    """Return the numbered rows of a set in the form of WebGLM-QA; None for other sets."""
    entry = find_entry(dataset)
    return enumerate(fetch(entry)[entry.splits["train"]], 1) if entry.cited else None


def read_split(entry: Entry, split: str, dataset: str) -> list[Question]:
    """Load the questions of one split, before sampling and holding out."""
    rows = fetch(entry)[entry.splits[split]].flatten()  # a nested column becomes several, named a.b
    columns = [column for column in (entry.question, *entry.answers, entry.row_id) if column]
    questions = []
    for number, row in enumerate(rows.select_columns(columns)):
        identity = row[entry.row_id] if entry.row_id else f"{dataset}-{rows.split}-{number}"
        question = {
            "id": identity,
            "question": row[entry.question] or "",
            "answers": find_answers(entry, row),
        }
        questions.append((f"{entry.id!r}, row {number}", question))
    return folder.to_questions(questions, dataset)


def find_answers(entry: Entry, row: dict) -> list[str]:
    """Return the texts of all answer columns of a row, each once."""
    answers: dict[str, None] = {}
    for column in entry.answers:
        values = row[column] if isinstance(row[column], list) else [row[column]]
        for value in values:
            if value is not None:
                answers[str(value)] = None
    return list(answers)


def fetch(entry: Entry) -> "DatasetDict":
    """Load all splits of a set; errors of `datasets` become a sentence with set and cure."""
    datasets = need("datasets")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HTTPError

    place = resolve(entry.id)
    name = entry.config or None
    try:
        if entry.files and not place.is_dir():  # offline, `datasets` does not find such files again
            fetched = snapshot_download(
                entry.id,
                repo_type="dataset",
                allow_patterns=list(entry.files.values()),
                revision=entry.revision or None,
            )
            place = Path(fetched)
        if place.is_dir():
            return datasets.load_dataset(str(place), name, data_files=entry.files)
        return datasets.load_dataset(entry.id, name, revision=entry.revision or None)
    except (
        OSError,
        ValueError,
        RuntimeError,
        datasets.exceptions.DatasetsError,
        HTTPError,
        StopIteration,
    ) as error:
        cause = " ".join(explain_hub(error.__cause__ or error).split())
        cause = cause.partition(" Example of usage")[0] or "it is empty"
        is_missing = isinstance(error, (ConnectionError, FileNotFoundError))
        kind = DataMissing if is_missing else ValueError
        cure = "check its id, revision and files; HF_HUB_OFFLINE=1 uses the copy of an earlier run"
        raise kind(f"{entry.id!r} cannot be read: {cause}; {cure}") from None


class Corpus(Sequence[Passage]):
    """Passages that stay on disk; a row is read when it is used."""

    def __init__(self, rows: "Dataset"):
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int | slice) -> Passage | list[Passage]:
        is_slice = isinstance(place, slice)
        rows = self.rows[place if is_slice else slice(place, place + 1)]
        passages = []
        for identity, title, text in zip(rows["id"], rows["title"], rows["text"]):
            passages.append(Passage(str(identity), title or "", text))
        return passages if is_slice else passages[0]

    def __iter__(self) -> Iterator[Passage]:
        for start in range(0, len(self), BLOCK):
            yield from self[start : start + BLOCK]

    @cached_property
    def sha256(self) -> str:
        """Return the hash of all passages, computed once: reading millions takes minutes."""
        return digest(iter(self))


@cache
def open_corpus(name: str) -> Corpus:
    """Open a corpus of corpora.toml, fetched if needed; warn if passages are missing."""
    entry = load_corpora()[name]
    rows = next(iter(fetch(entry).values()))
    if len(rows) != entry.passages:
        counts = f"corpus {name!r} has {len(rows):,} passages, not {entry.passages:,}"
        cause = "its revision has changed, or a part of it is missing"
        warnings.warn(f"{counts}: {cause}", stacklevel=2)
    return Corpus(rows.rename_columns({entry.row_id: "id"}).select_columns(["id", "title", "text"]))


def read_corpus(config: Config) -> Sequence[Passage]:
    """Load the passages of the corpus or file that the parameter `corpus` names."""
    name = config.data.corpus
    if name in load_corpora():
        return open_corpus(name)
    path = resolve(name)
    if not path.is_file() or not path.name.endswith((".jsonl", ".jsonl.gz")):
        names = f"{', '.join(load_corpora())} (in data/corpora.toml)"
        cure = f"use {names} or a .jsonl or .jsonl.gz file"
        raise DataMissing(f"corpus {name!r} is not known; {cure}; {path} is neither")
    return folder.read_passages(path)
