"""A number of the paper stands beside ours only where it was measured on the same sets."""

import pytest

from covrag_lite.systems import SYSTEMS
from covrag_lite.tables import paper

FOUR = ("nq", "webq", "mintaka", "triviaqa")
WORLD = ("search", "entity", "complex", "quiz")


@pytest.mark.parametrize("table", ["table2", "table3", "table4", "table5"])
def test_nothing_stands_beside_the_worlds_sets(table):
    compared = [name for name, system in SYSTEMS.items() if table in system.paper]
    assert len(compared) >= 2
    for system in compared:
        assert paper.find_values(table, system, WORLD) == {}


def test_a_sets_value_stands_beside_that_set():
    assert paper.find_values("table2", "CoV-RAG", ["webq"]) == {"webq": 68.5}
    assert paper.find_values("table4", "CoV-RAG", ["nq", "search"]) == {"nq": 58.3}


def test_sets_whose_sample_is_not_published_have_no_value_and_so_no_average():
    assert paper.find_values("table2", "CoV-RAG", FOUR[::-1]) == {"nq": 66.0, "webq": 68.5}
    assert paper.find_values("table4", "CoV-RAG", ["triviaqa"]) == {}


def test_shares_of_several_sets_stand_only_beside_those_sets():
    assert paper.find_values("table5", "CoV-RAG", ["webq", "nq"])["judge"] == 60.0
    assert paper.find_values("table5", "CoV-RAG", FOUR) == {}
    assert paper.find_values("table3", "CoV-RAG", FOUR) == {}  # ranks over sets of which two are not known
    assert paper.find_values("table3", "CoV-RAG", ["nq"]) == {}


def test_every_row_that_a_system_is_compared_with_is_a_row_of_the_paper():
    for system in SYSTEMS.values():
        for table, row in system.paper.items():
            assert row in paper.load_paper()[table]["rows"], f"{system.name}: {row}"


def test_the_papers_averages_are_the_means_of_its_sets():
    for name, row in paper.load_paper()["table2"]["rows"].items():
        sets = [value for column, value in row.items() if column != "average"]
        assert row["average"] == pytest.approx(sum(sets) / len(sets), abs=0.1), name
