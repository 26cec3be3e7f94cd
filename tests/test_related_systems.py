"""CRAG, A²R and FaVe line by line with scripted tools; their prompts; ALCE's citation quality."""

from functools import partial

import pytest

from covrag_lite.config import Model
from covrag_lite.engine.interface import Completion
from covrag_lite.journal import Journal
from covrag_lite.method import Tools
from covrag_lite.prompts import SEPARATOR
from covrag_lite.records import Passage
from covrag_lite.related import fave as faves
from covrag_lite.related.a2r import ASPECTS, a2r, assess, read_statements
from covrag_lite.related.crag import AMBIGUOUS, CORRECT, INCORRECT, crag, refine, split
from covrag_lite.related.tools import RelatedTools
from covrag_lite.task_model import TaskModel

WRITER, BORN, LONG = "who wrote the copper lanterns", "wher was edit marow born", "how long is the River Stell?"


class Script:
    """Tools that log their calls; `relevance` scores (question, passage id), by default 0."""

    settings = Model()

    def __init__(self, passages, relevance=None, entailed=(), plans=None, answers=None):
        self.log = []
        self.calls = {
            "search": lambda x: [passages[:3] for _ in x],
            "wider": lambda x: [[passages[1], passages[5]] for _ in x],
            "answer": lambda x, k: [(answers or {}).get(one, f"answer to {one}") for one in x],
            "score": lambda x, k: [[(relevance or {}).get((q, p.id), 0.0) for p in own] for q, own in zip(x, k)],
            "entail": lambda x, k, y: [[float((p.id, said) in entailed) for p in own] for own, said in zip(k, y)],
            "terms": lambda x: [f"terms of {one}" if one != LONG else "" for one in x],
        }
        self.texts = {  # of prompts
            "plan": lambda asked, sample: "\n".join(f"- {sub}" for sub in plans[asked.splitlines()[-1][10:]][sample]),
            "relevant": lambda asked, _: "No" if "off" in asked else "Yes",
            "feedback": lambda asked, _: f"cite in {said_in(asked)}",
            "refine": lambda asked, _: f"{said_in(asked)} again",
        }
        self.write_alone = self.call

    def call(self, name, *given):
        self.log.append((name, *map(list, given)))
        return self.calls[name](*given)

    def write(self, stage, asked, limit, sample=None):
        self.log.append((stage, asked))
        return [self.texts[stage](one, sample) for one in asked]

    def tools(self):
        search, answer, *further = (
            partial(self.call, name) for name in ("search", "answer", "wider", "score", "entail")
        )
        return Tools("toy", search, answer, related=RelatedTools(self, *further, thresholds=(0.2, 0.8)))


def said_in(prompt):
    """The answer that a prompt contains."""
    return prompt.split("Answer: ")[1].split(SEPARATOR)[0]


def test_crag_line_by_line(questions, passages):
    known = {(WRITER, "p0"): 0.9, (WRITER, "p1"): 0.3, (BORN, "p1"): 0.4, (BORN, "p5"): 0.7, (LONG, "p5"): 0.8}
    script = Script(passages, known)
    made = crag(questions[:3], script.tools())
    asked = [WRITER, BORN, LONG]
    assert script.log[0] == ("search", asked)  # D = {d1, …, dk}
    assert script.log[1] == ("score", asked, [passages[:3]] * 3)  # 1: E evaluates each (x, di)
    assert [p.rounds[0].note.split(":")[0] for p in made] == [CORRECT, AMBIGUOUS, INCORRECT]  # 2: the judgment
    assert script.log[2] == ("score", [WRITER, BORN], [passages[:3]] * 2)  # 3 to 5: refine D, not if Incorrect
    assert script.log[3] == ("terms", [BORN, LONG])  # 6: W rewrites x, not if Correct
    # Without keywords, x is the query.
    assert script.log[4] == ("wider", [f"terms of {BORN}", LONG])
    found = [passages[1], passages[5]]
    assert script.log[5] == ("score", [BORN, LONG], [found] * 2)  # external knowledge is selected likewise
    read = [[passages[0], passages[1]], [passages[1], passages[5]], [passages[5]]]
    assert script.log[6] == ("answer", asked, read)  # 12: G(x, k); both if Ambiguous
    assert len(script.log) == 7
    assert [p.rounds[0].query for p in made] == [WRITER, f"terms of {BORN}", LONG]
    assert [p.answer for p in made] == [f"answer to {one}" for one in asked]


def test_crag_decomposes_filters_and_recomposes(questions, passages):
    passage = Passage("p", "Stell", "The Stell is a river. It is 71 km long. Sheep like it. They do! A fair is held.")
    strips = split(passage)
    texts = ("The Stell is a river. It is 71 km long.", "Sheep like it. They do!", "A fair is held.")
    assert strips == [Passage("p", "Stell", text) for text in texts]

    def score(x, k):
        return [[0.7 * ("71" in strip.text) + 0.9 * ("fair" in strip.text) for strip in own] for own in k]

    (kept,) = refine([LONG], [[passage]], score, 0.5)
    assert [one.text for one in kept] == ["The Stell is a river. It is 71 km long. A fair is held."]
    (best,) = refine([LONG], [[passage]], lambda x, k: [[0.1, 0.3, 0.2]], 0.5)  # none passes: the best is read
    assert [one.text for one in best] == ["Sheep like it. They do!"]
    assert refine([LONG], [[]], lambda x, k: [[]], 0.5) == [[]]
    script = Script([passage, *passages[1:]])
    script.calls["score"] = lambda x, k: [[0.9 * ("fair" in p.text) for p in own] for own in k]
    (made,) = crag(questions[:1], script.tools())
    assert script.log[-1] == ("answer", [WRITER], [[strips[2]]])  # the reader sees strips
    assert made.rounds[0].passages == (passage,)  # and the record shows whole passages


def test_a2r_line_by_line(questions, passages):
    two = questions[:2]
    said = {WRITER: "Edith[1]", BORN: "Leeds"}
    script = Script(passages, entailed={("p0", "Edith"), ("p0", "Leeds again")}, answers=said)
    kept, refined = a2r(two, script.tools())
    assert script.log[0] == ("search", [WRITER, BORN])
    assert script.log[1][:2] == ("answer", [WRITER, BORN])  # 1: Y0 = M(p_init, x, e)
    evidence = [tuple(passages[:3])] * 2
    # 3: assess by entailment.
    assert script.log[2] == ("entail", [WRITER, BORN], evidence, ["Edith", "Leeds"])
    stage, (prompt,) = script.log[3]  # 4: the second is not good enough
    assert stage == "feedback" and passages[2].text in prompt and BORN in prompt and said_in(prompt) == "Leeds"
    assert prompt.count("score 0: advise to") == 3
    stage, (prompt,) = script.log[4]  # 5
    assert stage == "refine" and said_in(prompt) == "Leeds" and "Feedback: cite in Leeds" in prompt
    assert script.log[5][0] == "entail"  # t = 1: assessed again
    assert "support, score 100: say" in script.log[6][1][0]  # supported, but cites nothing
    assert script.log[6][1][0].count("score 0: advise to") == 2
    assert script.log[7][0] == "refine"
    assert len(script.log) == 8  # K = 2
    assert [one.answer for one in refined.rounds] == ["Leeds", "Leeds again", "Leeds again again"]
    assert kept.answer == "Edith[1]"  # the stopping condition
    assert len(kept.rounds) == 1
    assert "feedback: cite in Leeds" in refined.rounds[0].note


def test_fave_line_by_line(questions, passages, monkeypatch):
    monkeypatch.setattr(faves, "SESSIONS", 2)
    plans = {WRITER: [["off a", "off b"], ["who is it", "what is it"]], BORN: [["where"], ["off c"]]}
    known = {("who is it", "p2"): 0.9, ("who is it", "p1"): 0.5, ("what is it", "p0"): 0.7, ("where", "p1"): 0.6}
    said = {"who is it": "Edith[1]", "what is it": "a novel", WRITER: "Edith[1][2]"}
    script = Script(passages, known, plans=plans, answers=said)
    made = faves.fave(questions[:2], script.tools())
    every = ["off a", "off b", "who is it", "what is it", "where", "off c"]
    assert script.log[0] == script.log[1]  # 1: sessions, before anything is answered
    assert [one.endswith(f"Question: {x}") for one, x in zip(script.log[0][1], (WRITER, BORN))] == [True, True]
    assert script.log[2] == ("search", every)  # 2: every sub-question of every session, at once
    assert script.log[3][:2] == ("score", every)  # its documents in the order of their scores
    told = [f"Question: {x}\nSub-question: {sub}\nHelps:" for x, sub in zip([WRITER] * 4 + [BORN] * 2, every)]
    assert script.log[4][0] == "relevant"  # 3: internal feedback
    assert all(one.endswith(end) for one, end in zip(script.log[4][1], told, strict=True))
    chosen = ["who is it", "what is it", "where"]
    assert script.log[5][:2] == ("answer", chosen)  # 4: the best session's sub-questions, none seeing another's answer
    top = [[p.id for p in own] for own in script.log[5][2]]
    assert top == [["p2", "p1"], ["p0", "p1"], ["p1", "p0"]]  # the top M = 2
    stage, asked, shown = script.log[6]
    assert (stage, asked) == ("answer", [WRITER, BORN])  # the final prediction, from the sub-answers
    assert [p.text for p in shown[0]] == ["who is it Edith", "what is it a novel"]
    assert len(script.log) == 7
    assert [one.query for one in made[0].rounds] == ["who is it", "what is it", "who is it | what is it"]
    assert made[0].answer == "Edith[1]"  # it cites sub-answer 1, which cites p2, the first of all its passages
    assert [p.id for p in made[0].rounds[-1].passages] == ["p2", "p1", "p0"]


def test_faves_sessions_are_numbered_lines_and_rated_by_relevance_and_answerability(scripted, tmp_path):
    text = "Sure!\n[1] Who wrote it?\n2. When was it?\n- Who wrote it?\n[3] ...\n4) Where?\n5) Why?"
    assert faves.parse_plan(text) == ["Who wrote it?", "When was it?", "Where?"]
    assert faves.parse_plan("I cannot say.") == []
    author = TaskModel(Model(), scripted, Journal(tmp_path / "journal.jsonl"))
    said = {"a?": "Yes", "b?": " yes, it", "c?": "No", "d?": "Perhaps yes"}  # only a yes is a yes
    scripted.complete = lambda asked, limit, sample: [Completion(said[one.split()[-2]]) for one in asked]
    assert faves.is_relevant(author, ["x?"] * 4, list(said)) == [True, True, False, False]
    assert faves.rate([(True, 0.8), (False, 0.4)]) == pytest.approx((1 / 3 + 0.6) / 2)  # equations 2 to 4
    assert faves.rate([(True, 0.5)] * 3) == pytest.approx((1 + 0.5) / 2)


def test_statements_are_sentences_with_what_they_cite():
    said = read_statements("Edith[1][2][1]. She was born in 1861 [2]. ", 3)
    assert said == [("Edith.", [0, 1]), ("She was born in 1861 .", [1])]
    for nowhere in ("Edith[4]", "Edith[0]"):  # a mark that points nowhere cites nothing
        assert read_statements(nowhere, 3) == [("Edith", [])]
    assert read_statements("[1]", 3) == []


@pytest.mark.parametrize(
    "answer, entailed, expected",
    [
        ("Edith[1]", "p0", (1, 1, 1)),
        ("Edith[2]", "p0", (1, 0, 0)),  # recall needs a cited passage to entail the statement
        ("Edith[2]", "", (0, 0, 0)),
        ("Edith", "p0", (1, 0, None)),
        ("", "p0", (0, 0, None)),
        ("Edith[1][2]", "p0 p1", (1, 1, 1)),
        ("Edith[1][2]", "p0", (1, 1, 0.5)),  # the second does not entail it, and is not needed
        ("Edith[1]. She is old[2]. Who knows?", "p0", (1, 1 / 3, 0.5)),
    ],
)
def test_support_recall_and_precision_of_an_answer_where_some_passages_entail_what_it_says(
    passages, answer, entailed, expected
):
    def entail(x, k, y):
        return [[float(p.id in entailed) for p in own] for own in k]

    (made,) = assess(["who?"], [passages[:3]], [answer], entail)
    assert made == dict(zip(ASPECTS, expected))
