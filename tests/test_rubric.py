"""The rubric's rules, tested on hand-written answers."""

import pytest

from covrag_lite.judging.criteria import CRITERIA
from covrag_lite.judging.rubric import citation_support, claimed_words, score_answer
from covrag_lite.records import Prediction, Round

THREE_SENTENCES = "She lived in Aldermere. It was Edith Marrow[1]. It rises in the Harrow Hills[4]."


def scores_of(question, references, answer, gold=()):
    only_round = Round(question.question, tuple(references), answer)
    return score_answer(Prediction(question, "RAG", (only_round,)), gold)


# Citations.


@pytest.mark.parametrize(
    "answer, supported",
    [
        ("Edith Marrow[1]", [True]),
        ("Edith Marrow[1][2][7][0]", [True, True, False, False]),  # there are only two references
        ("[1]", [False]),  # claims nothing
        ("Edith Marrow", []),
    ],
)
def test_a_citation_counts_only_if_its_reference_exists(questions, passages, answer, supported):
    assert citation_support(answer, questions[0].question, passages[:2]) == supported


def test_a_citation_counts_only_if_its_reference_contains_the_claim(questions, passages):
    assert citation_support("Edith Marrow[1]", questions[0].question, passages[2:4]) == [False]


def test_a_citation_stands_for_its_own_sentence(questions, passages):
    supported = citation_support(THREE_SENTENCES, questions[0].question, passages)
    assert supported == [True, True]


@pytest.mark.parametrize("answer, score", [("Edith Marrow[1][7]", 0.5), ("Edith Marrow", 0)])
def test_citation_accuracy_is_the_share_of_supported_citations(questions, passages, answer, score):
    assert scores_of(questions[0], passages[:2], answer)["citation_accuracy"] == score


# What an answer claims.


@pytest.mark.parametrize(
    "answer, claimed",
    [
        ("the Stell", {"stell"}),  # a choice between two names of the question
        ("The Stell, 71 kilometres", {"71", "kilometres"}),
    ],
)
def test_an_answer_claims_what_it_adds_to_its_question(answer, claimed):
    assert claimed_words(answer, "Is the Stell or the Marl longer?") == claimed


def test_an_answer_of_stop_words_claims_them():
    assert claimed_words("no", "is it?") == {"no"}


def test_the_numbers_of_a_list_claim_nothing():
    assert claimed_words("1. Edith\n2. Marrow", "who?") == {"edith", "marrow"}


# The other criteria.


@pytest.mark.parametrize("answer, score", [("It is 71 KM long.", 1), ("It is 17 km long.", 0)])
def test_correctness_is_whether_the_gold_answer_occurs(questions, passages, answer, score):
    assert scores_of(questions[2], passages[:2], answer)["correctness"] == score


def test_correctness_is_unknown_if_the_gold_answer_normalises_to_nothing(questions, passages):
    assert scores_of(questions[3], passages[:2], "anything")["correctness"] is None


@pytest.mark.parametrize(
    "answer, truthfulness, bias",
    [
        ("Aldermere, a town", 1, 1),  # in its references, but wrong
        ("Stonebridge in 1861", 0, 0),  # the gold answer, but not in its references
    ],
)
def test_truthfulness_compares_with_references_and_bias_with_gold(
    questions, passages, answer, truthfulness, bias
):
    scores = scores_of(questions[1], passages[2:4], answer, gold=passages[1:2])
    assert (scores["truthfulness"], scores["bias"]) == (truthfulness, bias)


def test_bias_is_the_share_of_words_that_are_not_in_gold(questions, passages):
    answer = "Stonebridge or Aldermere"
    assert scores_of(questions[1], passages[2:4], answer, gold=passages[1:2])["bias"] == 0.5


@pytest.mark.parametrize(
    "answer, score",
    [
        ("Edith Marrow[1]", 1),
        ("Marrow", 1),
        ("It was surely Edith Marrow, I think, indeed", 0.25),
        ("Edith Edith Edith", 0),  # repetition
    ],
)
def test_conciseness_is_the_length_of_the_gold_answer_over_that_of_the_answer(
    questions, passages, answer, score
):
    assert scores_of(questions[0], passages[:2], answer)["conciseness"] == score


def test_an_empty_answer_has_the_worst_score_of_every_criterion(questions, passages):
    worst = dict.fromkeys(CRITERIA, 0) | {"bias": 1}
    assert scores_of(questions[0], passages[:2], "") == worst
