"""D and D2′: natural errors first, every corrupted answer wrong in its own way, an oracle that follows its rules,
and revised questions that the retriever rewards."""

import random
from dataclasses import replace

import pytest

from covrag_lite import synthesis
from covrag_lite.config import Config, Retrieval
from covrag_lite.metrics import holds_answer
from covrag_lite.prompts import parse_verdict
from covrag_lite.records import CITATION, Passage, Question
from covrag_lite.retrieval import load_retriever
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


def test_the_halves_share_no_question_and_lose_none():
    questions = [Question(str(i), "nq", "?", ("a",)) for i in range(11)]
    one, two = synthesis.halve(questions, 1)
    assert len(one) == 5
    assert sorted(one + two, key=lambda q: int(q.id)) == questions
    assert synthesis.halve(questions, 1) == (one, two) != synthesis.halve(questions, 2)


def test_an_answer_sample_shows_a_reference_that_answers_it_where_the_corpus_has_one(source):
    samples = synthesis.answer_samples(source, source.questions, CONFIG)
    assert samples[0].target[0].startswith("Edith Marrow[")
    for sample, question in zip(samples, source.questions):
        cited = int(CITATION.findall(sample.target[0])[0])
        shown = sample.prompt.split(f"Reference [{cited}]: ")[1].split("\\")[0]
        assert question.answers[0] in shown  # q2's misspelt query finds nothing: its gold passage was put in


def test_of_the_answers_to_learn_a_share_has_no_reference_and_no_citation(source, monkeypatch):
    unknown = [replace(ASKED, id=str(i), answers=("Agnes Vale",), gold_passages=()) for i in range(9)]
    known = [replace(ASKED, id=f"known {i}") for i in range(6)]
    for share, n_unknown in ((0.25, 2), (0.5, 6), (0.0, 0)):
        monkeypatch.setattr(synthesis, "UNSUPPORTED", share)
        samples = synthesis.answer_samples(source, unknown + known, CONFIG)
        targets = [sample.target[0] for sample in samples]
        assert targets.count("Agnes Vale") == n_unknown
        assert len(targets) == 6 + n_unknown


def test_a_right_answer_is_true_and_needs_no_revision(good):
    verdict = judge(good, "a better question")
    assert (verdict.judgment, verdict.revised_question) == ("true", "")
    for name in ("reference_correctness", "correctness", "citation_accuracy", "truthfulness", "conciseness"):
        assert getattr(verdict, name) > 0.9
    assert verdict.bias < 0.1


def test_an_answer_is_right_in_whole_words_alone(good):
    year = replace(good, question=replace(ASKED, answers=("2",), gold_passages=()))
    assert judge(replace(year, answer="in 1829"), "").judgment == "false"
    assert judge(replace(year, answer="in 2 days"), "").judgment == "true"


def test_a_repetition_is_wrong_in_conciseness_alone_of_the_two_forms(good):
    for seed in range(6):
        corrupted = synthesis.repeat_words(good.answer, random.Random(seed))
        assert synthesis.is_repetitive(corrupted)
        verdict = judge(replace(good, answer=corrupted), "")
        assert verdict.judgment == "false"
        assert verdict.conciseness < 0.1
        assert verdict.correctness > 0.9
        assert verdict.citation_accuracy > 0.9


def test_a_moved_citation_is_wrong_in_citation_accuracy_and_the_answer_stays_right(good):
    moved = synthesis.move_citations(good.answer, [2], 2, random.Random(0))
    assert moved == "Edith Marrow[1]"
    verdict = judge(replace(good, answer=moved), "")
    assert verdict.citation_accuracy < 0.1
    assert verdict.correctness > 0.9
    assert verdict.conciseness > 0.9
    assert verdict.judgment == "true"  # which is about the answer alone


def test_a_search_that_failed_is_wrong_in_its_references_and_gets_the_better_question(bad):
    verdict = judge(bad, CLEAN)
    assert (verdict.judgment, verdict.revised_question) == ("false", CLEAN)
    assert verdict.reference_correctness < 0.1
    assert verdict.correctness < 0.1


def test_where_the_references_were_good_searching_again_is_not_taught(good):
    wrong = replace(good, answer="Aldermere[1]")
    verdict = judge(wrong, "a better question")
    assert (verdict.judgment, verdict.revised_question) == ("false", "")
    assert not replace(wrong, verdict=verdict).lacks_revision


def test_a_better_question_is_found_by_the_text_that_was_asked(good, bad):
    known, unknown = annotate([bad, good], {MISSPELT.question: CLEAN}), annotate([bad, good], {})
    assert [one.verdict.revised_question for one in known] == [CLEAN, ""]
    assert [one.lacks_revision for one in known] == [False, False]
    assert [one.lacks_revision for one in unknown] == [True, False]


def test_broken_questions_differ_from_the_first_and_keep_it_as_their_clean_form():
    made = {synthesis.break_question(ASKED, random.Random(seed)) for seed in range(20)}
    assert len(made) > 5
    assert all(q.question != ASKED.question for q in made)
    assert {q.clean_question for q in made} == {CLEAN}


def corpus_of(n):
    """A corpus in which n questions have an answer each, among many passages with nearly the same words."""
    numbers = range(10, 10 + n)  # a number of one digit is no word for BM25
    passages = [Passage(f"p{i}", f"Book {i}", f"Book {i} was written by Writer{i}.") for i in numbers]
    passages += [Passage(f"x{i}", "Books", "Book was written by someone.") for i in range(8)]
    questions = [Question(f"q{i}", "nq", f"who wrote book {i}", (f"Writer{i}",), (f"p{i}",)) for i in numbers]
    return Source(questions, passages, *load_searches(CONFIG, passages))


def answer_rightly(x, k):
    return [f"Writer{question.split()[-1]}[1]" for question in x]


def test_examples_are_natural_first_and_corrupted_by_hand_in_a_minority(monkeypatch):
    source = corpus_of(10)
    monkeypatch.setattr(synthesis, "CORRUPTED", 0.3)
    made = synthesis.make_examples(source, source.questions, answer_rightly, CONFIG)
    counts = {kind: sum(one.kind == kind for one in made) for kind in synthesis.KINDS}
    assert (counts["retrieved"], counts["deeper passages"], counts["broken wording"]) == (10, 10, 2)
    assert counts["repetition"] + counts["wrong citation"] == 3
    for one in made:
        assert len(one.passages) == 2
        if one.kind == "deeper passages":
            assert not holds_answer(one.passages, one.question.answers)
        if one.kind in ("retrieved", "repetition", "wrong citation"):
            assert holds_answer(one.passages, one.question.answers)


def test_only_what_its_own_search_missed_is_a_failure(good, bad):
    without = replace(good, passages=bad.passages, kind="deeper passages")  # it was found, and taken away
    assert synthesis.find_failures([good, bad, without]) == {MISSPELT.question: bad}


def test_as_many_right_as_wrong_answers_are_kept_in_every_set_and_wording(good, bad):
    wrong = replace(good, answer="Aldermere[1]")
    other = replace(ASKED, dataset="webq")
    examples = [good] * 30 + [wrong] * 90  # of one set, well put
    examples += [replace(good, question=other)] * 20 + [replace(wrong, question=other)] * 10
    examples += [bad] * 10  # of broken wording there is no right answer
    chosen = synthesis.balance(annotate(examples, {}), 80)
    counts = {}
    for one in chosen:
        place = (*synthesis._stratum(one), one.verdict.judgment)
        counts[place] = counts.get(place, 0) + 1
    assert counts == {
        ("nq", "well put", "true"): 30,
        ("nq", "well put", "false"): 30,
        ("webq", "well put", "true"): 7,
        ("webq", "well put", "false"): 7,
    }
    assert synthesis.composition(chosen).n.sum() == 74


def test_of_the_wrong_answers_half_have_a_better_question_as_far_as_there_are_any(good, bad):
    right = replace(bad, answer="Edith Marrow[1]")
    hopeless = replace(bad, question=replace(MISSPELT, question="hoo?"))
    examples = annotate([right] * 40 + [bad] * 30 + [hopeless] * 30, {MISSPELT.question: CLEAN})
    wrong = [one for one in synthesis.balance(examples, 40) if one.verdict.judgment == "false"]
    assert len(wrong) == 20
    assert sum(bool(one.verdict.revised_question) for one in wrong) == 10
    few = annotate([right] * 40 + [bad] * 4 + [hopeless] * 30, {MISSPELT.question: CLEAN})
    wrong = [one for one in synthesis.balance(few, 40) if one.verdict.judgment == "false"]
    assert sum(bool(one.verdict.revised_question) for one in wrong) == 4


def test_a_verify_sample_is_decoded_by_the_parts_it_is_taught_by(good):
    (one,) = annotate([good], {})
    (chained,) = synthesis.verify_samples([one])
    (direct,) = synthesis.verify_samples([one], with_chain=False)
    assert parse_verdict("".join(chained.target)) == one.verdict
    assert "".join(direct.target) == '{ "4": "" }'
    assert chained.prompt == direct.prompt
    assert not chained.unfinished
    assert not direct.unfinished


def test_where_no_better_question_is_known_no_end_is_taught(bad):
    (one,) = annotate([bad], {})
    (chained,) = synthesis.verify_samples([one])
    (direct,) = synthesis.verify_samples([one], with_chain=False)
    assert chained.unfinished
    assert direct.unfinished
    # An empty question would say that the answer may stay.
    assert "".join(chained.target).endswith('"3": "false')
    assert "".join(direct.target) == '{ "4": "'


def test_a_rewriter_learns_the_same_revisions_without_what_was_retrieved(good, bad, passages):
    hopeless = replace(bad, question=replace(MISSPELT, question="hoo?"))
    examples = annotate([good, bad, bad, hopeless], {MISSPELT.question: CLEAN})
    samples = synthesis.rewrite_samples(examples)
    assert [sample.target[0] for sample in samples] == [ASKED.question, CLEAN]  # of the hopeless one nothing is known
    assert not any(passage.text in sample.prompt for sample in samples for passage in passages)


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


def found_for(question, passages, author, search):
    return synthesis.find_revisions(
        {question.question: Example(question, tuple(passages), "", "retrieved")}, author, search
    )


def test_the_question_stands_in_every_candidate_but_the_bare_ones_and_is_none_itself(passages):
    made = synthesis.propose(
        Example(MISSPELT, passages[:1], "Agnes[1]", ""), "Edith wrote it.\nMore", "lanterns", "Ada, Eve"
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
    assert synthesis.propose(Example(unknown, (), "", ""), asked, "", "") == {"guess": f"{asked}? {asked}"}


def test_a_candidate_is_one_line_that_a_verdict_can_hold():
    assert synthesis.tidy('the "Copper\\Lanterns"\nagain') == "the Copper Lanterns again"
    assert len(synthesis.tidy(" ".join(map(str, range(99)))).split()) == synthesis.LONGEST
    assert synthesis.tidy("one\x00two\x1bthree") == "one two three"
    assert synthesis.tidy("England, England England - England") == "England, England -"


def test_candidates_that_find_the_passage_are_kept_by_their_form(passages, search):
    assert found_for(MISSPELT, passages[2:4], Guesser(), search) == {MISSPELT.question: {synthesis.CLEAN: CLEAN}}
    unknown = replace(MISSPELT, clean_question="")
    author = Guesser("Sheep graze on hills.", "copper lanterns novel")
    kept = found_for(unknown, passages[2:4], author, search)[MISSPELT.question]
    assert set(kept) == {"key terms", "key terms alone"}


def test_the_form_that_finds_most_is_taken_the_well_put_question_first_and_bare_guesses_last():
    rare, common = {"guess": "a"}, {"guess": "b", "options": "c"}
    counts = {"guess": 3, "options": 5, "a guess alone": 3}
    assert synthesis.choose(common, counts) == "c"
    assert synthesis.choose(rare, counts) == "a"
    assert synthesis.choose({"a guess alone": "d", "guess": "b"}, counts | {"a guess alone": 9}) == "b"
    assert synthesis.choose({"options": "c", synthesis.CLEAN: "clean"}, counts | {synthesis.CLEAN: 1}) == "clean"


def test_where_no_candidate_finds_anything_new_none_is_kept(passages, search):
    useless = replace(MISSPELT, gold_passages=("p4",), clean_question="what about sheep and hills?")
    assert found_for(useless, passages[5:], Guesser("Sheep.", "hills"), search) == {}
    assert synthesis.find_revisions({}, Guesser(), search) == {}


def test_a_second_step_is_asked_for_only_after_the_first_was_found(passages):
    assert synthesis.clean_wording(TWO_HOP, passages[:1]) == "Where was Edith Marrow born?"
    assert synthesis.clean_wording(TWO_HOP, passages[3:5]) == ""


def test_a_newer_account_is_asked_for_only_once_a_passage_has_pointed_at_it(passages):
    question = "What is the population of Stonebridge today?"
    clean = "What is the population of Stonebridge in 1954?"
    stale = Question("q", "entity", question, ("12,400",), ("p1",), clean, "population/stale")
    old = replace(passages[0], text="Some 9,000 people live in Stonebridge, says a guide of 1931.")
    pointing = replace(old, text=f"{old.text} All was described anew in 1954.")
    assert synthesis.clean_wording(stale, [old]) == ""
    assert synthesis.clean_wording(stale, [old, pointing]) == clean
