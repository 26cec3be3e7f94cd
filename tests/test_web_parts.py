"""Limits of web search by hand: pauses, sizes, what is sent to a provider, what is frozen."""

import asyncio
import json
from types import SimpleNamespace
from unittest.mock import Mock

import httpx2
import pytest
from httpx2 import Response

from covrag_lite.config import ROOT, Retrieval
from covrag_lite.plugins.lance import retriever as lance
from covrag_lite.plugins.web import fetch, pages, providers
from covrag_lite.plugins.web import retriever as web
from covrag_lite.plugins.web.fetch import Crawler, PageError
from covrag_lite.plugins.web.providers import SearchError

FACT = "The Stell rises in the Harrow Hills and is 71 kilometres long."  # 63 characters

# Bodies of pages.


def read_body(body, types=fetch.TYPES, size=100, **headers):
    """What is read of a reply with this body."""

    async def stream():
        yield body

    reply = SimpleNamespace(headers={"content-type": "text/html"} | headers, aiter_raw=stream)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetch, "SIZE", size)
        return asyncio.run(fetch.read_body(reply, types))


@pytest.mark.parametrize(
    "kind", ["text/plain", "TEXT/HTML ; charset=utf-8", "application/xhtml+xml"]
)
def test_pages_of_text_are_read(kind):
    assert read_body(b"text", **{"content-type": kind}) == b"text"


def test_a_page_of_exactly_the_largest_size_is_read():
    assert read_body(b"x" * 100) == b"x" * 100


def test_a_page_of_one_more_byte_is_not():
    with pytest.raises(PageError, match="it is larger than 100 bytes"):
        read_body(b"x" * 101)


@pytest.mark.parametrize("body", ["größer".encode("utf-16"), b"x" * 2000 + b"\0\0"])
def test_single_zeros_or_late_ones_are_text(body):
    assert read_body(body, size=9999) == body


def test_a_robots_txt_may_be_of_any_type():
    body = b"\0\0Disallow: /"
    assert read_body(body, types=(), **{"content-type": "image/png"}) == body


def test_a_robots_txt_must_not_be_compressed():
    with pytest.raises(PageError, match="it is compressed"):
        read_body(b"x", types=(), **{"content-encoding": "gzip"})


# Pauses.


@pytest.fixture
def waits(monkeypatch):
    """A function that returns how long a crawler waits before each of these requests."""
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    monkeypatch.setattr(fetch.time, "monotonic", lambda: 100.0)
    monkeypatch.setattr(fetch.asyncio, "sleep", sleep)

    def wait(*requests):
        crawler = Crawler()

        async def wait_all():
            for host, pause in requests:
                await crawler.wait(host, pause)

        asyncio.run(wait_all())
        return slept

    return wait


def test_the_first_request_to_a_host_waits_for_nothing(waits):
    assert waits((b"a", 3.0), (b"b", 2.0)) == [0.0, 0.0]


def test_each_further_request_to_a_host_waits_for_the_one_before(waits):
    assert waits((b"a", 3.0), (b"a", 3.0), (b"a", 2.0)) == [0.0, 3.0, 5.0]


# robots.txt


def check_robots(status, text="", url="http://a.org/page"):
    """The pause that a robots.txt with this status asks for, or the error."""
    crawler = Crawler()

    async def follow(client, home, types):
        assert (str(home), types) == ("http://a.org/robots.txt", ())
        return Response(status, content=text.encode())

    crawler.follow = follow
    return asyncio.run(crawler.check_robots(None, httpx2.URL(url)))


@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_unavailable_robots_txt_forbids_everything(status):
    with pytest.raises(PageError, match=f"not available .status {status}"):
        check_robots(status)


@pytest.mark.parametrize("status", [200, 404, 428, 430, 499])
def test_a_missing_robots_txt_allows_everything_at_once(status):
    assert check_robots(status) == 0.0


def test_a_robots_txt_may_ask_for_a_pause():
    assert check_robots(200, "User-agent: *\nCrawl-delay: 7") == 7


# Titles and texts.


def read(provider_title, title, text):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "extract", lambda replies: [(title, text)])
        (page,) = pages.read_pages({"http://a.org": provider_title}, [Response(200)])
    return page


def test_a_page_has_its_own_title_or_that_of_the_provider():
    assert read("theirs", "ours", FACT)["title"] == "ours"
    assert read("theirs", "", FACT)["title"] == "theirs"


def test_a_title_is_cut_after_150_letters():
    assert read("", "x" * 200, FACT)["title"] == "x" * 150


def test_a_text_is_cut_and_its_empty_lines_are_dropped(monkeypatch):
    monkeypatch.setattr(pages, "LONGEST_TEXT", 10)
    assert read("", "", "one\n \ntwo and three")["text"] == "one\ntwo"


def test_a_page_without_text_has_failed():
    assert read("", "t", " \n")["failed"] == "it has no main text"
    assert read("", "t", "x")["failed"] == ""


# Providers.


def posted(monkeypatch, key=" key "):
    """What is sent to serper.dev."""
    request = httpx2.Request("POST", "http://a.org/")
    body = {"searchParameters": {}}
    post = Mock(return_value=httpx2.Response(200, json=body, request=request))
    monkeypatch.setenv("SERPER_API_KEY", key)
    monkeypatch.setattr(providers.httpx2, "post", post)
    found = providers.serper("who?", 7)
    return found, post.call_args.kwargs


def test_serper_gets_the_number_of_pages_and_the_key_without_spaces(monkeypatch):
    found, sent = posted(monkeypatch)
    assert found == []  # without results, its answer has no list of them
    assert sent["json"] == {"q": "who?", "num": 7}
    assert sent["headers"] == {"X-API-KEY": "key"}


def test_a_key_that_cannot_be_sent_is_refused(monkeypatch):
    with pytest.raises(SearchError, match="it needs a key in the environment variable"):
        posted(monkeypatch, "clé")


def test_searxng_is_asked_for_json_at_its_search_page(monkeypatch):
    request = httpx2.Request("GET", "http://a.org/")
    body = {"results": [], "unresponsive_engines": []}
    get = Mock(return_value=httpx2.Response(200, json=body, request=request))
    monkeypatch.setattr(providers.httpx2, "get", get)
    monkeypatch.setenv("SEARXNG_URL", "http://a.org/sub/")
    assert providers.searxng("who?", 3) == []
    assert str(get.call_args.args[0]) == "http://a.org/sub/search"
    assert get.call_args.kwargs["params"] == {"q": "who?", "format": "json"}
    assert get.call_args.kwargs["auth"] is None


def test_a_searxng_of_which_one_engine_is_silent_has_results(monkeypatch):
    request = httpx2.Request("GET", "http://a.org/")
    body = {"results": [{"url": "b"}], "unresponsive_engines": [["google", "timeout"]]}
    get = Mock(return_value=httpx2.Response(200, json=body, request=request))
    monkeypatch.setattr(providers.httpx2, "get", get)
    monkeypatch.setenv("SEARXNG_URL", "http://a.org")
    assert providers.searxng("who?", 3) == [{"url": "b"}]


def test_an_address_is_read_without_spaces_around_it(monkeypatch):
    rows = [{"href": " http://a.org ", "title": None}]
    monkeypatch.setitem(providers.PROVIDERS, "toy", (lambda query, n: rows, "href"))
    assert providers.find("toy", "who?", 3) == {"http://a.org": ""}


# Passages and snapshots.


@pytest.mark.parametrize(("length", "n"), [(49, 0), (50, 1), (1200, 1), (1300, 2)])
def test_a_paragraph_of_50_to_1200_letters_is_one_passage(length, n):
    assert len(web.split_page("x" * length)) == n


@pytest.fixture
def snapshot(tmp_path):
    """A snapshot of two queries with a page in common."""
    settings = Retrieval(retriever="web", snapshot=str(tmp_path))
    journal = web.open_snapshot(settings)
    page = {"url": "http://a.org", "title": "T", "text": FACT, "failed": ""}
    other = page | {"url": "http://b.org", "text": FACT.upper()}
    for query, date, found in (("a", "2024-05-02", [page]), ("b", "2024-05-01", [other, page])):
        result = {"query": query, "date": date, "pages": found}
        journal.add("ddgs", {web.key_of(query=query): json.dumps(result)})
    return settings


def test_a_snapshot_is_described_by_its_queries_and_dates(snapshot):
    described = web.describe(snapshot)
    assert (described["queries"], described["from"], described["to"]) == (
        2,
        "2024-05-01",
        "2024-05-02",
    )
    assert len(described["sha256"]) == 16


def test_an_empty_snapshot_has_no_dates(tmp_path):
    described = web.describe(Retrieval(retriever="web", snapshot=str(tmp_path)))
    assert (described["queries"], described["from"], described["to"]) == (0, "", "")


def test_a_passage_of_two_results_is_found_once(snapshot):
    texts = [passage.text for passage in web.find_passages(snapshot)]
    assert sorted(texts) == sorted([FACT, FACT.upper()])


def test_an_unknown_provider_is_refused_with_the_known_ones():
    sentence = "retriever 'web-x' is not known; use web or one of web-ddgs, web-serper, web-searxng"
    with pytest.raises(ValueError, match=sentence):
        web.open_snapshot(Retrieval(retriever="web-x"))


# Where an index is.


@pytest.mark.parametrize("address", ["s3://bucket/x", "gs://bucket/x", "az://bucket/x"])
def test_an_index_may_be_in_an_object_store(address):
    assert lance.find_place(address) == address


@pytest.mark.parametrize("address", ["http://a/b", "s3://user@bucket", "s3://bucket?key=1", "a@b"])
def test_an_address_of_another_form_or_with_a_key_is_refused(address):
    with pytest.raises(ValueError, match="set retriever to engine, engine:<folder> or"):
        lance.find_place(address)


def test_an_index_is_in_its_folder_or_in_the_cache():
    assert lance.find_place("runs/index") == ROOT / "runs" / "index"
    assert lance.find_place("") == lance.weights.CACHE / "engine"
