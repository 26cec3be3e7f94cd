"""The command `covrag`: thin doors to notebooks and modules; a slip ends in its sentence."""

import sys
from unittest.mock import Mock

import pytest
from papermill import cli
from papermill.exceptions import PapermillExecutionError

from covrag_lite import command, replication
from covrag_lite.check import __main__ as check
from covrag_lite.config import ROOT, ParameterError, from_notebook


def call(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["covrag", *words])
    command.covrag()


@pytest.mark.parametrize("name", ["table2", "browse", "lesson"])
def test_a_notebook_runs_by_its_name_with_parameters(name, monkeypatch, tmp_path):
    ran = []
    monkeypatch.setattr(cli.papermill, "main", lambda args, prog_name: ran.append(args))
    call(monkeypatch, name, str(tmp_path / "out.ipynb"), "-p", "k", "1")
    assert ran == [[str(ROOT / "notebooks" / f"{name}.ipynb"), str(tmp_path / "out.ipynb"), "-p", "k", "1"]]


def test_the_modules_get_the_words_after_their_name(monkeypatch):
    ran = []
    monkeypatch.setattr(replication, "main", ran.append)
    monkeypatch.setattr(check, "main", lambda: ran.append(sys.argv))
    call(monkeypatch, "replicate", "smollm2-135m-world", "--seeds", "1")
    call(monkeypatch, "check", "--write")
    assert ran == [["smollm2-135m-world", "--seeds", "1"], ["covrag check", "--write"]]


@pytest.mark.parametrize("word, near", [("tabel2", "table2"), ("replication", "replicate"), ("lessons", "lesson")])
def test_an_unknown_word_ends_in_one_sentence_with_the_nearest_and_status_2(word, near, monkeypatch, capsys):
    with pytest.raises(SystemExit) as ended:
        call(monkeypatch, word)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"covrag: {word!r} is not known; did you mean {near!r}?") and said.count("\n") == 1


def test_without_a_word_it_tells_what_there_is(monkeypatch, capsys):
    call(monkeypatch)
    said = capsys.readouterr().out
    assert all(word in said for word in ("replicate", "check", "table2", "lesson"))


@pytest.mark.parametrize("raised, sentence", [("ParameterError", True), ("ZeroDivisionError", False)])
def test_a_slip_in_a_parameter_ends_papermill_in_its_sentence_and_no_other_error_does(raised, sentence, monkeypatch):
    error = PapermillExecutionError(0, 1, "", raised, "'n_question' is not a parameter", ["", ""])
    monkeypatch.setattr(cli.papermill, "main", Mock(side_effect=error))
    with pytest.raises(SystemExit if sentence else PapermillExecutionError) as ended:
        command.papermill([str(ROOT / "notebooks" / "table2.ipynb"), "out.ipynb"])
    assert not sentence or ended.value.code == "papermill: 'n_question' is not a parameter"


def test_a_notebook_shows_the_sentence_alone_and_the_three_nearest_parameters():
    with pytest.raises(ParameterError) as slip:
        from_notebook({"n_question": 4})
    (line,) = slip.value._render_traceback_()  # what IPython shows in place of a traceback
    names = line.partition("did you mean ")[2].partition("?")[0]
    assert names.startswith("'n_questions', ") and names.count("'") == 6 and len(line) < 250
