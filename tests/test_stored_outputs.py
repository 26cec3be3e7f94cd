"""Notebooks are stored with outputs: tables and figures that the records give today."""

import ast
import base64
import contextlib
import io
import json
import re
from typing import NamedTuple

import pandas as pd
import pytest
from IPython.core.formatters import DisplayFormatter
from matplotlib import pyplot

from covrag_lite.config import ROOT

NOTEBOOKS = [path for path in sorted((ROOT / "notebooks").glob("*.ipynb")) if path.stem != "hosted"]
COMPARED = ("text/html", "text/plain", "image/png")
WITHOUT_MODEL = {"parameters", "setup", "recorded"}  # tags of cells that need none
PATHS = re.compile(r"(?<![\w.])/(?:root|home|tmp|work)/")


class Cell(NamedTuple):
    """A code cell: its tags, its source and its stored outputs."""

    tags: set[str]
    source: str
    outputs: list[dict]
    execution_count: int | None


Shown = dict[str, object]  # what one value shows: its contents by MIME type


def load_code_cells(path):
    """A notebook's code cells."""
    cells = []
    for cell in json.loads(path.read_text())["cells"]:
        if cell["cell_type"] == "code":
            tags = set(cell["metadata"].get("tags", []))
            source = "".join(cell["source"])
            cells.append(Cell(tags, source, cell["outputs"], cell["execution_count"]))
    return cells


def run_cell(source, names, formatter) -> list[Shown]:
    """Run a cell as a kernel would; returns what it shows, printed text first."""
    values = []

    def display(*items):
        values.extend(formatter.format(item)[0] for item in items if item is not None)

    names["display"] = display
    printed = io.StringIO()
    *lines, last = ast.parse(source).body
    is_shown = isinstance(last, ast.Expr) and not source.rstrip().endswith(";")
    body = lines if is_shown else [*lines, last]
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), "cell", "exec"), names)
        if is_shown:
            display(eval(compile(ast.Expression(last.value), "cell", "eval"), names))
    return with_printed(printed.getvalue(), values)


def stored_values(cell) -> list[Shown]:
    """What a stored cell shows, in the same form."""
    printed = ""
    values = []
    for output in cell.outputs:
        if output["output_type"] == "stream":
            printed += "".join(output["text"])
        if "data" in output:
            values.append({mime: join(content) for mime, content in output["data"].items()})
    return with_printed(printed, values)


def with_printed(text, values) -> list[Shown]:
    """Printed text, if there is any, and the values that are shown."""
    return [{"text/plain": text}, *values] if text.strip() else values


def join(content):
    """Text that a notebook file may hold as a list of lines."""
    return "".join(content) if isinstance(content, list) else content


def comparable(value) -> Shown:
    """The contents that are compared; a picture as its bytes."""
    kept = {mime: content for mime, content in value.items() if mime in COMPARED}
    if "text/html" in kept or "image/png" in kept:
        kept.pop("text/plain", None)  # may hold an address
    for mime, content in kept.items():
        if isinstance(content, str):
            is_picture = mime == "image/png"
            kept[mime] = base64.b64decode(content) if is_picture else content.strip()
    return kept


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_tables_and_figures_are_what_the_records_give(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    pd.reset_option("display.max_colwidth")  # another notebook may have set it in this process
    names = {"__name__": "__main__"}
    formatter = DisplayFormatter()
    for cell in load_code_cells(path):
        if not cell.tags & WITHOUT_MODEL:
            continue
        values = run_cell(cell.source, names, formatter)
        if "recorded" in cell.tags and "reveal" not in cell.tags:
            stored = [comparable(value) for value in stored_values(cell)]
            assert stored == [comparable(value) for value in values], cell.source
    pyplot.close("all")


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def cells(request):
    """The code cells of each notebook."""
    return load_code_cells(request.param)


def test_a_notebook_shows_a_recorded_result(cells):
    shown = [cell for cell in cells if "recorded" in cell.tags and cell.outputs]
    assert shown, "run `make notebooks`"


def test_cells_are_stored_without_numbers(cells):
    assert all(cell.execution_count is None for cell in cells)


@pytest.mark.parametrize("pattern", [PATHS, re.compile("cost: "), re.compile('"stderr"')])
def test_outputs_show_nothing_of_the_machine_that_ran_them(cells, pattern):
    assert not pattern.search(json.dumps([cell.outputs for cell in cells]))


def test_all_notebooks_together_stay_below_three_megabytes():
    assert sum(path.stat().st_size for path in NOTEBOOKS) < 3_000_000


def test_what_a_class_should_guess_is_stored_without_its_answer():
    cells = load_code_cells(ROOT / "notebooks" / "lesson.ipynb")
    revealed = [cell.outputs for cell in cells if "reveal" in cell.tags]
    assert revealed
    assert not any(revealed)
