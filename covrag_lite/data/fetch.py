"""Rows of public sets by their id, and of local files, through one call of `datasets`. No dataset script ever runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from covrag_lite.config import resolve

if TYPE_CHECKING:
    from datasets import DatasetDict, IterableDatasetDict

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


def parse_source(text: str, revision: str = "") -> Source:
    """What a user's words mean: a local folder, a local file of test rows, or someone/set[:config][@revision]."""
    path = resolve(text)
    if path.is_file():
        builder = "parquet" if path.suffix == ".parquet" else "json"
        return Source(builder, files=(("test", str(path)),))
    if path.is_dir():
        return Source(str(path))
    text, _, told = text.partition("@")
    identity, _, config = text.partition(":")
    local = resolve(identity)
    return Source(str(local) if local.is_dir() else identity, config, revision or told)


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
