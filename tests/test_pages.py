"""Pages for a browser: `covrag browse` for every run, `covrag html` for the notebooks."""

import re
import shutil

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from covrag_lite.commands import browse, html
from covrag_lite.config import ROOT
from covrag_lite.runs.frame import to_frame
from covrag_lite.runs.recorded import DataChanged, load_or_outcomes

REMOTE = re.compile(
    r'(?:src|href)="https?://[^"]*\.(?:js|css|mjs)|from "https?://|import\("https?://'
)


@pytest.fixture
def run_folder(project, tmp_path):
    """A folder outside of the project with one of its recorded runs."""
    source = project / "results" / "toy"
    return shutil.copytree(source, tmp_path / "mine")


@pytest.fixture
def notebook():
    """A notebook with a stored output and a link to another one."""
    output = new_output("stream", name="stdout", text="42 of 600")
    code = new_code_cell("print(result)", outputs=[output])
    return new_notebook(cells=[new_markdown_cell("# A title\n\n[next](table5.ipynb)"), code])


def test_a_run_is_found_by_its_name():
    run = browse.find_run("table2-smollm2-135m-h200")
    assert run.folder == ROOT / "results" / "table2-smollm2-135m-h200"


def test_a_run_is_found_by_its_folder(run_folder):
    assert browse.find_run(str(run_folder)).table == "table2"


def test_without_a_name_the_recorded_run_of_the_defaults_is_shown():
    assert browse.find_run("").config.model.model == "smollm2-135m"


def test_a_misspelt_run_ends_in_one_sentence_with_the_nearest_name(capsys):
    with pytest.raises(SystemExit) as ended:
        browse.main(["table2-smollm2-135m-h20"])
    errors = capsys.readouterr().err
    assert ended.value.code == 2
    assert errors.startswith("covrag browse: 'table2-smollm2-135m-h20' is not a run; did you mean ")
    assert errors.count("\n") == 1


def test_the_page_of_a_run_outside_of_the_clone_is_written_into_the_clone(run_folder):
    run = browse.find_run(str(run_folder))
    assert browse.default_output(run, ROOT) == ROOT / "html" / "browse-mine.html"


def test_the_page_of_a_recorded_run_keeps_the_folders_in_its_name():
    run = browse.find_run("real/qwen2.5-coder-1.5b/seed-3")
    expected = ROOT / "html" / "browse-real-qwen2.5-coder-1.5b-seed-3.html"
    assert browse.default_output(run) == expected


def test_browse_writes_a_page_with_every_question(run_folder, tmp_path):
    output = tmp_path / "pages" / "mine.html"
    for _ in range(2):  # the folder of the page may exist
        browse.main([str(run_folder), "--out", str(output), "--no-open"])
    page = output.read_text()
    assert page.startswith("<!doctype html>")
    ids = set(to_frame(load_or_outcomes(browse.find_run(str(run_folder)))).id)
    assert all(f'"{identity}"' in page for identity in ids)


def test_a_run_whose_documents_have_changed_says_how_to_run_it_again(monkeypatch, capsys):
    def load(run):
        raise DataChanged("passages: this configuration has other data than the run")

    monkeypatch.setattr(browse, "load_or_outcomes", load)
    with pytest.raises(SystemExit):
        browse.main(["--no-open"])
    errors = capsys.readouterr().err
    assert errors.startswith("covrag browse: the passages of ")
    assert "have changed since the run; run it again" in errors


def test_a_notebooks_page_has_its_stored_output(notebook, tmp_path):
    assert "42 of 600" in html.export(notebook, tmp_path / "a.ipynb")


def test_a_notebooks_page_loads_nothing_from_a_network(notebook, tmp_path):
    assert not REMOTE.search(html.export(notebook, tmp_path / "a.ipynb"))


def test_a_link_to_another_notebook_becomes_a_link_to_its_page(notebook, tmp_path):
    assert 'href="table5.html"' in html.export(notebook, tmp_path / "a.ipynb")


def test_the_cell_of_the_interactive_page_gets_its_output(monkeypatch):
    monkeypatch.setattr(browse, "find_run", lambda name: None)
    monkeypatch.setattr(browse, "build_fragment", lambda run: "<p>all questions</p>")
    notebook = nbformat.read(ROOT / "notebooks" / "browse.ipynb", as_version=4)
    html.add_interactive_page(notebook)
    outputs = []
    for cell in notebook.cells:
        outputs += cell.get("outputs", ())
    pages = [output for output in outputs if "all questions</p>" in str(output)]
    assert [page.data["text/html"] for page in pages] == ["<p>all questions</p>"]


def test_html_writes_the_pages_and_an_index(notebook, tmp_path, monkeypatch):
    monkeypatch.setattr(html, "ROOT", tmp_path)
    (tmp_path / "notebooks").mkdir()
    nbformat.write(notebook, tmp_path / "notebooks" / "first.ipynb")
    html.main(["--out", str(tmp_path / "pages")])
    assert sorted(file.name for file in (tmp_path / "pages").iterdir()) == [
        "first.html",
        "index.html",
    ]
    assert '<a href="first.html">A title</a>' in (tmp_path / "pages" / "index.html").read_text()


def test_an_unknown_notebook_ends_in_one_sentence(capsys):
    with pytest.raises(SystemExit) as ended:
        html.main(["leson"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "covrag html: 'leson' is not a notebook with outputs; did you mean 'lesson'?\n"
    )
