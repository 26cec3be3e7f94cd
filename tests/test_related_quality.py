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

TWO_STATEMENTS = "Edith[1][2][1]. She was born in 1861 [2]. "


def test_statements_are_sentences_without_their_marks():
    texts = [statement.text for statement in read_statements(TWO_STATEMENTS, 3)]
    assert texts == ["Edith.", "She was born in 1861 ."]


def test_a_statement_cites_each_of_its_passages_once():
    cited = [statement.cited for statement in read_statements(TWO_STATEMENTS, 3)]
    assert cited == [[0, 1], [1]]


@pytest.mark.parametrize("answer", ["Edith[4]", "Edith[0]"])
def test_a_mark_that_points_nowhere_cites_nothing(answer):
    assert read_statements(answer, 3) == [("Edith", [])]


def test_marks_alone_are_no_statement():
    assert read_statements("[1]", 3) == []


def assess_answer(answer, entailing, passages):
    """The quality of an answer if these passages entail all of its statements."""

    def entail(x, k, y):
        return [[float(passage.id in entailing) for passage in passages] for passages in k]

    (quality,) = assess(["who?"], [passages[:3]], [answer], entail)
    return quality


def test_an_answer_is_assessed_by_every_aspect(passages):
    assert tuple(assess_answer("Edith[1]", "p0", passages)) == ASPECTS


@pytest.mark.parametrize("number, aspect", list(enumerate(ASPECTS)))
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
def test_an_aspect_of_an_answer_follows_from_the_entailing_passages(
    passages, answer, entailing, expected, number, aspect
):
    assert assess_answer(answer, entailing, passages)[aspect] == expected[number]


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


LONG_GOLD = "Kites fly there every May. Sheep live on the hills. Lanterns of copper hang in town."


def test_three_short_sentences_are_a_long_answer():
    assert len(LONG_GOLD.split()) > LONG_ANSWER


def test_of_a_long_gold_answer_each_sentence_is_a_claim():
    question = Question("q", "eli5", "what is there?", (LONG_GOLD,))
    recalls = claim_recall([question], ["Kites and Lanterns[1]"], entail_first_words)
    assert recalls == [pytest.approx(2 / 3)]


def test_without_a_usable_gold_answer_the_claim_recall_is_unknown():
    question = Question("q", "nq", "what?", ("---",))
    assert claim_recall([question], ["Leeds"], entail_first_words) == [None]
