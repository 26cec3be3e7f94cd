"""D → D1 and D2′: every negative is wrong in its own way (spoiling), and the oracle follows its rules."""

import random
from dataclasses import replace

import pytest

from covrag_lite.config import Config, Retrieval
from covrag_lite.prompts import parse_verdict
from covrag_lite.records import CITATION, Question
from covrag_lite.retrieval import load_retriever
from covrag_lite.training import synthesis
from covrag_lite.training.oracle import Example, annotate, judge, supporting
from covrag_lite.training.sources import Source
from covrag_lite.training.spoiling import break_question, is_repetitive, move_citations, repeat_words

CLEAN = "Who wrote The Copper Lanterns?"
ASKED = Question("q", "nq", "who wrote the copper lanterns", ("Edith Marrow",), ("p0",), CLEAN, "author")
MISSPELT = replace(ASKED, question="hoo rote teh coper lnterns", kind="author+misspelt")
TWO_HOP = Question(
    "q",
    "mintaka",
    "Where was the author of The Copper Lanterns born?",
    ("Stonebridge",),
    ("p1",),
    "Where was Edith Marrow born?",
    "two-hop",
)


@pytest.fixture
def search(passages):
    return load_retriever(Retrieval(k=2), passages)


@pytest.fixture
def good(passages):
    """A right answer from a passage that states it."""
    return Example(ASKED, (passages[2], passages[0]), "Edith Marrow[2]", "gold answer")


@pytest.fixture
def bad(passages):
    """A misspelt question that found nothing of use."""
    return Example(MISSPELT, (passages[2], passages[3]), "Aldermere[1]", "bad query")


def test_the_halves_share_no_question_and_lose_none():
    questions = [Question(str(i), "nq", "?", ("a",)) for i in range(11)]
    one, two = synthesis.halve(questions, 1)
    assert len(one) == 5
    assert sorted(one + two, key=lambda q: int(q.id)) == questions
    assert synthesis.halve(questions, 1) == (one, two) != synthesis.halve(questions, 2)


def test_an_answer_sample_always_shows_a_reference_that_answers_it(passages, questions, search):
    samples = synthesis.answer_samples(questions[:3], passages, search, 1)
    assert samples[0].target[0].startswith("Edith Marrow[")
    for sample, question in zip(samples, questions):
        cited = int(CITATION.findall(sample.target[0])[0])
        shown = sample.prompt.split(f"Reference [{cited}]: ")[1].split("\\")[0]
        assert question.answers[0] in shown  # q2's misspelt query finds nothing: its gold passage was put in


def test_a_right_answer_is_true_and_needs_no_revision(good, search):
    verdict = judge(good, search)
    assert (verdict.judgment, verdict.revised_question) == ("true", "")
    for name in ("reference_correctness", "correctness", "citation_accuracy", "truthfulness", "conciseness"):
        assert getattr(verdict, name) > 0.9
    assert verdict.bias < 0.1


def test_a_repetition_is_wrong_in_conciseness_alone_of_the_two_forms(good, search):
    for seed in range(6):
        spoilt = repeat_words(good.answer, random.Random(seed))
        assert is_repetitive(spoilt)
        verdict = judge(replace(good, answer=spoilt), search)
        assert verdict.judgment == "false"
        assert verdict.conciseness < 0.1
        assert verdict.correctness > 0.9
        assert verdict.citation_accuracy > 0.9


def test_a_moved_citation_is_wrong_in_citation_accuracy(good, search):
    moved = move_citations(good.answer, [2], 2, random.Random(0))
    assert moved == "Edith Marrow[1]"
    verdict = judge(replace(good, answer=moved), search)
    assert verdict.judgment == "false"
    assert verdict.citation_accuracy < 0.1
    assert verdict.correctness > 0.9
    assert verdict.conciseness > 0.9


def test_a_bad_query_is_wrong_in_its_references_and_gets_a_question_that_finds_them(bad, search):
    verdict = judge(bad, search)
    assert (verdict.judgment, verdict.revised_question) == ("false", CLEAN)
    assert verdict.reference_correctness < 0.1
    assert verdict.correctness < 0.1
    assert not supporting(MISSPELT, bad.passages)
    assert supporting(MISSPELT, search([verdict.revised_question])[0])


def test_a_revision_that_finds_nothing_new_is_not_taught(bad, search):
    useless = replace(MISSPELT, clean_question="what about sheep and hills?")
    assert judge(replace(bad, question=useless), search).revised_question == ""


def test_where_the_references_were_good_searching_again_is_not_taught(good, search):
    verdict = judge(replace(good, answer="Aldermere[1]"), search)
    assert (verdict.judgment, verdict.revised_question) == ("false", "")


def test_a_second_step_is_asked_for_only_after_the_first_was_found(passages, search):
    first_found = Example(TWO_HOP, (passages[0], passages[3]), "Aldermere[1]", "seed answer")
    nothing_found = replace(first_found, passages=(passages[4], passages[3]))
    assert judge(first_found, search).revised_question == "Where was Edith Marrow born?"
    assert judge(nothing_found, search).revised_question == ""


def test_broken_questions_differ_from_the_first_and_keep_it_as_their_clean_form():
    made = {break_question(ASKED, random.Random(seed)) for seed in range(20)}
    assert len(made) > 5
    assert all(q.question != ASKED.question for q in made)
    assert {q.clean_question for q in made} == {CLEAN}


def test_balanced_data_has_as_many_right_as_wrong_answers(good, search):
    wrong = replace(good, answer="Aldermere[1]")
    examples = annotate([good] * 30 + [wrong] * 90, search)
    chosen = synthesis.balance(examples, 40, 1)
    judgments = [one.verdict.judgment for one in chosen]
    assert judgments.count("true") == judgments.count("false") == 20
    assert len(synthesis.balance(examples, 1000, 1)) == 60  # no more than the rarer side allows
    assert synthesis.composition(chosen).n.sum() == 40


def test_a_verify_sample_is_decoded_by_the_parts_it_is_taught_by(good, search):
    one = replace(good, verdict=judge(good, search))
    (chained,) = synthesis.verify_samples([one])
    (direct,) = synthesis.verify_samples([one], with_chain=False)
    assert parse_verdict("".join(chained.target)) == one.verdict
    assert "".join(direct.target) == '{ "4": "" }'
    assert chained.prompt == direct.prompt


def test_a_rewriter_learns_the_same_revisions_without_what_was_retrieved(good, bad, passages, search):
    samples = synthesis.rewrite_samples(annotate([good, bad, bad], search))
    assert [sample.target[0] for sample in samples] == [ASKED.question, CLEAN]
    assert not any(passage.text in sample.prompt for sample in samples for passage in passages)


def test_the_seed_model_answers_the_half_that_it_has_not_learnt_from(passages, questions, search):
    sources = [Source(questions[:3] * 4, passages, search)]
    d1, d2 = synthesis.answer_halves(sources, 1)
    assert (len(d1), len(d2)) == (6, 6)
    asked = []

    def answer(x, k):
        asked.append(list(x))
        return ["Aldermere[1]"] * len(x)

    every, chosen = synthesis.verification_data(Config(), sources, answer)
    second_half = [q.question for q in synthesis.halve(sources[0].questions, 1)[1]]
    assert asked[0] == second_half
    assert {one.kind for one in every} >= {"seed answer", "gold answer", "bad query"}
    judgments = [one.verdict.judgment for one in chosen]
    assert 0 < judgments.count("true") == judgments.count("false") <= 3
