"""Search engines behind one small function, `find(query, n) -> hits`; a new one is a function and an entry.

Keys and SearXNG's address come from the environment alone, and reach no file, no manifest and no error. The guard is
for the pages that a provider names, not for the provider: a SearXNG may well run on one's own machine.
"""

import base64
import json
import os
from collections.abc import Callable
from functools import partial
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

import covrag_lite.retrieval.web.fetch as fetch
from covrag_lite.retrieval.web.fetch import BUSY, PageError, TryAgain, check_status
from covrag_lite.retrieval.web.snapshot import SearchError

ADDRESSES = {
    "brave": "https://api.search.brave.com/res/v1/web/search",
    "serper": "https://google.serper.dev/search",
}
BACKEND = "duckduckgo"  # of ddgs, which would otherwise mix several engines at random
CONTROL = "wikipedia"  # a query for which there always is something
UNKNOWN = "answered in a form that is not known here; it has changed, or its address leads elsewhere"


class Hit(NamedTuple):
    """A page that a provider found."""

    url: str
    title: str


def ddgs(query: str, n: int) -> list[Hit]:
    """Search DuckDuckGo, without a key."""
    from ddgs import DDGS
    from ddgs.exceptions import DDGSException, RatelimitException, TimeoutException

    def once(query: str) -> list[Hit]:
        try:
            rows = DDGS(timeout=round(fetch.LIMITS.read)).text(query, max_results=n, backend=BACKEND)
        except RatelimitException:
            raise TryAgain("it asks for fewer queries") from None
        except TimeoutException:
            raise TryAgain("it did not answer in time") from None
        except DDGSException as error:
            if str(error).startswith("No results"):
                return []
            raise TryAgain("the connection failed, or it refuses to answer") from None
        return to_hits("ddgs", rows, "href")

    hits = retry(partial(once, query), "ddgs")
    if not hits and not retry(partial(once, CONTROL), "ddgs"):  # it says so too when it refuses
        raise SearchError(f"ddgs: it finds nothing, not even for {CONTROL!r}, so it refuses to answer; wait a while")
    return hits


def brave(query: str, n: int) -> list[Hit]:
    """Search Brave; the key comes from BRAVE_API_KEY."""
    headers = {"X-Subscription-Token": key_of("brave", "BRAVE_API_KEY"), "Accept": "application/json"}
    url = f"{ADDRESSES['brave']}?{urlencode({'q': query, 'count': min(n, 20)})}"
    body = ask("brave", url, headers, key="BRAVE_API_KEY")
    if body.get("type") != "search" or not isinstance(body.get("web", {}), dict):
        raise SearchError(f"brave: it {UNKNOWN}")
    return to_hits("brave", body["web"].get("results") if "web" in body else [], "url")[:n]


def serper(query: str, n: int) -> list[Hit]:
    """Search Google by serper.dev; the key comes from SERPER_API_KEY."""
    headers = {"X-API-KEY": key_of("serper", "SERPER_API_KEY"), "Content-Type": "application/json"}
    content = json.dumps({"q": query, "num": n}).encode()
    body = ask("serper", ADDRESSES["serper"], headers, content, key="SERPER_API_KEY")
    if "searchParameters" not in body:
        raise SearchError(f"serper: it {UNKNOWN}")
    return to_hits("serper", body.get("organic", []), "link")[:n]


def searxng(query: str, n: int) -> list[Hit]:
    """Search a SearXNG server; its address, with user and password if need be, comes from SEARXNG_URL."""
    parts = urlsplit(os.environ.get("SEARXNG_URL", ""))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SearchError("searxng: set SEARXNG_URL to the server's address, which starts with http:// or https://")
    user, at, host = parts.netloc.rpartition("@")
    headers = {"Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"} if at else {}
    url = f"{parts.scheme}://{host}{parts.path.rstrip('/')}/search?{urlencode({'q': query, 'format': 'json'})}"
    body = ask("searxng", url, headers, key="SEARXNG_URL, or is not set up to give JSON")
    if body.get("results") == [] and body.get("unresponsive_engines"):
        raise SearchError("searxng: none of the engines behind it answered")
    return to_hits("searxng", body.get("results"), "url")[:n]


def key_of(provider: str, variable: str) -> str:
    """Return the key in this environment variable."""
    key = os.environ.get(variable, "").strip()
    if not key or not key.isascii():
        raise SearchError(f"{provider}: it needs a key in the environment variable {variable}")
    return key


def ask(provider: str, url: str, headers: dict[str, str], content: bytes | None = None, key: str = "") -> dict:
    """Return a provider's answer, which is JSON; every refusal is a sentence of our own, without the key."""

    def once() -> dict:
        reply = fetch.request(url, headers=headers, content=content, guarded=False)
        if reply.status in (401, 403):
            raise SearchError(f"{provider}: it refused the key in {key} (status {reply.status})")
        if reply.status != 200 and reply.status not in BUSY:
            raise SearchError(f"{provider}: it answered with status {reply.status}; is this its address?")
        check_status(reply)
        try:
            body = json.loads(reply.body)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise SearchError(f"{provider}: it {UNKNOWN}")
        return body

    return retry(once, provider)


def retry(once: Callable[[], list | dict], provider: str) -> list | dict:
    """Try several times, with pauses; what fails then stops the run."""
    try:
        return fetch.retry(once)
    except PageError as error:
        sentence = f"{provider}: {error}"
    raise SearchError(sentence)


def to_hits(provider: str, rows: object, address: str) -> list[Hit]:
    """Turn a provider's rows into hits, each page once."""
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and isinstance(row.get(address), str) for row in rows
    ):
        raise SearchError(f"{provider}: it {UNKNOWN}")
    hits = [Hit(row[address], row["title"] if isinstance(row.get("title"), str) else "") for row in rows]
    return list({hit.url: hit for hit in reversed(hits)}.values())[::-1]


PROVIDERS = {"ddgs": ddgs, "brave": brave, "serper": serper, "searxng": searxng}
