"""A new table next to the recorded one of its configuration, cell by cell."""

import json
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
    tidy,
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


NOISE_BELOW = Cell(
    4, 60.0, 54.0, 99.0, 4, 50.0, 1.0, 58.0
)  # the near ends are √(6² + 8²) = 10 away
NOISE_ABOVE = Cell(4, 50.0, 1.0, 56.0, 4, 60.0, 52.0, 99.0)


@pytest.mark.parametrize("cell", [NOISE_BELOW, NOISE_ABOVE])
def test_a_difference_as_large_as_both_near_ends_together_is_within_noise(cell):
    assert judge_cell(cell, 0.01) == WITHIN_NOISE


@pytest.mark.parametrize("cell", [NOISE_BELOW, NOISE_ABOVE])
@pytest.mark.parametrize("side", ["", "_recorded"])
def test_a_difference_larger_than_both_near_ends_together_differs(cell, side):
    is_above = cell.value > cell.value_recorded
    end = ("low" if is_above == (side == "") else "high") + side
    nearer = (getattr(cell, end) + getattr(cell, f"value{side}")) / 2
    assert judge_cell(cell._replace(**{end: nearer}), 0.01) == DIFFERS


def test_a_value_of_no_questions_is_the_recorded_one():
    nothing = float("nan")
    assert judge_cell(Cell(0, nothing, 0.0, 1.0, 0, nothing, 0.0, 1.0), 0.01) == OK


def test_a_value_that_is_off_by_the_allowed_error_is_not_the_recorded_one():
    assert judge_cell(Cell(4, 50.25, 50.0, 51.0, 4, 50.0, 49.0, 51.0), 0.25) == WITHIN_NOISE


# Which recorded run is compared.


def write_run(root, name, manifest, values, **others):
    """Record a table with these accuracies, one row per set; other columns may be left out."""
    folder = root / "results" / name
    folder.mkdir(parents=True)
    (folder / "table2.manifest.json").write_text(json.dumps(manifest))
    rows = pd.DataFrame({"dataset": list("abcdef")[: len(values)], "system": "RAG"})
    rows = rows.assign(metric="raw", n=40, value=values)
    rows = rows.assign(low=rows.value, high=rows.value).drop(columns=others.get("without", []))
    rows.to_csv(folder / "table2.csv", index=False)
    return rows


def test_of_runs_with_this_configuration_the_first_with_the_most_cells_is_compared(
    tmp_path, run, other_manifest, capsys
):
    long = write_run(tmp_path, "d", other_manifest, [10.0, 20.0, 30.0])
    for name, values in (("a", [10.0]), ("c", [10.0, 20.0]), ("b", [10.0, 20.0])):
        write_run(tmp_path, name, run.manifest, values)
    compare_cells(long, run.manifest, tmp_path)
    assert capsys.readouterr().out.startswith("next to results/b/table2.csv: OK 2,")


def test_a_run_without_a_table_or_one_of_its_columns_is_passed_over(
    tmp_path, run, other_manifest, capsys
):
    long = write_run(tmp_path, "c", other_manifest, [10.0])
    write_run(tmp_path, "a", run.manifest, [10.0], without=["metric"])
    write_run(tmp_path, "b", run.manifest, [10.0])
    (tmp_path / "results" / "b" / "table2.csv").unlink()
    assert compare_cells(long, run.manifest, tmp_path) is None
    assert "the nearest, results/c/table2.csv" in capsys.readouterr().out


@pytest.mark.parametrize(
    "recorded, error, judgment",
    [
        (10.25, 0.00505, OK),  # written with two decimals
        (10.25, 0.00515, DIFFERS),
        (10.125, 0.000505, OK),  # with three
        (10.125, 0.000515, DIFFERS),
    ],
)
def test_a_value_may_differ_by_half_of_its_last_written_decimal(
    tmp_path, run, recorded, error, judgment
):
    long = write_run(tmp_path, "a", run.manifest, [recorded])
    moved = long.assign(value=long.value + error, low=long.low + error, high=long.high + error)
    assert compare_cells(moved, run.manifest, tmp_path).verdict.tolist() == [judgment]


def test_both_values_are_shown_with_the_recorded_interval(tmp_path, run):
    long = write_run(tmp_path, "a", run.manifest, [10.25])
    cells = compare_cells(long.assign(n=41, value=12.3456, low=12.0), run.manifest, tmp_path)
    assert cells.to_dict("records") == [
        {
            **{"dataset": "a", "system": "RAG", "metric": "raw"},
            **{"n": 41, "value": 12.35, "n_recorded": 40, "value_recorded": 10.25},
            **{"low_recorded": 10.25, "high_recorded": 10.25, "verdict": DIFFERS},
        }
    ]


def test_a_differing_cell_shows_both_values_and_its_questions(tmp_path, run):
    long = write_run(tmp_path, "a", run.manifest, [10.25, 20.5])
    moved = long.assign(value=[10.25, 30.0])
    cells = differing_cells(moved, run.manifest, tmp_path)
    assert cells.columns.tolist()[3:] == ["n", "value", "recorded", "verdict"]
    assert cells[["dataset", "value", "recorded"]].values.tolist() == [["b", 30.0, 20.5]]


def test_rows_that_are_only_the_papers_are_not_compared():
    long = pd.DataFrame(
        {
            "questions": ["NQ", "NQ"],
            "retriever": ["bm25", "Bing*"],
            "n": [4, None],
            **{"first": [50.0, 65.0], "first_low": [20.0, None], "first_high": [80.0, None]},
            **{"last": [75.0, 66.8], "last_low": [40.0, None], "last_high": [90.0, None]},
        }
    )
    assert tidy(long).to_dict("records") == [
        {
            **{"questions": "NQ", "retriever": "bm25", "share": share, "n": 4},
            **dict(zip(("value", "low", "high"), values)),
        }
        for share, values in (("first", (50.0, 20.0, 80.0)), ("last", (75.0, 40.0, 90.0)))
    ]


def test_the_same_value_of_more_questions_is_not_the_recorded_number(tmp_path, run):
    long = write_run(tmp_path, "a", run.manifest, [10.25])
    cells = compare_cells(long.assign(n=41), run.manifest, tmp_path)
    assert cells.verdict.tolist() == [WITHIN_NOISE]


def test_counts_of_all_three_judgments_are_printed(tmp_path, run, capsys):
    long = write_run(tmp_path, "a", run.manifest, [10.0, 20.0, 30.0])
    moved = long.assign(value=[10.0, 21.0, 31.0], low=[10.0, 19.0, 31.0])
    compare_cells(moved, run.manifest, tmp_path)
    assert "OK 1, within noise 1, DIFFERS 1 of 3 cells" in capsys.readouterr().out
