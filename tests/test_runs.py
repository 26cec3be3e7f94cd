"""What a run says of itself: manifest, cost, progress, and a prediction as a page."""

import json
import sys
from dataclasses import replace

import pytest
from conftest import load_tiny

from covrag_lite.config import Config
from covrag_lite.prompts import SCHEMA, parse_verdict, render_verdict
from covrag_lite.records import Passage, Prediction, Question, Round
from covrag_lite.runs import cost
from covrag_lite.runs.display import as_html, show
from covrag_lite.runs.manifest import build_manifest, save_manifest
from covrag_lite.runs.progress import track


def test_a_manifest_names_code_data_and_machine(questions, passages, scripted, tmp_path):
    made = build_manifest(Config(), scripted, 1.23, questions=questions, passages=passages)
    assert {"commit", "versions", "model_sha256", "hardware", "wall_seconds", "peak_memory_gb"} <= set(made)
    assert {name: part["n"] for name, part in made["data"].items()} == {"questions": 4, "passages": 6}
    assert made["parameters"]["seed"] == 1
    save_manifest(tmp_path / "manifest.json", made)
    assert json.loads((tmp_path / "manifest.json").read_text())["model_sha256"] == "scripted"


def test_after_a_run_what_it_used_is_told(scripted):
    assert cost.tell_spent(scripted, 3.0) == "cost: 3 s, no text: all were journaled"
    scripted.used.update(requests=2, prompt_tokens=200, completion_tokens=10)
    assert cost.tell_spent(scripted, 170.0) == "cost: 3 min, 2 texts, 200 tokens read and 10 written"


def test_a_local_model_counts_what_it_reads_and_writes_whichever_adapter_it_has(tiny_folder):
    model = load_tiny(tiny_folder)
    asked = ["who wrote it?", "where was the author born, and when?"]
    answers = [one.text for one in model.complete(asked, 8)]
    read, written = map(sum, zip(*model.count_tokens(asked, answers)))
    assert model.used == {"requests": 2, "prompt_tokens": read, "completion_tokens": written}
    model.with_adapter("").fill(asked, SCHEMA, 6)
    assert (model.used["requests"], model.used["prompt_tokens"]) == (4, 2 * read)


def test_no_line_pretends_that_a_loop_ended(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)  # what is no notebook, and no terminal

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


VERDICT = parse_verdict(render_verdict((0.21, 0.5, 0.81, 0.91, 0.82, 1), "false", "Who wrote it?"))


@pytest.fixture
def prediction(passages):
    question = Question("q1", "nq", "who wrote it?", ("Edith Marrow",), ("p0",))
    first = Round("who wrote it?", tuple(passages[:2]), "Edith Marrow [1][9]", VERDICT)
    last = Round("Who wrote it?", tuple(passages[2:4]), "Nobody [2]", parse_verdict("rubbish"))
    return Prediction(question, "CoV-RAG", (first, last))


def test_a_prediction_is_shown_as_html(prediction):
    text = show(prediction)._repr_html_()
    assert "<a href='#q1-1-1'>[1]</a>" in text  # a citation is tied to its passage
    assert "id='q1-1-1'" in text
    assert "width:21px" in text
    assert text.count("✓ gold") == 1


def ask(one, **changes):
    return replace(one, question=replace(one.question, **changes))


def go(one, **changes):
    return replace(one, rounds=(replace(one.rounds[0], **changes), one.rounds[1]))


PLACES = {
    "question": lambda one, text: ask(one, question=text),
    "gold answer": lambda one, text: ask(one, answers=(text,)),
    "id": lambda one, text: ask(one, id=text),
    "system": lambda one, text: replace(one, system=text),
    "query": lambda one, text: go(one, query=text),
    "answer": lambda one, text: go(one, answer=text),
    "note": lambda one, text: go(one, note=text),
    "title": lambda one, text: go(one, passages=(Passage("p", text, "text"),)),
    "passage": lambda one, text: go(one, passages=(Passage("p", "title", text),)),
    "revised question": lambda one, text: go(one, verdict=replace(VERDICT, revised_question=text)),
    "judgment": lambda one, text: go(one, verdict=replace(VERDICT, judgment=text)),
    "unparsed verdict": lambda one, text: go(one, verdict=parse_verdict(text)),
}


@pytest.mark.parametrize("place", PLACES)
def test_whatever_text_a_prediction_holds_is_escaped(prediction, place):
    text = as_html(PLACES[place](prediction, "<img src='x' onerror=alert(1)> & co"))
    assert "<img" not in text
    assert "&lt;img src=&#x27;x&#x27; onerror=alert(1)&gt; &amp; co" in text
