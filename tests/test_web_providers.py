"""Search engines of the web retriever: their results, and what happens when one fails."""

import json
from contextlib import contextmanager
from unittest.mock import Mock

import httpx2
import pytest
from ddgs.ddgs import DDGS
from ddgs.exceptions import DDGSException, RatelimitException
from toy_web import reply, serve

from covrag_lite.plugins.web import providers
from covrag_lite.plugins.web.providers import SearchError

KEY = "sk-very-secret-0123456789"
ROWS = [{"url": "http://a.org/", "link": "http://a.org/", "title": "A"}] * 2
ROWS.append({"url": "b", "link": "b", "title": None})
# A provider's reply with results, and one without.
RESULTS = {
    "serper": {"searchParameters": {}, "organic": ROWS},
    "searxng": {"results": ROWS},
}
NO_RESULTS = {
    "serper": {"searchParameters": {}, "organic": []},
    "searxng": {"results": [], "unresponsive_engines": []},
}


@contextmanager
def answer_with(body, code="200 OK"):
    """Make both providers' servers reply with this; each has a key."""
    text = body if isinstance(body, str) else json.dumps(body)
    answer = reply(text, "application/json", code)
    with pytest.MonkeyPatch.context() as patch, serve({"/": answer, "/search": answer}) as site:
        patch.setattr(providers, "PAUSES", ())
        patch.setattr(providers, "SERPER", site.url("/"))
        patch.setenv("SEARXNG_URL", site.url("").replace("http://", f"http://user:{KEY}@"))
        patch.setenv("SERPER_API_KEY", KEY)
        yield site


@pytest.mark.parametrize("provider", RESULTS)
def test_each_page_is_found_once(provider):
    with answer_with(RESULTS[provider]):
        assert providers.find(provider, "x", 5) == {"http://a.org/": "A", "b": ""}


@pytest.mark.parametrize("provider", RESULTS)
def test_at_most_n_pages_are_found(provider):
    with answer_with(RESULTS[provider]):
        assert providers.find(provider, "x", 1) == {"http://a.org/": "A"}


@pytest.mark.parametrize("provider", NO_RESULTS)
def test_no_results_are_no_pages(provider):
    with answer_with(NO_RESULTS[provider]):
        assert providers.find(provider, "x", 5) == {}


@pytest.fixture(params=RESULTS)
def request_of(request):
    """A provider with the request that a query with special letters makes."""
    with answer_with(RESULTS[request.param]) as site:
        providers.find(request.param, "a b&c=ü", 5)
    return request.param, site.requests[0]


def test_a_query_is_sent_as_it_is(request_of):
    _, (method, path, _, body) = request_of
    if method == "GET":
        assert "a+b%26c%3D%C3%BC" in path
    else:
        assert json.loads(body)["q"] == "a b&c=ü"


def test_the_key_is_sent_in_a_header(request_of):
    provider, (_, _, headers, _) = request_of
    if provider == "serper":
        assert headers["x-api-key"] == KEY
    else:
        assert headers["authorization"].startswith("Basic ")


# Failures.
POST = httpx2.Request("POST", "http://a.org/")
UNKNOWN = "s answer has an unknown form"
FAILURES = {
    "refused": (f'{{"error": "bad key {KEY}"}}', "401 Unauthorized", "status 401; check its key"),
    "busy": (f"slow down {KEY}", "429 Too Many", "status 429"),
    "html": ("<html>we have moved</html>", "200 OK", UNKNOWN),
    "other": ('{"items": []}', "200 OK", UNKNOWN),
    "row": ({"organic": [1], "results": [1]}, "200 OK", UNKNOWN),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("provider", RESULTS)
def test_a_provider_that_fails_is_a_sentence_without_the_key(provider, failure):
    text, code, sentence = FAILURES[failure]
    expected = f"^{provider}: it.*{sentence}"
    with answer_with(text, code), pytest.raises(SearchError, match=expected) as caught:
        providers.find(provider, "x", 5)
    error = caught.value
    while error:
        assert KEY not in str(error)
        error = error.__context__


@pytest.fixture
def replies(monkeypatch):
    """Replies of serper in turn, by their status; a good one has results."""
    monkeypatch.setattr(providers, "PAUSES", (5.0, 20.0))
    monkeypatch.setenv("SERPER_API_KEY", KEY)
    monkeypatch.setattr(providers.time, "sleep", Mock())

    def set_replies(*statuses):
        responses = [
            httpx2.Response(status, json=RESULTS["serper"], request=POST) for status in statuses
        ]
        monkeypatch.setattr(providers.httpx2, "post", Mock(side_effect=responses))

    return set_replies


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_provider_is_tried_three_times(replies, status):
    replies(status, status, status)
    with pytest.raises(SearchError, match=str(status)):
        providers.find("serper", "x", 5)
    pauses = [call.args for call in providers.time.sleep.call_args_list]
    assert pauses == [(5.0,), (20.0,)]


def test_a_provider_that_is_no_longer_busy_answers(replies):
    replies(429, 200)
    assert providers.find("serper", "x", 1) == {"http://a.org/": "A"}


def test_a_provider_that_refuses_is_tried_once(replies):
    replies(401)
    with pytest.raises(SearchError, match="401"):
        providers.find("serper", "x", 5)
    assert not providers.time.sleep.called


def test_a_provider_whose_answer_has_an_unknown_form_is_tried_once(replies, monkeypatch):
    replies(200, 200, 200)
    monkeypatch.setitem(providers.PROVIDERS, "serper", (providers.serper, "no such column"))
    with pytest.raises(SearchError, match="unknown form"):
        providers.find("serper", "x", 5)
    assert not providers.time.sleep.called


@pytest.mark.parametrize(
    "provider, variable", [("serper", "SERPER_API_KEY"), ("searxng", "SEARXNG_URL")]
)
def test_a_missing_setting_is_named(provider, variable, monkeypatch):
    monkeypatch.delenv(variable, raising=False)
    with pytest.raises(SearchError, match=f"{provider}: .*{variable}"):
        providers.find(provider, "x", 5)


def test_an_address_without_a_scheme_is_refused(monkeypatch):
    monkeypatch.setenv("SEARXNG_URL", "localhost:8080")
    with pytest.raises(SearchError, match="address, http://"):
        providers.find("searxng", "x", 5)


def test_a_server_that_is_not_there_is_a_sentence(monkeypatch):
    monkeypatch.setattr(providers, "PAUSES", ())
    monkeypatch.setenv("SEARXNG_URL", "http://127.0.0.1:1")
    with pytest.raises(SearchError, match="searxng: the connection failed"):
        providers.find("searxng", "x", 5)


def test_a_searxng_whose_engines_are_all_silent_has_failed():
    silent = {"results": [], "unresponsive_engines": [["google", "timeout"]]}
    message = "none of its search engines answered"
    with answer_with(silent), pytest.raises(SearchError, match=message):
        providers.find("searxng", "x", 5)


# DuckDuckGo.


@pytest.fixture
def ddgs(monkeypatch):
    """The function of the library that searches."""
    monkeypatch.setattr(providers, "PAUSES", ())
    text = Mock(return_value=[{"title": "A", "href": "http://a.org", "body": "b"}])
    monkeypatch.setattr(DDGS, "text", text)
    return text


def test_ddgs_searches_duckduckgo(ddgs):
    assert providers.find("ddgs", "x", 3) == {"http://a.org": "A"}
    ddgs.assert_called_once_with("x", max_results=3, backend="duckduckgo")


def test_ddgs_without_results_finds_no_pages(ddgs):
    ddgs.side_effect = DDGSException("No results found.")
    assert providers.find("ddgs", "x", 3) == {}


@pytest.mark.parametrize(
    "answer, sentence",
    [
        (
            RatelimitException("<b>"),
            "did not answer in time, refused to answer, or allows fewer queries",
        ),
        ([{"link": "b"}], UNKNOWN),
        (None, UNKNOWN),
    ],
)
def test_a_failure_of_ddgs_is_a_sentence(ddgs, answer, sentence):
    ddgs.side_effect = [answer]
    with pytest.raises(SearchError, match=f"^ddgs: it.*{sentence}") as caught:
        providers.find("ddgs", "x", 3)
    assert "<b>" not in str(caught.value)
