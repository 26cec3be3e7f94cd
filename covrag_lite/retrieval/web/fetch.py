"""Fetching pages: guarded against private addresses, bounded in time and size, as robots.txt allows.

A host name is resolved once; the guard checks every address that came out, and the connection goes to one of these, so
that a name which means another address a moment later gains nothing. Every redirect is checked likewise. No error holds
text of a stranger unless `show` has quoted it.
"""

import ipaddress
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

import httpcore
from protego import Protego

NAME = "covrag_lite"  # our user agent in a robots.txt
AGENT = "covrag_lite/0.1 (research on question answering; fetches a few pages a question)"
TYPES = ("text/html", "application/xhtml+xml", "text/plain")
BUSY = (429, 500, 502, 503, 504)
REDIRECTS = (301, 302, 303, 307, 308)
ROBOTS_WORK = 1_000_000  # user agents times lines of a robots.txt, the parser's worst case
UNICAST = ipaddress.ip_network("2000::/3")  # all of IPv6 that is given out to hosts of the internet
LONGEST_URL = 2000  # characters
URL_CHARACTERS = "%/:=&?~+!$,;'@()*[]"  # those that stand unquoted
certificates = cache(httpcore.default_ssl_context)  # the trusted ones, loaded once


@dataclass(frozen=True)
class Limits:
    """What a page may cost; seconds unless said otherwise."""

    connect: float = 5.0
    read: float = 10.0  # without a byte
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
    headers: dict[str, str]  # names in lower case
    body: bytes = b""

    @property
    def type(self) -> str:
        """The media type, such as text/html."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


def show(text: str) -> str:
    """Quote a stranger's text for an error: plain ASCII on one line, at most 100 characters."""
    return ascii(text if len(text) <= 100 else f"{text[:100]}...")


def is_public(address: str) -> bool:
    """Is this a host of the internet? Private, loopback, link-local, multicast and reserved addresses are not.

    Nor is IPv6 that carries an IPv4 address (mapped, NAT64, 6to4, Teredo).
    """
    ip = ipaddress.ip_address(address)
    carries_another = ip.version == 6 and (ip not in UNICAST or ip.sixtofour is not None)
    return ip.is_global and not ip.is_multicast and not carries_another


def resolve(host: str, port: int, guarded: bool = True) -> list[str]:
    """Resolve a host's addresses; a guarded one is refused as soon as one of them is not public."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise PageError(f"the name {show(host)} has no address") from None
    addresses = list(dict.fromkeys(str(one[4][0]) for one in found))
    for address in addresses:
        if guarded and not is_public(address):
            raise PageError(f"{show(host)} is {address}, which is no public address")
    return addresses


def normalize(url: str, base: str = "") -> str:
    """Rewrite a URL in plain ASCII; refuse all but http and https to a named host, without a user's name."""
    try:
        parts = urlsplit(urljoin(base, url.strip()))
        host, port = (parts.hostname or "").encode("idna").decode(), parts.port
        path, query = quote(parts.path, URL_CHARACTERS) or "/", quote(parts.query, URL_CHARACTERS)
        known = parts.scheme in ("http", "https") and host and "@" not in parts.netloc and len(url) <= LONGEST_URL
    except ValueError:  # a UnicodeError is one too
        known = False
    if not known:
        allowed = f"http or https, a host, no user, at most {LONGEST_URL:,} characters"
        raise PageError(f"{show(url)} is no address of a page ({allowed})")
    place = f"[{host}]" if ":" in host else host
    return urlunsplit((parts.scheme, place if port is None else f"{place}:{port}", path, query, ""))


class Timed(httpcore.NetworkStream):
    """A connection on which nothing is read after the deadline, however slowly it drips."""

    def __init__(self, stream: httpcore.NetworkStream, deadline: float):
        self.stream = stream
        self.deadline = deadline
        self.write, self.close, self.get_extra_info = stream.write, stream.close, stream.get_extra_info

    def read(self, max_bytes: int, timeout: float) -> bytes:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise httpcore.ReadTimeout("the deadline has passed")
        return self.stream.read(max_bytes, min(left, timeout))

    def start_tls(self, *how: object, **named: object) -> "Timed":
        return Timed(self.stream.start_tls(*how, **named), self.deadline)


@dataclass
class Guarded(httpcore.SyncBackend):
    """Connects to addresses that `resolve` has checked."""

    guarded: bool
    deadline: float

    def connect_tcp(self, host: str, port: int, timeout: float, **options: object) -> Timed:
        for address in resolve(host, port, self.guarded):
            left = min(timeout, max(self.deadline - time.monotonic(), 0.001))
            try:
                return Timed(super().connect_tcp(address, port, left, **options), self.deadline)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
        raise failed


def request(
    url: str,
    types: Iterable[str] | None = None,
    headers: Mapping[str, str] | None = None,
    content: bytes | None = None,
    guarded: bool = True,
) -> Reply:
    """Send one request, a POST if it has content; follow no redirect, and read no body of another type than these."""
    url = normalize(url)
    backend = Guarded(guarded, time.monotonic() + LIMITS.total)
    sent = {"Host": urlsplit(url).netloc, "User-Agent": AGENT, "Accept": ", ".join(types or ["*/*"])}
    sent |= {"Accept-Encoding": "identity", "Connection": "close"} | dict(headers or {})
    timeout = {"connect": LIMITS.connect, "read": LIMITS.read, "write": LIMITS.read, "pool": LIMITS.connect}
    method = "GET" if content is None else "POST"
    try:
        with (
            httpcore.ConnectionPool(certificates(), retries=LIMITS.tries - 1, network_backend=backend) as pool,
            pool.stream(method, url, headers=sent, content=content, extensions={"timeout": timeout}) as stream,
        ):
            named = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in stream.headers}
            reply = Reply(stream.status, named)
            body = read_body(reply, types, stream.iter_stream()) if reply.status == 200 else b""
            return replace(reply, body=body)
    except httpcore.TimeoutException:
        trouble = PageError(f"it did not answer in time ({LIMITS.connect:g} s to connect, {LIMITS.total:g} s in all)")
    except httpcore.NetworkError:
        trouble = PageError("the connection failed or broke off")
    except (httpcore.ProtocolError, ValueError):
        trouble = PageError("it answered with something that is no proper HTTP, or less than it said")
    raise trouble  # outside of `except`: the client's own error may hold the request, and so a key


def read_body(reply: Reply, types: Iterable[str] | None, chunks: Iterable[bytes]) -> bytes:
    """Read a body; refuse one of another type, a packed one, which may unpack to any size, and one over the limit."""
    if types is not None and reply.type not in types:
        raise PageError(f"it is {show(reply.type) if reply.type else 'of no named type'}, not a page of text")
    if reply.headers.get("content-encoding", "").strip().lower() not in ("", "identity"):
        raise PageError("it is packed, which was not asked for")
    body = bytearray()
    for chunk in chunks:
        body += chunk
        if len(body) > LIMITS.size:
            raise PageError(f"it is larger than {LIMITS.size:,} bytes")
    if types is not None and (body.startswith(b"%PDF-") or b"\0\0" in body[:1000]):  # UTF-16 has single zeros
        raise PageError("it says that it is text, but it is not")
    return bytes(body)


def ask_patiently(once: Callable[[], Reply]) -> Reply:
    """Ask a busy server again after the pause that it wishes, or one of ours, unless it wishes too long a one."""
    for number in range(LIMITS.tries):
        reply = once()
        wished = reply.headers.get("retry-after", "").strip()
        pause = float(wished) if wished.isdecimal() else LIMITS.pause * 2**number
        if reply.status not in BUSY or number == LIMITS.tries - 1 or pause > LIMITS.longest_pause:
            break
        time.sleep(pause)
    return reply


class Crawler:
    """Fetches pages, one at a time of each host; remembers the hosts' robots.txt and when they were last asked."""

    def __init__(self):
        self.locks: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self.robots: dict[str, Protego] = {}
        self.asked: dict[str, float] = {}

    def fetch(self, url: str) -> Reply | PageError:
        """Fetch a page of text, after redirects and further tries; return the error where it cannot be had."""
        try:
            with self.locks[urlsplit(normalize(url)).netloc]:
                reply = ask_patiently(lambda: self.follow(url, TYPES, obey=True))
        except PageError as error:
            return error
        return reply if reply.status == 200 else PageError(f"it answered with status {reply.status}")

    def follow(self, url: str, types: Iterable[str] | None, obey: bool) -> Reply:
        """Follow redirects to a reply; each is checked as the first address was."""
        url = normalize(url)
        for _ in range(LIMITS.redirects + 1):
            pause = self.check_robots(url) if obey else 0.0
            self.wait(urlsplit(url).netloc, max(pause, LIMITS.pause))
            reply = request(url, types)
            if reply.status not in REDIRECTS:
                return reply
            url = normalize(reply.headers.get("location", ""), url)
        raise PageError(f"it redirects more than {LIMITS.redirects} times")

    def wait(self, host: str, pause: float) -> None:
        """Sleep until this host may be asked again."""
        time.sleep(max(0.0, self.asked.get(host, float("-inf")) + pause - time.monotonic()))
        self.asked[host] = time.monotonic()

    def check_robots(self, url: str) -> float:
        """Return the pause that the host's robots.txt asks for; refuse a page that it forbids.

        A missing one allows all, an unreachable one forbids all (RFC 9309).
        """
        home = urljoin(url, "/robots.txt")
        if home not in self.robots:
            reply = self.follow(home, None, obey=False)
            if reply.status == 429 or reply.status >= 500:
                raise PageError(f"its robots.txt cannot be had (status {reply.status})")
            text = reply.body.decode("utf-8", "replace")
            if text.lower().count("agent") * text.count("\n") > ROBOTS_WORK:
                raise PageError("its robots.txt is too long to be read")
            self.robots[home] = Protego.parse(text)
        if not self.robots[home].can_fetch(url, NAME):
            raise PageError("its robots.txt does not allow it")
        pause = self.robots[home].crawl_delay(NAME) or 0.0
        if pause > LIMITS.longest_pause:
            raise PageError(f"its robots.txt asks for {pause:g} s between two pages")
        return pause
