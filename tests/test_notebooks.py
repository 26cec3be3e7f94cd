"""Notebooks are short, take their defaults from config.py, and run from both folders.

They use a tiny model. One runs through papermill, as a user runs it; the code cells of the others
run in this process, without a kernel.
"""

import ast
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from threading import Event
from unittest.mock import Mock

import pytest
from conftest import write_jsonl
from matplotlib import pyplot
from papermill import cli
from papermill.exceptions import PapermillExecutionError

from benchmarks import options
from covrag_lite import commands as command
from covrag_lite.check import check
from covrag_lite.commands import engine
from covrag_lite.commands import notebook as runner
from covrag_lite.config import ROOT, Config, ParameterError, from_notebook
from covrag_lite.runs import recorded
from covrag_lite.tables import find_table, load_basis

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
OF_CONFIG = [
    path for path in NOTEBOOKS if path.stem != "hosted"
]  # that one has the command's, and test_rehearsal.py
# Parameters that make a run small enough for a test.
SHORT = {"max_answer_tokens": 6, "max_revised_tokens": 4}
FEW = {"n_questions": 1, "n_passages": 1000, "n_world": "4,1200,200"} | SHORT
STEPS = {"epochs": 10, "learning_rate": 0.01, "step_tokens": 1024, "pack_tokens": 2048, "k": 1}
LEARNT = STEPS | {"quantize": "none", "adapters_out": "{tmp}/adapters"}
SMALL = {
    "table2": FEW,
    "explore": {name: value for name, value in FEW.items() if name != "n_questions"},
    "browse": {"record": Config().judging.predictions},
    "world": {"n_passages": 1000, "n_world": "4,40,200"},
    "speed": {"speed_ways": "ours"},
    "table4": FEW,
    "table5": FEW,
    "controls": FEW,
    "table6": FEW | {"encoder": "{encoder}"},
    "related": FEW | {"related_systems": "RAG trained,FaVe,CoV-RAG"},
    "train_related": {
        "adapters_out": "{tmp}/adapters",
        "n_learnt": 40,
        "encoder": "{encoder}",
        "k": 2,
    },
    "train": SHORT
    | LEARNT
    | {"data": "{tmp}/library", "methods": "cov", "layout": "shared", "n_train_questions": 0},
}
TABLE = {"csv", "md", "png", "manifest.json"}
ANSWERED = TABLE | {"predictions.jsonl.xz", "facts.json"}
SEARCHED = {f"{name}.predictions.jsonl.xz" for name in ("bm25", "dense", "fused")}
# Endings of the files that a notebook writes to figures/<name>.
ENDS = {
    "table2": ANSWERED,
    "table3": TABLE | {"verdicts.jsonl", "facts.json"},
    "table4": ANSWERED,
    "table5": ANSWERED,
    "table6": TABLE | SEARCHED | {"facts.json"},
    "figure4": {"csv", "png", "facts.json"},
    "related": ANSWERED | {"qualities.csv.gz", "costs.csv"},
    "speed": {"inference.json", "peers.json"},
}
WRITTEN = {
    name: {f"{name}.{end}" for end in ends} for name, ends in ENDS.items()
}  # all others leave none
WRITTEN |= {"train": {"figure3.png", "losses.png"}, "lesson": {"method.md", "method.png"}}
FROM_ITS_FOLDER = {
    "table2",
    "explore",
    "train",
}  # as JupyterLab runs them; the others as papermill does, from the root


def cells(path):
    """A notebook's code cells: tags, source and outputs."""
    every = json.loads(path.read_text())["cells"]
    code = [cell for cell in every if cell["cell_type"] == "code"]
    return [
        (cell["metadata"].get("tags", []), "".join(cell["source"]), cell.get("outputs"))
        for cell in code
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_thin(path):
    lines = [line.strip() for _, source, _ in cells(path) for line in source.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    assert len(lines) <= 65
    assert not any(
        line.startswith(("def ", "class ", "try:", "!", "%")) or "sys.path" in line
        for line in lines
    )


@pytest.mark.parametrize("path", OF_CONFIG, ids=lambda path: path.stem)
def test_a_notebooks_parameters_are_the_defaults_of_config(path):
    (source,) = [source for tags, source, _ in cells(path) if "parameters" in tags]
    for line in source.splitlines():
        code, _, explanation = line.partition("#")
        assert explanation, f"not explained: {line}"
        assert code.count("=") == 1 and "|" not in code, f"papermill would drop it: {line}"
    given = {node.target.id: ast.literal_eval(node.value) for node in ast.parse(source).body}
    if path.stem == "speed":
        assert options.from_notebook(given) == options.Options()
    else:
        assert from_notebook(given) == Config()


def run_cells(path, parameters):
    """Run a notebook's code cells here; parameters are set after its own, as papermill does."""
    names = {"__name__": "__main__", "display": show}
    for tags, source, _ in cells(path):
        *lines, last = ast.parse(source).body
        shown = isinstance(last, ast.Expr) and not source.rstrip().endswith(";")
        exec(compile(ast.Module(lines if shown else [*lines, last], []), path.name, "exec"), names)
        if shown:
            show(eval(compile(ast.Expression(last.value), path.name, "eval"), names))
        if "parameters" in tags:
            names |= parameters
    pyplot.close("all")


def show(*values):
    """Format values as a notebook shows them."""
    for value in values:
        for form in ("_repr_html_", "__repr__"):
            getattr(value, form, str)()


def places(tmp_path):
    """Parameters that keep all files of a run in a folder of the test."""
    return {"runs": str(tmp_path / "runs"), "figures": str(tmp_path / "figures"), "name": "toy"}


def build_library(folder):
    """Data that a tiny model can learn to read: its only passage says who of two wrote a book."""
    asked, known = [], []
    for i in range(10, 30):
        who = "Agnes" if i % 4 == 3 else "Edith"
        asked.append(
            {
                "id": str(i),
                "question": f"who wrote book {i}",
                "answers": [who],
                "gold_passage": f"p{i}",
            }
        )
        known.append({"id": f"p{i}", "title": f"Book {i}", "text": f"{who} wrote it."})
    write_jsonl(folder / "train_books.jsonl", asked)
    write_jsonl(folder / "corpus.jsonl", known)


def written(tmp_path):
    return {file.name for file in (tmp_path / "figures").rglob("*.*")}


# Table 3 needs no model, and runs below as a user runs it.
@pytest.mark.parametrize(
    "path", [p for p in OF_CONFIG if p.stem != "table3"], ids=lambda path: path.stem
)
def test_a_notebook_runs_and_what_it_writes_follows_from_what_it_records(
    path, tmp_path, tiny_folder, tiny_encoder, monkeypatch
):
    monkeypatch.setenv("COVRAG_CACHE", str(tmp_path / "cache"))
    build_library(tmp_path / "library")
    own = (
        ({} if "lesson" in path.stem else {"model": str(tiny_folder)})
        | places(tmp_path)
        | SMALL.get(path.stem, {})
    )
    own = {
        n: v.format(tmp=tmp_path, encoder=tiny_encoder) if isinstance(v, str) else v
        for n, v in own.items()
    }
    monkeypatch.chdir(path.parent if path.stem in FROM_ITS_FOLDER else ROOT)
    run_cells(path, own)
    assert written(tmp_path) == WRITTEN.get(path.stem, set())
    assert check(tmp_path).differences == []
    if path.stem == "train":
        trained = {
            file.parent.name for file in (tmp_path / "adapters").rglob("adapter_config.json")
        }
        assert trained == {"seed-1", "seed-2", "cov"}  # of the methods the one that was asked for
        assert (tmp_path / "adapters" / "cov" / "sigma.json").exists()


def test_table3_judges_recorded_answers_without_a_model_and_writes_everything(tmp_path):
    answers = Config().judging.predictions
    words = [
        Path(sys.executable).parent / "papermill",
        "table3.ipynb",
        tmp_path / "out.ipynb",
        "--no-progress-bar",
    ]
    for name, value in (places(tmp_path) | {"n_judged": 2}).items():
        words += ["-p", name, str(value)]
    subprocess.run(
        words, cwd=ROOT / "notebooks", check=True, stdin=subprocess.DEVNULL
    )  # as a user runs it
    assert written(tmp_path) == WRITTEN["table3"]
    assert not (tmp_path / "runs").exists()
    shutil.copytree(ROOT / "results" / answers, tmp_path / "results" / answers)
    (run,) = recorded.find_under(tmp_path / "figures", tmp_path)
    assert find_table("table3").build(load_basis(run), run).text == run.file("md").read_text()


def test_each_of_six_solutions_ends_in_an_assertion():
    solutions = [source for _, source, _ in cells(ROOT / "notebooks" / "lesson_solutions.ipynb")][
        2:
    ]
    assert (ROOT / "figures" / "embedded" / "method.png").exists()  # README shows it
    assert len(solutions) == 6 and all(
        isinstance(ast.parse(one).body[-1], ast.Assert) for one in solutions
    )


# The command `covrag` runs notebooks and modules; a mistake ends in a message.


def call(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["covrag", *words])
    command.covrag()


@pytest.mark.parametrize(
    "words, module",
    [
        (["replicate", "smollm2-135m-world", "--seeds", "1"], "covrag_lite.replication.__main__"),
        (["check", "--write"], "covrag_lite.check.__main__"),
        (["ask", "folder", "who?"], "covrag_lite.commands.ask"),
    ],
)
def test_a_module_gets_the_words_after_its_name(words, module, monkeypatch):
    calls = []
    monkeypatch.setattr(f"{module}.main", calls.append)
    call(monkeypatch, *words)
    assert calls == [words[1:]]


@pytest.fixture
def notebook(monkeypatch, tmp_path):
    """A notebook whose parameters are those of config.py, in a project without a copy of a run."""
    monkeypatch.setattr(runner, "ROOT", tmp_path)
    return str(ROOT / "notebooks" / "table2.ipynb")


@pytest.fixture
def papermill_calls(monkeypatch):
    """The arguments with which papermill was called; it writes a notebook and does not run it."""
    calls = []

    def main(args, **options):
        calls.append(args)
        Path(args[1]).write_text('{"cells": [], "metadata": {"papermill": {}}}')

    monkeypatch.setattr(cli.papermill, "main", main)
    return calls


def fail_papermill(monkeypatch, error):
    """Let papermill write a part of its copy, and then raise an error."""

    def main(args, **options):
        Path(args[1]).write_text("half a notebook")
        raise error

    monkeypatch.setattr(cli.papermill, "main", main)


def failure(kind="ValueError", message="k is -1"):
    return PapermillExecutionError(0, 1, "", kind, message, ["", ""])


def executed(tmp_path):
    """The names of the copies of executed notebooks."""
    return sorted(file.name for file in (tmp_path / "runs" / "executed").glob("*"))


def test_papermill_needs_no_output_path(notebook, papermill_calls, tmp_path, capsys):
    runner.run_notebook([notebook, "-p", "k", "1"], "papermill")
    assert executed(tmp_path) == ["table2.ipynb"]
    assert f"executed copy: {tmp_path}/runs/executed/table2.ipynb" in capsys.readouterr().err


def test_papermill_gets_the_parameters(notebook, papermill_calls):
    runner.run_notebook([notebook, "-p", "k", "1"], "papermill")
    assert papermill_calls[0][2:5] == ["-p", "k", "1"]


def test_an_output_path_that_is_given_is_used(notebook, papermill_calls, tmp_path):
    output = tmp_path / "new" / "out.ipynb"
    runner.run_notebook([notebook, str(output)], "papermill")
    assert [file.name for file in output.parent.iterdir()] == ["out.ipynb"]


def test_the_copy_names_its_own_path(notebook, papermill_calls, tmp_path):
    runner.run_notebook([notebook], "papermill")
    copy = json.loads((tmp_path / "runs" / "executed" / "table2.ipynb").read_text())
    assert copy["metadata"]["papermill"]["output_path"].endswith("runs/executed/table2.ipynb")


def test_papermill_itself_describes_a_notebooks_parameters(notebook, monkeypatch):
    calls = []
    monkeypatch.setattr(cli.papermill, "main", lambda args, prog_name: calls.append(args))
    runner.run_notebook([notebook, "--help-notebook"], "papermill")
    assert calls == [[notebook, "--help-notebook"]]


@pytest.mark.parametrize(
    "word, near", [("tabel2", "table2"), ("replication", "replicate"), ("lessons", "lesson")]
)
def test_an_unknown_word_ends_in_one_sentence_with_the_nearest_and_status_2(
    word, near, monkeypatch, capsys
):
    with pytest.raises(SystemExit) as ended:
        call(monkeypatch, word)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert (
        said.startswith(f"covrag: {word!r} is not known; did you mean {near!r}?")
        and said.count("\n") == 1
    )
    call(monkeypatch)  # without arguments it prints the usage
    said = capsys.readouterr().out
    assert all(name in said for name in ("replicate", "check", "table2", "lesson"))


@pytest.mark.parametrize("name, value", [("n_question", "3"), ("k", "five")])
def test_a_wrong_parameter_stops_before_a_kernel_starts(
    name, value, notebook, papermill_calls, tmp_path, capsys
):
    with pytest.raises(SystemExit) as ended:
        runner.run_notebook([notebook, "-p", name, value], "covrag table2")
    assert ended.value.code == 2
    assert papermill_calls == []
    assert executed(tmp_path) == []
    assert capsys.readouterr().err.startswith("covrag table2: ")


def test_options_of_the_speed_notebook_are_checked_too(papermill_calls, capsys):
    path = str(ROOT / "notebooks" / "speed.ipynb")
    with pytest.raises(SystemExit):
        runner.run_notebook([path, "-p", "speed_way", "ours"], "covrag speed")
    assert "did you mean 'speed_ways'" in capsys.readouterr().err


def test_a_failed_run_leaves_the_last_good_copy(notebook, monkeypatch, tmp_path):
    good = tmp_path / "runs" / "executed" / "table2.ipynb"
    good.parent.mkdir(parents=True)
    good.write_text("good")
    fail_papermill(monkeypatch, failure())
    with pytest.raises(SystemExit):
        runner.run_notebook([notebook], "papermill")
    assert good.read_text() == "good"
    assert executed(tmp_path) == ["table2.failed.ipynb", "table2.ipynb"]


def test_an_interrupted_run_leaves_the_last_good_copy(notebook, monkeypatch, tmp_path, capsys):
    good = tmp_path / "runs" / "executed" / "table2.ipynb"
    good.parent.mkdir(parents=True)
    good.write_text("good")
    fail_papermill(monkeypatch, KeyboardInterrupt())
    with pytest.raises(SystemExit) as ended:
        runner.run_notebook([notebook], "covrag table2")
    assert ended.value.code == 130
    assert good.read_text() == "good"


@pytest.mark.parametrize(
    "kind", ["ParameterError", "ValueError", "FileNotFoundError", "SearchError"]
)
def test_a_mistake_in_a_notebook_ends_in_its_sentence_and_names_the_failed_copy(
    kind, notebook, monkeypatch, capsys
):
    fail_papermill(monkeypatch, failure(kind))
    with pytest.raises(SystemExit) as ended:
        runner.run_notebook([notebook], "covrag table2")
    errors = capsys.readouterr().err
    assert ended.value.code == 1
    assert errors.startswith("covrag table2: k is -1\n(the failed copy is ")
    assert "table2.failed.ipynb" in errors


def test_an_error_that_no_user_can_cause_keeps_its_traceback(notebook, monkeypatch):
    fail_papermill(monkeypatch, failure("TypeError"))
    with pytest.raises(PapermillExecutionError):
        runner.run_notebook([notebook], "papermill")


def test_a_copy_that_cannot_be_written_ends_in_one_sentence(notebook, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit) as ended:
        runner.run_notebook([notebook, str(tmp_path / "file" / "out.ipynb")], "papermill")
    errors = capsys.readouterr().err
    assert ended.value.code == 2
    assert errors.startswith("papermill: the executed copy ")
    assert errors.count("\n") == 1


def test_a_parser_begins_its_messages_with_the_command_that_was_typed(monkeypatch, capsys):
    with pytest.raises(SystemExit):
        call(monkeypatch, "check", "--wrote")
    assert "covrag check: error: unrecognized arguments: --wrote" in capsys.readouterr().err


def test_replicate_begins_its_messages_with_the_command_that_was_typed(monkeypatch):
    with pytest.raises(SystemExit) as ended:
        call(monkeypatch, "replicate", "gpt")
    assert ended.value.code.startswith("covrag replicate: backbone 'gpt'")


def test_papermills_own_messages_begin_with_the_command_that_was_typed(monkeypatch, capsys):
    with pytest.raises(SystemExit):
        call(monkeypatch, "lesson", "out.ipynb", "--wrong")
    assert capsys.readouterr().err.startswith("Usage: covrag lesson ")


class Bar:
    """papermill's bar, which remembers what was shown at its end."""

    def __init__(self):
        self.shown = []

    def set_postfix_str(self, text):
        self.shown.append(text)


@pytest.mark.parametrize(
    "text, shown",
    [
        ("\ranswer: 3/12 batch", ["answer: 3/12 batch"]),
        ("\ranswer: 3/12 batch\ranswer: 4/12 batch\n", ["answer: 4/12 batch"]),
        ("a warning\n", []),
    ],
)
def test_the_bar_of_a_cell_is_shown_at_the_end_of_papermills_bar(text, shown):
    client = Mock(nb_man=Mock(pbar=Bar()))
    engine.NotebookClient.show_progress(client, text)
    assert client.nb_man.pbar.shown == shown


def test_the_clock_of_papermills_bar_runs_while_a_cell_runs(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Mock(isatty=lambda: True))
    drawn = Event()
    with engine.ticking(Mock(refresh=drawn.set), seconds=0.001):
        assert drawn.wait(5)


def test_a_notebook_shows_the_sentence_alone():
    with pytest.raises(ParameterError) as slip:
        from_notebook({"n_question": 4})
    (line,) = slip.value._render_traceback_()  # what IPython shows in place of a traceback
    assert "did you mean 'n_questions', " in line and len(line) < 250


COMMAND = re.compile(r"papermill notebooks/(\w+)\.ipynb\b([^`\n]*)")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_command_that_a_notebook_suggests_has_parameters_that_exist(path):
    every = json.loads(path.read_text())["cells"]
    text = "\n".join("".join(cell["source"]) for cell in every if cell["cell_type"] == "markdown")
    for notebook, words in COMMAND.findall(text):
        words = shlex.split(words, comments=True)
        given = {words[i + 1]: words[i + 2] for i, word in enumerate(words) if word == "-p"}
        assert (ROOT / "notebooks" / f"{notebook}.ipynb").exists()
        (options.from_notebook if notebook == "speed" else from_notebook)(given)
