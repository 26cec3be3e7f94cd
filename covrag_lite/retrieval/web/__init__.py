"""Web search in two stages, as in the paper and WebGLM: find pages, then rank their passages.

A query's result comes from the snapshot. A query that is not frozen there is searched only if
`live` is "yes", and its result is then frozen. There is no corpus. The snapshot has one journal per
provider, <snapshot>/<provider>.jsonl. Each line is a query with the date and each page's address,
title and text, or the reason why it failed. With a copy of it, a run needs no network and gives
identical output. Passages have WebGLM's size, paragraphs of 50 to 1,200 characters. WebGLM cuts
longer paragraphs off; here the rest becomes another passage.
"""

import json
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from covrag_lite import config
from covrag_lite.data.folder import hash_text, split
from covrag_lite.engine import weights
from covrag_lite.journal import Journal, key_of
from covrag_lite.progress import track
from covrag_lite.records import Passage, Search
from covrag_lite.retrieval import dense
from covrag_lite.retrieval.web import fetch, providers
from covrag_lite.retrieval.web.pages import read_pages
from covrag_lite.retrieval.web.providers import SearchError

DEFAULT = "ddgs"  # the provider of "web": it needs no key
N_PAGES = 10  # the most pages fetched per query
EMPTY = 5  # successive queries without a passage: that is a failure, not a result to be frozen
SHORTEST, LONGEST = 50, 1200  # characters per passage
MOST = 200  # passages per page


def load(passages: Sequence[Passage], settings: config.Retrieval) -> Search:
    """Load the search over frozen results and, if allowed, the web; it may find fewer than k."""
    open_snapshot(settings)
    weights.find_encoder(settings.encoder)  # fails now, not after a thousand pages
    known: dict[str, list[Passage]] = {}

    def search(queries: Sequence[str]) -> list[list[Passage]]:
        new = [query for query in dict.fromkeys(queries) if query not in known]
        for query, pages in zip(new, load_results(new, settings)):
            found = split_pages(pages)
            known[query] = dense.load(found, settings)([query])[0] if found else []
        return [known[query] for query in queries]

    return search


def open_snapshot(settings: config.Retrieval) -> Journal:
    """Open the frozen results of the retriever's provider."""
    provider = settings.retriever.partition("-")[2] or DEFAULT
    if provider not in providers.PROVIDERS:
        names = ", ".join(f"web-{name}" for name in providers.PROVIDERS)
        raise ValueError(f"retriever {settings.retriever!r} is not known; use web or one of {names}")
    return Journal(config.resolve(settings.snapshot) / f"{provider}.jsonl")


def read_snapshot(settings: config.Retrieval) -> list[dict]:
    """Read every frozen result, sorted by the key of its query."""
    return [json.loads(text) for _, text in sorted(open_snapshot(settings).texts.items())]


def find_passages(settings: config.Retrieval) -> list[Passage]:
    """Return the passages of every frozen result, each once."""
    found = {one.id: one for result in read_snapshot(settings) for one in split_pages(result["pages"])}
    return list(found.values())


def describe(settings: config.Retrieval) -> dict[str, object]:
    """Describe the frozen results for a manifest: number of queries, dates, and one hash of all."""
    results = read_snapshot(settings)
    dates = sorted(result["date"] for result in results) or [""]
    whole = hash_text(json.dumps(results))[:16]
    return {"queries": len(results), "from": dates[0], "to": dates[-1], "sha256": whole}


def split_pages(pages: Iterable[dict[str, str]]) -> list[Passage]:
    """Split pages into passages, each text once; the id is a hash of address, title and text."""
    found = {}
    for page in pages:
        lines = page["text"].splitlines()
        pieces = [piece for line in lines for piece in split(line, LONGEST) if len(piece) >= SHORTEST]
        for piece in pieces[:MOST]:
            key = hash_text(f"{page['url']}\n{page['title']}\n{piece}")[:16]
            found.setdefault(piece, Passage(f"web-{key}", page["title"], piece))
    return list(found.values())


def load_results(queries: Sequence[str], settings: config.Retrieval) -> list[list[dict]]:
    """Load the pages of the queries' frozen results; search for the others if allowed."""
    snapshot = open_snapshot(settings)  # opened again, because other searches add to it
    missing = [query for query in queries if key_of(query=query) not in snapshot.texts]
    if missing and settings.live != "yes":
        lacking = f"{len(missing)} of {len(queries)} queries have no frozen result"
        first = f"{missing[0]!a:.100} is not in {snapshot.path}"
        raise SearchError(f"{lacking}: {first}; live search is off: allow it with -p live yes")
    search_live(missing, snapshot)
    made = [json.loads(snapshot.texts[key_of(query=query)])["pages"] for query in queries]
    failed = [bool(page["failed"]) for pages in made for page in pages]
    if made:
        frozen = f"{len(made) - len(missing)} queries from {snapshot.path}"
        told = f"{frozen}, {len(missing)} searched live and frozen there"
        print(f"web search: {told}; {sum(failed)} of {len(failed)} pages could not be fetched")
    return made


def search_live(queries: Sequence[str], snapshot: Journal) -> None:
    """Search for the queries and freeze the results; empty ones only after a non-empty one."""
    crawler, waiting, provider = fetch.Crawler(), {}, snapshot.path.stem
    for number, query in enumerate(track(queries, f"web search ({provider})", "search", len(queries))):
        time.sleep(fetch.PAUSE)
        try:
            titles = providers.find(provider, query, N_PAGES)
            pages = read_pages(titles, crawler.fetch(titles))
            if len(waiting) == EMPTY - 1 and not any(page["text"] for page in pages):
                raise SearchError(f"{provider}: {EMPTY} successive queries found nothing")
        except SearchError as error:
            kept = f"{number - len(waiting)} of {len(queries)} new queries are in {snapshot.path}"
            raise SearchError(f"{error}; {kept}; run again with -p live yes to continue") from None
        date = datetime.now(UTC).isoformat(timespec="seconds")
        waiting[key_of(query=query)] = json.dumps({"query": query, "date": date, "pages": pages})
        if any(page["text"] for page in pages) or query == queries[-1]:
            snapshot.add(provider, waiting)
            waiting = {}
