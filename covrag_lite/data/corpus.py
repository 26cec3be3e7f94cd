"""Rows of local files and of public sets, through one call of `datasets`, and a corpus of one's own made of them.

No dataset script ever runs.
"""

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from covrag_lite.config import Config, resolve
from covrag_lite.data import folder
from covrag_lite.records import Passage

if TYPE_CHECKING:
    from datasets import DatasetDict, IterableDatasetDict

KNOWN = Path(__file__).with_name("hub.toml")
# How `datasets` says, besides by a StopIteration, that a file has no rows.
EMPTY = ("corresponds to no data", "BatchSize must be greater than 0")


@dataclass(frozen=True)
class Source:
    """Where rows come from."""

    id: str  # of a set on the hub, a local folder, or "json" or "parquet" with files
    config: str = ""  # which of the set's configurations
    revision: str = ""  # a commit, tag or branch; empty is the newest
    files: tuple[tuple[str, str], ...] = ()  # split and pattern, where the files are named one by one

    def __str__(self) -> str:
        if self.id in ("json", "parquet"):
            return self.files[0][1]
        return f"{self.id}:{self.config}" if self.config else self.id


def read_toml(config: Config) -> dict[str, dict]:
    """The tables of the file that `hub_sets` names, beside hub.toml's own [corpus]; without one all of hub.toml's."""
    known = tomllib.loads(KNOWN.read_text(encoding="utf-8"))
    if not config.data.hub_sets:
        return known
    path = resolve(config.data.hub_sets)
    if not path.is_file():
        raise FileNotFoundError(f"hub_sets {config.data.hub_sets!r} is no file ({path} does not exist); see {KNOWN}")
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"hub_sets {config.data.hub_sets!r} is not TOML ({error}); see {KNOWN}") from None
    columns = told.pop("corpus", {})
    strange = [name for name in columns if name not in known["corpus"]]
    if strange:
        allowed = ", ".join(known["corpus"])
        raise ValueError(f"{path}, [corpus]: {', '.join(strange)} is not known; use some of {allowed}")
    return (told or known) | {"corpus": known["corpus"] | columns}


def read_corpus(config: Config) -> list[Passage]:
    """The passages of everything that the parameter `corpus` names, in its order."""
    columns = read_toml(config)["corpus"]
    made: dict[str, Passage] = {}
    for name in map(str.strip, config.data.corpus.split(",")):
        before = len(made)
        for number, row in read_rows(name, columns["at_most"]):
            passage = to_passage(row, columns, f"corpus {name!r}, row {number}")
            if passage.id in made:
                raise ValueError(f"corpus {name!r}, row {number}: the id {passage.id!r} stood before")
            made[passage.id] = passage
        if len(made) == before:
            raise ValueError(f"corpus {name!r} is empty; give a file that has passages")
    return list(made.values())


def read_rows(name: str, limit: int) -> Iterator[tuple[int, dict]]:
    """The numbered rows of a file, or the first ones of a hub:<id>."""
    if name.startswith("hub:"):
        return stream(parse_source(name.removeprefix("hub:")), limit)
    path = resolve(name)
    if not path.is_file():
        raise FileNotFoundError(f"corpus {name!r} is no file ({path} does not exist); a public set is hub:<id>")
    if path.suffix == ".parquet":
        return stream(Source("parquet", files=(("train", str(path)),)), 0)
    if path.name.endswith(folder.ENDS):
        return folder.read_rows(path, ())
    raise ValueError(f"corpus {name!r} is of no known kind; use a file .jsonl, .jsonl.gz or .parquet, or hub:<id>")


def stream(source: Source, limit: int) -> Iterator[tuple[int, dict]]:
    """The first rows of a set, read one after the other; of its splits train, or the first."""
    if limit < 0:
        raise ValueError(f"at_most of [corpus] is {limit} and must not be negative (0 means all)")
    splits = fetch(source, streaming=True)
    rows = splits["train"] if "train" in splits else next(iter(splits.values()))
    with explaining(source):
        yield from enumerate(islice(rows, limit or None), 1)


def to_passage(row: dict, columns: dict[str, str], where: str) -> Passage:
    """A row as a passage; the title may be missing."""
    missing = [columns[name] for name in ("id", "text") if row.get(columns[name]) is None]
    if missing:
        raise ValueError(
            f"{where}: has no {' and no '.join(missing)}, only {', '.join(row)}; "
            f"name the columns in [corpus] of the file hub_sets"
        )
    return Passage(str(row[columns["id"]]), row.get(columns["title"]) or "", row[columns["text"]])


def parse_source(text: str, config: str = "", revision: str = "") -> Source:
    """What a user's words mean: a local folder, a local file of test rows, or someone/set[:config][@revision]."""
    path = resolve(text)
    if path.is_file():
        builder = "parquet" if path.suffix == ".parquet" else "json"
        return Source(builder, files=(("test", str(path)),))
    if not path.is_dir():
        text, _, told = text.partition("@")
        text, _, named = text.partition(":")
        config, revision = config or named, revision or told
        path = resolve(text)
    return Source(str(path) if path.is_dir() else text, config, revision)


def fetch(source: Source, streaming: bool = False) -> "DatasetDict | IterableDatasetDict":
    """All splits of a set by their names."""
    import datasets

    with explaining(source):
        return datasets.load_dataset(
            source.id,
            source.config or None,
            revision=source.revision or None,
            data_files=dict(source.files) or None,
            streaming=streaming,
        )


@contextmanager
def explaining(source: Source) -> Iterator[None]:
    """Turn what `datasets` raises into one sentence that names the value and the cure."""
    from datasets.exceptions import DatasetsError

    try:
        yield
    except (OSError, ValueError, RuntimeError, DatasetsError, StopIteration) as error:
        raise explain(error, source) from None


def explain(error: Exception, source: Source) -> Exception:
    """The error in our words."""
    said = " ".join(str(error.__cause__ or error).split()).partition(" Example of usage")[0]
    if isinstance(error, ConnectionError):
        return ConnectionError(
            f"{str(source)!r} cannot be reached: there is no network, or no hub behind it; HF_HUB_OFFLINE=1 uses the "
            f"copy of an earlier run, and a local folder can stand in for the id"
        )
    if isinstance(error, FileNotFoundError) and str(error).startswith("Revision"):
        return FileNotFoundError(
            f"revision {source.revision!r} of {source.id!r} does not exist on the hub; "
            f"give a commit, a tag or a branch, or leave it empty for the newest"
        )
    if isinstance(error, FileNotFoundError) and str(error).startswith(("Dataset", "Couldn't find any data file")):
        return FileNotFoundError(
            f"{source.id!r} is no public set on the hub and no local folder or file; check its spelling"
        )
    if isinstance(error, RuntimeError) and "scripts" in said:
        return ValueError(
            f"{source.id!r} is made by a script, which is never run; "
            f"revision 'refs/convert/parquet', the hub's own conversion, may have its rows"
        )
    if isinstance(error, StopIteration) or any(words in said for words in EMPTY):
        return ValueError(f"{str(source)!r} has an empty file; give one that has rows")
    if isinstance(error, ValueError) and "onfig" in said:
        return ValueError(f"{str(source)!r}: {said} (write it behind a colon: {source.id}:<configuration>)")
    return ValueError(f"{str(source)!r} cannot be read: {said}; check its files")
