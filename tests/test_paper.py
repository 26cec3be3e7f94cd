"""A number of the paper is shown next to ours only if it was measured on the same sets."""

import pytest

from covrag_lite.systems import SYSTEMS
from covrag_lite.systems.names import COV_RAG
from covrag_lite.tables import paper

FOUR_SETS = ("nq", "webq", "mintaka", "triviaqa")
WORLD_SETS = ("search", "entity", "complex", "quiz")
# Every system with a row of the paper: system, table, row.
COMPARED = []
for _system in SYSTEMS.values():
    COMPARED += [(_system.name, table, row) for table, row in _system.paper.items()]


@pytest.mark.parametrize(
    "table, sets, values",
    [
        ("table2", ["webq"], {"webq": 68.5}),
        ("table4", ["nq", "search"], {"nq": 58.3}),
        ("table4", ["triviaqa"], {}),
    ],
)
def test_a_value_is_shown_only_for_the_sets_it_was_measured_on(table, sets, values):
    assert paper.find_values(table, COV_RAG, sets) == values


@pytest.mark.parametrize(
    "table, sets",
    [
        ("table5", FOUR_SETS),  # shares of two sets
        ("table3", FOUR_SETS),  # ranks over sets of which two are not public
        ("table3", ["nq"]),
    ],
)
def test_a_value_over_several_sets_is_shown_only_next_to_the_same_sets(table, sets):
    assert paper.find_values(table, COV_RAG, sets) == {}


def test_an_average_over_samples_that_are_not_public_is_not_shown():
    values = paper.find_values("table2", COV_RAG, FOUR_SETS[::-1])
    assert values == {"nq": 66.0, "webq": 68.5}


def test_a_value_over_two_public_sets_is_shown_next_to_both():
    assert paper.find_values("table5", COV_RAG, ["webq", "nq"])["judge"] == 60.0


def test_systems_are_compared_with_four_tables():
    assert {table for _, table, _ in COMPARED} == {"table2", "table3", "table4", "table5"}


@pytest.mark.parametrize("system, table, row", COMPARED)
def test_a_system_is_compared_with_a_row_of_the_paper(system, table, row):
    assert row in paper.load_paper()[table]["rows"]


@pytest.mark.parametrize("system, table, row", COMPARED)
def test_no_value_is_shown_for_the_sets_of_the_world(system, table, row):
    assert paper.find_values(table, system, WORLD_SETS) == {}


@pytest.mark.parametrize("row", paper.load_paper()["table2"]["rows"])
def test_an_average_of_the_paper_is_the_mean_of_its_sets(row):
    values = paper.load_paper()["table2"]["rows"][row]
    sets = [value for column, value in values.items() if column != "average"]
    assert values["average"] == pytest.approx(sum(sets) / len(sets), abs=0.1)


@pytest.mark.parametrize(
    "table, name, text",
    [
        ("table2", "CoV-RAG Llama2-13b nq", "66.0"),
        ("table2", "gain Llama2-13b average", "+1.3"),
        ("table3", "CoV-RAG bias", "1.89"),
        ("table4", "cost nq", "−24.2"),
        ("table6", "Bing NQ delta", "+1.8"),
    ],
)
def test_numbers_of_the_paper_are_facts_for_pages(table, name, text):
    assert paper.paper_facts()[f"paper/{table}"][name] == text


def test_every_row_of_a_table_of_the_paper_is_loaded_with_all_columns():
    table = paper.load_table("table2")
    assert list(table.index) == list(paper.load_paper()["table2"]["rows"])
    assert table.loc["CoV-RAG Llama2-13b", ["nq", "webq"]].tolist() == [66.0, 68.5]
    assert set(table) == {*FOUR_SETS, "average"}


def test_cov_rag_is_compared_with_webglm_of_the_same_backbone():
    pairs = {(d.better, d.baseline) for d in paper.list_differences() if d.table == "table2"}
    assert {better.partition(" ")[2] for better, _ in pairs} == {
        baseline.partition(" ")[2] for _, baseline in pairs
    }
    assert {better.partition(" ")[0] for better, _ in pairs} == {"CoV-RAG"}
    assert {baseline.partition(" ")[0] for _, baseline in pairs} == {"WebGLM"}


def test_a_system_that_the_paper_does_not_have_has_no_value():
    assert paper.find_values("table2", "another system", FOUR_SETS) == {}
    assert paper.find_values("table6", COV_RAG, FOUR_SETS) == {}


@pytest.mark.parametrize("table", ["table2", "table4", "table5"])
def test_a_fact_is_the_number_of_the_paper(table):
    facts = paper.paper_facts()[f"paper/{table}"]
    for row, values in paper.load_paper()[table]["rows"].items():
        for column, value in values.items():
            if isinstance(value, float):
                assert float(facts[f"{row} {column}"]) == pytest.approx(value, abs=0.05)


@pytest.mark.parametrize(
    "table, name, better, baseline",
    [
        ("table4", "gain", "End-Revise", "No-Revise"),
        ("table4", "cost", "Start-Revise", "No-Revise"),
        ("table5", "gain", "w/ Chain", "w/o Chain"),
    ],
)
def test_a_difference_of_the_paper_is_a_fact_in_every_column(table, name, better, baseline):
    rows = paper.load_paper()[table]["rows"]
    facts = paper.paper_facts()[f"paper/{table}"]
    for column in rows[better]:
        text = facts[f"{name} {column}"]
        difference = rows[better][column] - rows[baseline][column]
        assert float(text.replace("−", "-")) == pytest.approx(difference, abs=0.051)
        assert text[0] in "+−"


@pytest.mark.parametrize("table", ["table2", "table3", "table4", "table5", "table6"])
def test_a_loaded_table_of_the_paper_has_its_title(table):
    assert paper.load_table(table).index.name == paper.load_paper()[table]["title"]


@pytest.fixture
def uneven(monkeypatch):
    """A paper with one table, of which the first row lacks a column."""
    rows = {"a": {"x": 3.0}, "b": {"x": 2.0, "y": 4.0}}
    monkeypatch.setattr(paper, "load_paper", lambda: {"uneven": {"title": "A", "rows": rows}})


def test_a_column_that_a_row_of_the_paper_lacks_is_unknown(uneven):
    table = paper.load_table("uneven")
    assert list(table) == ["x", "y"]
    assert table.isna().values.tolist() == [[False, True], [False, False]]


def test_a_difference_of_the_paper_has_only_columns_that_both_rows_have(uneven):
    difference = paper.Difference("uneven", "gain", "b", "a")
    assert paper.facts_of_difference(difference) == {"gain x": "−1.0"}
