"""The guard: which addresses a page may come from. A connection goes to the very address that was checked.

A name is resolved once, here, and `connection` connects to what came out, so that a name that means another address a
moment later gains nothing. Every redirect comes through here again.
"""

import ipaddress
import socket
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

from covrag_lite.retrieval.web.errors import PageError, TryAgain, show

UNICAST = ipaddress.ip_network("2000::/3")  # all of IPv6 that is given out to hosts of the internet
SIX_TO_FOUR = ipaddress.ip_network("2002::/16")  # holds an IPv4 address, maybe a private one
LONGEST = 2000  # characters of an address
KEEP = "%/:=&?~+!$,;'@()*[]"  # what stands in an address as it is


def is_public(address: str) -> bool:
    """Is this a host of the internet, rather than a private, loopback, link-local, multicast or reserved address?

    IPv6 that carries an IPv4 address (mapped, NAT64, 6to4, Teredo) is none.
    """
    ip = ipaddress.ip_address(address)
    if ip.version == 6 and (ip not in UNICAST or ip in SIX_TO_FOUR):
        return False
    return ip.is_global and not ip.is_multicast


def resolve(host: str, port: int, private: bool) -> list[str]:
    """The addresses of a host; refused as soon as one of them is not public, unless private ones are allowed."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise TryAgain(f"the name {show(host)} has no address") from None
    addresses = list(dict.fromkeys(str(one[4][0]) for one in found))
    for address in addresses:
        if not private and not is_public(address):
            raise PageError(f"{show(host)} is {address}, which is no public address")
    return addresses


def tidy(url: str, base: str = "") -> str:
    """An address in plain ASCII; refused unless it is http or https to a named host, without a user's name in it."""
    try:
        parts = urlsplit(urljoin(base, url.strip()))
        host, port = parts.hostname, parts.port
        host = host.encode("idna").decode() if host and not host.isascii() else host
        path, query = quote(parts.path, KEEP) or "/", quote(parts.query, KEEP)
    except ValueError:  # a UnicodeError is one too
        raise PageError(f"{show(url)} is no address") from None
    if len(url) > LONGEST:
        raise PageError(f"{show(url)} is too long for an address")
    if parts.scheme not in ("http", "https"):
        raise PageError(f"{show(url)} is neither http nor https")
    if not host or "@" in parts.netloc:
        raise PageError(f"{show(url)} names no host, or a user")
    place = f"[{host}]" if ":" in host else host
    place = place if port is None else f"{place}:{port}"
    return urlunsplit((parts.scheme, place, path, query, ""))
