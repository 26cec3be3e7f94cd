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
from itertools import chain

from covrag_lite import config
from covrag_lite.data.documents import split_text
from covrag_lite.data.folder import hash_text
from covrag_lite.engine import weights
from covrag_lite.engine.journal import Journal, key_of
from covrag_lite.engine.progress import track
from covrag_lite.plugins.web import fetch, providers
from covrag_lite.plugins.web.pages import read_pages
from covrag_lite.plugins.web.providers import SearchError
from covrag_lite.records import Passage, Search
from covrag_lite.retrieval import dense

DEFAULT = "ddgs"  # the provider of "web": it needs no key
MAX_PAGES = 10  # fetched per query
EMPTY_QUERIES = 5  # successive queries without a passage: a failure, not a result to be frozen
SEARCH_PAUSE = 1.0  # seconds before each query to a provider
SHORTEST = 50  # characters per passage
LONGEST = 1200
MAX_PASSAGES = 200  # per page


def load(passages: Sequence[Passage], settings: config.Retrieval) -> Search:
    """Load the search over frozen results and, if allowed, the web; it may find fewer than k."""
    open_snapshot(settings)
    weights.find_encoder(settings.encoder)  # fails now, not after a thousand pages
    results: dict[str, list[Passage]] = {}

    def search(queries: Sequence[str]) -> list[list[Passage]]:
        new = [query for query in dict.fromkeys(queries) if query not in results]
        for query, pages in zip(new, load_results(new, settings)):
            passages = split_pages(pages)
            results[query] = dense.load(passages, settings)([query])[0] if passages else []
        return [results[query] for query in queries]

    return search


def open_snapshot(settings: config.Retrieval) -> Journal:
    """Open the frozen results of the retriever's provider."""
    provider = settings.retriever.partition("-")[2] or DEFAULT
    if provider not in providers.PROVIDERS:
        names = ", ".join(f"web-{name}" for name in providers.PROVIDERS)
        raise ValueError(
            f"retriever {settings.retriever!r} is not known; use web or one of {names}"
        )
    return Journal(config.resolve(settings.snapshot) / f"{provider}.jsonl")


def read_snapshot(settings: config.Retrieval) -> list[dict]:
    """Read every frozen result, sorted by the key of its query."""
    return [json.loads(text) for _, text in sorted(open_snapshot(settings).texts.items())]


def find_passages(settings: config.Retrieval) -> list[Passage]:
    """Return the passages of every frozen result, each once."""
    passages: dict[str, Passage] = {}
    for result in read_snapshot(settings):
        passages |= {passage.id: passage for passage in split_pages(result["pages"])}
    return list(passages.values())


def describe(settings: config.Retrieval) -> dict[str, object]:
    """Describe the frozen results for a manifest: number of queries, dates, and one hash of all."""
    results = read_snapshot(settings)
    dates = sorted(result["date"] for result in results) or [""]
    whole = hash_text(json.dumps(results))[:16]
    return {"queries": len(results), "from": dates[0], "to": dates[-1], "sha256": whole}


def split_pages(pages: Iterable[dict[str, str]]) -> list[Passage]:
    """Split pages into passages, each text once; the id is a hash of address, title and text."""
    passages: dict[str, Passage] = {}  # by their texts
    for page in pages:
        for text in split_page(page["text"])[:MAX_PASSAGES]:
            key = hash_text(f"{page['url']}\n{page['title']}\n{text}")[:16]
            passages.setdefault(text, Passage(f"web-{key}", page["title"], text))
    return list(passages.values())


def split_page(text: str) -> list[str]:
    """Split the paragraphs of a page into pieces of a passage's size; shorter ones are dropped."""
    pieces: list[str] = []
    for line in text.splitlines():
        pieces += [piece for piece in split_text(line, LONGEST) if len(piece) >= SHORTEST]
    return pieces


def load_results(queries: Sequence[str], settings: config.Retrieval) -> list[list[dict]]:
    """Load the pages of the queries' frozen results; search for the others if allowed."""
    snapshot = open_snapshot(settings)  # opened again, because other searches add to it
    missing = [query for query in queries if key_of(query=query) not in snapshot.texts]
    if missing and settings.live != "yes":
        lacking = f"{len(missing)} of {len(queries)} queries have no frozen result"
        first = f"{missing[0]!a:.100} is not in {snapshot.path}"
        raise SearchError(f"{lacking}: {first}; live search is off: allow it with -p live yes")
    search_live(missing, snapshot)
    results = [json.loads(snapshot.texts[key_of(query=query)])["pages"] for query in queries]
    if results:
        n_pages = sum(map(len, results))
        n_failed = sum(bool(page["failed"]) for page in chain.from_iterable(results))
        print(
            f"web search: {len(results) - len(missing)} queries from {snapshot.path}, "
            f"{len(missing)} searched live and frozen there; "
            f"{n_failed} of {n_pages} pages could not be fetched"
        )
    return results


def search_live(queries: Sequence[str], snapshot: Journal) -> None:
    """Search for the queries and freeze the results; empty ones only after a non-empty one."""
    provider = snapshot.path.stem
    crawler = fetch.Crawler()
    unsaved: dict[str, str] = {}  # empty results since the last non-empty one
    tracked = track(queries, f"web search ({provider})", "search", len(queries))
    for number, query in enumerate(tracked):
        time.sleep(SEARCH_PAUSE)
        try:
            titles = providers.find(provider, query, MAX_PAGES)
            pages = read_pages(titles, crawler.fetch(titles))
            is_empty = not any(page["text"] for page in pages)
            if is_empty and len(unsaved) == EMPTY_QUERIES - 1:
                raise SearchError(f"{provider}: {EMPTY_QUERIES} successive queries found nothing")
        except SearchError as error:
            saved = f"{number - len(unsaved)} of {len(queries)} new queries are in {snapshot.path}"
            raise SearchError(f"{error}; {saved}; run again with -p live yes to continue") from None
        date = datetime.now(UTC).isoformat(timespec="seconds")
        unsaved[key_of(query=query)] = json.dumps({"query": query, "date": date, "pages": pages})
        if not is_empty or query == queries[-1]:
            snapshot.add(provider, unsaved)
            unsaved = {}
