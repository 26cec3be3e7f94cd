"""The judge beside those that know less, and what bounds CoV-RAG, on frames made by hand."""

import pandas as pd
import pytest

from covrag_lite.tables import verifier
from covrag_lite.tables.failures import bounds, count_found, error_classes


def make_frame(rows):
    """A frame from (form, first right, judgment, expected correctness, likelihood) of each question."""
    columns = ["form", "first_normalised", "judgment", "expected_correctness", "likelihood"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.assign(system="CoV-RAG", dataset="search", id=[f"q{i}" for i in range(len(rows))])


@pytest.fixture
def speller():
    """A judge that looks at the spelling alone: right on most questions, and blind on well-put ones."""
    broken = [("broken wording", i == 0, "false", 0.1, -1.0 - i) for i in range(5)]
    well_put = [("well put", i > 0, "true", 0.9, -0.1 * i) for i in range(5)]
    return make_frame(broken + well_put)


def test_a_judge_of_spelling_is_no_better_than_the_rule_that_sees_the_wording_alone(speller):
    table = verifier.judge_table(speller).set_index("questions")
    assert table.loc["all", "judge"].startswith("80.0") and table.loc["all", "wording"] == "80.0"
    assert table.loc["all", "majority"] == "50.0"  # beside the majority alone it would look good
    assert table.loc["well put", "caught"] == "0 of 1" and table.loc["broken wording", "caught"] == "4 of 4"
    assert table.loc["well put", "AUROC"].startswith("0.50")


def test_the_answers_likelihood_stands_beside_the_judge(speller):
    table = verifier.judge_table(speller).set_index("questions")
    assert table.loc["broken wording", "likelihood"].startswith("1.00")  # the right answer is the likeliest one
    assert table.loc["well put", "likelihood"].startswith("0.00")
    unknown = verifier.judge_table(speller.assign(likelihood=None)).set_index("questions")
    assert set(unknown.likelihood) == set(unknown.both) == {"–"}


def test_a_judge_that_looks_at_the_passages_alone_trusts_whatever_is_answered_from_good_ones():
    found = [True, True, True, False, False]
    said = ["true" if one else "false" for one in found]
    right = [True, False, False, False, True]
    frame = make_frame([("well put", one, word, 0.5, -1.0) for one, word in zip(right, said)])
    table = verifier.trust_table(frame.assign(gold_first=found)).set_index("passages")
    assert table.loc["a gold passage", ["right", "n right", "wrong", "n wrong"]].tolist() == [100.0, 1, 100.0, 2]
    assert table.loc["no gold passage", ["right", "wrong"]].tolist() == [0.0, 0.0]


def test_nothing_beats_a_perfect_judge_and_reader():
    outcomes = {
        "first_normalised": [True, False, False, False],
        "normalised": [False, True, False, False],
        "found_first": [True, False, True, False],
        "found_last": [False, True, True, False],
    }
    frame = pd.DataFrame(outcomes).assign(system="CoV-RAG")
    table = bounds(frame)
    assert table["answer never revise"] == table["answer as it is"] == 25.0
    assert table["answer perfect judge, the better of two answers"] == 50.0
    assert table["answer perfect judge and reader"] == 75.0
    assert table["passages perfect choice between the two"] == 75.0
    assert count_found(frame) == (1, 1)


def test_every_wrong_answer_is_of_one_class():
    frame = pd.DataFrame(
        {
            "normalised": [True, False, False, False, False, None],
            "found_first": [True, False, True, False, False, True],
            "found_last": [True, True, False, False, False, True],
            "revised": [False, True, True, False, True, False],
        }
    )
    shares = error_classes(frame.assign(system="CoV-RAG"))
    assert shares == dict.fromkeys(["misread", "searched away", "not found, trusted", "not found twice"], 25.0)
