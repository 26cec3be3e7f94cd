"""The page of recorded predictions: what came of each verdict, every text as text, ids where the data is missing."""

import json
import re
from dataclasses import replace

import pytest

from covrag_lite.prompts import parse_verdict, render_verdict
from covrag_lite.records import Passage, Prediction, Question, Round
from covrag_lite.runs.outcomes import load_outcomes, load_outputs, save_outcomes, save_predictions, to_frame
from covrag_lite.tables import browse

HOSTILE = "</script><script>alert(1)</script><img src=x onerror='alert(2)'><!--"
RIGHT, WRONG = "Stonebridge[1]", "Aldermere[1]"


def build(name, judgment, *answers):
    """A prediction that was judged so, whose rounds end with these answers."""
    verdict = parse_verdict(render_verdict([0.5] * 6, judgment, "again" if len(answers) > 1 else ""))
    passages = (Passage("p1", "Edith Marrow", "born in Stonebridge"), Passage("p2", "Aldermere", "a town"))
    rounds = [Round("where", passages, answer) for answer in answers]
    rounds[0] = replace(rounds[0], verdict=verdict)
    return Prediction(Question(name, "nq", "where", ("Stonebridge",), ("p1",)), "CoV-RAG", tuple(rounds), "toy")


@pytest.fixture
def predictions():
    return [
        build("helped", "false", WRONG, RIGHT),
        build("hurt and doubted", "false", RIGHT, WRONG),
        build("doubted", "false", RIGHT, RIGHT),
        build("trusted", "true", WRONG),
        build("right", "true", RIGHT),
        build("wrong", "unclear", WRONG, WRONG),
    ]


def data_of(page):
    return json.loads(re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)[1])


def test_each_question_is_filed_under_what_came_of_its_verdict(predictions):
    ways = browse.describe(predictions, to_frame(predictions), "toy")["ways"]
    filed = {way["id"]: way["outcomes"] for way in ways}
    assert filed == {
        "helped": ["helped"],
        "hurt and doubted": ["hurt", "wrongly doubted"],
        "doubted": ["wrongly doubted"],
        "trusted": ["wrongly trusted"],
        "right": [],
        "wrong": [],
    }


def test_no_text_can_become_markup():
    passage = Passage(HOSTILE, HOSTILE, HOSTILE)
    verdict = parse_verdict(render_verdict([0.5] * 6, "false", HOSTILE))
    question = Question(HOSTILE, "nq", HOSTILE, (HOSTILE,), (), "", HOSTILE)
    hostile = Prediction(question, "CoV-RAG", (Round(HOSTILE, (passage,), HOSTILE, verdict), Round("x", (), HOSTILE)))
    page = browse.page([hostile], to_frame([hostile]), HOSTILE)
    data = data_of(page)
    assert 'data-lm-suppress-shortcuts="true"' in page  # what is typed into it is no shortcut of JupyterLab
    assert page.count("<script") == page.count("</script>") == 2  # the data and the page's own
    assert "<img" not in page and "<!--" not in page
    assert data["passages"][HOSTILE] == [HOSTILE, HOSTILE]  # and yet it is all there
    assert data["ways"][0]["rounds"][0]["verdict"]["revised"] == HOSTILE
    script = (browse.HERE / "browse.js").read_text()
    assert not re.search("innerHTML|outerHTML|insertAdjacentHTML|document.write|eval", script)


def test_without_the_data_there_are_ids_and_our_own_outputs(predictions, tmp_path):
    asked = "Where was she born?"
    echo = parse_verdict(render_verdict([0.5] * 6, "false", f"{asked} Marrow was born in"))
    one = predictions[0]
    rounds = (replace(one.rounds[0], query=asked, verdict=echo), one.rounds[1])
    one = replace(one, question=replace(one.question, question=asked), rounds=rounds)
    save_predictions(tmp_path / "p.jsonl.xz", [one])
    save_outcomes(tmp_path / "o.csv.gz", [one])
    told = load_outcomes(tmp_path / "o.csv.gz", load_outputs(tmp_path / "p.jsonl.xz"))
    page = browse.page(told, to_frame(told), "toy")
    data = data_of(page)
    first, last = data["ways"][0]["rounds"]
    assert not data["texts"] and asked not in page and "Edith" not in page
    assert first["verdict"]["revised"] == "⟨the question⟩? Marrow was born in"
    assert (first["passages"], first["right"], last["right"]) == (["p1", "p2"], "wrong", "right")
    assert data["ways"][0]["outcomes"] == ["helped"]
