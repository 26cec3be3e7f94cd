"""Live search: a provider's pages are fetched and read, and each query's result is frozen as it arrives."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from covrag_lite import config
from covrag_lite.retrieval.web.connection import Reply
from covrag_lite.retrieval.web.errors import PageError, SearchError
from covrag_lite.retrieval.web.extraction import Extractor
from covrag_lite.retrieval.web.pages import TITLE, clean, read_page
from covrag_lite.retrieval.web.providers import PROVIDERS, Hit
from covrag_lite.retrieval.web.snapshot import Page, Result, Snapshot, now
from covrag_lite.retrieval.web.visiting import Visitor
from covrag_lite.runs.progress import track

HOSTS = 8  # asked at once; the pages of one host come one after the other
EMPTY = 5  # queries in a row without a single passage: then it is not the queries


def go_live(queries: Sequence[str], snapshot: Snapshot, settings: config.Retrieval) -> list[Result]:
    """Search for the queries one after the other and freeze what is found.

    A result without a passage waits for the next one that has some: where they come in a row, something is wrong out
    there, and freezing them would turn a failure into a result.
    """
    find = PROVIDERS[snapshot.provider]
    visitor = Visitor(settings.private_pages == "yes")
    made, held = [], []
    with Extractor() as extractor:
        for query in track(queries, f"web search ({snapshot.provider})", "search", len(queries)):
            visitor.wait(snapshot.provider, visitor.limits.pause)
            try:
                pages = look_up(query, find, settings.n_pages, visitor, extractor)
                if len(held) == EMPTY - 1 and not any(page.text for page in pages):
                    raise SearchError(f"{snapshot.provider}: nothing was found for {EMPTY} queries in a row")
            except SearchError as error:
                kept = f"{len(made)} of {len(queries)} new queries are frozen in {snapshot.folder}"
                sentence = f"{error}; {kept}, and the next run with -p live yes goes on from there"
                raise SearchError(sentence) from None
            held.append(Result(query, snapshot.provider, now(), settings.n_pages, tuple(pages)))
            if any(page.text for page in pages) or query == queries[-1]:
                for one in held:
                    snapshot.save(one)
                made, held = made + held, []
    return made


def look_up(
    query: str, find: Callable[[str, int], list[Hit]], n_pages: int, visitor: Visitor, extractor: Extractor
) -> list[Page]:
    """The provider's pages for a query, in its order, each with its text or the reason why there is none."""
    hits = find(query, n_pages)[:n_pages]
    replies = fetch_all([hit.url for hit in hits], visitor)
    pages = []
    for hit in hits:
        reply = replies[hit.url]
        try:
            if isinstance(reply, PageError):
                raise reply
            title, text = read_page(reply, extractor)
            pages.append(Page(hit.url, title or clean(hit.title)[:TITLE], text))
        except PageError as error:
            pages.append(Page(hit.url, failed=str(error)))
    return pages


def fetch_all(urls: Sequence[str], visitor: Visitor) -> dict[str, Reply | PageError]:
    """Every page or why it could not be had; several hosts at once, the pages of one host one after the other."""
    hosts: dict[str, list[str]] = {}
    for url in urls:
        hosts.setdefault(host_of(url), []).append(url)

    def fetch_host(own: Sequence[str]) -> dict[str, Reply | PageError]:
        made = {}
        for url in own:
            try:
                made[url] = visitor.fetch(url)
            except PageError as error:
                made[url] = error
        return made

    with ThreadPoolExecutor(HOSTS) as pool:
        return {url: reply for part in pool.map(fetch_host, hosts.values()) for url, reply in part.items()}


def host_of(url: str) -> str:
    """The host in an address; nothing where it is no address."""
    try:
        return urlsplit(url).netloc.lower()
    except ValueError:
        return ""
