"""Search engines: a function from a query to rows, and one entry in PROVIDERS with the name of the rows' address.

Keys and SearXNG's address come from the environment alone, and reach no file, no manifest and no error. The guard is
for the pages that a provider names, not for the provider: a SearXNG may well run on one's own machine.
"""

import base64
import json
import os
from urllib.parse import urlencode, urlsplit

import covrag_lite.retrieval.web.fetch as fetch
from covrag_lite.retrieval.web.fetch import PageError
from covrag_lite.retrieval.web.snapshot import SearchError

ADDRESSES = {
    "brave": "https://api.search.brave.com/res/v1/web/search",
    "serper": "https://google.serper.dev/search",
}
BACKEND = "duckduckgo"  # of ddgs, which would otherwise mix several engines at random


def ddgs(query: str, n: int) -> list[dict]:
    """Search DuckDuckGo, without a key."""
    from ddgs import DDGS
    from ddgs.exceptions import DDGSException

    try:
        return DDGS(timeout=round(fetch.LIMITS.read)).text(query, max_results=n, backend=BACKEND)
    except DDGSException as error:
        if str(error).startswith("No results"):
            return []
        raise PageError("it did not answer in time, refuses to answer, or asks for fewer queries") from None


def brave(query: str, n: int) -> list[dict]:
    """Search Brave; the key comes from BRAVE_API_KEY."""
    url = f"{ADDRESSES['brave']}?{urlencode({'q': query, 'count': n})}"
    headers = {"X-Subscription-Token": key_of("BRAVE_API_KEY"), "Accept": "application/json"}
    body = ask(url, headers, "BRAVE_API_KEY")
    nothing = body["type"] == "search" and "web" not in body
    return [] if nothing else body["web"]["results"]


def serper(query: str, n: int) -> list[dict]:
    """Search Google by serper.dev; the key comes from SERPER_API_KEY."""
    headers = {"X-API-KEY": key_of("SERPER_API_KEY"), "Content-Type": "application/json"}
    content = json.dumps({"q": query, "num": n}).encode()
    body = ask(ADDRESSES["serper"], headers, "SERPER_API_KEY", content)
    return body.get("organic", []) if "searchParameters" in body else body["organic"]


def searxng(query: str, n: int) -> list[dict]:
    """Search a SearXNG server; its address, with user and password if need be, comes from SEARXNG_URL."""
    parts = urlsplit(os.environ.get("SEARXNG_URL", ""))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise PageError("set SEARXNG_URL to the server's address, which starts with http:// or https://")
    user, at, host = parts.netloc.rpartition("@")
    headers = {"Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"} if at else {}
    url = f"{parts.scheme}://{host}{parts.path.rstrip('/')}/search?{urlencode({'q': query, 'format': 'json'})}"
    body = ask(url, headers, "SEARXNG_URL, and whether the server may give JSON")
    if body["results"] == [] and body.get("unresponsive_engines"):
        raise PageError("none of the engines behind it answered")
    return body["results"]


def key_of(variable: str) -> str:
    """Return the key in this environment variable."""
    key = os.environ.get(variable, "").strip()
    if not key or not key.isascii():
        raise PageError(f"it needs a key in the environment variable {variable}")
    return key


def ask(url: str, headers: dict[str, str], key: str, content: bytes | None = None) -> dict:
    """Return a provider's answer, which is JSON; every refusal is a sentence of our own, without the key."""
    reply = fetch.ask_patiently(lambda: fetch.request(url, headers=headers, content=content, guarded=False))
    if reply.status != 200:
        cure = f"; check {key}" if reply.status in (401, 403, 404) else ""
        raise PageError(f"it answered with status {reply.status}{cure}")
    return json.loads(reply.body)


def find(provider: str, query: str, n: int) -> dict[str, str]:
    """Return the first n pages that a provider finds, each once, address to title; a refusal stops the run."""
    search, address = PROVIDERS[provider]
    try:
        titles = {row[address].strip(): str(row.get("title") or "") for row in search(query, n)}
        return dict(list(titles.items())[:n])
    except PageError as error:
        sentence = f"{provider}: {error}"
    except (ValueError, KeyError, TypeError, AttributeError):
        sentence = f"{provider}: it answered in a form that is not known here; it has changed, or moved elsewhere"
    raise SearchError(sentence)  # outside of `except`: the error may hold the request, and so a key


PROVIDERS = {"ddgs": (ddgs, "href"), "brave": (brave, "url"), "serper": (serper, "link"), "searxng": (searxng, "url")}
