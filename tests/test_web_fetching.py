"""Fetching: which addresses, how long, how much, how often, and what robots.txt allows."""

import gzip
import socket
import time
from unittest.mock import Mock

import httpx2
import pytest
from toy_web import open_loopback, page, redirect, reply, serve, status

from covrag_lite.plugins.web import fetch
from covrag_lite.plugins.web.fetch import AGENT, Crawler, PageError

GOOD = page("The Stell rises in the Harrow Hills and is 71 kilometres long.")
IS_PUBLIC = fetch.is_public


@pytest.fixture(autouse=True)
def loopback(monkeypatch):
    open_loopback(monkeypatch)


def get(url, crawler=None):
    """Fetch one page; a failure is raised."""
    (response,) = (crawler or Crawler()).fetch([url])
    if isinstance(response, PageError):
        raise response
    return response


def refusal(pages, path="/", **changes):
    """The message that replaces a page that could not be fetched; it has no text of the page."""
    with pytest.MonkeyPatch.context() as patch, serve(pages) as site:
        for name, value in changes.items():
            patch.setattr(fetch, name, value)
        sentence = str(*Crawler().fetch([site.url(path)]))
    assert sentence.isascii()
    assert sentence.isprintable()
    assert not sentence.startswith("<")
    return sentence


# Addresses.
PRIVATE_ADDRESSES = (
    "127.0.0.1 127.8.8.8 10.0.0.1 172.16.0.1 192.168.1.1 169.254.169.254 0.0.0.0 100.64.0.1 "
    "192.0.2.1 198.18.0.1 224.0.0.1 240.0.0.1 255.255.255.255 ::1 :: fe80::1 fe80::1%eth0 fc00::1 "
    "fec0::1 ff02::1 ff0e::1 2001:db8::1 ::ffff:127.0.0.1 ::ffff:8.8.8.8 ::7f00:1 64:ff9b::7f00:1 "
    "64:ff9b:1::1 2002:7f00:1::1 2001:0:1::1"
)
PUBLIC_ADDRESSES = "8.8.8.8 1.1.1.1 2606:4700::1111 2a00:1450::1"


@pytest.mark.parametrize("address", PRIVATE_ADDRESSES.split())
def test_a_private_reserved_or_mapped_address_is_not_public(address):
    assert not IS_PUBLIC(address)


@pytest.mark.parametrize("address", PUBLIC_ADDRESSES.split())
def test_an_address_of_an_internet_host_is_public(address):
    assert IS_PUBLIC(address)


NO_ADDRESSES = (
    "file:///etc/passwd ftp://a.org/ javascript:alert(1) data:text/html,x gopher://a.org/ "
    "//a.org/ a.org http:// http:///x http://[::1 http://a.org:99999/ https://\ud800.org/ "
    "http://a.org/\udc00"
)


def test_only_http_to_a_host_with_a_name_is_fetched():
    urls = [*NO_ADDRESSES.split(), "", "http://a.org/" + "x" * 100_000]
    urls.append("http://a.org/x\r\nHost: b.org")
    for url, response in zip(urls, Crawler().fetch(urls), strict=True):
        assert isinstance(response, PageError), url
        assert str(response).isascii(), url


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f.1"])
def test_a_server_on_loopback_gets_no_request(host, monkeypatch):
    monkeypatch.setattr(fetch, "is_public", IS_PUBLIC)
    with serve({"/": reply(GOOD)}) as site:
        with pytest.raises(PageError, match="which is not a public address"):
            get(site.url(host=host))
        assert site.requests == []


@pytest.fixture
def redirecting(monkeypatch):
    """A site at a public address, whose page redirects to what `site.target` says."""
    monkeypatch.setattr(fetch, "is_public", lambda address: address == "127.0.0.1")

    def to_target(connection, path):
        connection.sendall(redirect(site.target.format(port=site.port)))

    with serve({"/": to_target, "/secret": reply(GOOD)}) as site:
        yield site


@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.2:{port}/secret",
        "http://[::1]:{port}/",
        "http://10.0.0.1/",
        "http://169.254.169.254/",
    ],
)
def test_a_redirect_to_a_private_address_is_refused(redirecting, target):
    redirecting.target = target
    with pytest.raises(PageError, match="which is not a public address"):
        get(redirecting.url())
    assert "/secret" not in redirecting.paths


@pytest.mark.parametrize(
    "target, reason",
    [
        ("file:///x", "UnsupportedProtocol"),
        ("javascript:alert(1)", "InvalidURL"),
        ("http://[broken/", "its host has no address"),
    ],
)
def test_a_redirect_to_no_page_is_refused(redirecting, target, reason):
    redirecting.target = target
    with pytest.raises(PageError, match=reason):
        get(redirecting.url())


@pytest.fixture
def look_up(monkeypatch):
    """A name server; `resolve` gives the addresses of each look-up in turn."""
    monkeypatch.setattr(fetch, "is_public", IS_PUBLIC)
    server = Mock()
    server.resolve = lambda *answers: setattr(
        server,
        "side_effect",
        [[(0, 0, 0, "", (address, 80)) for address in answer] for answer in answers],
    )
    monkeypatch.setattr(socket, "getaddrinfo", server)
    return server


@pytest.fixture
def connections(monkeypatch):
    """The address, the Host header and the certificate's name of each connection."""
    opened = []

    async def connect(transport, request):
        name = request.extensions["sni_hostname"]
        opened.append((request.url.host, request.headers["host"], name))
        body = httpx2.ByteStream(b"x")
        return httpx2.Response(200, stream=body, headers={"Content-Type": "text/html"})

    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", connect)
    return opened


def test_a_connection_goes_to_the_checked_address_under_the_hosts_name(look_up, connections):
    look_up.resolve(["8.8.8.8"], ["8.8.8.8"])  # for robots.txt, then for the page
    assert get("https://a.org/").content == b"x"
    assert connections == [("8.8.8.8", "a.org", "a.org")] * 2


def test_every_address_of_a_name_is_checked(look_up, connections):
    look_up.resolve(["8.8.8.8", "192.168.0.1"])
    with pytest.raises(PageError, match="its host is 192.168.0.1"):
        get("http://a.org/")
    assert connections == []


def test_a_name_that_changes_its_address_is_checked_again(look_up, connections):
    look_up.resolve(["8.8.8.8"], ["192.168.0.1"])
    with pytest.raises(PageError, match="its host is 192.168.0.1"):
        get("http://a.org/")
    assert len(connections) == 1  # robots.txt


def test_a_name_without_an_address_is_a_sentence(look_up):
    look_up.side_effect = socket.gaierror
    with pytest.raises(PageError, match="its host has no address"):
        get("http://a.org/")


# Slow, broken and large replies.
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
    """Send nothing, until the other side gives up."""
    connection.recv(1)


@pytest.mark.parametrize(
    "slow", [silent, send(HEAD + b"X: ", b"x", 0.05), send(HEAD + b"\r\n", b"x", 0.05)]
)
def test_a_slow_server_is_given_up(slow):
    assert "(TimeoutError)" in refusal({"/": slow}, TOTAL=0.4)


BROKEN = {
    "nothing": b"",
    "no HTTP": b"this is no HTTP\r\n\r\n",
    "short": HEAD + b"Content-Length: 500\r\n\r\nshort",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
    "bad chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "endless headers": send(HEAD, b"X: more and more\r\n" * 1000),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_broken_reply_is_a_sentence(broken):
    sentence = refusal({"/": broken})
    assert "(RemoteProtocolError)" in sentence or "(ReadError)" in sentence


@pytest.mark.parametrize(
    "large", [reply("x" * 20_001), send(HEAD + b"\r\n", b"more and more " * 1000)]
)
def test_a_page_that_is_too_large_is_a_sentence(large):
    assert "larger than 20,000" in refusal({"/": large})


@pytest.mark.parametrize("kind", ["application/pdf", "image/png", "x/<b>\u00e9", None])
def test_a_page_of_another_type_is_a_sentence(kind):
    sentence = refusal({"/": reply(b"%PDF-1.7", Content_Type=kind)})
    assert "compressed, or not a page of text" in sentence


def test_a_compressed_page_is_a_sentence():
    compressed = reply(gzip.compress(GOOD.encode()), Content_Encoding="gzip")
    assert "compressed, or not a page of text" in refusal({"/": compressed})


@pytest.mark.parametrize("body", [b"%PDF-1.7", b"\x7fELF\0\0\0"])
def test_a_file_that_is_called_a_page_is_a_sentence(body):
    assert "but its content is not" in refusal({"/": reply(body)})


# Redirects.


@pytest.fixture
def moved():
    """A page that two redirects lead to."""
    with serve({"/": redirect("/a"), "/a": redirect("b/c"), "/b/c": reply(GOOD)}) as site:
        yield site


def test_redirects_are_followed(moved):
    assert get(moved.url()).content == GOOD.encode()
    assert moved.paths[-1] == "/b/c"


def test_a_request_names_our_agent_and_refuses_compression(moved):
    get(moved.url())
    _, _, headers, _ = moved.requests[-1]
    assert (headers["user-agent"], headers["accept-encoding"]) == (AGENT.lower(), "identity")


def test_the_body_of_a_redirect_is_not_read():
    endless = send(b"HTTP/1.1 302 Found\r\nLocation: /a\r\n\r\n", b"more and more " * 1000)
    with serve({"/": endless, "/a": reply(GOOD)}) as site:
        assert get(site.url()).content == GOOD.encode()


def test_an_endless_redirect_is_a_sentence():
    assert refusal({"/": redirect("")}) == "it redirects more than 5 times"


def test_after_five_redirects_no_further_page_is_requested():
    with serve({"/": redirect("")}) as site:
        Crawler().fetch([site.url()])
    assert site.paths.count("/") == 6


# robots.txt


def robots(*lines):
    """A site with a page and this robots.txt."""
    return {"/": reply(GOOD), "/robots.txt": reply("\n".join(lines), "text/plain")}


@pytest.fixture
def ruled():
    """A site whose robots.txt forbids a folder, except one page, and a type of file."""
    pages = robots(
        "User-agent: *", "Disallow: /private", "Disallow: /*.cgi$", "Allow: /private/open"
    )
    with serve(pages | {"/private/open": reply(GOOD), "/way": redirect("/private/x")}) as site:
        yield site


@pytest.mark.parametrize("path", ["/", "/private/open"])
def test_an_allowed_page_is_fetched(ruled, path):
    assert get(ruled.url(path)).status_code == 200


@pytest.mark.parametrize("path", ["/private/x", "/do.cgi"])
def test_a_forbidden_page_gets_no_request(ruled, path):
    with pytest.raises(PageError, match="robots.txt does not allow it"):
        get(ruled.url(path))
    assert ruled.paths == ["/robots.txt"]


def test_a_forbidden_page_behind_a_redirect_gets_no_request(ruled):
    with pytest.raises(PageError, match="robots.txt does not allow it"):
        get(ruled.url("/way"))
    assert ruled.paths == ["/robots.txt", "/way"]


def test_robots_txt_is_fetched_once(ruled):
    crawler = Crawler()
    get(ruled.url("/"), crawler)
    get(ruled.url("/private/open"), crawler)
    assert ruled.paths == ["/robots.txt", "/", "/private/open"]


def test_a_rule_for_our_name_is_obeyed():
    pages = robots("User-agent: covrag_lite", "Disallow: /", "", "User-agent: *", "Disallow:")
    assert "does not allow it" in refusal(pages)


def test_without_a_robots_txt_everything_is_allowed():
    with serve(robots() | {"/robots.txt": status(403)}) as site:
        assert get(site.url()).status_code == 200


def test_with_a_failing_robots_txt_nothing_is_allowed():
    assert "status 503" in refusal(robots() | {"/robots.txt": status(503)})


def test_with_a_robots_txt_that_is_asked_for_too_often_nothing_is_allowed():
    assert "status 429" in refusal(robots() | {"/robots.txt": status(429)})


def test_with_a_silent_robots_txt_nothing_is_allowed():
    assert "(TimeoutError)" in refusal(robots() | {"/robots.txt": silent}, TOTAL=0.4)


def test_a_robots_txt_that_would_take_too_long_to_parse_is_refused():
    lines = [*(f"User-agent: a{i}" for i in range(5000)), *["Disallow: /x"] * 5000]
    assert "too long" in refusal(robots(*lines), SIZE=1_000_000)


# Pauses.


def test_a_pause_that_is_too_long_is_a_timeout():
    assert "(TimeoutError)" in refusal(robots("User-agent: *", "Crawl-delay: 60"), TOTAL=0.4)


def test_the_pause_that_a_host_wants_is_kept(monkeypatch):
    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)

    monkeypatch.setattr(fetch.asyncio, "sleep", sleep)
    with serve(robots("User-agent: *", "Crawl-delay: 3")) as site:
        get(site.url())
    assert 2 < pauses[-1] <= 3


@pytest.fixture(scope="module")
def crowded():
    """Six pages of one slow host and an address that is none, fetched together."""

    def slow(connection, path):
        site.wait(0.02)
        connection.sendall(reply(GOOD))

    paths = [f"/{i}" for i in range(6)]
    with pytest.MonkeyPatch.context() as patch, serve(dict.fromkeys(paths, slow)) as site:
        open_loopback(patch)
        responses = Crawler().fetch([*map(site.url, paths), "http://[broken"])
    return site, responses


def test_a_host_gets_one_request_at_a_time(crowded):
    site, _ = crowded
    assert site.most_at_once == 1


def test_every_page_of_a_host_is_fetched(crowded):
    _, responses = crowded
    assert [response.status_code for response in responses[:6]] == [200] * 6


def test_a_failure_does_not_stop_other_pages(crowded):
    _, responses = crowded
    assert isinstance(responses[6], PageError)
