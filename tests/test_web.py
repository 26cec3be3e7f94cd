"""The web retriever: saved results, live search if allowed, interrupted searches, recorded runs."""

import json
import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from string import ascii_lowercase
from unittest.mock import Mock

import numpy as np
import pytest
from toy_web import open_loopback, page, reply, searxng, serve

from covrag_lite.config import Config, Retrieval
from covrag_lite.data import load_passages, load_questions
from covrag_lite.engine import weights
from covrag_lite.engine.journal import key_of
from covrag_lite.plugins.web import pages, providers
from covrag_lite.plugins.web import retriever as web
from covrag_lite.plugins.web.providers import SearchError
from covrag_lite.retrieval import dense, load_retriever
from covrag_lite.runs import recorded
from covrag_lite.runs.compare import changed
from covrag_lite.systems import evaluate

NOVEL = "The Copper Lanterns is a novel by Edith Marrow, published in 1893 and never printed again."
RIVER = (
    "The Stell rises in the Harrow Hills and is 71 kilometres long, and it flows through Aldermere."
)
MARROW = (
    "Edith Marrow was born in Stonebridge in 1861 and wrote novels before she turned to growing "
    "pears."
)
FACTS = {"/novel": NOVEL, "/river": RIVER, "/marrow": MARROW}
WRITER = "who wrote the copper lanterns"
LONG = "how long is the River Stell?"
# What the search engine finds: two pages, a forbidden, a broken and a missing one for WRITER.
FOUND = {
    WRITER: ["/novel", "/marrow", "/forbidden", "/broken", "/gone"],
    "wher was edit marow born": ["/marrow"],
    "Where was Edith Marrow born?": ["/marrow", "/novel"],
    LONG: ["/river", "/novel"],
}
KEY = "sk-very-secret-0123456789"


def extract(replies):
    """Extract title and paragraphs with a regular expression; the real parser needs a process."""
    extracted = []
    for response in replies:
        title = re.findall("<title>(.*?)</title>", f"{response.text}<title></title>")[0]
        extracted.append((title, "\n".join(re.findall("<p>(.*?)</p>", response.text))))
    return extracted


class Encoder:
    """An encoder that counts letters; importing a network would take longer than these tests."""

    def encode_query(self, texts, **_):
        counts = [[text.count(letter) for letter in ascii_lowercase] for text in texts]
        vectors = np.array(counts, np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

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
    snapshot = str(tmp_path / "snapshot")
    return Retrieval(retriever="web-searxng", encoder=str(encoder), k=2, snapshot=snapshot)


@pytest.fixture
def site(monkeypatch):
    """A SearXNG and the pages that it finds, on one server."""
    contents = {path: reply(page(text, title=path.strip("/"))) for path, text in FACTS.items()}
    contents["/robots.txt"] = reply("User-agent: *\nDisallow: /forbidden", "text/plain")
    contents["/broken"] = b"?"
    with serve(contents) as server:
        results = {query: [server.url(path) for path in paths] for query, paths in FOUND.items()}
        server.pages["/search"] = searxng(results)
        monkeypatch.setenv("SEARXNG_URL", server.url(""))
        yield server


@pytest.fixture
def search_live(settings, site):
    return load_retriever(replace(settings, live="yes"), [])


def titles(results):
    """The titles of the passages of each query."""
    return [sorted(passage.title for passage in passages) for passages in results]


# Saved results, and live search only if it is allowed.


def test_without_permission_nothing_is_searched(settings, site):
    message = r"2 of 2 queries have no .*: 'a\\x1bb' is not in .*with -p live yes"
    with pytest.raises(SearchError, match=message):
        load_retriever(settings, [])(["a\x1bb", "b"])
    assert site.requests == []


def test_a_live_search_ranks_the_passages_of_the_pages(search_live):
    assert titles(search_live([WRITER, LONG])) == [["marrow", "novel"], ["novel", "river"]]


def test_a_passage_is_a_paragraph_of_its_page(search_live):
    (passages,) = search_live([LONG])
    assert {passage.text for passage in passages} == {RIVER, NOVEL}


@pytest.mark.parametrize(
    "part",
    ["0 queries from ", "2 searched live and frozen", "3 of 7 pages could not be fetched"],
)
def test_a_live_search_says_what_it_did(search_live, capsys, part):
    search_live([WRITER, LONG])
    assert part in capsys.readouterr().out


@pytest.fixture
def frozen(search_live):
    """The results of two queries, frozen in the snapshot."""
    return search_live([WRITER, LONG])


@pytest.mark.parametrize("live", ["no", "yes"])
def test_a_frozen_query_is_not_searched_again(frozen, settings, site, live):
    n_requests = len(site.requests)
    assert load_retriever(replace(settings, live=live), [])([WRITER, LONG]) == frozen
    assert len(site.requests) == n_requests


def test_reading_frozen_results_leaves_the_snapshot_as_it_is(frozen, settings):
    before = web.open_snapshot(settings).path.read_bytes()
    load_retriever(replace(settings, live="yes"), [])([WRITER, LONG])
    assert web.open_snapshot(settings).path.read_bytes() == before


def test_frozen_results_are_reported(frozen, settings, capsys):
    capsys.readouterr()
    load_retriever(settings, [])([WRITER, LONG])
    assert "2 queries from " in capsys.readouterr().out


@pytest.fixture
def entry(frozen, settings):
    """What the snapshot has of the first query."""
    return json.loads(web.open_snapshot(settings).texts[key_of(query=WRITER)])


def test_a_frozen_result_has_its_query(entry):
    assert entry["query"] == WRITER


def test_a_frozen_result_has_its_date(entry):
    assert datetime.now(UTC) - datetime.fromisoformat(entry["date"]) < timedelta(minutes=5)


def test_a_frozen_page_has_its_address_and_text(entry, site):
    first = entry["pages"][0]
    assert first == {"url": site.url("/novel"), "title": "novel", "text": NOVEL, "failed": ""}


def test_a_page_that_failed_is_frozen_with_the_reason(entry):
    assert [page["failed"] for page in entry["pages"][2:]] == [
        "its robots.txt does not allow it",
        "it could not be fetched (RemoteProtocolError)",
        "it answered with status 404",
    ]


# Interrupted and empty searches.


def test_a_whole_result_is_never_replaced(frozen, settings):
    snapshot = web.open_snapshot(settings)
    text = snapshot.path.read_text()
    snapshot.add("searxng", {key_of(query=WRITER): "another"})
    assert snapshot.path.read_text() == text


def test_of_two_results_of_a_query_the_first_counts(frozen, settings):
    path = web.open_snapshot(settings).path
    text = path.read_text()
    with path.open("a") as journal:  # another run froze it meanwhile
        journal.write(text.replace("Marrow", "Morrow"))
    assert load_retriever(settings, [])([WRITER, LONG]) == frozen


@pytest.fixture
def half_written(search_live, settings):
    """The result of a query of which the second half is lost."""
    results = search_live([WRITER])
    path = web.open_snapshot(settings).path
    text = path.read_text()
    path.write_text(text[: len(text) // 2])
    return results


def test_a_half_written_result_does_not_count(half_written, settings):
    with pytest.raises(SearchError, match="1 of 1 queries have no frozen result"):
        load_retriever(settings, [])([WRITER])


def test_a_half_written_result_is_searched_for_again(half_written, settings):
    assert load_retriever(replace(settings, live="yes"), [])([WRITER]) == half_written


def test_an_empty_result_is_frozen_too(search_live, settings):
    search_live(["nobody knows this", LONG])
    assert load_retriever(settings, [])(["nobody knows this"]) == [[]]


@pytest.fixture
def unknown():
    """As many queries without results as are taken for a failure."""
    return [f"nobody knows {i}" for i in range(web.EMPTY_QUERIES)]


def test_five_empty_results_in_a_row_are_a_failure(search_live, unknown):
    message = "5 successive queries found nothing; 0 of 5 new queries"
    with pytest.raises(SearchError, match=message):
        search_live(unknown)


def test_empty_results_of_a_failure_are_not_frozen(search_live, settings, unknown):
    with pytest.raises(SearchError):
        search_live(unknown)
    with pytest.raises(SearchError, match="5 of 5 queries have no frozen"):
        load_retriever(settings, [])(unknown)


@pytest.fixture
def failing(search_live, site, monkeypatch):
    """A provider that finds the river, then fails."""
    answers = [{site.url("/river"): ""}, SearchError("toy: it went away")]
    monkeypatch.setattr(providers, "find", Mock(side_effect=answers))
    return search_live


def test_a_failure_says_what_is_frozen_and_how_to_continue(failing):
    message = "toy: it went away; 1 of 2 new queries are in .*; run again with -p live yes"
    with pytest.raises(SearchError, match=message):
        failing(["first", "second"])


def test_results_before_a_failure_are_kept(failing, settings):
    with pytest.raises(SearchError):
        failing(["first", "second"])
    assert titles(load_retriever(settings, [])(["first"])) == [["river"]]


# Hostile titles and addresses.


@pytest.fixture
def hostile(search_live, site, monkeypatch):
    """The results of a query whose titles and addresses contain commands."""
    results = {
        site.url("/\x1b[2J\u202e"): "\x1b[31m<script>",
        "javascript:alert(1)": "x",
        site.url("/untitled"): '\x1b[31m<script>{"}\\',
    }
    site.pages["/untitled"] = reply(f"<p>{RIVER}</p><p>{NOVEL}</p>")
    monkeypatch.setattr(providers, "find", lambda provider, query, n: results)
    return search_live(["x"])


def test_a_title_of_a_provider_is_cleaned(hostile):
    assert hostile[0][0].title == "[31m‹script>(')/"


def test_a_snapshot_has_only_printable_letters(hostile, settings):
    assert web.open_snapshot(settings).path.read_text().isascii()


# Recorded runs.


@pytest.fixture
def record_run(settings, scripted, questions, tmp_path):
    """A function that records CoV-RAG with the web retriever, in a folder of that name."""

    def record(name, live):
        folder = tmp_path / name
        changes = {"live": live, "runs": str(folder / "runs"), "data": "a folder"}
        config = Config().change(**vars(settings) | changes)
        resources = evaluate.load_resources(config, [], scripted)
        predictions = evaluate.run_system("CoV-RAG", config, resources, questions[:3])
        parts = {"": predictions}
        data = {"questions": questions[:3], "passages": []}
        run = recorded.save_run(folder / "out", "table2", parts, config, scripted, 1.0, data)
        return predictions, run

    return record


@pytest.fixture
def live_run(record_run, site, monkeypatch):
    """Predictions and the recorded run of a live search, at an address with a key."""
    monkeypatch.setenv("SEARXNG_URL", site.url("").replace("http://", f"http://user:{KEY}@"))
    return record_run("live", "yes")


@pytest.fixture
def later_run(live_run, record_run, site):
    """The same run after the server is gone."""
    search = site.pages.pop("/search")
    yield record_run("gone", "no")
    site.pages["/search"] = search


def test_the_second_search_is_for_the_revised_question(live_run):
    predictions, _ = live_run
    rounds = [turn.passages for turn in predictions[1].rounds]
    assert titles(rounds) == [["marrow"], ["marrow", "novel"]]


def test_a_run_without_the_server_gives_the_same_predictions(live_run, later_run):
    assert later_run[0] == live_run[0]


def test_a_run_without_the_server_gives_the_same_bytes(live_run, later_run):
    files = [run.predictions().read_bytes() for _, run in (live_run, later_run)]
    assert files[0] == files[1]


def test_the_manifest_describes_the_snapshot(live_run):
    snapshot = live_run[1].manifest["snapshots"]["web-searxng"]
    assert snapshot["queries"] == 4


def test_the_manifest_has_the_hash_of_the_encoder(live_run):
    assert live_run[1].manifest["encoder_sha256"]


def test_whether_a_search_was_live_changes_no_result(live_run, later_run):
    assert changed(later_run[1].manifest, live_run[1].manifest) == []


def test_another_snapshot_changes_results(live_run, later_run):
    without = live_run[1].manifest | {"snapshots": {}}
    assert changed(later_run[1].manifest, without) == ["the frozen results of the web"]


def test_no_file_contains_the_key(live_run, tmp_path):
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert not [file for file in files if KEY.encode() in file.read_bytes()]


def test_no_output_contains_the_key(live_run, capsys):
    assert KEY not in "".join(capsys.readouterr())


@pytest.fixture
def loadable(live_run, questions, monkeypatch):
    """The recorded run, whose questions can be loaded."""
    monkeypatch.setattr(recorded, "load_questions", lambda config: questions[:3])
    predictions, run = live_run
    return predictions, replace(run, manifest=json.loads(json.dumps(run.manifest)))


def test_a_recorded_run_is_loaded_with_its_passages(loadable):
    predictions, run = loadable
    passages = [prediction.rounds[0].passages for prediction in recorded.load(run)]
    assert passages == [prediction.rounds[0].passages for prediction in predictions]


def test_a_recorded_run_is_not_loaded_with_another_snapshot(loadable, search_live):
    search_live(["something else", LONG])
    message = "web-searxng: this configuration has other data than the run"
    with pytest.raises(ValueError, match=message):
        recorded.load(loadable[1])


def test_a_recorded_run_is_not_loaded_without_its_snapshot(loadable, settings):
    shutil.rmtree(web.open_snapshot(settings).path.parent)
    with pytest.raises(FileNotFoundError, match="is missing; set the parameter snapshot"):
        recorded.load(loadable[1])


# Together with the rest of the package.


def test_the_default_provider_is_duckduckgo(tmp_path):
    retrievers = [Retrieval(retriever=name, snapshot=str(tmp_path)) for name in ("web", "web-ddgs")]
    default, named = [web.open_snapshot(retriever).path for retriever in retrievers]
    assert default == named


def test_the_web_needs_no_corpus():
    assert load_passages(Config().change(retriever="web", data="hub")) == []


def test_questions_for_the_web_have_no_gold_passages():
    small = {"n_passages": 1000, "n_world": (4, 1200, 200), "n_questions": 2}
    questions = load_questions(Config().change(retriever="web-serper", **small))
    assert questions
    assert not [question for question in questions if question.gold_passages]
