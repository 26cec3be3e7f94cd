"""A revised question is whatever the retriever rewards."""

from dataclasses import replace

import pytest

from covrag_lite import revisions
from covrag_lite.config import Retrieval
from covrag_lite.oracle import Example
from covrag_lite.records import Question
from covrag_lite.retrieval import load_retriever

CLEAN = "Who wrote The Copper Lanterns?"
MISSPELT = Question("q", "nq", "hoo rote teh coper lnterns?", ("Edith Marrow",), ("p0",), CLEAN, "author+misspelt")
TWO_HOP = Question(
    "q",
    "mintaka",
    "Where was the author of The Copper Lanterns born?",
    ("Stonebridge",),
    ("p1",),
    "Where was Edith Marrow born?",
    "two-hop",
)


class Guesser:
    """An author who says the same of every question."""

    def __init__(self, guess="", terms="", options=""):
        self.said = {"guess": guess, "name_terms": terms, "name_options": options}

    def __getattr__(self, task):
        return lambda x: [self.said[task] for _ in x]


@pytest.fixture
def search(passages):
    return load_retriever(Retrieval(k=2), passages)


def example(question, passages, answer=""):
    return Example(question, tuple(passages), answer, "retrieved")


def found_for(question, passages, author, search):
    return revisions.find_revisions({question.question: example(question, passages)}, author, search)


def test_the_question_stands_in_every_candidate_but_the_bare_ones_and_is_none_itself(passages):
    made = revisions.propose(
        example(MISSPELT, passages[:1], "Agnes[1]"), "Edith wrote it.\nMore", "lanterns", "Ada, Eve"
    )
    asked = "hoo rote teh coper lnterns"
    assert made == {
        "the question well put": CLEAN,
        "guess and answer": f"{asked}? Edith wrote it. Agnes",
        "guess": f"{asked}? Edith wrote it.",
        "answer": f"{asked}? Agnes",
        "guess and options": f"{asked}? Edith wrote it. Ada, Eve",
        "options": f"{asked}? Ada, Eve",
        "key terms": f"{asked}? lanterns",
        "title 1": f"{asked}? Copper Lanterns",
        "a guess alone": "Edith wrote it.",
        "key terms alone": "lanterns",
    }
    unknown = replace(MISSPELT, clean_question="")
    assert revisions.propose(example(unknown, []), asked, "", "") == {"guess": f"{asked}? {asked}"}


def test_a_candidate_is_one_line_that_a_verdict_can_hold():
    assert revisions.tidy('the "Copper\\Lanterns"\nagain') == "the Copper Lanterns again"
    assert len(revisions.tidy(" ".join(map(str, range(99)))).split()) == revisions.LONGEST
    assert revisions.tidy("one\x00two\x1bthree") == "one two three"
    assert revisions.tidy("England, England England - England") == "England, England -"


def test_candidates_that_find_the_passage_are_kept_by_their_form(passages, search):
    assert found_for(MISSPELT, passages[2:4], Guesser(), search) == {MISSPELT.question: {revisions.CLEAN: CLEAN}}
    unknown = replace(MISSPELT, clean_question="")
    author = Guesser("Sheep graze on hills.", "copper lanterns novel")
    kept = found_for(unknown, passages[2:4], author, search)[MISSPELT.question]
    assert set(kept) == {"key terms", "key terms alone"}


def test_the_form_that_finds_most_is_taken_the_well_put_question_first_and_bare_guesses_last():
    rare, common, alone = {"guess": "a"}, {"guess": "b", "options": "c"}, {"a guess alone": "d", "options": "e"}
    counts = revisions.count_forms([{"1": rare, "2": common}, {"3": common, "4": alone, "5": alone, "6": alone}])
    assert counts == {"guess": 3, "options": 5, "a guess alone": 3}
    assert revisions.choose(common, counts) == "c"
    assert revisions.choose(rare, counts) == "a"
    assert revisions.choose({"a guess alone": "d", "guess": "b"}, counts | {"a guess alone": 9}) == "b"
    assert revisions.choose({"options": "c", revisions.CLEAN: "clean"}, counts | {revisions.CLEAN: 1}) == "clean"


def test_where_no_candidate_finds_anything_new_none_is_kept(passages, search):
    useless = replace(MISSPELT, gold_passages=("p4",), clean_question="what about sheep and hills?")
    assert found_for(useless, passages[5:], Guesser("Sheep.", "hills"), search) == {}
    assert revisions.find_revisions({}, Guesser(), search) == {}


def test_a_second_step_is_asked_for_only_after_the_first_was_found(passages):
    assert revisions.clean_wording(TWO_HOP, passages[:1]) == "Where was Edith Marrow born?"
    assert revisions.clean_wording(TWO_HOP, passages[3:5]) == ""


def test_a_newer_account_is_asked_for_only_once_a_passage_has_pointed_at_it(passages):
    question = "What is the population of Stonebridge today?"
    clean = "What is the population of Stonebridge in 1954?"
    stale = Question("q", "entity", question, ("12,400",), ("p1",), clean, "population/stale")
    old = replace(passages[0], text="Some 9,000 people live in Stonebridge, says a guide of 1931.")
    pointing = replace(old, text=f"{old.text} All was described anew in 1954.")
    assert revisions.clean_wording(stale, [old]) == ""
    assert revisions.clean_wording(stale, [old, pointing]) == clean
