"""Search engines: functions from a query to rows; PROVIDERS also names the rows' address column.

Keys and SearXNG's address come only from the environment, and appear in no file, manifest or error.
Pages from a provider are checked for private addresses; the provider itself is not, because a
SearXNG may run on this machine.
"""

import os
import time

import httpx2

SERPER = "https://google.serper.dev/search"
BACKEND = "duckduckgo"  # otherwise ddgs would choose several engines at random
TIMEOUT = 30  # seconds
PAUSES = (5.0, 20.0)  # seconds before a busy provider is asked again
BUSY = (429, 500, 502, 503, 504)


class SearchError(RuntimeError):
    """A provider failed, or a result is not in the snapshot; results frozen before are kept."""


def ddgs(query: str, n: int) -> list[dict]:
    """Search DuckDuckGo, without a key."""
    from ddgs import DDGS
    from ddgs.exceptions import DDGSException

    try:
        return DDGS(timeout=TIMEOUT).text(query, max_results=n, backend=BACKEND)
    except DDGSException as error:
        if str(error).startswith("No results"):
            return []
        cause = "it did not answer in time, refused to answer, or allows fewer queries"
        raise ConnectionError(cause) from None


def serper(query: str, n: int) -> list[dict]:
    """Search Google with serper.dev; the key is in SERPER_API_KEY."""
    key = os.environ.get("SERPER_API_KEY", "").strip()
    if not key or not key.isascii():
        raise SearchError("it needs a key in the environment variable SERPER_API_KEY")
    reply = httpx2.post(
        SERPER, headers={"X-API-KEY": key}, json={"q": query, "num": n}, timeout=TIMEOUT
    )
    body = reply.raise_for_status().json()
    return body.get("organic", []) if "searchParameters" in body else body["organic"]


def searxng(query: str, n: int) -> list[dict]:
    """Search a SearXNG server; its address, with user and password if needed, is in SEARXNG_URL."""
    server = httpx2.URL(os.environ.get("SEARXNG_URL", "").rstrip("/") + "/search")
    if server.scheme not in ("http", "https"):
        raise SearchError("set SEARXNG_URL to the server's address, http://… or https://…")
    user = (server.username, server.password) if server.userinfo else None
    parameters = {"q": query, "format": "json"}
    address = server.copy_with(userinfo=b"")
    reply = httpx2.get(address, params=parameters, auth=user, timeout=TIMEOUT)
    body = reply.raise_for_status().json()
    if body["results"] == [] and body.get("unresponsive_engines"):
        raise SearchError("none of its search engines answered; try again later")
    return body["results"]


def find(provider: str, query: str, n: int) -> dict[str, str]:
    """Return the first n pages of a provider as {address: title}; a refusal is an error."""
    search, address = PROVIDERS[provider]
    for pause in (*PAUSES, None):
        is_busy = False
        try:
            titles = {row[address].strip(): str(row.get("title") or "") for row in search(query, n)}
            return dict(list(titles.items())[:n])
        except (SearchError, ConnectionError) as error:
            cause = str(error)
            is_busy = isinstance(error, ConnectionError)
        except httpx2.HTTPStatusError as error:
            status = error.response.status_code
            cause = f"it answered with status {status}; check its key or address"
            is_busy = status in BUSY
        except httpx2.TransportError:
            cause = "the connection failed; check the network"
        except (httpx2.InvalidURL, ValueError, KeyError, TypeError, AttributeError):
            cause = "its answer has an unknown form; its interface or address has changed"
        # Outside `except`: the error may contain the request, and so a key.
        if not is_busy or pause is None:
            raise SearchError(f"{provider}: {cause}")
        time.sleep(pause)


PROVIDERS = {"ddgs": (ddgs, "href"), "serper": (serper, "link"), "searxng": (searxng, "url")}
