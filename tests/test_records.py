from dataclasses import replace

import pytest

from covrag_lite.prompts import parse_verdict, render_verdict
from covrag_lite.records import Passage, Prediction, Question, Round
from covrag_lite.runs.display import as_html, show

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
