"""Citation quality and claim recall, as in ALCE, on answers whose entailment is scripted."""

import pytest

from covrag_lite.plugins.related.answer_quality import (
    ASPECTS,
    LONG_ANSWER,
    assess,
    claim_recall,
    read_statements,
)
from covrag_lite.records import Question


def test_statements_are_sentences_with_what_they_cite():
    statements = read_statements("Edith[1][2][1]. She was born in 1861 [2]. ", 3)
    assert statements == [("Edith.", [0, 1]), ("She was born in 1861 .", [1])]


@pytest.mark.parametrize("answer", ["Edith[4]", "Edith[0]"])
def test_a_mark_that_points_nowhere_cites_nothing(answer):
    assert read_statements(answer, 3) == [("Edith", [])]


def test_marks_alone_are_no_statement():
    assert read_statements("[1]", 3) == []


@pytest.mark.parametrize(
    "answer, entailing, expected",
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
def test_the_aspects_of_an_answer_follow_from_the_entailing_passages(
    passages, answer, entailing, expected
):
    def entail(x, k, y):
        return [[float(passage.id in entailing) for passage in passages] for passages in k]

    (quality,) = assess(["who?"], [passages[:3]], [answer], entail)
    assert quality == dict(zip(ASPECTS, expected))


def entail_first_words(x, k, y):
    """A text entails a claim if it contains the claim's first word."""
    return [
        [float(claim.split()[0] in passage.text) for passage in passages]
        for passages, claim in zip(k, y)
    ]


@pytest.mark.parametrize("answer, expected", [("It was Edith Marrow[1]", 1.0), ("Leeds", 0.0)])
def test_a_short_gold_answer_is_one_claim(answer, expected):
    question = Question("q", "nq", "who?", ("Edith Marrow", "Marrow"))
    assert claim_recall([question], [answer], entail_first_words) == [expected]


def test_of_a_long_gold_answer_each_sentence_is_a_claim():
    gold = "Kites fly there every May. Sheep live on the hills. Lanterns of copper hang in town."
    assert len(gold.split()) > LONG_ANSWER
    question = Question("q", "eli5", "what is there?", (gold,))
    recalls = claim_recall([question], ["Kites and Lanterns[1]"], entail_first_words)
    assert recalls == [pytest.approx(2 / 3)]


def test_without_a_usable_gold_answer_the_claim_recall_is_unknown():
    question = Question("q", "nq", "what?", ("---",))
    assert claim_recall([question], ["Leeds"], entail_first_words) == [None]
