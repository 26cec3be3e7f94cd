"""Search engines: a function from a query to rows, and one entry in PROVIDERS with the name of the rows' address.

Keys and SearXNG's address come from the environment alone, and reach no file, no manifest and no error. The guard is
for the pages that a provider names, not for the provider: a SearXNG may well run on one's own machine.
"""

import os
import time

import httpx2

SERPER = "https://google.serper.dev/search"
BACKEND = "duckduckgo"  # of ddgs, which would otherwise mix several engines at random
TIMEOUT = 30  # seconds
PAUSES = (5.0, 20.0)  # seconds, before a busy provider is asked again
BUSY = (429, 500, 502, 503, 504)


class SearchError(RuntimeError):
    """A provider cannot be asked, or a result is not in the snapshot; what was frozen before is kept."""


def ddgs(query: str, n: int) -> list[dict]:
    """Search DuckDuckGo, without a key."""
    from ddgs import DDGS
    from ddgs.exceptions import DDGSException

    try:
        return DDGS(timeout=TIMEOUT).text(query, max_results=n, backend=BACKEND)
    except DDGSException as error:
        if str(error).startswith("No results"):
            return []
        raise ConnectionError("it did not answer in time, refuses to answer, or asks for fewer queries") from None


def serper(query: str, n: int) -> list[dict]:
    """Search Google by serper.dev; the key comes from SERPER_API_KEY."""
    key = os.environ.get("SERPER_API_KEY", "").strip()
    if not key or not key.isascii():
        raise SearchError("it needs a key in the environment variable SERPER_API_KEY")
    reply = httpx2.post(SERPER, headers={"X-API-KEY": key}, json={"q": query, "num": n}, timeout=TIMEOUT)
    body = reply.raise_for_status().json()
    return body.get("organic", []) if "searchParameters" in body else body["organic"]


def searxng(query: str, n: int) -> list[dict]:
    """Search a SearXNG server; its address, with user and password if need be, comes from SEARXNG_URL."""
    server = httpx2.URL(os.environ.get("SEARXNG_URL", "").rstrip("/") + "/search")
    if server.scheme not in ("http", "https"):
        raise SearchError("set SEARXNG_URL to the server's address, which starts with http:// or https://")
    user = (server.username, server.password) if server.userinfo else None
    asked = {"q": query, "format": "json"}
    reply = httpx2.get(server.copy_with(userinfo=b""), params=asked, auth=user, timeout=TIMEOUT)
    body = reply.raise_for_status().json()
    if body["results"] == [] and body.get("unresponsive_engines"):
        raise SearchError("none of the engines behind it answered")
    return body["results"]


def find(provider: str, query: str, n: int) -> dict[str, str]:
    """Return the first n pages that a provider finds, each once, address to title; a refusal stops the run."""
    search, address = PROVIDERS[provider]
    for pause in (*PAUSES, None):
        is_busy = False
        try:
            titles = {row[address].strip(): str(row.get("title") or "") for row in search(query, n)}
            return dict(list(titles.items())[:n])
        except (SearchError, ConnectionError) as error:
            told, is_busy = str(error), isinstance(error, ConnectionError)
        except httpx2.HTTPStatusError as error:
            status = error.response.status_code
            told, is_busy = f"it answered with status {status}; check its key or address", status in BUSY
        except httpx2.TransportError:
            told = "the connection failed or broke off"
        except (httpx2.InvalidURL, ValueError, KeyError, TypeError, AttributeError):
            told = "it answered in a form that is not known here; it has changed, or moved elsewhere"
        if not is_busy or pause is None:  # outside of `except`: the error may hold the request, and so a key
            raise SearchError(f"{provider}: {told}")
        time.sleep(pause)


PROVIDERS = {"ddgs": (ddgs, "href"), "serper": (serper, "link"), "searxng": (searxng, "url")}
