"""Fetching pages: guarded against private addresses, bounded in time and size, as robots.txt allows.

A host name is resolved once; the guard checks every address that came out, and the connection goes to one of these, so
that a name which means another address a moment later gains nothing. Every redirect is checked likewise. No error holds
text of a stranger unless `show` has quoted it.
"""

import asyncio
import ipaddress
import socket
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass

import httpx2
from protego import Protego

NAME = "covrag_lite"  # our user agent in a robots.txt
AGENT = "covrag_lite/0.1 (research on question answering; fetches a few pages a question)"
TYPES = ("text/html", "application/xhtml+xml", "text/plain")
HEADERS = {"User-Agent": AGENT, "Accept": ", ".join(TYPES), "Accept-Encoding": "identity", "Connection": "close"}
BUSY = (429, 500, 502, 503, 504)
REDIRECTS = (301, 302, 303, 307, 308)
ROBOTS_WORK = 1_000_000  # user agents times lines of a robots.txt, the parser's worst case
UNICAST = ipaddress.ip_network("2000::/3")  # all of IPv6 that is given out to hosts of the internet
LONGEST_URL = 2000  # characters


@dataclass(frozen=True)
class Limits:
    """What a page may cost; seconds unless said otherwise."""

    connect: float = 5.0
    total: float = 30.0  # for a whole request, however slowly it drips
    size: int = 5_000_000  # bytes of a page; large pages of Wikipedia have three million
    redirects: int = 5
    tries: int = 3  # to connect, and to ask a busy server
    pause: float = 1.0  # between two requests to a host; doubles before each further try
    longest_pause: float = 20.0  # that a robots.txt or a busy server may ask for


LIMITS = Limits()


class PageError(Exception):
    """A page cannot be had; the sentence says why and is frozen in the page's place."""


@dataclass(frozen=True)
class Reply:
    """A server's answer; it has a body only where the status is 200."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


def show(text: str) -> str:
    """Quote a stranger's text for an error: plain ASCII on one line, at most 100 characters."""
    return ascii(text if len(text) <= 100 else f"{text[:100]}...")


def parse(url: str, base: str | httpx2.URL = "") -> httpx2.URL:
    """Parse a URL; refuse all but http and https to a named host, without a user's name."""
    try:
        made = httpx2.URL(base).join(url.strip())
        known = made.scheme in ("http", "https") and made.host and not made.userinfo and (made.port or 0) < 2**16
    except (httpx2.InvalidURL, ValueError):
        known = False
    if not known or len(url) > LONGEST_URL:
        allowed = f"http or https, a host, no user, at most {LONGEST_URL:,} characters"
        raise PageError(f"{show(url)} is no address of a page ({allowed})")
    return made


def is_public(address: str) -> bool:
    """Is this a host of the internet? Private, loopback, link-local, multicast and reserved addresses are not.

    Nor is IPv6 that carries an IPv4 address (mapped, NAT64, 6to4, Teredo).
    """
    ip = ipaddress.ip_address(address)
    carries_another = ip.version == 6 and (ip not in UNICAST or ip.sixtofour is not None)
    return ip.is_global and not ip.is_multicast and not carries_another


class Guarded(httpx2.AsyncHTTPTransport):
    """Connects to an address of the host that was checked; the host is refused as soon as one of them is not public."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        host = request.url.raw_host.decode()
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, request.url.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise PageError(f"the name {show(host)} has no address") from None
        addresses = [str(one[4][0]) for one in found]
        for address in addresses:
            if not is_public(address):
                raise PageError(f"{show(host)} is {address}, which is no public address")
        request.extensions["sni_hostname"] = host  # which the certificate must name
        request.url = request.url.copy_with(host=addresses[0])  # the system sorts them, the likeliest first
        return await super().handle_async_request(request)


async def request(guarded: Guarded, url: httpx2.URL, types: Iterable[str] | None = None) -> Reply:
    """Send one request; follow no redirect, and read no body of another type than these."""
    sent = httpx2.Request("GET", url, headers=HEADERS, extensions={"timeout": {"connect": LIMITS.connect}})
    try:
        async with asyncio.timeout(LIMITS.total), aclosing(await guarded.handle_async_request(sent)) as reply:
            body = await read_body(reply, types) if reply.status_code == 200 else b""
            return Reply(reply.status_code, reply.headers, body)
    except (TimeoutError, httpx2.TimeoutException):
        told = f"it did not answer in time ({LIMITS.connect:g} s to connect, {LIMITS.total:g} s in all)"
    except httpx2.NetworkError:
        told = "the connection failed or broke off"
    except (httpx2.ProtocolError, ValueError):
        told = "it answered with something that is no proper HTTP, or less than it said"
    raise PageError(told)


async def read_body(reply: httpx2.Response, types: Iterable[str] | None) -> bytes:
    """Read a body; refuse one of another type, a packed one, which may unpack to any size, and one over the limit."""
    named = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
    if types is not None and named not in types:
        raise PageError(f"it is {show(named) if named else 'of no named type'}, not a page of text")
    if reply.headers.get("content-encoding", "").strip().lower() not in ("", "identity"):
        raise PageError("it is packed, which was not asked for")
    body = bytearray()
    async for chunk in reply.aiter_raw():
        body += chunk
        if len(body) > LIMITS.size:
            raise PageError(f"it is larger than {LIMITS.size:,} bytes")
    if types is not None and (body.startswith(b"%PDF-") or b"\0\0" in body[:1000]):  # UTF-16 has single zeros
        raise PageError("it says that it is text, but it is not")
    return bytes(body)


class Crawler:
    """Fetches pages, one at a time of each host; remembers the hosts' robots.txt and when they were last asked."""

    def __init__(self):
        self.robots: dict[httpx2.URL, Protego] = {}
        self.asked: dict[bytes, float] = {}

    def fetch(self, urls: Iterable[str]) -> list[Reply | PageError]:
        """Fetch pages of text together; return the error in the place of one that cannot be had."""

        async def fetch_all() -> list[Reply | PageError]:
            locks, once = defaultdict(asyncio.Lock), httpx2.Limits(max_keepalive_connections=0)
            # No connection is used twice: one address may stand for many names.
            async with Guarded(retries=LIMITS.tries - 1, limits=once) as guarded:
                return await asyncio.gather(*(self.fetch_page(guarded, url, locks) for url in urls))

        with ThreadPoolExecutor(1) as own_thread:  # a notebook's has an event loop already
            return own_thread.submit(asyncio.run, fetch_all()).result()

    async def fetch_page(self, guarded: Guarded, url: str, locks: dict[bytes, asyncio.Lock]) -> Reply | PageError:
        """Fetch a page, after redirects; ask a busy server again after the pause that it wishes, or one of ours."""
        try:
            place = parse(url)
            async with locks[place.netloc]:
                for number in range(LIMITS.tries):
                    reply = await self.follow(guarded, place, TYPES)
                    wished = reply.headers.get("retry-after", "").strip()
                    pause = float(wished) if wished.isdecimal() else LIMITS.pause * 2**number
                    if reply.status not in BUSY or number == LIMITS.tries - 1 or pause > LIMITS.longest_pause:
                        break
                    await asyncio.sleep(pause)
        except PageError as error:
            return error
        return reply if reply.status == 200 else PageError(f"it answered with status {reply.status}")

    async def follow(self, guarded: Guarded, url: httpx2.URL, types: Iterable[str] | None) -> Reply:
        """Follow redirects to a reply; each is checked as the first address was. A robots.txt has no types."""
        for _ in range(LIMITS.redirects + 1):
            pause = await self.check_robots(guarded, url) if types else 0.0
            earliest = self.asked.get(url.netloc, float("-inf")) + max(pause, LIMITS.pause)
            self.asked[url.netloc] = max(earliest, time.monotonic())
            await asyncio.sleep(self.asked[url.netloc] - time.monotonic())
            reply = await request(guarded, url, types)
            if reply.status not in REDIRECTS:
                return reply
            url = parse(reply.headers.get("location", ""), url)
        raise PageError(f"it redirects more than {LIMITS.redirects} times")

    async def check_robots(self, guarded: Guarded, url: httpx2.URL) -> float:
        """Return the pause that the host's robots.txt asks for; refuse a page that it forbids.

        A missing one allows all, an unreachable one forbids all (RFC 9309).
        """
        home = url.join("/robots.txt")
        if home not in self.robots:
            reply = await self.follow(guarded, home, None)
            if reply.status == 429 or reply.status >= 500:
                raise PageError(f"its robots.txt cannot be had (status {reply.status})")
            text = reply.body.decode("utf-8", "replace")
            if text.lower().count("agent") * text.count("\n") > ROBOTS_WORK:
                raise PageError("its robots.txt is too long to be read")
            self.robots[home] = Protego.parse(text)
        if not self.robots[home].can_fetch(str(url), NAME):
            raise PageError("its robots.txt does not allow it")
        pause = self.robots[home].crawl_delay(NAME) or 0.0
        if pause > LIMITS.longest_pause:
            raise PageError(f"its robots.txt asks for {pause:g} s between two pages")
        return pause
