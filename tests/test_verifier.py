"""The judge beside those that know less, and what bounds CoV-RAG, on frames made by hand."""

import pandas as pd
import pytest

from covrag_lite.tables import verifier


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
