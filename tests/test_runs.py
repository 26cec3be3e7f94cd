"""What a run reports: cost, progress, and a prediction as HTML."""

import io
import sys
import time
from dataclasses import replace

import pytest
from conftest import load_tiny

from covrag_lite.config import Config
from covrag_lite.engine.progress import track
from covrag_lite.prompts import SCHEMA, parse_verdict
from covrag_lite.records import Passage, Prediction, Question, Round
from covrag_lite.runs import manifest
from covrag_lite.runs.recorded import save_run
from covrag_lite.tables.display import show


def test_after_a_run_what_it_used_is_told(scripted, tmp_path, capsys):
    save_run(tmp_path, "table2", {}, Config(), scripted, 3.0, {})
    scripted.used.update(requests=2, prompt_tokens=200, completion_tokens=10)
    save_run(tmp_path, "table2", {}, Config(), scripted, 170.0, {})
    assert capsys.readouterr().out.splitlines() == [
        "cost: 3 s, 0 texts, 0 tokens read and 0 written",
        "cost: 170 s, 2 texts, 200 tokens read and 10 written",
    ]


@pytest.fixture(scope="module")
def counted(tiny_folder):
    """What a local model used for two answers, and after two verdicts with another adapter."""
    model = load_tiny(tiny_folder)
    questions = ["who wrote it?", "where was the author born, and when?"]
    answers = [completion.text for completion in model.complete(questions, 8)]
    counts = model.count_tokens(questions, answers)
    of_answers = dict(model.used)
    model.with_adapter("").fill(questions, SCHEMA, 6)
    return counts, of_answers, dict(model.used)


def test_a_local_model_counts_what_it_reads_and_writes(counted):
    counts, used, _ = counted
    read, written = map(sum, zip(*counts))
    assert used == {"requests": 2, "prompt_tokens": read, "completion_tokens": written}


def test_a_run_without_predictions_is_saved_in_a_new_folder(scripted, tmp_path):
    run = save_run(tmp_path / "new", "table3", {}, Config(), scripted, 3.0, {})
    assert run.file("manifest.json").is_file()


def test_all_adapters_of_a_local_model_count_their_requests_together(counted):
    _, _, used = counted
    assert used["requests"] == 4


def test_all_adapters_of_a_local_model_count_what_they_read_together(counted):
    _, of_answers, used = counted
    assert used["prompt_tokens"] == 2 * of_answers["prompt_tokens"]


def test_peak_memory_is_in_bytes():
    assert 10**7 < manifest.peak_memory() < 10**11  # Python with pandas, on any machine


@pytest.fixture
def no_notebook(monkeypatch):
    """No notebook; and the output of a test is no terminal."""
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)


def test_no_line_pretends_that_a_loop_over_a_failing_source_ended(no_notebook, capsys):
    def failing():
        yield 1
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        list(track(failing(), "answer", "batch", total=2))
    assert capsys.readouterr().err == ""


def test_without_a_terminal_a_loop_ends_with_one_line(no_notebook, capsys):
    list(track(range(2), "answer", "batch", total=2))
    assert capsys.readouterr().err == "answer: 2 batches in 0 s\n"


def test_no_line_pretends_that_a_loop_that_was_left_ended(no_notebook, capsys):
    for _ in track(range(10), "answer", "batch", total=10):
        break
    assert capsys.readouterr().err == ""


def test_no_line_pretends_that_an_interrupted_loop_ended(no_notebook, capsys):
    with pytest.raises(KeyboardInterrupt):
        for _ in track(range(10), "answer", "batch", total=10):
            raise KeyboardInterrupt
    assert capsys.readouterr().err == ""


def test_the_clock_of_a_long_first_step_runs_in_a_terminal(no_notebook, monkeypatch):
    screen = io.StringIO()
    screen.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", screen)

    def slow():
        deadline = time.monotonic() + 10
        while "00:01" not in screen.getvalue() and time.monotonic() < deadline:
            time.sleep(0.05)
        yield 1

    list(track(slow(), "answer", "batch", total=1))
    assert "00:01" in screen.getvalue()


@pytest.fixture
def page(cov):
    """A prediction as HTML."""
    return show(cov[1])._repr_html_()


def test_a_citation_is_a_link(page):
    assert '<a href="#q2-1-1">[1]</a>' in page


def test_a_citation_links_to_its_passage(page):
    assert 'id="q2-1-1"' in page


def test_a_score_is_shown_as_a_bar(page):
    assert '<meter value="0.45">' in page


def test_a_gold_passage_is_marked(page):
    assert page.count("✓ gold") == 1


@pytest.fixture
def page_of_tags(cov):
    """A prediction as HTML, all of whose texts contain a tag."""
    text = "<img src='x' onerror=alert(1)> & co"
    verdict = replace(cov[1].rounds[0].verdict, judgment=text, revised_question=text)
    rounds = (
        Round(text, (Passage("p", text, text),), text, verdict, note=text),
        Round("", (), "", parse_verdict(text)),
    )
    return show(Prediction(Question(text, "nq", text, (text,)), text, rounds)).data


def test_no_text_of_a_prediction_becomes_a_tag(page_of_tags):
    assert "<img" not in page_of_tags


def test_every_text_of_a_prediction_is_shown(page_of_tags):
    # The question, its id, its gold answer; the system; query, title, passage, answer, note; three
    # of the verdict.
    assert page_of_tags.count("&lt;img src=&#39;x&#39; onerror=alert(1)&gt; &amp; co") == 12
