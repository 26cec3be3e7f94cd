"""A revised question is whatever the retriever rewards."""

from dataclasses import replace

import pytest

from covrag_lite.config import Retrieval
from covrag_lite.records import Question
from covrag_lite.retrieval import load_retriever
from covrag_lite.training import revisions

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
    """An author whose guess and terms are always the same."""

    def __init__(self, guess="", terms=""):
        self.said, self.terms = guess, terms

    def guess(self, x):
        return [self.said for _ in x]

    def name_terms(self, x):
        return [self.terms for _ in x]


@pytest.fixture
def search(passages):
    return load_retriever(Retrieval(k=2), passages)


def found_for(question, passages, author, search):
    return revisions.find_revisions({question.question: (question, passages)}, author, search)


def test_the_well_put_question_is_the_first_candidate_and_the_question_itself_is_none(passages):
    made = revisions.propose(MISSPELT, passages[:1], "Edith wrote it.", "lanterns")
    asked = "hoo rote teh coper lnterns"
    wanted = [CLEAN, f"{asked}? Edith wrote it.", "Edith wrote it.", f"{asked} lanterns", "lanterns"]
    assert made == [*wanted, f"{asked} Copper Lanterns"]
    unknown = replace(MISSPELT, clean_question="")
    assert revisions.propose(unknown, [], asked, "") == [f"{asked}? {asked}"]


def test_a_candidate_is_one_line_that_a_verdict_can_hold():
    assert revisions.tidy('the "Copper\\Lanterns"\nagain') == "the Copper Lanterns again"
    assert len(revisions.tidy("word " * 99).split()) == revisions.LONGEST


def test_of_the_candidates_the_one_that_finds_the_passage_first_is_kept(passages, search):
    assert found_for(MISSPELT, passages[2:4], Guesser(), search) == {MISSPELT.question: CLEAN}
    unknown = replace(MISSPELT, clean_question="")
    author = Guesser("Sheep graze on hills.", "copper lanterns novel")
    assert found_for(unknown, passages[2:4], author, search)[MISSPELT.question].endswith("copper lanterns novel")


def test_where_no_candidate_finds_anything_new_none_is_kept(passages, search):
    useless = replace(MISSPELT, gold_passages=("p4",), clean_question="what about sheep and hills?")
    assert found_for(useless, passages[5:], Guesser("Sheep.", "hills"), search) == {}
    assert revisions.find_revisions({}, Guesser(), search) == {}


def test_a_second_step_is_asked_for_only_after_the_first_was_found(passages):
    assert revisions.clean_wording(TWO_HOP, passages[:1]) == "Where was Edith Marrow born?"
    assert revisions.clean_wording(TWO_HOP, passages[3:5]) == ""


def test_the_reward_falls_with_the_place_of_the_passage(passages):
    assert [revisions.reward(MISSPELT, passages[i:] + passages[:i]) for i in (0, 5, 4)] == [1, 1 / 2, 1 / 3]
    assert revisions.reward(MISSPELT, passages[1:]) == 0
