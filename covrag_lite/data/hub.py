"""Questions of public sets by name: those that hub.toml describes, or others that a file of the same form does.

The corpus is a parameter of its own (corpus.py). A local folder or file can stand in for every id.
"""

import warnings
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

from covrag_lite.config import Config
from covrag_lite.data import folder
from covrag_lite.data.corpus import Source, fetch, parse_source, read_toml
from covrag_lite.metrics import is_defective, normalise
from covrag_lite.records import Passage, Question

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

SAMPLE_SEED = 1  # of the draw of test questions, as in every recorded run
NEEDED = ("id", "question", "answers")  # of every set in a file like hub.toml


@dataclass(frozen=True)
class Entry:
    """One public set: where its rows are, what its columns and splits mean, and what is known of it (hub.toml)."""

    source: Source
    question: str  # a column, a.b where it is nested
    answers: tuple[str, ...]  # columns; all their texts together are the answers
    row_id: str = ""  # a column; empty: "id" if there is one, else the number of the row
    splits: dict[str, str] = field(default_factory=dict)  # our name of a split -> the hub's; empty: the same names
    cited: bool = False  # has it WebGLM-QA's shape?
    licence: str = "not known; see its card"
    paper_sample: str = ""
    defects: str = ""


def load_entries(config: Config) -> dict[str, Entry]:
    """The sets that can be asked for: those that the file `hub_sets` describes, else the known ones."""
    told = read_toml(config)
    return {name: to_entry(name, **values) for name, values in told.items() if name != "corpus"}


def to_entry(name: str, *, config: str = "", revision: str = "", files: dict | None = None, **told: object) -> Entry:
    """A set as a table of hub.toml describes it."""
    missing = [one for one in NEEDED if one not in told]
    known = [*NEEDED, *(f.name for f in fields(Entry) if f.name not in ("source", *NEEDED))]
    strange = [one for one in told if one not in known]
    if missing or strange:
        wrong = f"has no {' and no '.join(missing)}" if missing else f"{', '.join(strange)} is not known"
        raise ValueError(f"hub set [{name}]: {wrong}; use {', '.join(known)}, config, revision, files")
    source = parse_source(told.pop("id"), config, revision)
    answers = told.pop("answers")
    if files:
        source = replace(source, files=tuple(files.items()))
    return Entry(source, answers=(answers,) if isinstance(answers, str) else tuple(answers), **told)


def find_entry(config: Config, dataset: str) -> Entry:
    """The set of this name."""
    entries = load_entries(config)
    if dataset not in entries:
        cure = "describe any other in a file and name it by hub_sets"
        raise ValueError(f"dataset {dataset!r} is not known: choose some of {', '.join(entries)}; {cure}")
    return entries[dataset]


def sets(config: Config, split: str) -> tuple[str, ...]:
    """The names of the sets; those with cited answers are to learn from only."""
    return tuple(name for name, entry in load_entries(config).items() if split == "train" or not entry.cited)


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
    made = read_questions(rows, entry, dataset)
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
    lots = [folder.hash_text(f"{SAMPLE_SEED} {one.id} {one.question}") for one in every]
    drawn = set(sorted(lots)[:size])
    return [one for one, lot in zip(every, lots) if lot in drawn]


def passages(config: Config) -> list[Passage]:
    """Nothing: no public set has a corpus of its own."""
    raise ValueError(
        "data 'hub' has questions only; set corpus to a JSONL or Parquet file with id, title and text, or to hub:<id>"
    )


def read_cited(config: Config, dataset: str) -> tuple[list[Question], dict[str, list[Passage]]] | None:
    """Questions with cited answers, and the references that come with each, where the set has WebGLM-QA's shape."""
    entry = find_entry(config, dataset)
    if not entry.cited:
        return None
    return folder.to_cited(dataset, enumerate(find_rows(entry, fetch(entry.source), "train"), 1))


def describe(config: Config, split: str, dataset: str) -> dict[str, object]:
    """What is known of a set, how many rows it has and how many of them repeat an id."""
    entry = find_entry(config, dataset)
    loaded = fetch(entry.source)
    own = split != "validation" or split in find_splits(entry, loaded)
    rows = find_rows(entry, loaded, split if own else "train")
    identity = find_identity(rows, entry)
    return {
        "source": str(entry.source),
        "revision": entry.source.revision or "the newest",
        "licence": entry.licence,
        "the paper's sample": entry.paper_sample,
        "known defects": entry.defects,
        "rows": len(rows),
        "rows that repeat an id": len(rows) - len(set(rows[identity])) if identity else 0,
    }


def read_questions(rows: "Dataset", entry: Entry, dataset: str) -> list[Question]:
    """The rows as questions; a row that repeats an earlier one's id and question is left out."""
    where = repr(str(entry.source))
    identity = find_identity(rows, entry)
    paths = [entry.question, *entry.answers, *([identity] if identity else [])]
    wanted = dict.fromkeys(find_column(path, rows, where) for path in paths)
    made: dict[str, Question] = {}
    for number, row in enumerate(rows.select_columns(list(wanted))):
        here = f"{where}, row {number}"
        name = str(row[identity]) if identity else f"{dataset}-{rows.split}-{number}"
        asked = pick(row, entry.question, here)
        if len(asked) != 1 or not asked[0].strip():
            raise ValueError(f"{here}: {entry.question!r} holds {asked or 'nothing'}, which is not one question")
        answers = [text for path in entry.answers for text in pick(row, path, here)]
        first = made.setdefault(name, Question(name, dataset, asked[0], tuple(dict.fromkeys(answers))))
        if normalise(first.question) != normalise(asked[0]):
            raise ValueError(f"{here}: the id {name!r} is another question's already")
    return list(made.values())


def find_identity(rows: "Dataset", entry: Entry) -> str:
    """The column with the rows' ids, if there is one."""
    return entry.row_id or ("id" if "id" in rows.column_names else "")


def find_column(path: str, rows: "Dataset", where: str) -> str:
    """The column that a path begins with."""
    for name in (path, path.partition(".")[0]):
        if name in rows.column_names:
            return name
    raise ValueError(
        f"{where} has no column {path!r}, only {', '.join(rows.column_names)}; "
        f"name them as question and answers in the file hub_sets"
    )


def pick(value: object, path: str, where: str) -> list[str]:
    """The texts at the end of a dotted path, through lists and groups; a missing one is named."""
    if value is None:
        return []
    if isinstance(value, list):
        return [text for one in value for text in pick(one, path, where)]
    if not isinstance(value, dict):
        if path:
            raise ValueError(f"{where}: there is no {path!r} in {value!r}; a path ends where a text is")
        return [str(value)]
    for name, rest in ((path, ""), path.partition(".")[::2]):
        if name in value:
            return pick(value[name], rest, where)
    raise ValueError(f"{where}: there is no {path!r}, only {', '.join(value)}; a nested column is written a.b")
