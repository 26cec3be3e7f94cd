"""Search engines: a function from a query to rows, and one entry in PROVIDERS with the name of the rows' address.

Keys and SearXNG's address come from the environment alone, and reach no file, no manifest and no error. The guard is
for the pages that a provider names, not for the provider: a SearXNG may well run on one's own machine.
"""

import os
import time

import httpx2

import covrag_lite.retrieval.web.fetch as fetch
from covrag_lite.retrieval.web.fetch import BUSY, PageError
from covrag_lite.retrieval.web.snapshot import SearchError

SERPER = "https://google.serper.dev/search"
BACKEND = "duckduckgo"  # of ddgs, which would otherwise mix several engines at random


class Busy(PageError):
    """A provider that asks for fewer queries, or cannot answer just now."""


def ddgs(query: str, n: int) -> list[dict]:
    """Search DuckDuckGo, without a key."""
    from ddgs import DDGS
    from ddgs.exceptions import DDGSException

    try:
        return DDGS(timeout=round(fetch.LIMITS.total)).text(query, max_results=n, backend=BACKEND)
    except DDGSException as error:
        if str(error).startswith("No results"):
            return []
        raise Busy("it did not answer in time, refuses to answer, or asks for fewer queries") from None


def serper(query: str, n: int) -> list[dict]:
    """Search Google by serper.dev; the key comes from SERPER_API_KEY."""
    key = os.environ.get("SERPER_API_KEY", "").strip()
    if not key or not key.isascii():
        raise PageError("it needs a key in the environment variable SERPER_API_KEY")
    reply = httpx2.post(SERPER, headers={"X-API-KEY": key}, json={"q": query, "num": n}, timeout=fetch.LIMITS.total)
    body = read(reply, "SERPER_API_KEY")
    return body.get("organic", []) if "searchParameters" in body else body["organic"]


def searxng(query: str, n: int) -> list[dict]:
    """Search a SearXNG server; its address, with user and password if need be, comes from SEARXNG_URL."""
    server = httpx2.URL(os.environ.get("SEARXNG_URL", "").rstrip("/") + "/search")
    if server.scheme not in ("http", "https"):
        raise PageError("set SEARXNG_URL to the server's address, which starts with http:// or https://")
    user = (server.username, server.password) if server.userinfo else None
    asked = {"q": query, "format": "json"}
    reply = httpx2.get(server.copy_with(userinfo=b""), params=asked, auth=user, timeout=fetch.LIMITS.total)
    body = read(reply, "SEARXNG_URL, and whether the server may give JSON")
    if body["results"] == [] and body.get("unresponsive_engines"):
        raise PageError("none of the engines behind it answered")
    return body["results"]


def read(reply: httpx2.Response, key: str) -> dict:
    """Return a provider's answer, which is JSON."""
    if reply.status_code in BUSY:
        raise Busy(f"it answered with status {reply.status_code}")
    if reply.status_code != 200:
        cure = f"; check {key}" if reply.status_code in (401, 403, 404) else ""
        raise PageError(f"it answered with status {reply.status_code}{cure}")
    return reply.json()


def find(provider: str, query: str, n: int) -> dict[str, str]:
    """Return the first n pages that a provider finds, each once, address to title; a refusal stops the run.

    A busy provider is asked again, after longer and longer pauses.
    """
    search, address = PROVIDERS[provider]
    try:
        for number in range(fetch.LIMITS.tries):
            try:
                rows = search(query, n)
                break
            except Busy:
                if number == fetch.LIMITS.tries - 1:
                    raise
                time.sleep(fetch.LIMITS.longest_pause / 4 ** (fetch.LIMITS.tries - 2 - number))
        titles = {row[address].strip(): str(row.get("title") or "") for row in rows}
        return dict(list(titles.items())[:n])
    except PageError as error:
        told = str(error)
    except httpx2.TransportError:
        told = "the connection failed or broke off"
    except (httpx2.InvalidURL, ValueError, KeyError, TypeError, AttributeError):
        told = "it answered in a form that is not known here; it has changed, or moved elsewhere"
    raise SearchError(f"{provider}: {told}")  # outside of `except`: the error may hold the request, and so a key


PROVIDERS = {"ddgs": (ddgs, "href"), "serper": (serper, "link"), "searxng": (searxng, "url")}
