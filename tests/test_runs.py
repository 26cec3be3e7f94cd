"""What a run reports: cost, progress, and a prediction as HTML."""

import sys
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


def test_a_local_model_counts_what_it_reads_and_writes_whichever_adapter_it_has(tiny_folder):
    model = load_tiny(tiny_folder)
    asked = ["who wrote it?", "where was the author born, and when?"]
    answers = [one.text for one in model.complete(asked, 8)]
    read, written = map(sum, zip(*model.count_tokens(asked, answers)))
    assert model.used == {"requests": 2, "prompt_tokens": read, "completion_tokens": written}
    model.with_adapter("").fill(asked, SCHEMA, 6)
    assert (model.used["requests"], model.used["prompt_tokens"]) == (4, 2 * read)


def test_peak_memory_is_in_bytes():
    assert 10**7 < manifest.peak_memory() < 10**11  # Python with pandas, on any machine


def test_no_line_pretends_that_a_loop_ended(monkeypatch, capsys):
    monkeypatch.delitem(
        sys.modules, "ipykernel", raising=False
    )  # what is no notebook, and no terminal

    def failing():
        yield 1
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        list(track(failing(), "answer", "batch", total=2))
    for _ in track(range(10), "answer", "batch", total=10):
        break
    with pytest.raises(KeyboardInterrupt):
        for _ in track(range(10), "answer", "batch", total=10):
            raise KeyboardInterrupt
    assert capsys.readouterr().err == ""


def test_a_prediction_is_shown_as_html(cov):
    text = show(cov[1])._repr_html_()
    assert (
        '<a href="#q2-1-1">[1]</a>' in text and 'id="q2-1-1"' in text
    )  # a citation is tied to its passage
    assert '<meter value="0.45">' in text
    assert text.count("✓ gold") == 1


def test_whatever_text_a_prediction_holds_is_escaped(cov):
    text = "<img src='x' onerror=alert(1)> & co"
    said = replace(cov[1].rounds[0].verdict, judgment=text, revised_question=text)
    rounds = (
        Round(text, (Passage("p", text, text),), text, said, note=text),
        Round("", (), "", parse_verdict(text)),
    )
    shown = show(Prediction(Question(text, "nq", text, (text,)), text, rounds)).data
    # The question, its id, its gold answer; the system; query, title, passage, answer, note; three
    # of the verdict.
    assert (
        "<img" not in shown
        and shown.count("&lt;img src=&#39;x&#39; onerror=alert(1)&gt; &amp; co") == 12
    )
