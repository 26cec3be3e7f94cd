"""Running a notebook by its name: where its copy goes, what is checked, what is printed."""

import io
import json
import logging
import os
import sys
from contextlib import nullcontext
from types import SimpleNamespace
from unittest.mock import Mock

import click
import pytest
from papermill import cli

from covrag_lite.commands import ask, engine
from covrag_lite.commands import notebook as runner
from covrag_lite.config import ROOT
from covrag_lite.engine.progress import TEXT_BARS

NOTEBOOK = str(ROOT / "notebooks" / "table2.ipynb")


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """The arguments with which papermill was called; it writes nothing."""
    calls = []
    monkeypatch.setattr(runner, "ROOT", tmp_path)
    monkeypatch.setattr(cli.papermill, "main", lambda args, **options: calls.append(list(args)))
    return calls


# Where the copy goes.


@pytest.mark.parametrize("output", ["-", "s3://bucket/out.ipynb"])
def test_papermill_itself_writes_to_standard_output_or_to_an_address(calls, output):
    runner.run_notebook([NOTEBOOK, output], "papermill")
    assert calls == [[NOTEBOOK, output]]


def test_a_run_writes_to_a_file_of_its_own_with_our_engine(calls, tmp_path):
    runner.run_notebook([NOTEBOOK, str(tmp_path / "out.ipynb")], "papermill")
    running = str(tmp_path / f"out.running-{os.getpid()}.ipynb")
    assert calls == [[NOTEBOOK, running, "--engine", "covrag"]]


def test_an_engine_that_is_given_is_kept(calls):
    runner.run_notebook([NOTEBOOK, "--engine", "other"], "papermill")
    assert calls[0][-2:] == ["--engine", "other"]
    assert calls[0].count("--engine") == 1


def test_a_parameter_that_is_called_like_the_output_is_left_alone(calls, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runner.run_notebook(["-p", "name", "out.ipynb", NOTEBOOK, "out.ipynb"], "papermill")
    assert calls[0][:4] == ["-p", "name", "out.ipynb", NOTEBOOK]
    assert calls[0][4].startswith("out.running-")


def test_a_run_that_wrote_nothing_leaves_no_file(calls, tmp_path):
    runner.run_notebook([NOTEBOOK], "papermill")
    assert list((tmp_path / "runs" / "executed").iterdir()) == []


def test_a_folder_is_no_place_for_a_copy(calls, tmp_path, capsys):
    (tmp_path / "folder").mkdir()
    with pytest.raises(SystemExit):
        runner.run_notebook([NOTEBOOK, str(tmp_path / "folder")], "papermill")
    assert "folder cannot be written: it is a folder; give another path" in capsys.readouterr().err
    assert calls == []


@pytest.mark.parametrize("words", [[], ["none.ipynb"]])
def test_papermill_itself_says_what_is_missing(calls, words):
    runner.run_notebook(words, "papermill")
    assert calls == [words]


# Parameters.


def check(text, tmp_path, **options):
    notebook = tmp_path / "mine.ipynb"
    notebook.write_text(text)
    return runner.check_parameters(notebook, options, "papermill")


OURS = r'"from covrag_lite.config import from_notebook\n"'


def test_parameters_of_our_notebooks_are_checked(tmp_path):
    assert check(OURS, tmp_path, parameters=[("k", "3")])


@pytest.mark.parametrize(
    "text", ['"import pandas"', r'"from covrag_lite.config import Config\n, from_notebook"']
)
def test_parameters_of_other_notebooks_are_not_checked(tmp_path, text):
    assert not check(text, tmp_path, parameters=[("no_such", "3")])


def test_without_parameters_nothing_is_checked(tmp_path):
    assert not check(OURS, tmp_path)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"parameters_raw": [("no_such", "3")]}, "'no_such' is not a parameter"),
        ({"parameters": [("systems", "CoV")]}, "system 'CoV' is not known"),
        ({"parameters": [("related_systems", "CoV")]}, "system 'CoV' is not known"),
        ({"parameters": [("k", "3")], "parameters_raw": [("k", "x")]}, "'k' is 'x', but must be"),
    ],
)
def test_every_kind_of_parameter_is_checked(tmp_path, capsys, options, sentence):
    with pytest.raises(SystemExit):
        check(OURS, tmp_path, **options)
    assert sentence in capsys.readouterr().err


# Failures.


def test_a_failure_before_the_first_cell_keeps_no_copy(tmp_path):
    running = tmp_path / "a.running.ipynb"
    assert runner.describe_failed(running, tmp_path / "a.ipynb") == "no cell has run"
    running.touch()
    assert runner.describe_failed(running, tmp_path / "a.ipynb") == "no cell has run"
    assert not (tmp_path / "a.failed.ipynb").exists()


@pytest.mark.parametrize("is_first", [True, False])
def test_a_failed_copy_is_named_with_the_last_good_one_if_there_is_one(tmp_path, is_first):
    running, output = tmp_path / "a.running.ipynb", tmp_path / "a.ipynb"
    running.write_text("half")
    if not is_first:
        output.touch()
    expected = f"the failed copy is {tmp_path / 'a.failed.ipynb'}"
    expected += "" if is_first else f"; {output} is unchanged"
    assert runner.describe_failed(running, output) == expected


def test_a_wrong_option_of_papermill_ends_with_its_own_status(tmp_path, capsys):
    command = SimpleNamespace(main=Mock(side_effect=click.UsageError("no such option")))
    with pytest.raises(SystemExit) as ended:
        runner.execute(command, [], "papermill", tmp_path / "a", tmp_path / "b")
    assert ended.value.code == 2
    assert "no such option" in capsys.readouterr().err


def test_the_copy_of_a_notebook_without_papermills_data_is_kept_as_it_is(tmp_path):
    running = tmp_path / "a.ipynb"
    running.write_text(json.dumps({"cells": [], "metadata": {}}))
    runner.write_output_path(running, tmp_path / "b.ipynb")
    assert json.loads(running.read_text()) == {"cells": [], "metadata": {}}


# papermill's log.


@pytest.fixture
def log(tmp_path, caplog):
    """A function that returns what of these messages stays in papermill's log."""

    def write(messages, checked):
        caplog.clear()
        names = tmp_path / "a.running-1.ipynb", tmp_path / "a.ipynb"
        with caplog.at_level(logging.INFO, "papermill"), runner.tidy_log(*names, checked):
            for message in messages:
                logging.getLogger("papermill").info(message)
        return caplog.messages

    return write


def test_the_log_names_the_copy_and_not_the_temporary_file(log):
    assert log(["Output: a.running-1.ipynb"], True) == ["Output: a.ipynb"]


@pytest.mark.parametrize(
    ("checked", "shown"), [(True, []), (False, ["Passed unknown parameter: x"])]
)
def test_the_log_warns_of_unknown_parameters_only_if_they_were_not_checked(log, checked, shown):
    messages = ["Executing notebook with kernel: python3", "Passed unknown parameter: x"]
    assert log(messages, checked) == shown


def test_the_log_is_left_as_it_was(log, caplog):
    log([], True)
    with caplog.at_level(logging.INFO, "papermill"):
        logging.getLogger("papermill").info("Executing notebook")
    assert caplog.messages == ["Executing notebook"]


# Our engine.


@pytest.fixture
def executed(monkeypatch):
    """A function that runs our engine with options; returns those of its client."""
    seen = []

    class Client:
        def __init__(self, nb_man, **options):
            seen.append(options)

        def execute(self):
            return "a notebook"

    monkeypatch.setattr(engine, "NotebookClient", Client)
    monkeypatch.setattr(engine, "ticking", lambda bar: nullcontext())

    def execute(bar=None, **options):
        manager = SimpleNamespace(pbar=bar)
        run = engine.NotebookEngine.execute_managed_notebook
        assert run(manager, "python3", **options) == "a notebook"
        return seen[-1]

    return execute


def test_the_limits_of_papermill_reach_the_client(executed):
    options = executed(start_timeout=5, execution_timeout=7, input_path="x")
    assert (options["startup_timeout"], options["timeout"]) == (5, 7)
    assert not {"input_path", "start_timeout", "execution_timeout"} & set(options)


def test_a_cell_may_take_as_long_as_it_needs(executed):
    options = executed()
    assert (options["startup_timeout"], options["timeout"]) == (60, None)
    assert options["kernel_name"] == "python3"


def test_the_bar_counts_cells(executed):
    bar = SimpleNamespace(bar_format="")
    executed(bar)
    assert "cells" in bar.bar_format


@pytest.mark.parametrize("is_terminal", [True, False])
def test_cells_write_bars_of_text_only_for_a_terminal(monkeypatch, is_terminal):
    monkeypatch.setenv(TEXT_BARS, "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    assert engine.register() == "covrag"
    assert os.environ[TEXT_BARS] == ("1" if is_terminal else "")


# Questions that are typed.


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_shows_how_to_end_and_a_file_does_not(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", Terminal(" who? \n\n"))
    assert list(ask.read_questions()) == ["who?"]
    shown = capsys.readouterr().out
    assert shown.startswith("Type a question and press Enter; Ctrl-D ends.\nquestion> ")
    monkeypatch.setattr(sys, "stdin", io.StringIO("who?\n"))
    assert list(ask.read_questions()) == ["who?"]
    assert capsys.readouterr().out == ""
