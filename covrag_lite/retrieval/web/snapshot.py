"""Frozen search results: a journal a provider, one line a query, added as it arrives and never changed.

<snapshot>/<provider>.jsonl holds the queries, each with its date and every page's address, title and text, or why there
is none. The folder can be handed on: a run over it needs no network and repeats to the byte. Passages have WebGLM's
size, paragraphs of 50 to 1,200 characters; where WebGLM cuts off a longer paragraph, the rest is a further passage.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from covrag_lite.data.documents import split
from covrag_lite.data.folder import hash_text
from covrag_lite.records import Passage
from covrag_lite.runs.journal import Journal, key_of

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
    date: str  # ISO, UTC
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


class Snapshot:
    """The frozen results of one provider."""

    def __init__(self, folder: Path, provider: str):
        self.folder, self.provider = folder, provider
        self.journal = Journal(folder / f"{provider}.jsonl")

    def __contains__(self, query: str) -> bool:
        return key_of(query=query) in self.journal.texts

    def read(self, key: str) -> Result:
        """Read a result by its query's key."""
        told = json.loads(self.journal.texts[key])
        return Result(told["query"], told["date"], tuple(Page(**page) for page in told["pages"]))

    def save(self, result: Result) -> None:
        """Freeze a result; one that is there already is never replaced."""
        self.journal.add(self.provider, {key_of(query=result.query): json.dumps(asdict(result))})

    def passages(self) -> list[Passage]:
        """The passages of every result, each once."""
        found = {one.id: one for key in sorted(self.journal.texts) for one in self.read(key).passages()}
        return list(found.values())

    def describe(self) -> dict[str, object]:
        """Describe it for a manifest: how many queries, from when to when, and one hash of all."""
        texts = sorted(self.journal.texts.items())
        dates = sorted(self.read(key).date for key, _ in texts) or [""]
        return {"queries": len(texts), "from": dates[0], "to": dates[-1], "sha256": hash_text(repr(texts))[:16]}
