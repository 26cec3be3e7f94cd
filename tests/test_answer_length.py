"""Long cited answers next to short ones: accuracy after the same number of words."""

import pandas as pd
import pytest
from test_citations import predict

from covrag_lite.tables import answer_length, citations
from covrag_lite.tables.answer_length import LONG, MORE_SHORT, SHORT

GOLD = ("Stonebridge", "the old town")


# How many words must be read.


@pytest.mark.parametrize(
    "answer, words",
    [
        ("Stonebridge.", 1),
        ("She was born in Stonebridge [1], it says.", 5),
        ("She lived in the Old Town of Stonebridge.", 6),  # the first gold answer that is complete
        ("Nowhere.", None),
        ("", None),
    ],
)
def test_words_are_counted_until_the_answer_is_right(answer, words):
    assert citations.count_words_until_right(answer, GOLD) == words


def test_an_answer_that_cannot_be_scored_is_never_right():
    assert citations.count_words_until_right("anything", ("---",)) is None


def test_the_count_of_an_answer_has_the_words_until_it_is_right():
    assert citations.count(predict("In Stonebridge [1]."))["right_after"] == 2


# The table, of three questions.


def counts_of(**systems):
    """Counts of answers to q1, q2 and q3: how many words each needs, None if it is never right."""
    rows = []
    for system, words in systems.items():
        for number, right_after in enumerate(words, 1):
            rows.append(
                {
                    "system": system.replace("_", " "),
                    "id": f"q{number}",
                    "right": right_after is not None,
                    "right_after": right_after,
                    "words": 30,
                }
            )
    return pd.DataFrame(rows).astype({"right_after": float})


@pytest.fixture
def counts():
    # q4 cannot be scored.
    defect = {"system": "RAG trained", "id": "q4", "right": None, "right_after": None, "words": 30}
    long = counts_of(RAG=(None, 15, None), RAG_trained=(5, 15, 25), **{"CoV-RAG": (5, 10, 11)})
    return {
        LONG: pd.concat([long, pd.DataFrame([defect])], ignore_index=True),
        SHORT: counts_of(RAG=(None, None, None), RAG_trained=(None, 2, None))[::-1],
        MORE_SHORT: counts_of(RAG_trained=(1, 1, 1), **{"CoV-RAG": (1, 1, None)}),
    }


@pytest.mark.parametrize(
    "system, accuracies",
    [
        ("RAG (trained), 688 long answers", ("33.3", "66.7", "100.0")),
        ("CoV-RAG, 688 long answers", ("66.7", "100.0", "100.0")),
        ("RAG (untuned), up to 128 tokens", ("0.0", "33.3", "33.3")),
        ("RAG (trained), 688 short answers", ("33.3", "33.3", "33.3")),
        ("CoV-RAG, 5,308 short answers", ("66.7", "66.7", "66.7")),
    ],
)
def test_accuracy_counts_what_is_right_within_the_first_words(counts, system, accuracies):
    table = answer_length.measure_readers(counts).set_index("system")
    columns = ["after 10 words", "after 20 words", "accuracy"]
    assert tuple(table.loc[system, columns]) == accuracies


@pytest.mark.parametrize(
    "words, gained, lost", [(answer_length.ALL_WORDS, 2, 0), (10, 1, 1), (20, 1, 0)]
)
def test_answers_are_paired_by_question(counts, words, gained, lost):
    rows = answer_length.compare_readers(counts)
    pair = rows[rows.pair == "short-688 RAG trained → long-688 RAG trained"]
    (row,) = pair[pair["words read"] == words].to_dict("records")
    assert (row["gained"], row["lost"], row["n"]) == (gained, lost, "3")


def test_facts_name_reader_system_and_words(counts):
    facts = answer_length.build(counts).facts
    assert facts["long-688 RAG trained after 20 words"] == "66.7"
    assert facts["long-688 RAG trained → long-688 CoV-RAG 10 gained"] == "1"
