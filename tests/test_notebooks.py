"""Notebooks are short, take their defaults from config.py, and run from both folders.

They use a tiny model. One runs through papermill, as a user runs it; the code cells of the others
run in this process, without a kernel.
"""

import ast
import errno
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from unittest.mock import Mock

import nbformat
import pytest
from conftest import write_jsonl
from matplotlib import pyplot
from papermill import cli
from papermill.exceptions import PapermillExecutionError

from benchmarks import options
from covrag_lite import commands as command
from covrag_lite.check import check
from covrag_lite.commands import engine, html
from covrag_lite.commands import notebook as runner
from covrag_lite.config import ROOT, Config, ParameterError, from_notebook
from covrag_lite.engine import progress
from covrag_lite.runs import recorded
from covrag_lite.tables import find_table, load_basis

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
# The notebook for a hosted GPU has the command's parameters; tests/test_rehearsal.py runs it.
OF_CONFIG = [path for path in NOTEBOOKS if path.stem != "hosted"]
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
every_notebook_of_config = pytest.mark.parametrize("path", OF_CONFIG, ids=lambda path: path.stem)
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
# All files that a notebook writes there; other notebooks write none.
WRITTEN = {"train": {"figure3.png", "losses.png"}, "lesson": {"method.md", "method.png"}}
WRITTEN |= {name: {f"{name}.{end}" for end in ends} for name, ends in ENDS.items()}
# The folders of the adapters that a notebook trains; of the methods `train` trains the one that is
# asked for.
TRAINED = {"train": {"seed-1", "seed-2", "cov"}}
# These run from their folder, as in JupyterLab; the others from the root, as with papermill.
FROM_ITS_FOLDER = {"table2", "explore", "train"}


def cells(path):
    """A notebook's code cells: tags, source and outputs."""
    every = json.loads(path.read_text())["cells"]
    code = [cell for cell in every if cell["cell_type"] == "code"]
    return [
        (cell["metadata"].get("tags", []), "".join(cell["source"]), cell.get("outputs"))
        for cell in code
    ]


def code_lines(path):
    """The lines of a notebook's code, without comments and empty lines."""
    lines = []
    for _, source, _ in cells(path):
        lines += [line.strip() for line in source.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


@every_notebook
def test_a_notebook_is_short(path):
    assert len(code_lines(path)) <= 60


@every_notebook
def test_a_notebook_defines_nothing(path):
    definitions = ("def ", "class ", "try:", "!", "%")
    assert not [line for line in code_lines(path) if line.startswith(definitions)]


@every_notebook
def test_a_notebook_does_not_change_the_search_path_of_modules(path):
    assert not [line for line in code_lines(path) if "sys.path" in line]


def parameters_cell(path):
    (source,) = [source for tags, source, _ in cells(path) if "parameters" in tags]
    return source


@every_notebook_of_config
def test_every_parameter_of_a_notebook_is_explained(path):
    unexplained = []
    for line in parameters_cell(path).splitlines():
        _, _, explanation = line.partition("#")
        if not explanation:
            unexplained.append(line)
    assert unexplained == []


@every_notebook_of_config
def test_papermill_reads_every_parameter_of_a_notebook(path):
    dropped = []
    for line in parameters_cell(path).splitlines():
        code, _, _ = line.partition("#")
        if code.count("=") != 1 or "|" in code:
            dropped.append(line)
    assert dropped == []


@every_notebook_of_config
def test_a_notebooks_parameters_are_the_defaults_of_config(path):
    assignments = ast.parse(parameters_cell(path)).body
    parameters = {node.target.id: ast.literal_eval(node.value) for node in assignments}
    if path.stem == "speed":
        assert options.from_notebook(parameters) == options.Options()
    else:
        assert from_notebook(parameters) == Config()


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
    questions = []
    passages = []
    for i in range(10, 30):
        writer = "Agnes" if i % 4 == 3 else "Edith"
        questions.append(
            {
                "id": str(i),
                "question": f"who wrote book {i}",
                "answers": [writer],
                "gold_passage": f"p{i}",
            }
        )
        passages.append({"id": f"p{i}", "title": f"Book {i}", "text": f"{writer} wrote it."})
    write_jsonl(folder / "train_books.jsonl", questions)
    write_jsonl(folder / "corpus.jsonl", passages)


def written(tmp_path):
    return {file.name for file in (tmp_path / "figures").rglob("*.*")}


def small_parameters(path, folder, tiny_folder, tiny_encoder):
    """Parameters that make a notebook's run small and keep its files in the folder."""
    parameters = {} if "lesson" in path.stem else {"model": str(tiny_folder)}
    parameters |= places(folder)
    for name, value in SMALL.get(path.stem, {}).items():
        if isinstance(value, str):
            value = value.format(tmp=folder, encoder=tiny_encoder)
        parameters[name] = value
    return parameters


# Table 3 needs no model, and runs below as a user runs it.
@pytest.fixture(
    scope="module",
    params=[path for path in OF_CONFIG if path.stem != "table3"],
    ids=lambda path: path.stem,
)
def notebook_run(request, tmp_path_factory, tiny_folder, tiny_encoder):
    """The name of a notebook and the folder in which it ran."""
    path = request.param
    folder = tmp_path_factory.mktemp(path.stem)
    build_library(folder / "library")
    parameters = small_parameters(path, folder, tiny_folder, tiny_encoder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COVRAG_CACHE", str(folder / "cache"))
        patch.chdir(path.parent if path.stem in FROM_ITS_FOLDER else ROOT)
        run_cells(path, parameters)
    return path.stem, folder


def test_a_notebook_runs_and_writes_its_files(notebook_run):
    name, folder = notebook_run
    assert written(folder) == WRITTEN.get(name, set())


def test_what_a_notebook_writes_follows_from_what_it_records(notebook_run):
    _, folder = notebook_run
    assert check(folder).differences == []


def test_a_notebook_trains_the_adapters_that_are_asked_for(notebook_run):
    name, folder = notebook_run
    files = (folder / "adapters").rglob("adapter_config.json")
    assert {file.parent.name for file in files} == TRAINED.get(name, set())


def test_sigma_is_chosen_when_the_verifier_is_trained(notebook_run):
    name, folder = notebook_run
    assert (folder / "adapters" / "cov" / "sigma.json").exists() == (name == "train")


@pytest.fixture(scope="module")
def table3_folder(tmp_path_factory):
    """The folder in which papermill ran Table 3, as a user runs it."""
    folder = tmp_path_factory.mktemp("table3")
    papermill = Path(sys.executable).parent / "papermill"
    words = [papermill, "table3.ipynb", folder / "out.ipynb", "--no-progress-bar"]
    for name, value in (places(folder) | {"n_judged": 2}).items():
        words += ["-p", name, str(value)]
    subprocess.run(words, cwd=ROOT / "notebooks", check=True, stdin=subprocess.DEVNULL)
    return folder


def test_table3_runs_through_papermill_and_writes_its_files(table3_folder):
    assert written(table3_folder) == WRITTEN["table3"]


def test_table3_needs_no_model(table3_folder):
    assert not (table3_folder / "runs").exists()


def test_table3_follows_from_the_recorded_answers(table3_folder, tmp_path):
    answers = Config().judging.predictions
    shutil.copytree(table3_folder / "figures", tmp_path / "figures")
    shutil.copytree(ROOT / "results" / answers, tmp_path / "results" / answers)
    (run,) = recorded.find_under(tmp_path / "figures", tmp_path)
    assert find_table("table3").build(load_basis(run), run).text == run.file("md").read_text()


@pytest.fixture(scope="module")
def solutions():
    """The solutions of the lesson's exercises."""
    path = ROOT / "notebooks" / "lesson_solutions.ipynb"
    return [source for _, source, _ in cells(path)][2:]


def test_the_lesson_has_six_solutions(solutions):
    assert len(solutions) == 6


def test_each_solution_ends_in_an_assertion(solutions):
    for solution in solutions:
        assert isinstance(ast.parse(solution).body[-1], ast.Assert)


def test_the_lessons_picture_is_committed_for_the_readme():
    assert (ROOT / "figures" / "embedded" / "method.png").exists()


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


UNKNOWN_WORDS = [("tabel2", "table2"), ("replication", "replicate"), ("lessons", "lesson")]


@pytest.mark.parametrize("word, near", UNKNOWN_WORDS)
def test_an_unknown_word_ends_with_status_2(word, near, monkeypatch):
    with pytest.raises(SystemExit) as ended:
        call(monkeypatch, word)
    assert ended.value.code == 2


@pytest.mark.parametrize("word, near", UNKNOWN_WORDS)
def test_the_nearest_word_is_suggested_for_an_unknown_one(word, near, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        call(monkeypatch, word)
    suggestion = f"covrag: {word!r} is not known; did you mean {near!r}?"
    assert capsys.readouterr().err.startswith(suggestion)


@pytest.mark.parametrize("word, near", UNKNOWN_WORDS)
def test_an_unknown_word_ends_in_one_line(word, near, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        call(monkeypatch, word)
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("name", ["replicate", "check", "table2", "lesson"])
def test_the_usage_without_a_word_names_every_command(name, monkeypatch, capsys):
    call(monkeypatch)
    assert name in capsys.readouterr().out


@pytest.fixture(params=[("n_question", "3"), ("k", "five"), ("systems", "RAG,RAGG")])
def refused(request, notebook, papermill_calls, capsys):
    """The status and the message of a command with a wrong parameter."""
    name, value = request.param
    with pytest.raises(SystemExit) as ended:
        runner.run_notebook([notebook, "-p", name, value], "covrag table2")
    return ended.value.code, capsys.readouterr().err


def test_a_wrong_parameter_ends_with_status_2(refused):
    status, _ = refused
    assert status == 2


def test_a_wrong_parameter_stops_before_a_kernel_starts(refused, papermill_calls):
    assert papermill_calls == []


def test_a_wrong_parameter_leaves_no_copy(refused, tmp_path):
    assert executed(tmp_path) == []


def test_a_message_about_a_wrong_parameter_begins_with_the_command(refused):
    _, message = refused
    assert message.startswith("covrag table2: ")


def test_a_disk_that_is_full_during_a_run_ends_it_with_the_path_of_the_copy(tmp_path, capsys):
    def write(**options):
        raise OSError(errno.ENOSPC, "No space left on device")

    output = tmp_path / "table2.ipynb"
    with pytest.raises(SystemExit) as ended:
        runner.execute(SimpleNamespace(main=write), [], "covrag table2", tmp_path / "x", output)
    assert ended.value.code == 2
    sentence = f"covrag table2: {output}: No space left on device, so this file was not written"
    assert capsys.readouterr().err.startswith(sentence)


def test_options_of_the_speed_notebook_are_checked_too(papermill_calls, capsys):
    path = str(ROOT / "notebooks" / "speed.ipynb")
    with pytest.raises(SystemExit):
        runner.run_notebook([path, "-p", "speed_way", "ours"], "covrag speed")
    assert "did you mean 'speed_ways'" in capsys.readouterr().err


@pytest.fixture
def good_copy(tmp_path):
    """The copy of an earlier run."""
    path = tmp_path / "runs" / "executed" / "table2.ipynb"
    path.parent.mkdir(parents=True)
    path.write_text("good")
    return path


def run_and_fail(notebook, monkeypatch, error):
    """Run a notebook that raises an error; returns the end of the command."""
    fail_papermill(monkeypatch, error)
    with pytest.raises(SystemExit) as ended:
        runner.run_notebook([notebook], "covrag table2")
    return ended.value


def test_a_failed_run_leaves_the_last_good_copy(notebook, good_copy, monkeypatch):
    run_and_fail(notebook, monkeypatch, failure())
    assert good_copy.read_text() == "good"


def test_the_copy_of_a_failed_run_has_another_name(notebook, good_copy, monkeypatch, tmp_path):
    run_and_fail(notebook, monkeypatch, failure())
    assert executed(tmp_path) == ["table2.failed.ipynb", "table2.ipynb"]


def test_an_interrupted_run_leaves_the_last_good_copy(notebook, good_copy, monkeypatch):
    run_and_fail(notebook, monkeypatch, KeyboardInterrupt())
    assert good_copy.read_text() == "good"


def test_an_interrupted_run_ends_with_status_130(notebook, good_copy, monkeypatch):
    assert run_and_fail(notebook, monkeypatch, KeyboardInterrupt()).code == 130


mistakes = pytest.mark.parametrize(
    "kind", ["ParameterError", "ValueError", "FileNotFoundError", "SearchError"]
)


@mistakes
def test_a_mistake_in_a_notebook_ends_with_status_1(kind, notebook, monkeypatch):
    assert run_and_fail(notebook, monkeypatch, failure(kind)).code == 1


@mistakes
def test_a_mistake_in_a_notebook_ends_in_its_sentence(kind, notebook, monkeypatch, capsys):
    run_and_fail(notebook, monkeypatch, failure(kind))
    sentence = "covrag table2: k is -1\n(the failed copy is "
    assert capsys.readouterr().err.startswith(sentence)


@mistakes
def test_a_mistake_in_a_notebook_names_the_failed_copy(kind, notebook, monkeypatch, capsys):
    run_and_fail(notebook, monkeypatch, failure(kind))
    assert "table2.failed.ipynb" in capsys.readouterr().err


def test_an_error_that_no_user_can_cause_keeps_its_traceback(notebook, monkeypatch):
    fail_papermill(monkeypatch, failure("TypeError"))
    with pytest.raises(PapermillExecutionError):
        runner.run_notebook([notebook], "papermill")


@pytest.fixture
def unwritable(notebook, tmp_path, capsys):
    """The status and the message of a run whose copy cannot be written."""
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit) as ended:
        runner.run_notebook([notebook, str(tmp_path / "file" / "out.ipynb")], "papermill")
    return ended.value.code, capsys.readouterr().err


def test_a_full_disk_during_a_run_names_the_copy(notebook, monkeypatch, capsys, tmp_path):
    run_and_fail(notebook, monkeypatch, OSError(errno.ENOSPC, "No space left on device"))
    copy = tmp_path / "runs" / "executed" / "table2.ipynb"
    assert capsys.readouterr().err.startswith(f"covrag table2: {copy}: No space left on device")


def test_a_full_disk_after_a_run_names_the_copy(notebook, papermill_calls, monkeypatch, capsys):
    def write(*paths):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(runner, "write_output_path", write)
    with pytest.raises(SystemExit):
        runner.run_notebook([notebook], "covrag table2")
    assert "table2.ipynb: No space left on device" in capsys.readouterr().err


def test_a_copy_that_cannot_be_written_ends_with_status_2(unwritable):
    status, _ = unwritable
    assert status == 2


def test_a_copy_that_cannot_be_written_is_named_by_the_command(unwritable):
    _, message = unwritable
    assert message.startswith("papermill: the executed copy ")


def test_a_copy_that_cannot_be_written_ends_in_one_line(unwritable):
    _, message = unwritable
    assert message.count("\n") == 1


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


def test_the_clock_of_a_bar_runs_while_its_step_takes_long(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Mock(isatty=lambda: True))
    drawn = Event()
    with progress.ticking(Mock(refresh=drawn.set), seconds=0.001):
        assert drawn.wait(5)


@pytest.fixture
def shown_error():
    """What IPython shows in place of the traceback of a wrong parameter."""
    with pytest.raises(ParameterError) as slip:
        from_notebook({"n_question": 4})
    (line,) = slip.value._render_traceback_()
    return line


def test_a_notebook_suggests_the_nearest_parameter(shown_error):
    assert "did you mean 'n_questions', " in shown_error


def test_a_notebook_shows_the_sentence_alone(shown_error):
    assert len(shown_error) < 250


COMMAND = re.compile(r"papermill notebooks/(\w+)\.ipynb\b([^`\n]*)")


def suggested_commands(path):
    """The commands in a notebook's text: a notebook and its parameters."""
    every = json.loads(path.read_text())["cells"]
    text = "\n".join("".join(cell["source"]) for cell in every if cell["cell_type"] == "markdown")
    commands = []
    for notebook, rest in COMMAND.findall(text):
        words = shlex.split(rest, comments=True)
        places = [i for i, word in enumerate(words) if word == "-p"]
        commands.append((notebook, {words[i + 1]: words[i + 2] for i in places}))
    return commands


@every_notebook
def test_a_command_that_a_notebook_suggests_is_of_a_notebook_that_exists(path):
    for notebook, _ in suggested_commands(path):
        assert (ROOT / "notebooks" / f"{notebook}.ipynb").exists()


@every_notebook
def test_a_command_that_a_notebook_suggests_has_parameters_that_exist(path):
    for notebook, parameters in suggested_commands(path):
        if notebook == "speed":
            options.from_notebook(parameters)
        else:
            from_notebook(parameters)


# Pages of notebooks, made by `covrag html`.


@pytest.mark.parametrize(
    ("tags", "outputs", "is_hidden"),
    [
        (["recorded", "reveal"], [], True),
        (["live", "reveal"], [], False),  # a slider
        (["recorded"], [], False),
        (["reveal"], [nbformat.v4.new_output("stream")], False),
    ],
)
def test_only_results_that_are_not_stored_are_added_to_a_page(tags, outputs, is_hidden):
    cell = nbformat.v4.new_code_cell(metadata={"tags": tags}, outputs=outputs)
    assert html.is_hidden(cell) == is_hidden
