"""A new table next to the recorded one of its configuration, cell by cell."""

from typing import NamedTuple

import pandas as pd
import pytest
from toy_project import find

from covrag_lite.tables.reproduction import (
    DIFFERS,
    OK,
    WITHIN_NOISE,
    compare_cells,
    differing_cells,
    judge_cell,
)


@pytest.fixture(scope="module")
def run(project):
    return find(project, "table2")


@pytest.fixture
def long(run):
    return pd.read_csv(run.file("csv"))


@pytest.fixture
def other_manifest(run):
    """The manifest of a run with another k."""
    return run.manifest | {"parameters": run.manifest["parameters"] | {"k": 3}}


def test_a_table_with_the_recorded_numbers_is_ok(project, run, long, capsys):
    cells = compare_cells(long, run.manifest, project)
    assert set(cells.verdict) == {OK}
    counts = f"OK {len(long)}, within noise 0, DIFFERS 0 of {len(long)} cells"
    assert f"next to results/toy/table2.csv: {counts}" in capsys.readouterr().out


def test_a_small_difference_is_within_noise(project, run, long):
    cells = compare_cells(long.assign(value=long.value + 0.1), run.manifest, project)
    assert set(cells.verdict) == {WITHIN_NOISE}


def test_without_a_run_of_this_configuration_the_nearest_is_named(
    project, long, other_manifest, capsys
):
    assert compare_cells(long, other_manifest, project) is None
    printed = capsys.readouterr().out
    assert "nearest, results/toy/table2.csv, differs in k (3, recorded 5)" in printed


def test_without_a_run_with_such_cells_a_sentence_says_so(project, run, long, capsys):
    assert compare_cells(long.assign(dataset="another"), run.manifest, project) is None
    assert capsys.readouterr().out == "no recorded run has any of these cells\n"


def test_only_cells_that_are_not_the_recorded_number_are_listed(project, run, long):
    is_moved = (long.system == "RAG") & (long.dataset == "quiz")
    moved = long.assign(value=long.value + 0.1 * is_moved)
    cells = differing_cells(moved, run.manifest, project)
    assert len(cells) == is_moved.sum()
    assert set(cells.verdict) == {WITHIN_NOISE}
    assert set(cells.system) == {"RAG"}
    assert "recorded" in cells


def test_if_every_number_is_the_recorded_one_none_is_listed(project, run, long):
    assert differing_cells(long, run.manifest, project) is None


def test_without_a_run_to_compare_with_none_is_listed(project, long, other_manifest):
    assert differing_cells(long, other_manifest, project) is None


# A table, what chooses one of its rows, its column with the value, and the values in a row.
OTHER_COLUMNS = pytest.mark.parametrize(
    "table, chosen, value, n_values",
    [
        ("table3", {"judge": "endpoint:toy"}, "value", 1),
        ("table6", {"retriever": "bm25", "measure": "answer"}, "last", 3),
    ],
)


@OTHER_COLUMNS
def test_every_value_of_a_row_is_compared(project, table, chosen, value, n_values):
    run = find(project, table)
    long = pd.read_csv(run.file("csv"))
    cells = compare_cells(long, run.manifest, project)
    assert set(cells.verdict) == {OK}
    assert len(cells) == n_values * long.n.notna().sum()


@OTHER_COLUMNS
def test_a_changed_value_is_found_in_its_own_row(project, table, chosen, value, n_values):
    run = find(project, table)
    long = pd.read_csv(run.file("csv"))
    is_chosen = (long[list(chosen)] == list(chosen.values())).all(axis=1) & long.n.notna()
    names = {value, "low", "high", f"{value}_low", f"{value}_high"} & set(long)
    long.loc[is_chosen, list(names)] += 99
    cells = compare_cells(long, run.manifest, project)
    differing = cells[cells.verdict == DIFFERS]
    assert len(differing) == is_chosen.sum() > 0
    for name, text in chosen.items():
        assert set(differing[name]) == {text}


class Cell(NamedTuple):
    """A new and a recorded value with their intervals."""

    n: int
    value: float
    low: float
    high: float
    n_recorded: int
    value_recorded: float
    low_recorded: float
    high_recorded: float


@pytest.mark.parametrize(
    "cell, judgment",
    [
        (Cell(4, 50.0, 15.0, 85.0, 4, 50.0, 15.0, 85.0), OK),
        (Cell(4, 50.0, 15.0, 85.0, 5, 50.0, 19.0, 81.0), WITHIN_NOISE),  # of more questions
        (Cell(4, 50.0, 45.0, 55.0, 4, 70.0, 65.0, 75.0), DIFFERS),
    ],
)
def test_a_cell_is_judged_by_its_value_and_its_number_of_questions(cell, judgment):
    assert judge_cell(cell, 0.01) == judgment
