"""A corpus of one's own: JSONL and Parquet files, and public sets streamed from the hub, joined."""

from collections.abc import Iterator
from itertools import islice

from covrag_lite.config import Config, resolve
from covrag_lite.data import folder
from covrag_lite.data.fetch import Source, explaining, fetch, parse_source
from covrag_lite.records import Passage


def read_corpus(config: Config) -> list[Passage]:
    """The passages of everything that the parameter `corpus` names, in its order."""
    columns = config.data.corpus_columns
    if len(columns) != 3:
        raise ValueError(f"corpus_columns is {columns}, but must name three: those of id, title and text")
    made: dict[str, Passage] = {}
    for name in config.data.corpus.split(","):
        rows = 0
        for number, row in read_rows(name.strip(), config):
            passage = to_passage(row, columns, f"corpus {name.strip()!r}, row {number}")
            if passage.id in made:
                raise ValueError(f"corpus {name.strip()!r}, row {number}: the id {passage.id!r} stood before")
            made[passage.id] = passage
            rows += 1
        if rows == 0:
            raise ValueError(f"corpus {name.strip()!r} is empty; give a file that has passages")
    return list(made.values())


def read_rows(name: str, config: Config) -> Iterator[tuple[int, dict]]:
    """The numbered rows of a file, or of a hub:<id>."""
    if name.startswith("hub:"):
        return stream(parse_source(name.removeprefix("hub:")), config.data.n_passages_max)
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
        raise ValueError(f"n_passages_max is {limit} and must not be negative (0 means all)")
    splits = fetch(source, streaming=True)
    rows = splits["train"] if "train" in splits else next(iter(splits.values()))
    with explaining(source):
        yield from enumerate(islice(rows, limit or None), 1)


def to_passage(row: dict, columns: tuple[str, ...], where: str) -> Passage:
    """A row as a passage; the title may be missing."""
    identity, title, text = columns
    missing = [name for name in (identity, text) if row.get(name) is None]
    if missing:
        raise ValueError(
            f"{where}: has no {' and no '.join(missing)}, only {', '.join(row)}; name the columns by corpus_columns"
        )
    return Passage(str(row[identity]), row.get(title) or "", row[text])
