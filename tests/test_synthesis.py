"""D and D2′: natural errors first, every corrupted answer wrong in its own way, an oracle that follows its rules,
and revised questions that the retriever rewards."""

from collections import Counter
from dataclasses import replace

import pytest

from covrag_lite import synthesis
from covrag_lite.config import Config
from covrag_lite.metrics import holds_answer
from covrag_lite.records import Passage, Question
from covrag_lite.sources import Source, load_searches
from covrag_lite.synthesis import Example, annotate, judge

CONFIG = Config().change(k=2)
CLEAN = "Who wrote The Copper Lanterns?"
ASKED = Question("q", "nq", "who wrote the copper lanterns", ("Edith Marrow",), ("p0",), CLEAN, "author")
MISSPELT = replace(ASKED, question="hoo rote teh coper lnterns", kind="author+misspelt")


@pytest.fixture
def source(passages, questions):
    return Source(questions[:3], passages, *load_searches(CONFIG, passages))


@pytest.fixture
def good(passages):
    """A right answer from a passage that states it."""
    return Example(ASKED, (passages[2], passages[0]), "Edith Marrow[2]", "retrieved")


@pytest.fixture
def bad(passages):
    """A misspelt question that found nothing of use."""
    return Example(MISSPELT, (passages[2], passages[3]), "Aldermere[1]", "broken wording")


@pytest.mark.parametrize("share, n_unknown", [(0.25, 2), (0.5, 6), (0.0, 0)])
def test_of_the_answers_to_learn_a_share_has_no_reference_and_no_citation(source, monkeypatch, share, n_unknown):
    monkeypatch.setattr(synthesis, "UNSUPPORTED", share)
    unknown = [replace(ASKED, id=str(i), answers=("Agnes Vale",), gold_passages=()) for i in range(9)]
    known = [replace(ASKED, id=f"known {i}") for i in range(6)]
    targets = [sample.target[0] for sample in synthesis.answer_samples(source, unknown + known, CONFIG)]
    assert targets.count("Agnes Vale") == n_unknown
    assert len(targets) == 6 + n_unknown


def test_a_search_that_failed_is_wrong_in_its_references_and_gets_the_better_question(good, bad):
    verdict = judge(bad, CLEAN)
    assert (verdict.judgment, verdict.revised_question) == ("false", CLEAN)
    assert max(verdict.reference_correctness, verdict.correctness) < 0.1
    known, unknown = annotate([bad, good], {MISSPELT.question: CLEAN}), annotate([bad, good], {})
    assert [one.verdict.revised_question for one in known] == [CLEAN, ""]
    assert [one.lacks_revision for one in known] == [False, False]
    assert [one.lacks_revision for one in unknown] == [True, False]


def answer_rightly(x, k):
    return [f"Writer{question.split()[-1]}[1]" for question in x]


def test_examples_are_natural_first_and_corrupted_by_hand_in_a_minority(monkeypatch):
    numbers = range(10, 20)  # a number of one digit is no word for BM25
    passages = [Passage(f"p{i}", f"Book {i}", f"Book {i} was written by Writer{i}.") for i in numbers]
    passages += [Passage(f"x{i}", "Books", "Book was written by someone.") for i in range(8)]
    questions = [Question(f"q{i}", "nq", f"who wrote book {i}", (f"Writer{i}",), (f"p{i}",)) for i in numbers]
    source = Source(questions, passages, *load_searches(CONFIG, passages))
    monkeypatch.setattr(synthesis, "CORRUPTED", 0.3)
    made = synthesis.make_examples(source, questions, answer_rightly, CONFIG)
    counts = Counter(one.kind for one in made)
    assert (counts["retrieved"], counts["deeper passages"], counts["broken wording"]) == (10, 10, 2)
    assert counts["repetition"] + counts["wrong citation"] == 3
    for one in made:
        assert len(one.passages) == 2
        if one.kind != "broken wording":
            assert holds_answer(one.passages, one.question.answers) == (one.kind != "deeper passages")


def test_only_what_its_own_search_missed_is_a_failure(good, bad):
    without = replace(good, passages=bad.passages, kind="deeper passages")  # it was found, and taken away
    assert synthesis.find_failures([good, bad, without]) == {MISSPELT.question: bad}


def test_a_rewriter_learns_the_same_revisions_without_what_was_retrieved(good, bad, passages):
    hopeless = replace(bad, question=replace(MISSPELT, question="hoo?"))
    examples = annotate([good, bad, bad, hopeless], {MISSPELT.question: CLEAN})
    samples = synthesis.rewrite_samples(examples)
    assert [sample.target[0] for sample in samples] == [ASKED.question, CLEAN]  # of the hopeless one nothing is known
    assert not any(passage.text in sample.prompt for sample in samples for passage in passages)


class Guesser:
    """A model that says the same of every question."""

    def __init__(self, guess="", terms="", options=""):
        self.said = {"guess": guess, "name_terms": terms, "name_options": options}

    def __getattr__(self, task):
        return lambda x: [self.said[task] for _ in x]


def found_for(question, passages, author, search):
    return synthesis.find_revisions(
        {question.question: Example(question, tuple(passages), "", "retrieved")}, author, search
    )


def test_the_question_stands_in_every_candidate_but_the_bare_ones_and_is_none_itself(passages):
    one = Example(MISSPELT, passages[:1], "Agnes[1]", "")
    asked = MISSPELT.question
    assert synthesis.propose(one, "Edith wrote it.\nMore", "lanterns", "Ada, Eve") == {
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
    assert synthesis.propose(Example(unknown, (), "", ""), asked, "", "") == {"guess": f"{asked}? {asked}"}


def test_a_candidate_is_one_line_that_a_verdict_can_hold():
    assert synthesis.tidy('the "Copper\\Lanterns"\nagain') == "the Copper Lanterns again"
    assert len(synthesis.tidy(" ".join(map(str, range(99)))).split()) == synthesis.LONGEST
    assert synthesis.tidy("one\x00two\x1bthree") == "one two three"
    assert synthesis.tidy("England, England England - England") == "England, England -"


def test_candidates_that_find_the_passage_are_kept_by_their_form_and_no_others(passages, source):
    search = source.search
    assert found_for(MISSPELT, passages[2:4], Guesser(), search) == {MISSPELT.question: {synthesis.CLEAN: CLEAN}}
    unknown = replace(MISSPELT, clean_question="")
    author = Guesser("Sheep graze on hills.", "copper lanterns novel")
    kept = found_for(unknown, passages[2:4], author, search)[MISSPELT.question]
    assert set(kept) == {"key terms", "key terms alone"}
    useless = replace(MISSPELT, gold_passages=("p4",), clean_question="what about sheep and hills?")
    assert found_for(useless, passages[5:], Guesser("Sheep.", "hills"), search) == {}
    assert synthesis.find_revisions({}, Guesser(), search) == {}


def test_the_form_that_finds_most_is_taken_the_well_put_question_first_and_bare_guesses_last():
    counts = {"guess": 3, "options": 5, "a guess alone": 9, synthesis.CLEAN: 1}
    assert synthesis.choose({"guess": "b", "options": "c"}, counts) == "c"
    assert synthesis.choose({"a guess alone": "d", "guess": "b"}, counts) == "b"
    assert synthesis.choose({"options": "c", synthesis.CLEAN: "clean"}, counts) == "clean"


def test_a_second_step_or_a_newer_account_is_asked_for_only_once_a_passage_has_pointed_at_it(passages):
    clean = "Where was Edith Marrow born?"
    two_hop = Question("q", "mintaka", "Where was the author of The Copper Lanterns born?", ("",), (), clean, "two-hop")
    assert synthesis.clean_wording(two_hop, passages[:1]) == clean
    assert synthesis.clean_wording(two_hop, passages[3:5]) == ""
    asked, clean = (f"What is the population of Stonebridge {when}?" for when in ("today", "in 1954"))
    stale = Question("q", "entity", asked, ("12,400",), ("p1",), clean, "population/stale")
    old = replace(passages[0], text="Some 9,000 people live in Stonebridge, says a guide of 1931.")
    pointing = replace(old, text=f"{old.text} All was described anew in 1954.")
    assert synthesis.clean_wording(stale, [old]) == ""
    assert synthesis.clean_wording(stale, [old, pointing]) == clean


def test_a_wrong_answer_from_deeper_passages_is_also_put_beside_those_that_hold_the_right_one():
    passages = [
        Passage("gold", "Book", "Book was written by Ada."),
        *(Passage(f"x{i}", "B", "Book by Bob.") for i in range(4)),
    ]
    question = Question("q", "nq", "who wrote book", ("Ada",), ("gold",))
    deeper = synthesis.Example(question, tuple(passages[1:3]), "Bob[1]", "deeper passages")
    right = replace(deeper, answer="Ada")
    (crossed,) = synthesis.cross([deeper, right, replace(deeper, kind="retrieved")], {question: passages}, 2)
    assert (crossed.kind, crossed.answer, crossed.passages) == ("crossed answer", "Bob[1]", tuple(passages[:2]))
    verdict = synthesis.judge(crossed, "who wrote the book?")
    assert (verdict.judgment, verdict.revised_question, verdict.reference_correctness) == ("false", "", 0.95)
