"""Fetching pages: no private addresses, limited time and size, and only what robots.txt allows.

A host name is resolved once. All its addresses are checked, and the connection uses one of them, so
a name that changes its address a moment later has no effect. Every redirect is checked in the same
way. No error contains text from a page.
"""

import asyncio
import ipaddress
import socket
import time
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing

import httpx2
from httpx2 import URL, AsyncClient, Response
from protego import Protego

NAME = "covrag_lite"  # our user agent in a robots.txt
AGENT = "covrag_lite/0.1 (research on question answering; fetches a few pages per question)"
TYPES = ("text/html", "application/xhtml+xml", "text/plain")
HEADERS = {
    "User-Agent": AGENT,
    "Accept": ", ".join(TYPES),
    "Accept-Encoding": "identity",
    "Connection": "close",
}
ROBOTS_WORK = 1_000_000  # user agents times lines of a robots.txt: the parser's worst case
UNICAST = ipaddress.ip_network("2000::/3")  # the part of IPv6 that is assigned to internet hosts
# The limits for a page, in seconds, except for its size.
SILENCE = 10.0  # before an answer begins or continues
TOTAL = 60.0  # with robots.txt, redirects and pauses, however slowly data arrives
PAUSE = 1.0  # between two requests to a host, unless its robots.txt asks for more
SIZE = 5_000_000  # bytes per page; large pages of Wikipedia have three million
REDIRECTS = 5
BEGINNING = 1000  # bytes in which the content of a text shows that it is none


class PageError(Exception):
    """A page could not be fetched; the message says why and is frozen in place of the page."""


def is_public(address: str) -> bool:
    """Return whether this is the address of an internet host.

    Private, loopback, link-local, multicast and reserved addresses are not, nor is an IPv6 address
    that contains an IPv4 address (mapped, NAT64, 6to4, Teredo).
    """
    ip = ipaddress.ip_address(address)
    contains_another = ip.version == 6 and (ip not in UNICAST or ip.sixtofour is not None)
    return ip.is_global and not ip.is_multicast and not contains_another


class Guarded(httpx2.AsyncHTTPTransport):
    """Connects only to checked addresses; a host with an address that is not public is refused."""

    async def handle_async_request(self, request: httpx2.Request) -> Response:
        host = request.url.raw_host.decode()
        try:
            resolved = await asyncio.get_running_loop().getaddrinfo(
                host, request.url.port, type=socket.SOCK_STREAM
            )
        except (OSError, UnicodeError):
            raise PageError("its host has no address") from None
        addresses = [str(socket_address[0]) for *_, socket_address in resolved]
        for address in addresses:
            if not is_public(address):
                raise PageError(f"its host is {address}, which is not a public address")
        # The system puts the best address first; the certificate has the host's name.
        checked = httpx2.Request(
            request.method,
            request.url.copy_with(host=addresses[0]),
            headers=request.headers,
            extensions=request.extensions | {"sni_hostname": host},
        )
        return await super().handle_async_request(checked)


async def read_body(reply: Response, types: Iterable[str]) -> bytes:
    """Read a body; refuse other types, compressed bodies (which may expand) and too large ones."""
    content_type = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_other = bool(types) and content_type not in types
    is_compressed = reply.headers.get("content-encoding", "identity") != "identity"
    if is_other or is_compressed:
        raise PageError("it is compressed, or not a page of text")
    body = bytearray()
    async for chunk in reply.aiter_raw():
        body += chunk
        if len(body) > SIZE:
            raise PageError(f"it is larger than {SIZE:,} bytes")
    is_binary = body.startswith(b"%PDF-") or b"\0\0" in body[:BEGINNING]  # UTF-16 has single zeros
    if types and is_binary:
        raise PageError("its type is text, but its content is not")
    return bytes(body)


class Crawler:
    """Fetches pages, one at a time per host; remembers each robots.txt and the last request."""

    def __init__(self) -> None:
        self.robots: dict[URL, Protego] = {}
        self.last_request: dict[bytes, float] = {}  # host -> its time

    def fetch(self, urls: Iterable[str]) -> list[Response | PageError]:
        """Fetch pages in parallel; a page that fails is returned as its error."""

        async def fetch_all() -> list[Response | PageError]:
            once = httpx2.Limits(max_keepalive_connections=0)  # one address may have many names
            guarded = Guarded(retries=2, limits=once)
            locks: dict[bytes, asyncio.Lock] = defaultdict(asyncio.Lock)
            async with AsyncClient(transport=guarded, headers=HEADERS, timeout=SILENCE) as client:
                return await asyncio.gather(*(self.fetch_page(client, url, locks) for url in urls))

        with ThreadPoolExecutor(1) as thread:  # a notebook's thread already has an event loop
            return thread.submit(asyncio.run, fetch_all()).result()

    async def fetch_page(
        self, client: AsyncClient, url: str, locks: dict[bytes, asyncio.Lock]
    ) -> Response | PageError:
        """Fetch a page; an error of httpx2 becomes a PageError with its name."""
        try:
            place = URL(url)
            async with locks[place.netloc], asyncio.timeout(TOTAL):
                reply = await self.follow(client, place)
        except PageError as error:
            return error
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, ValueError) as error:
            return PageError(f"it could not be fetched ({type(error).__name__})")
        if reply.status_code != 200:
            return PageError(f"it answered with status {reply.status_code}")
        return reply

    async def follow(self, client: AsyncClient, url: URL, types: Iterable[str] = TYPES) -> Response:
        """Follow redirects to a reply, which has a body only if its status is 200.

        A robots.txt is fetched with `types` = ().
        """
        request = client.build_request("GET", url)
        for _ in range(REDIRECTS + 1):
            pause = await self.check_robots(client, request.url) if types else 0.0
            await self.wait(request.url.netloc, max(pause, PAUSE))
            async with aclosing(await client.send(request, stream=True)) as reply:
                body = await read_body(reply, types) if reply.status_code == 200 else b""
            if not reply.next_request:
                return Response(reply.status_code, headers=reply.headers, content=body)
            request = reply.next_request
        raise PageError(f"it redirects more than {REDIRECTS} times")

    async def wait(self, host: bytes, pause: float) -> None:
        """Wait until the pause since the last request to a host is over."""
        earliest = self.last_request.get(host, float("-inf")) + pause
        start = max(earliest, time.monotonic())
        self.last_request[host] = start
        await asyncio.sleep(start - time.monotonic())

    async def check_robots(self, client: AsyncClient, url: URL) -> float:
        """Refuse what robots.txt forbids and return the pause that it asks for.

        If robots.txt cannot be reached, everything is forbidden (RFC 9309).
        """
        home = url.join("/robots.txt")
        if home not in self.robots:
            reply = await self.follow(client, home, types=())
            if reply.status_code == 429 or reply.status_code >= 500:
                raise PageError(f"its robots.txt is not available (status {reply.status_code})")
            text = reply.content.decode("utf-8", "replace")
            if text.lower().count("agent") * text.count("\n") > ROBOTS_WORK:
                raise PageError("its robots.txt is too long")
            self.robots[home] = Protego.parse(text)
        if not self.robots[home].can_fetch(str(url), NAME):
            raise PageError("its robots.txt does not allow it")
        return self.robots[home].crawl_delay(NAME) or 0.0
