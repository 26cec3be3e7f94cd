"""A number of the paper is shown next to ours only if it was measured on the same sets."""

import pytest

from covrag_lite.systems import SYSTEMS
from covrag_lite.tables import paper

FOUR = ("nq", "webq", "mintaka", "triviaqa")


@pytest.mark.parametrize(
    "table, sets, values",
    [
        ("table2", ["webq"], {"webq": 68.5}),
        ("table4", ["nq", "search"], {"nq": 58.3}),
        ("table2", FOUR[::-1], {"nq": 66.0, "webq": 68.5}),  # the other samples are not public, so no average
        ("table4", ["triviaqa"], {}),
        ("table5", FOUR, {}),  # shares of two sets
        ("table3", FOUR, {}),  # ranks over sets of which two are not public
        ("table3", ["nq"], {}),
    ],
)
def test_a_value_is_shown_only_for_the_sets_it_was_measured_on(table, sets, values):
    assert paper.find_values(table, "CoV-RAG", sets) == values


def test_a_system_is_compared_with_a_row_of_the_paper_and_never_on_the_worlds_sets():
    compared = [(system.name, table, row) for system in SYSTEMS.values() for table, row in system.paper.items()]
    assert {table for _, table, _ in compared} == {"table2", "table3", "table4", "table5"}
    for name, table, row in compared:
        assert row in paper.load_paper()[table]["rows"], f"{name}: {row}"
        assert paper.find_values(table, name, ("search", "entity", "complex", "quiz")) == {}


def test_the_papers_averages_are_the_means_of_its_sets():
    for name, row in paper.load_paper()["table2"]["rows"].items():
        sets = [value for column, value in row.items() if column != "average"]
        assert row["average"] == pytest.approx(sum(sets) / len(sets), abs=0.1), name
