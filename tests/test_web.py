"""The web retriever: saved results, live search if allowed, failing providers, rows of Table 6."""

import json
import re
import shutil
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from string import ascii_lowercase
from unittest.mock import Mock

import httpx2
import numpy as np
import pytest
from toy_web import open_loopback, page, reply, searxng, serve

from covrag_lite import evaluate
from covrag_lite.config import Config, Retrieval
from covrag_lite.data import load_passages, load_questions
from covrag_lite.engine import weights
from covrag_lite.journal import key_of
from covrag_lite.retrieval import dense, load_retriever, web
from covrag_lite.retrieval.web import pages, providers
from covrag_lite.retrieval.web.providers import SearchError
from covrag_lite.runs import recorded
from covrag_lite.tables.reproduction import changed

FACTS = {
    "/novel": "The Copper Lanterns is a novel by Edith Marrow, published in 1893 and never printed again.",
    "/river": "The Stell rises in the Harrow Hills and is 71 kilometres long, and it flows through Aldermere.",
    "/marrow": "Edith Marrow was born in Stonebridge in 1861 and wrote novels before she turned to growing pears.",
}
KEY = "sk-very-secret-0123456789"


def extract(replies):
    """Extract title and paragraphs with a regular expression; the real parser needs a process."""
    htmls = [reply.text for reply in replies]
    return [
        (re.findall("<title>(.*?)</title>", html + "<title></title>")[0], "\n".join(re.findall("<p>(.*?)</p>", html)))
        for html in htmls
    ]


class Encoder:
    """An encoder that counts letters; importing a network would take longer than these tests."""

    def encode_query(self, texts, **_):
        counts = np.array([[text.count(letter) for letter in ascii_lowercase] for text in texts], np.float32)
        return counts / np.linalg.norm(counts, axis=1, keepdims=True)

    encode_document = encode_query


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """A web retriever without pauses, with its own snapshot, that may access loopback addresses."""
    open_loopback(monkeypatch)
    monkeypatch.setattr(weights, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(pages, "extract", extract)
    monkeypatch.setattr(dense, "load_encoder", lambda folder: Encoder())
    encoder = tmp_path / "encoder"
    encoder.mkdir()
    for name in ("config.json", "model.safetensors"):
        (encoder / name).write_text("{}")
    return Retrieval(retriever="web-searxng", encoder=str(encoder), k=2, snapshot=str(tmp_path / "snapshot"))


@pytest.fixture
def site(monkeypatch):
    """A SearXNG and the pages it knows, on one server."""
    known = {path: reply(page(text, title=path.strip("/"))) for path, text in FACTS.items()}
    robots = reply("User-agent: *\nDisallow: /forbidden", "text/plain")
    with serve(known | {"/robots.txt": robots, "/broken": b"?"}) as one:
        known = {
            "who wrote the copper lanterns": ["/novel", "/marrow", "/forbidden", "/broken", "/gone"],
            "wher was edit marow born": ["/marrow"],
            "Where was Edith Marrow born?": ["/marrow", "/novel"],
            "how long is the River Stell?": ["/river", "/novel"],
        }
        one.pages["/search"] = searxng({query: [one.url(path) for path in found] for query, found in known.items()})
        monkeypatch.setenv("SEARXNG_URL", one.url(""))
        yield one


def tree(folder):
    """The content of every file by its path."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def titles(found):
    """The titles of the passages of each query."""
    return [sorted(passage.title for passage in row) for row in found]


def test_the_web_is_searched_only_if_allowed_and_what_was_found_is_found_again_without_a_server(settings, site, capsys):
    with pytest.raises(SearchError, match=r"2 of 2 queries have no .*: 'a\\x1bb' is not in .*with -p live yes"):
        load_retriever(settings, [])(["a\x1bb", "b"])
    assert site.asked == []
    queries = ["who wrote the copper lanterns", "how long is the River Stell?"]
    found = load_retriever(replace(settings, live="yes"), [])(queries)
    assert titles(found) == [["marrow", "novel"], ["novel", "river"]]
    assert {passage.text for passage in found[1]} == {FACTS["/river"], FACTS["/novel"]}
    said = capsys.readouterr().out
    assert "0 queries from " in said and "2 searched live and frozen" in said
    assert "3 of 7 pages could not be fetched" in said
    store, asked = web.open_snapshot(settings), len(site.asked)
    before = store.path.read_bytes()
    for mode in ("no", "yes"):
        assert load_retriever(replace(settings, live=mode), [])(queries) == found
        assert "2 queries from " in capsys.readouterr().out
    assert len(site.asked) == asked and store.path.read_bytes() == before
    body = json.loads(store.texts[key_of(query=queries[0])])
    assert body["query"] == queries[0]
    assert datetime.now(UTC) - datetime.fromisoformat(body["date"]) < timedelta(minutes=5)
    first, second, *failed = body["pages"]
    assert (first["url"], second["url"]) == (site.url("/novel"), site.url("/marrow"))
    assert (first["text"], first["failed"]) == (FACTS["/novel"], "")
    assert [page["failed"] for page in failed] == [
        "its robots.txt does not allow it",
        "it could not be fetched (RemoteProtocolError)",
        "it answered with status 404",
    ]


def record_run(folder, live, settings, scripted, questions):
    """Run CoV-RAG with the web retriever and record it as a table."""
    config = Config().change(**vars(settings) | {"live": live, "runs": str(folder / "runs"), "data": "a folder"})
    resources = evaluate.load_resources(config, [], scripted)
    made = evaluate.run_system("CoV-RAG", config, resources, questions[:3])
    data = {"questions": questions[:3], "passages": []}
    return made, recorded.save_run(folder / "out", "table2", {"": made}, config, scripted, 1.0, data).manifest


def test_a_run_with_the_server_gone_ends_with_the_same_bytes_and_no_key_in_them(
    settings, site, scripted, questions, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("SEARXNG_URL", site.url("").replace("http://", f"http://user:{KEY}@"))
    made, manifest = record_run(tmp_path / "live", "yes", settings, scripted, questions)
    assert titles(one.passages for one in made[1].rounds) == [["marrow"], ["marrow", "novel"]]
    asked, search = len(site.asked), site.pages.pop("/search")
    again, second = record_run(tmp_path / "gone", "no", settings, scripted, questions)
    assert again == made and len(site.asked) == asked
    first_files, second_files = tree(tmp_path / "live"), tree(tmp_path / "gone")
    name = "out/table2.predictions.jsonl.xz"
    assert first_files[name] == second_files[name]
    assert manifest["snapshots"] == second["snapshots"]
    assert manifest["snapshots"]["web-searxng"]["queries"] == 4
    assert changed(second, manifest) == []  # whether it was live changes no number, what was frozen does
    assert changed(second, manifest | {"snapshots": {}}) == ["the frozen results of the web"]
    assert manifest["encoder_sha256"]
    assert all(KEY.encode() not in content for content in tree(tmp_path).values())
    assert KEY not in "".join(capsys.readouterr())
    # It can be loaded only with its own snapshot.
    run = recorded.Recorded(tmp_path / "live/out", "table2", json.loads(json.dumps(manifest)))
    monkeypatch.setattr(recorded, "load_questions", lambda config: questions[:3])
    assert [p.rounds[0].passages for p in recorded.load(run)] == [p.rounds[0].passages for p in made]
    site.pages["/search"] = search
    load_retriever(replace(settings, live="yes"), [])(["something else", "how long is the River Stell?"])
    with pytest.raises(ValueError, match="web-searxng: this configuration has other data than the run"):
        recorded.load(run)
    shutil.rmtree(web.open_snapshot(settings).path.parent)
    with pytest.raises(FileNotFoundError, match="is missing; set the parameter snapshot"):
        recorded.load(run)


def test_a_half_written_result_is_searched_for_again_and_a_whole_one_never_replaced(settings, site):
    query = "who wrote the copper lanterns"
    found = load_retriever(replace(settings, live="yes"), [])([query])
    store = web.open_snapshot(settings)
    text = store.path.read_text()
    store.add("searxng", {key_of(query=query): "another"})
    assert store.path.read_text() == text and text.isascii()
    with store.path.open("a") as journal:  # another run froze it meanwhile
        journal.write(text.replace("Marrow", "Morrow"))
    assert load_retriever(settings, [])([query]) == found
    store.path.write_text(text[: len(text) // 2])
    with pytest.raises(SearchError, match="1 of 1 queries have no frozen result"):
        load_retriever(settings, [])([query])
    assert load_retriever(replace(settings, live="yes"), [])([query]) == found


def test_an_empty_result_is_an_answer_five_in_a_row_are_not_and_what_was_found_before_a_failure_is_kept(
    settings, site, monkeypatch, capsys
):
    frozen, search = load_retriever(settings, []), load_retriever(replace(settings, live="yes"), [])
    assert search(["nobody knows this", "how long is the River Stell?"])[0] == []
    assert "0 of 2 pages could not be fetched" in capsys.readouterr().out
    assert frozen(["nobody knows this"]) == [[]]
    many = [f"nobody knows {i}" for i in range(web.EMPTY)]
    with pytest.raises(SearchError, match="5 successive queries found nothing; 0 of 5 new queries"):
        search(many)
    with pytest.raises(SearchError, match="5 of 5 queries have no frozen"):
        frozen(many)
    answers = [{site.url("/river"): ""}, SearchError("toy: it went away")]
    monkeypatch.setattr(providers, "find", Mock(side_effect=answers))
    with pytest.raises(
        SearchError, match="toy: it went away; 1 of 2 new queries are in .*; run again with -p live yes"
    ):
        search(["one", "two"])
    assert frozen(["one"])[0][0].title == "river"


def test_titles_and_addresses_of_a_provider_are_tamed_too(settings, site, monkeypatch):
    found = {site.url("/\x1b[2J\u202e"): "\x1b[31m<script>", "javascript:alert(1)": "x"}
    found |= {site.url("/untitled"): '\x1b[31m<script>{"}\\'}
    site.pages["/untitled"] = reply(f"<p>{FACTS['/river']}</p><p>{FACTS['/novel']}</p>")
    monkeypatch.setattr(providers, "find", lambda provider, query, n: found)
    assert load_retriever(replace(settings, live="yes"), [])(["x"])[0][0].title == "[31m‹script>(')/"
    assert web.open_snapshot(settings).path.read_text().isascii()


# Providers


@contextmanager
def answer_with(body, provider, code="200 OK"):
    """Make a provider's server reply with this."""
    answer = reply(body if isinstance(body, str) else json.dumps(body), "application/json", code)
    with pytest.MonkeyPatch.context() as patch, serve({"/": answer, "/search": answer}) as site:
        patch.setattr(providers, "PAUSES", ())
        patch.setattr(providers, "SERPER", site.url("/"))
        patch.setenv("SEARXNG_URL", site.url("").replace("http://", f"http://user:{KEY}@"))
        patch.setenv("SERPER_API_KEY", KEY)
        yield site


ROWS = [{"url": "http://a.org/", "link": "http://a.org/", "title": "A"}] * 2
ROWS.append({"url": "b", "link": "b", "title": None})
# A provider's reply with results, and one without.
FORMS = {
    "serper": ({"searchParameters": {}, "organic": ROWS}, {"searchParameters": {}, "organic": []}),
    "searxng": ({"results": ROWS}, {"results": [], "unresponsive_engines": []}),
}


@pytest.mark.parametrize("provider", FORMS)
def test_a_providers_answer_becomes_hits_each_page_once(provider):
    found, empty = FORMS[provider]
    with answer_with(found, provider) as site:
        assert providers.find(provider, "a b&c=ü", 5) == {"http://a.org/": "A", "b": ""}
        assert providers.find(provider, "x", 1) == {"http://a.org/": "A"}
    method, path, headers, body = site.asked[0]
    assert "a+b%26c%3D%C3%BC" in path if method == "GET" else json.loads(body)["q"] == "a b&c=ü"
    sent = {"serper": "x-api-key", "searxng": "authorization"}[provider]
    assert KEY in headers[sent] or provider == "searxng" and headers[sent].startswith("Basic ")
    with answer_with(empty, provider):
        assert providers.find(provider, "x", 5) == {}


ASKED = httpx2.Request("POST", "http://a.org/")
UNKNOWN = "s answer has an unknown form"
TROUBLE = {
    "refused": (f'{{"error": "bad key {KEY}"}}', "401 Unauthorized", "status 401; check its key"),
    "busy": (f"slow down {KEY}", "429 Too Many", "status 429"),
    "html": ("<html>we have moved</html>", "200 OK", UNKNOWN),
    "other": ('{"items": []}', "200 OK", UNKNOWN),
    "row": ({"organic": [1], "results": [1]}, "200 OK", UNKNOWN),
}


@pytest.mark.parametrize("trouble", TROUBLE)
@pytest.mark.parametrize("provider", FORMS)
def test_a_provider_that_fails_is_a_sentence_without_the_key(provider, trouble):
    text, code, sentence = TROUBLE[trouble]
    with answer_with(text, provider, code), pytest.raises(SearchError, match=f"^{provider}: it.*{sentence}") as caught:
        providers.find(provider, "x", 5)
    error = caught.value
    while error:
        assert KEY not in str(error)
        error = error.__context__


def test_a_busy_provider_is_asked_again_and_other_trouble_stops_at_once(monkeypatch):
    slept = Mock()
    monkeypatch.setattr(providers.time, "sleep", slept)
    with answer_with(FORMS["serper"][0], "serper"):
        monkeypatch.setattr(providers, "PAUSES", (5.0, 20.0))
        for code, pauses in (("429 Too Many", 2), ("503 Unavailable", 2), ("401 Unauthorized", 0)):
            reply_of = Mock(side_effect=[httpx2.Response(int(code[:3]), request=ASKED)] * 3)
            with monkeypatch.context() as patch, pytest.raises(SearchError, match=code[:3]):
                patch.setattr(providers.httpx2, "post", reply_of)
                providers.find("serper", "x", 5)
            assert slept.call_count == pauses == reply_of.call_count - 1
            slept.reset_mock()
        good = httpx2.Response(200, json=FORMS["serper"][0], request=ASKED)
        monkeypatch.setattr(providers.httpx2, "post", Mock(side_effect=[httpx2.Response(429, request=ASKED), good]))
        assert providers.find("serper", "x", 1) == {"http://a.org/": "A"}


def test_a_provider_without_key_address_server_or_engines_is_a_sentence(monkeypatch):
    for provider, variable in (("serper", "SERPER_API_KEY"), ("searxng", "SEARXNG_URL")):
        monkeypatch.delenv(variable, raising=False)
        with pytest.raises(SearchError, match=f"{provider}: .*{variable}"):
            providers.find(provider, "x", 5)
    monkeypatch.setenv("SEARXNG_URL", "localhost:8080")
    with pytest.raises(SearchError, match="address, http://"):
        providers.find("searxng", "x", 5)
    monkeypatch.setenv("SEARXNG_URL", "http://127.0.0.1:1")
    with pytest.raises(SearchError, match="searxng: the connection failed"):
        providers.find("searxng", "x", 5)
    silent = {"results": [], "unresponsive_engines": [["google", "timeout"]]}  # which have not found nothing
    with answer_with(silent, "searxng"), pytest.raises(SearchError, match="none of its search engines answered"):
        providers.find("searxng", "x", 5)


def test_ddgs_asks_duckduckgo_and_its_errors_are_sentences(monkeypatch):
    from ddgs.ddgs import DDGS
    from ddgs.exceptions import DDGSException, RatelimitException

    monkeypatch.setattr(providers, "PAUSES", ())
    text = Mock(return_value=[{"title": "A", "href": "http://a.org", "body": "b"}])
    monkeypatch.setattr(DDGS, "text", text)
    assert providers.find("ddgs", "x", 3) == {"http://a.org": "A"}
    text.assert_called_once_with("x", max_results=3, backend="duckduckgo")
    text.side_effect = DDGSException("No results found.")
    assert providers.find("ddgs", "x", 3) == {}
    refused = "did not answer in time, refused to answer, or allows fewer queries"
    for answer, sentence in ((RatelimitException("<b>"), refused), ([{"link": "b"}], UNKNOWN), (None, UNKNOWN)):
        text.side_effect = [answer]
        with pytest.raises(SearchError, match=f"^ddgs: it.*{sentence}") as caught:
            providers.find("ddgs", "x", 3)
        assert "<b>" not in str(caught.value)


# Together with the rest of the package


def test_the_web_needs_no_corpus_and_has_no_gold_passages(tmp_path):
    plain, named = (web.open_snapshot(Retrieval(retriever=one, snapshot=str(tmp_path))) for one in ("web", "web-ddgs"))
    assert plain.path == named.path
    config = Config().change(retriever="web", data="hub")
    assert load_passages(config) == []
    small = {"n_passages": 1000, "n_world": (4, 1200, 200), "n_questions": 2}
    asked = load_questions(Config().change(retriever="web-serper", **small))
    assert asked and not any(question.gold_passages for question in asked)
