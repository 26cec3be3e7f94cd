"""The page that says what of the papers is covered names files that exist."""

import re

import pytest

from covrag_lite.config import ROOT

PAGE = ROOT / "results" / "coverage.md"
ROWS = [
    line for line in PAGE.read_text().splitlines() if re.match(r"\| (?!in the|method |---)", line)
]


@pytest.mark.parametrize("row", ROWS)
def test_the_files_of_a_row_exist(row):
    _, _, files, *_ = row.split("|")
    for name in re.findall(r"`([^`]+)`", files):
        assert (ROOT / "covrag_lite" / name).exists(), name


@pytest.mark.parametrize("number", [*range(1, 19)])
def test_every_table_of_the_paper_has_a_row(number):
    covered = set()
    for row in ROWS:
        title = row.split("|")[1]
        for first, last in re.findall(r"Tables? (\d+)(?: (?:to|and) (\d+))?", title):
            covered |= set(range(int(first), int(last or first) + 1))
    assert number in covered


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_every_figure_of_the_paper_has_a_row(number):
    titles = " ".join(row.split("|")[1] for row in ROWS)
    assert re.search(rf"Figures? (\d+ and )?{number}\b", titles)
