"""What was tried on validation questions: which answer counts, and the choice among several."""

import pandas as pd
import pytest

from covrag_lite.tables import validation


def answers(rows: dict[str, tuple[float, float, bool]]) -> pd.DataFrame:
    """One candidate's answers by question: likelihood, expected correctness, right or wrong."""
    return pd.DataFrame.from_dict(rows, orient="index", columns=["likelihood", "correctness", "right"])


@pytest.mark.parametrize(
    ("rule", "right"),
    [("last", [True, False, True]), ("likelier", [False, False, True]), ("better verified", [True, True, True])],
)
def test_each_rule_keeps_its_answer_and_a_question_without_a_second_one_keeps_its_first(rule, right):
    first = answers({"a": (-0.1, 0.2, False), "b": (-0.5, 0.9, True), "c": (-0.5, 0.9, True)})
    second = answers({"a": (-0.9, 0.8, True), "b": (-0.2, 0.1, False)})
    assert validation.keep(first, second, *validation.KEEPS[rule]).tolist() == right


def test_a_second_answer_counts_by_three_times_its_correctness():
    first, second = answers({"a": (-0.1, 0.3, False)}), answers({"a": (-1.2, 0.7, True)})
    assert validation.keep(first, second, 1, 3, 0).tolist() == [True]  # 1.2 gained, 1.1 lost
    assert validation.keep(first, second, 1, 2, 0).tolist() == [False]
    assert validation.compare(first, validation.keep(first, second, 1, 3, 0), 1) == (
        "100.0",
        1,
        "+100.00",
        1,
        0,
        "1.0000",
    )
