"""Questions of public sets by name: those that hub.toml describes, or any other whose columns parameters name.

The corpus is a parameter of its own (corpus.py). A local folder or file can stand in for every id.
"""

import tomllib
import warnings
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from covrag_lite.config import Config, Data
from covrag_lite.data import folder
from covrag_lite.data.columns import Columns, find_identity, read_questions
from covrag_lite.data.fetch import Source, fetch, parse_source
from covrag_lite.metrics import is_defective
from covrag_lite.records import Passage, Question

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict


@dataclass(frozen=True)
class Entry:
    """One public set: where its rows are, what its columns and splits mean, and what is known of it (hub.toml)."""

    source: Source
    columns: Columns
    splits: dict[str, str] = field(default_factory=dict)  # our name of a split -> the hub's; empty: the same names
    cited: bool = False
    licence: str = "not known; see its card"
    paper_sample: str = ""
    defects: str = ""


@cache
def load_entries() -> dict[str, Entry]:
    """The known sets by name."""
    described = tomllib.loads(Path(__file__).with_name("hub.toml").read_text(encoding="utf-8"))
    return {name: to_entry(**values) for name, values in described.items()}


def to_entry(
    id: str, revision: str, question: str, answers: list[str], *, config: str = "", row_id: str = "", **rest: object
) -> Entry:
    """A set as hub.toml describes it."""
    files = tuple(rest.pop("files", {}).items())
    return Entry(Source(id, config, revision, files), Columns(question, tuple(answers), row_id), **rest)


def name_entries(config: Config) -> dict[str, Entry]:
    """The sets that can be asked for: the one that `hub_id` names, else the known ones."""
    asked = config.data
    if not asked.hub_id:
        _refuse_what_has_no_effect(asked)
        return load_entries()
    source = parse_source(asked.hub_id, asked.revision)
    answers = tuple(part.strip() for part in asked.answers_column.split(","))
    name = Path(str(source).partition(":")[0]).name.partition(".")[0]
    return {name: Entry(source, Columns(asked.question_column, answers))}


def _refuse_what_has_no_effect(asked: Data) -> None:
    """Raise an error where a known set is asked for with parameters of another one."""
    for name in ("revision", "question_column", "answers_column"):
        value = getattr(asked, name)
        if value != getattr(Data(), name):
            raise ValueError(f"{name} is {value!r}, but the known sets have their own; name another set by hub_id")


def find_entry(config: Config, dataset: str) -> Entry:
    """The set of this name."""
    entries = name_entries(config)
    if dataset not in entries:
        cure = "hub_id names one set alone" if config.data.hub_id else "name any other by hub_id"
        raise ValueError(f"dataset {dataset!r} is not known: choose some of {', '.join(entries)}; {cure}")
    return entries[dataset]


def sets(config: Config, split: str) -> tuple[str, ...]:
    """The names of the sets; those with cited answers are to learn from only."""
    return tuple(name for name, entry in name_entries(config).items() if split == "train" or not entry.cited)


def questions(config: Config, split: str, dataset: str) -> list[Question]:
    """The questions of one set and split: of test a sample, of train what is not held out for validation."""
    entry = find_entry(config, dataset)
    if entry.cited and split == "validation":
        return []  # its answers are whole paragraphs over references of their own: no retriever, no accuracy
    if entry.cited and split == "test":
        raise ValueError(f"{dataset} has cited answers to learn from; set split to 'train', or choose another set")
    loaded = fetch(entry.source)
    own = "validation" in find_splits(entry, loaded)
    if split == "test":
        return draw(read_split(entry, loaded, split, dataset), config)
    if split == "validation" and own:
        return read_split(entry, loaded, split, dataset)
    every = read_split(entry, loaded, "train", dataset)
    return every if own else folder.hold_out(every, split)


def find_splits(entry: Entry, loaded: "DatasetDict") -> dict[str, str]:
    """The hub's name of each of our splits; a set that has no test split is tested on its validation split."""
    if entry.splits:
        return entry.splits
    there = {name: name for name in ("train", "validation", "test") if name in loaded}
    if "test" not in there and "validation" in there:
        there["test"] = there.pop("validation")
    return there


def find_rows(entry: Entry, loaded: "DatasetDict", split: str) -> "Dataset":
    """The rows of one of our splits."""
    name = find_splits(entry, loaded).get(split, split)
    if name not in loaded:
        there = ", ".join(loaded)
        raise ValueError(
            f"{str(entry.source)!r} has no split {name!r}, only {there}; choose one by the parameter split"
        )
    return loaded[name]


def read_split(entry: Entry, loaded: "DatasetDict", split: str, dataset: str) -> list[Question]:
    """The questions of one split, before any is drawn or held out; defective gold answers are counted."""
    rows = find_rows(entry, loaded, split)
    made = read_questions(rows, entry.columns, dataset, f"{dataset}-{rows.split}", repr(str(entry.source)))
    defective = sum(is_defective(one.answers) for one in made)
    if defective:
        warnings.warn(
            f"{dataset}, {split}: the answers of {defective} of {len(made)} questions normalise to nothing; the "
            "questions stay, but are left out of the normalised accuracy",
            stacklevel=4,
        )
    return made


def draw(every: list[Question], config: Config) -> list[Question]:
    """As many questions as `sample` says, in their order, drawn by a hash of each and the seed."""
    size = config.data.sample
    if size < 0:
        raise ValueError(f"sample is {size} and must not be negative (0 means all)")
    if size == 0 or size >= len(every):
        return every
    lots = [folder.hash_text(f"{config.data.sample_seed} {one.id} {one.question}") for one in every]
    drawn = set(sorted(lots)[:size])
    return [one for one, lot in zip(every, lots) if lot in drawn]


def passages(config: Config) -> list[Passage]:
    """Nothing: no public set has a corpus of its own."""
    raise ValueError(
        "data 'hub' has questions only; set corpus to a JSONL or Parquet file with id, title and text, or to hub:<id>"
    )


def is_cited(config: Config, dataset: str) -> bool:
    """Does this set have WebGLM-QA's shape?"""
    return find_entry(config, dataset).cited


def read_cited(config: Config, dataset: str) -> tuple[list[Question], dict[str, list[Passage]]]:
    """Questions with cited answers, and the references that come with each question."""
    entry = find_entry(config, dataset)
    rows = find_rows(entry, fetch(entry.source), "train")
    return folder.to_cited(dataset, enumerate(rows, 1))


def describe(config: Config, split: str, dataset: str) -> dict[str, object]:
    """What is known of a set, how many rows it has and how many of them repeat an id."""
    entry = find_entry(config, dataset)
    loaded = fetch(entry.source)
    own = split != "validation" or split in find_splits(entry, loaded)
    rows = find_rows(entry, loaded, split if own else "train")
    identity = find_identity(rows, entry.columns)
    return {
        "source": str(entry.source),
        "revision": entry.source.revision or "the newest",
        "licence": entry.licence,
        "the paper's sample": entry.paper_sample,
        "known defects": entry.defects,
        "rows": len(rows),
        "rows that repeat an id": len(rows) - len(set(rows[identity])) if identity else 0,
    }
