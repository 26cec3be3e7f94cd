"""Frozen search results: one file a query, written whole as it arrives and never changed.

<snapshot>/<provider>/<hash of the query>.json holds the query, the provider, the date, how many pages were asked for,
and each page's address, title and text, or why there is none; each text and the whole with its hash. The folder can be
handed on: a run over it needs no network and repeats to the byte. Passages have WebGLM's size, paragraphs of 50 to
1,200 characters; where WebGLM cuts off a longer paragraph, the rest is a further passage.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from covrag_lite.data.documents import split
from covrag_lite.data.folder import hash_text
from covrag_lite.records import Passage

FORMAT = 1
SHORTEST, LONGEST = 50, 1200  # characters of a passage
MOST = 200  # passages of a page


class SearchError(RuntimeError):
    """A provider cannot be asked, or a result is not in the snapshot; what was frozen before is kept."""


@dataclass(frozen=True)
class Page:
    """A page of a result, or the sentence that says why there is none."""

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

    def passages(self) -> list[Passage]:
        """Split its pages into passages, each text once; the id is a hash of address, title and text."""
        found = {}
        for page in self.pages:
            lines = page.text.splitlines()
            pieces = [piece for line in lines for piece in split(line, LONGEST) if len(piece) >= SHORTEST]
            for piece in pieces[:MOST]:
                key = hash_text(f"{page.url}\n{page.title}\n{piece}")[:16]
                found.setdefault(piece, Passage(f"web-{key}", page.title, piece))
        return list(found.values())


@dataclass(frozen=True)
class Snapshot:
    """The frozen results of one provider."""

    folder: Path
    provider: str

    def file(self, query: str) -> Path:
        """The file of a query's result."""
        return self.folder / self.provider / f"{hash_text(query)[:24]}.json"

    def read(self, file: Path) -> Result:
        """Read a result from its file; stop where the file is not what was written there."""
        try:
            text = file.read_text(encoding="ascii")
            body = json.loads(text)
            pages = tuple(Page(one["url"], one["title"], one["text"], one["failed"]) for one in body["pages"])
            result = Result(body["query"], body["provider"], body["date"], body["asked"], pages)
            is_whole = render(result) == text and (self.file(result.query), self.provider) == (file, result.provider)
        except (ValueError, KeyError, TypeError, AttributeError):
            is_whole = False
        if not is_whole:
            told = "half-written, altered, another query's or provider's, or of another version of the snapshot"
            raise SearchError(f"{file} is {told}; delete it and search again with -p live yes")
        return result

    def save(self, result: Result) -> None:
        """Write a result, whole or not at all; one that another run froze meanwhile is never replaced."""
        file = self.file(result.query)
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_suffix(f".{os.getpid()}")
        unfinished.write_text(render(result), encoding="ascii")
        if file.exists():
            unfinished.unlink()
        else:
            unfinished.rename(file)

    def results(self) -> list[Result]:
        """Load every result."""
        return [self.read(file) for file in sorted((self.folder / self.provider).glob("*.json"))]

    def passages(self) -> list[Passage]:
        """The passages of every result, each once."""
        found = {one.id: one for result in self.results() for one in result.passages()}
        return list(found.values())

    def describe(self) -> dict[str, object]:
        """Describe it for a manifest: how many queries, from when to when, and one hash of all."""
        results = self.results()
        dates = sorted(result.date for result in results) or [""]
        every = hash_text("".join(render(result) for result in results))[:16]
        return {"queries": len(results), "from": dates[0], "to": dates[-1], "sha256": every}


def render(result: Result) -> str:
    """Render a result as its file's text: plain ASCII, safe to look at."""
    body = {"format": FORMAT, **asdict(result)}
    body["pages"] = [asdict(page) | {"sha256": hash_text(page.text)} for page in result.pages]
    return json.dumps(body | {"sha256": hash_text(json.dumps(body))}, indent=1) + "\n"
