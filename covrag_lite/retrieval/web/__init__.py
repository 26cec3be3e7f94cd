"""Web search in two stages, as in the paper and WebGLM: a provider finds pages, an encoder ranks their passages.

A query's result comes from the snapshot; what is not frozen there is searched for only if `live` is "yes", and then
frozen. There is no corpus.
"""

import time
from collections.abc import Sequence
from datetime import UTC, datetime

from covrag_lite import config
from covrag_lite.engine import weights
from covrag_lite.records import Passage, Search
from covrag_lite.retrieval import dense
from covrag_lite.retrieval.web import fetch, providers
from covrag_lite.retrieval.web.pages import read_pages
from covrag_lite.retrieval.web.snapshot import Result, SearchError, Snapshot
from covrag_lite.runs.journal import key_of
from covrag_lite.runs.progress import track

DEFAULT = "ddgs"  # the provider of plain "web": it needs no key
N_PAGES = 10  # pages fetched for a query, at most
EMPTY = 5  # queries in a row without a single passage: then it is not the queries


def load(passages: Sequence[Passage], settings: config.Retrieval) -> Search:
    """Load the search over frozen results and, if allowed, the web; where pages hold little, it finds fewer than k."""
    open_snapshot(settings)
    weights.find_encoder(settings.encoder)  # now, not after a thousand pages
    known: dict[str, list[Passage]] = {}

    def search(queries: Sequence[str]) -> list[list[Passage]]:
        new = [query for query in dict.fromkeys(queries) if query not in known]
        for result in load_results(new, settings):
            found = result.passages()
            known[result.query] = dense.load(found, settings)([result.query])[0] if found else []
        return [known[query] for query in queries]

    return search


def open_snapshot(settings: config.Retrieval) -> Snapshot:
    """Open the frozen results of the retriever's provider."""
    provider = settings.retriever.partition("-")[2] or DEFAULT
    if provider not in providers.PROVIDERS:
        names = ", ".join(f"web-{name}" for name in providers.PROVIDERS)
        raise ValueError(f"retriever {settings.retriever!r} is not known; use web or one of {names}")
    return Snapshot(config.resolve(settings.snapshot), provider)


def load_results(queries: Sequence[str], settings: config.Retrieval) -> list[Result]:
    """Load the queries' frozen results; search for the others where that is allowed."""
    snapshot = open_snapshot(settings)  # anew: other searches add to it
    missing = [query for query in queries if query not in snapshot]
    if missing and settings.live != "yes":
        lacking = f"{len(missing)} of {len(queries)} queries lack a frozen result: {missing[0]!a:.100}"
        raise SearchError(f"{lacking} is not in {snapshot.folder}; live search is off: allow it with -p live yes")
    search_live(missing, snapshot)
    made = [snapshot.read(key_of(query=query)) for query in queries]
    failed = [bool(page.failed) for result in made for page in result.pages]
    if made:
        print(
            f"web search ({snapshot.provider}): {len(made) - len(missing)} queries from the snapshot {snapshot.folder}"
            f", {len(missing)} searched for live and frozen there; {sum(failed)} of {len(failed)} pages could not be "
            f"had, {sum(not one.passages() for one in made)} queries found no passage"
        )
    return made


def search_live(queries: Sequence[str], snapshot: Snapshot) -> None:
    """Search for the queries one after the other and freeze what is found.

    An empty result waits for the next one that is not: several in a row are a failure, which must not be frozen as a
    result.
    """
    crawler, waiting = fetch.Crawler(), []
    for number, query in enumerate(track(queries, f"web search ({snapshot.provider})", "search", len(queries))):
        time.sleep(fetch.PAUSE)
        try:
            titles = providers.find(snapshot.provider, query, N_PAGES)
            pages = read_pages(titles, crawler.fetch(titles))
            if len(waiting) == EMPTY - 1 and not any(page.text for page in pages):
                raise SearchError(f"{snapshot.provider}: nothing was found for {EMPTY} queries in a row")
        except SearchError as error:
            kept = f"{number - len(waiting)} of {len(queries)} new queries are frozen in {snapshot.folder}"
            raise SearchError(f"{error}; {kept}, and the next run with -p live yes goes on from there") from None
        date = datetime.now(UTC).isoformat(timespec="seconds")
        waiting.append(Result(query, date, tuple(pages)))
        if any(page.text for page in pages) or query == queries[-1]:
            while waiting:
                snapshot.save(waiting.pop(0))
