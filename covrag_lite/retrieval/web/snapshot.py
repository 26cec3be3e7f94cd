"""Frozen search results: a folder with one file a query, written whole as it arrives and never changed.

<snapshot>/<provider>/<hash of the query>.json holds the query, the provider, the date, how many pages were asked for,
and of each page its address, title and text, or the sentence that says why there is none; each text and the whole with
its hash. The folder can be handed on: a run over it needs no network and repeats to the byte.
"""

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from covrag_lite.records import Passage
from covrag_lite.retrieval.web.errors import SearchError
from covrag_lite.retrieval.web.pages import to_passages

FORMAT = 1


@dataclass(frozen=True)
class Page:
    """One page of a result, or the sentence that stands in its place."""

    url: str
    title: str = ""
    text: str = ""
    failed: str = ""


@dataclass(frozen=True)
class Result:
    """What a provider found for a query, and what its pages held that day."""

    query: str
    provider: str
    date: str  # ISO, UTC
    asked: int  # pages asked for; fewer may have been found
    pages: tuple[Page, ...]

    def passages(self, n_pages: int | None = None) -> list[Passage]:
        """The passages of its pages, or of the first ones, each text once."""
        found = {}
        for page in self.pages[:n_pages]:
            for passage in to_passages(page.url, page.title, page.text):
                found.setdefault(passage.text, passage)
        return list(found.values())


@dataclass(frozen=True)
class Snapshot:
    """The frozen results of one provider."""

    folder: Path
    provider: str

    def file(self, query: str) -> Path:
        """Where a query's result lies."""
        return self.folder / self.provider / f"{hash_of(query)[:24]}.json"

    def load(self, query: str) -> Result | None:
        """A query's result; None where there is none."""
        file = self.file(query)
        result = read(file) if file.exists() else None
        if result and (result.query, result.provider) != (query, self.provider):
            raise SearchError(f"{file} holds the result of another query or provider; put it back where it was")
        return result

    def save(self, result: Result) -> None:
        """Write a result, whole or not at all."""
        file = self.file(result.query)
        file.parent.mkdir(parents=True, exist_ok=True)
        making = file.with_suffix(f".{os.getpid()}")
        with open(making, "w", encoding="ascii") as opened:
            opened.write(render(result))
            opened.flush()
            os.fsync(opened.fileno())
        making.replace(file)

    def results(self) -> list[Result]:
        """Every result, checked."""
        return [read(file) for file in sorted((self.folder / self.provider).glob("*.json"))]

    def passages(self) -> list[Passage]:
        """Every passage of every result, each once."""
        found = {one.id: one for result in self.results() for one in result.passages()}
        return list(found.values())

    def describe(self) -> dict[str, object]:
        """What a manifest says of it: how many queries, from when to when, and one hash of all."""
        results = self.results()
        dates = sorted(result.date for result in results)
        every = hash_of("".join(render(result) for result in results))[:16]
        return {
            "queries": len(results),
            "from": dates[0] if dates else "",
            "to": dates[-1] if dates else "",
            "sha256": every,
        }


def hash_of(text: str) -> str:
    """The hash of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def now() -> str:
    """The date of a result that arrives."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def is_expired(result: Result, days: int) -> bool:
    """Is the result older than this? 0 days stands for any age."""
    return bool(days) and datetime.now(UTC) - datetime.fromisoformat(result.date) > timedelta(days=days)


def render(result: Result) -> str:
    """A result as the text of its file, in plain ASCII, so that looking at it is safe."""
    body = {"format": FORMAT, **asdict(result)}
    body["pages"] = [asdict(page) | {"sha256": hash_of(page.text)} for page in result.pages]
    return json.dumps(body | {"sha256": hash_of(json.dumps(body))}, indent=1) + "\n"


def read(file: Path) -> Result:
    """The result in a file; an error where the file is not what was written."""
    try:
        text = file.read_text(encoding="ascii")
        body = json.loads(text)
        pages = tuple(Page(one["url"], one["title"], one["text"], one["failed"]) for one in body["pages"])
        result = Result(body["query"], body["provider"], body["date"], body["asked"], pages)
        whole = render(result) == text
    except (ValueError, KeyError, TypeError, AttributeError):
        whole = False
    if not whole:
        raise SearchError(
            f"{file} is half-written, altered or of another version of the snapshot; "
            f"delete it and search again with -p live yes"
        )
    return result
