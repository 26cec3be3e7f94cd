"""Fetching: which addresses, how long, how much, how often, and what robots.txt allows."""

import gzip
import socket
import time
from unittest.mock import Mock

import httpx2
import pytest
from toy_web import open_loopback, page, redirect, reply, serve, status

from covrag_lite.retrieval.web import fetch
from covrag_lite.retrieval.web.fetch import AGENT, Crawler, PageError

GOOD = page("The Stell rises in the Harrow Hills and is 71 kilometres long.")
IS_PUBLIC = fetch.is_public


@pytest.fixture(autouse=True)
def loopback(monkeypatch):
    open_loopback(monkeypatch)


def get(url, crawler=None):
    """The page that was fetched; a failure is an error."""
    (found,) = (crawler or Crawler()).fetch([url])
    if isinstance(found, PageError):
        raise found
    return found


def refusal(pages, path="/", **changes):
    """The message that replaces a page that could not be fetched."""
    with pytest.MonkeyPatch.context() as patch, serve(pages) as site:
        for name, value in changes.items():
            patch.setattr(fetch, name, value)
        sentence = str(*Crawler().fetch([site.url(path)]))
    assert sentence.isascii() and sentence.isprintable() and not sentence.startswith("<")
    return sentence


def test_no_private_loopback_link_local_multicast_reserved_or_mapped_address_is_public():
    private = (
        "127.0.0.1 127.8.8.8 10.0.0.1 172.16.0.1 192.168.1.1 169.254.169.254 0.0.0.0 100.64.0.1 192.0.2.1 198.18.0.1 "
        "224.0.0.1 240.0.0.1 255.255.255.255 ::1 :: fe80::1 fe80::1%eth0 fc00::1 fec0::1 ff02::1 ff0e::1 2001:db8::1 "
        "::ffff:127.0.0.1 ::ffff:8.8.8.8 ::7f00:1 64:ff9b::7f00:1 64:ff9b:1::1 2002:7f00:1::1 2001:0:1::1"
    )
    assert not [address for address in private.split() if IS_PUBLIC(address)]
    assert all(map(IS_PUBLIC, ("8.8.8.8", "1.1.1.1", "2606:4700::1111", "2a00:1450::1")))  # hosts of the internet


def test_only_http_and_https_to_a_named_host_are_asked():
    none = (
        "file:///etc/passwd ftp://a.org/ javascript:alert(1) data:text/html,x gopher://a.org/ //a.org/ a.org http:// "
        "http:///x http://[::1 http://a.org:99999/ https://\ud800.org/ http://a.org/\udc00"
    )
    urls = [*none.split(), "", "http://a.org/" + "x" * 100_000, "http://a.org/x\r\nHost: b.org"]
    for url, found in zip(urls, Crawler().fetch(urls)):
        assert isinstance(found, PageError) and str(found).isascii(), url


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f.1"])
def test_a_server_on_loopback_is_not_even_asked(host, monkeypatch):
    monkeypatch.setattr(fetch, "is_public", IS_PUBLIC)
    with serve({"/": reply(GOOD)}) as site:
        with pytest.raises(PageError, match="which is not a public address"):
            get(site.url(host=host))
        assert site.asked == []


PRIVATE = "http://127.0.0.2:{port}/secret http://[::1]:{port}/ http://10.0.0.1/ http://169.254.169.254/".split()
NO_PAGE = "file:///x javascript:alert(1) http://[broken/".split()


@pytest.mark.parametrize("target", PRIVATE + NO_PAGE)
def test_a_redirect_to_a_private_address_or_to_no_page_is_refused(target, monkeypatch):
    monkeypatch.setattr(fetch, "is_public", lambda address: address == "127.0.0.1")  # for once the outer world
    with serve({"/secret": reply(GOOD)}) as site:
        site.pages["/"] = redirect(target.format(port=site.port))
        told = "which is not a public address" if target in PRIVATE else "could not be fetched|its host has no address"
        with pytest.raises(PageError, match=told):
            get(site.url())
        assert "/secret" not in site.paths


def test_all_addresses_of_a_name_are_checked_and_the_connection_goes_to_one_of_these(monkeypatch):
    monkeypatch.setattr(fetch, "is_public", IS_PUBLIC)
    answers = [["8.8.8.8"], ["8.8.8.8"], ["8.8.8.8", "192.168.0.1"]]  # a name that changes its meaning
    look_up = Mock(side_effect=[[(0, 0, 0, "", (address, 80)) for address in one] for one in answers])
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    asked = []

    async def connect(transport, request):
        asked.append((request.url.host, request.headers["host"], request.extensions["sni_hostname"]))
        return httpx2.Response(200, stream=httpx2.ByteStream(b"x"), headers={"Content-Type": "text/html"})

    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", connect)
    assert get("https://a.org/").content == b"x"  # robots.txt first
    assert asked == [("8.8.8.8", "a.org", "a.org")] * 2
    with pytest.raises(PageError, match="its host is 192.168.0.1"):
        get("http://a.org/")
    assert len(asked) == 2
    look_up.side_effect = socket.gaierror
    with pytest.raises(PageError, match="its host has no address"):
        get("http://a.org/")


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"


def send(first=b"", then=b"", pause=0.0):
    """A server that sends something and then repeats a part without end."""

    def answer(connection, path):
        connection.sendall(first)
        for _ in range(1000):
            connection.sendall(then)
            time.sleep(pause)

    return answer


def silent(connection, path):
    connection.recv(1)  # until the other side has had enough


@pytest.mark.parametrize("slow", [silent, send(HEAD + b"X: ", b"x", 0.05), send(HEAD + b"\r\n", b"x", 0.05)])
def test_a_server_that_takes_its_time_is_left(slow):
    assert "(TimeoutError)" in refusal({"/": slow}, TOTAL=0.4)


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"this is no HTTP\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 500\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        reply(gzip.compress(GOOD.encode()), Content_Encoding="gzip"),
        send(HEAD, b"X: more and more\r\n" * 1000),
        send(HEAD + b"\r\n", b"more and more " * 1000),
        reply("x" * 20_001),
        reply(b"%PDF-1.7"),
        reply(b"\x7fELF\0\0\0"),
        *(reply(b"%PDF-1.7", Content_Type=kind) for kind in ("application/pdf", "image/png", "x/<b>\u00e9", None)),
    ],
)
def test_a_broken_large_or_other_answer_is_a_sentence(broken):
    told = refusal({"/": broken})
    known = (
        "(RemoteProtocolError)",
        "(ReadError)",
        "compressed, or not a page of text",
        "larger than 20,000",
        "but its content is not",
    )
    assert any(part in told for part in known)


def test_redirects_are_followed_but_not_for_ever_to_an_unpacked_page_by_our_name():
    known = {"/": redirect("/a"), "/a": redirect("b/c"), "/b/c": reply(GOOD)}
    with serve(known) as site:
        assert get(site.url()).content == GOOD.encode()
        _, path, headers, _ = site.asked[-1]
    assert (path, headers["user-agent"], headers["accept-encoding"]) == ("/b/c", AGENT.lower(), "identity")
    endless = send(
        b"HTTP/1.1 302 Found\r\nLocation: /a\r\n\r\n", b"more and more " * 1000
    )  # what redirects is not read
    with serve({"/": endless, "/a": reply(GOOD)}) as site:
        assert get(site.url()).content == GOOD.encode()
    assert refusal({"/": redirect("")}) == "it redirects more than 5 times"


def robots(*lines):
    return {"/": reply(GOOD), "/robots.txt": reply("\n".join(lines), "text/plain")}


def test_robots_txt_is_asked_once_and_obeyed_also_behind_a_redirect():
    known = robots("User-agent: *", "Disallow: /private", "Disallow: /*.cgi$", "Allow: /private/open")
    with serve(known | {"/private/open": reply(GOOD), "/way": redirect("/private/x")}) as site:
        one = Crawler()
        for path in ("/", "/private/open"):
            assert get(site.url(path), one).status_code == 200
        for path in ("/private/x", "/do.cgi", "/way"):
            with pytest.raises(PageError, match="robots.txt does not allow it"):
                get(site.url(path), one)
        assert site.paths == ["/robots.txt", "/", "/private/open", "/way"]
    named = robots("User-agent: covrag_lite", "Disallow: /", "", "User-agent: *", "Disallow:")
    assert "does not allow it" in refusal(named)


def test_without_robots_txt_all_is_allowed_and_with_a_broken_one_nothing():
    with serve(robots() | {"/robots.txt": status(403)}) as site:
        assert get(site.url()).status_code == 200
    assert "status 503" in refusal(robots() | {"/robots.txt": status(503)})
    assert "(TimeoutError)" in refusal(robots() | {"/robots.txt": silent}, TOTAL=0.4)
    many = [*(f"User-agent: a{i}" for i in range(5000)), *["Disallow: /x"] * 5000]
    assert "too long" in refusal(robots(*many), SIZE=1_000_000)


def test_the_pause_that_a_host_asks_for_is_kept_unless_it_is_too_long(monkeypatch):
    assert "(TimeoutError)" in refusal(robots("User-agent: *", "Crawl-delay: 60"), TOTAL=0.4)
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    monkeypatch.setattr(fetch.asyncio, "sleep", sleep)
    with serve(robots("User-agent: *", "Crawl-delay: 3")) as site:
        get(site.url())
    assert 2 < slept[-1] <= 3


def test_one_host_is_asked_by_one_connection_at_a_time():
    def slow(connection, path):
        site.wait(0.02)
        connection.sendall(reply(GOOD))

    paths = [f"/{i}" for i in range(6)]
    with serve(dict.fromkeys(paths, slow)) as site:
        *found, broken = Crawler().fetch([*map(site.url, paths), "http://[broken"])
    assert [one.status_code for one in found] == [200] * 6 and isinstance(broken, PageError)
    assert site.most_at_once == 1
