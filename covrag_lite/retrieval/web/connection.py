"""One request: to a checked address, within its time, no more bytes than allowed, packed or unpacked."""

import time
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from ssl import SSLContext
from urllib.parse import urlsplit

import httpcore

from covrag_lite.retrieval.web import addresses
from covrag_lite.retrieval.web.errors import PageError, TryAgain, show

NAME = "covrag_lite"  # that a robots.txt can call us by
AGENT = f"{NAME}/0.1 (research on question answering; fetches a few pages a question)"
PACKED = {"gzip", "x-gzip", "deflate"}
PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Limits:
    """What a page may cost; seconds unless said otherwise."""

    connect: float = 5.0  # until the server is there
    read: float = 10.0  # without a byte
    total: float = 30.0  # for one request in all, however slowly it drips
    size: int = 5_000_000  # bytes of a page, unpacked; large pages of Wikipedia have three million
    redirects: int = 5  # followed in a row
    tries: int = 3  # of a page whose server is busy or not there
    pause: float = 1.0  # between two requests to a host; before another try it doubles
    longest_pause: float = 20.0  # that a server may ask for


@dataclass(frozen=True)
class Reply:
    """What a server answered; the body only of status 200."""

    url: str
    status: int
    headers: dict[str, str]  # names in small letters
    body: bytes = b""

    @property
    def type(self) -> str:
        """The kind of content, as in text/html."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class Timed(httpcore.NetworkStream):
    """A connection whose every step must end before the deadline."""

    def __init__(self, stream: httpcore.NetworkStream, deadline: float):
        self.stream = stream
        self.deadline = deadline

    def left(self, timeout: float | None) -> float:
        """Seconds that the next step may take."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise httpcore.ReadTimeout("the deadline has passed")
        return left if timeout is None else min(left, timeout)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self.stream.read(max_bytes, self.left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self.stream.write(buffer, self.left(timeout))

    def close(self) -> None:
        self.stream.close()

    def start_tls(
        self, ssl_context: SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> "Timed":
        return Timed(self.stream.start_tls(ssl_context, server_hostname, self.left(timeout)), self.deadline)

    def get_extra_info(self, info: str) -> object:
        return self.stream.get_extra_info(info)


class Guarded(httpcore.NetworkBackend):
    """Connects to checked addresses alone."""

    def __init__(self, private: bool, deadline: float):
        self.private = private
        self.deadline = deadline

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable | None = None,
    ) -> Timed:
        plain = httpcore.SyncBackend()
        for address in addresses.resolve(host, port, self.private):
            left = min(timeout, max(self.deadline - time.monotonic(), 0.001))
            try:
                return Timed(plain.connect_tcp(address, port, left, None, socket_options or []), self.deadline)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
        raise failed


@cache
def trusted() -> SSLContext:
    """The certificates that are believed, loaded once."""
    return httpcore.default_ssl_context()


def request(
    url: str,
    limits: Limits,
    private: bool = False,
    types: Iterable[str] | None = None,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    content: bytes | None = None,
) -> Reply:
    """The reply to one request, no redirect followed; a body of another type than those named is not even read."""
    url = addresses.tidy(url)
    backend = Guarded(private, time.monotonic() + limits.total)
    sent = {"Host": urlsplit(url).netloc, "User-Agent": AGENT, "Accept": ", ".join(types or ["*/*"])}
    sent |= {"Accept-Encoding": "gzip", "Connection": "close"} | dict(headers or {})
    timeout = {"connect": limits.connect, "read": limits.read, "write": limits.read, "pool": limits.connect}
    trouble = None
    try:
        with (
            httpcore.ConnectionPool(ssl_context=trusted(), network_backend=backend) as pool,
            pool.stream(method, url, headers=sent, content=content, extensions={"timeout": timeout}) as stream,
        ):
            named = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in stream.headers}
            reply = Reply(url, stream.status, named)
            if reply.status != 200:
                return reply
            check_kind(reply, types, limits)
            packed = named.get("content-encoding", "").strip().lower() in PACKED
            return Reply(url, 200, named, read(stream.iter_stream(), packed, limits.size))
    except httpcore.TimeoutException:
        trouble = PageError(f"it did not answer in time ({limits.connect:g} s to connect, {limits.total:g} s in all)")
    except httpcore.NetworkError:
        trouble = TryAgain("the connection failed or broke off")
    except (httpcore.ProtocolError, zlib.error, ValueError):
        trouble = PageError("it answered with something that is no proper HTTP, or less than it said")
    raise trouble  # outside of `except`: the client's own error may hold the request


def check_kind(reply: Reply, types: Iterable[str] | None, limits: Limits) -> None:
    """Refuse what is of no wanted type, packed in an unknown way, or too long by its own account."""
    if types is not None and reply.type not in types:
        raise PageError(f"it is {show(reply.type) if reply.type else 'of no named type'}, not a page of text")
    encoding = reply.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in PACKED | {"", "identity"}:
        raise PageError(f"it is packed by {show(encoding)}, which was not asked for")
    length = reply.headers.get("content-length", "")
    if length.isdigit() and int(length) > limits.size:
        raise PageError(f"it is larger than {limits.size:,} bytes")


def read(chunks: Iterable[bytes], packed: bool, most: int) -> bytes:
    """The body as far as it may go; unpacked step by step, so that a small body cannot become a huge one."""
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 32) if packed else None  # 32: gzip or zlib, whichever it is
    body = bytearray()
    taken = 0
    for chunk in chunks:
        taken += len(chunk)
        body += unpack.decompress(chunk, most + 1 - len(body)) if unpack else chunk
        if max(len(body), taken) > most:
            raise PageError(f"it is larger than {most:,} bytes")
    if unpack and body and not unpack.eof:
        raise PageError("it ends before its packed content does")
    return bytes(body)
