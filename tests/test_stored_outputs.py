"""Notebooks are stored with outputs, and the stored tables and figures are what the records give today."""

import ast
import base64
import contextlib
import io
import json
import re

import pandas as pd
import pytest
from IPython.core.formatters import DisplayFormatter
from matplotlib import pyplot

from covrag_lite.config import ROOT

NOTEBOOKS = [path for path in sorted((ROOT / "notebooks").glob("*.ipynb")) if path.stem != "hosted"]
COMPARED = ("text/html", "text/plain", "image/png")
WITHOUT_MODEL = {"parameters", "setup", "recorded"}  # tags of cells that need none
PATHS = re.compile(r"(?<![\w.])/(?:root|home|tmp|work)/")


def load_code_cells(path):
    """A notebook's code cells with their tags, source and outputs."""
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    return [(set(cell["metadata"].get("tags", [])), "".join(cell["source"]), cell) for cell in cells]


def run_cell(source, names, formatter):
    """Run a cell as a kernel would; returns what it shows, one dict of representations per value."""
    shown, printed = [], io.StringIO()

    def display(*values):
        shown.extend(formatter.format(value)[0] for value in values if value is not None)

    names["display"] = display
    *lines, last = ast.parse(source).body
    is_shown = isinstance(last, ast.Expr) and not source.rstrip().endswith(";")
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(lines if is_shown else [*lines, last], []), "cell", "exec"), names)
        if is_shown:
            display(eval(compile(ast.Expression(last.value), "cell", "eval"), names))
    return ([{"text/plain": printed.getvalue()}] if printed.getvalue().strip() else []) + shown


def stored_values(cell):
    """What a stored cell shows, in the same form; printed text first."""
    printed = "".join("".join(output["text"]) for output in cell["outputs"] if output["output_type"] == "stream")
    values = [
        {mime: join(content) for mime, content in output["data"].items()}
        for output in cell["outputs"]
        if "data" in output
    ]
    return ([{"text/plain": printed}] if printed.strip() else []) + values


def join(content):
    """Text that a notebook file may hold as a list of lines."""
    return "".join(content) if isinstance(content, list) else content


def comparable(value):
    """The representations that are compared; a picture as its bytes."""
    kept = {mime: content for mime, content in value.items() if mime in COMPARED}
    if "text/html" in kept or "image/png" in kept:
        kept.pop("text/plain", None)  # may hold an address
    if "image/png" in kept:
        content = kept["image/png"]
        kept["image/png"] = content if isinstance(content, bytes) else base64.b64decode(content)
    return {mime: content.strip() if isinstance(content, str) else content for mime, content in kept.items()}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_tables_and_figures_are_what_the_records_give(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    pd.reset_option("display.max_colwidth")  # another notebook may have set it in this process
    names, formatter = {"__name__": "__main__"}, DisplayFormatter()
    for tags, source, cell in load_code_cells(path):
        if not tags & WITHOUT_MODEL:
            continue
        shown = run_cell(source, names, formatter)
        if "recorded" in tags and "reveal" not in tags:
            assert list(map(comparable, stored_values(cell))) == list(map(comparable, shown)), source
    pyplot.close("all")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_a_recorded_result_and_nothing_of_the_machine_that_ran_it(path):
    cells = load_code_cells(path)
    assert any("recorded" in tags and cell["outputs"] for tags, _, cell in cells), "run `make notebooks`"
    assert all(cell["execution_count"] is None for _, _, cell in cells)
    outputs = json.dumps([cell["outputs"] for _, _, cell in cells])
    assert not PATHS.search(outputs)
    assert "cost: " not in outputs
    assert '"stderr"' not in outputs


def test_all_notebooks_together_stay_below_three_megabytes():
    assert sum(path.stat().st_size for path in NOTEBOOKS) < 3_000_000


def test_what_a_class_should_guess_is_stored_without_its_answer():
    revealed = [
        cell["outputs"] for tags, _, cell in load_code_cells(ROOT / "notebooks" / "lesson.ipynb") if "reveal" in tags
    ]
    assert revealed and not any(revealed)
