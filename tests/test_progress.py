"""A log gets one line from a long loop, a terminal gets a bar, and no line pretends that a loop ended."""

import io
import re
import sys
from types import SimpleNamespace

import pytest

from covrag_lite.runs import progress
from covrag_lite.runs.progress import track


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def log(monkeypatch, capsys):
    """A function that reads what was written to a stderr that is not a terminal, outside of any notebook."""
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    return lambda: capsys.readouterr().err


def test_a_log_gets_one_line_for_many_steps(log):
    assert list(track(range(500), "answer", "batch", total=500)) == list(range(500))
    assert re.fullmatch(r"answer: 500 batches in \d+ s\n", log())
    list(track(["a"], "answer", "prompt", total=1))
    assert log().startswith("answer: 1 prompt in ")


def test_the_line_ends_with_where_things_stand(log):
    seen = []
    for number in track(range(4), "train", "step", total=7, done=3, state=lambda: f"loss {seen[-1]}"):
        seen.append(number)
    assert re.fullmatch(r"train: 4 steps in \d+ s, loss 3\n", log())


def test_no_line_pretends_that_a_loop_ended(log):
    def failing():
        yield 1
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        list(track(failing(), "answer", "batch", total=2))
    for _ in track(range(10), "answer", "batch", total=10):
        break
    with pytest.raises(KeyboardInterrupt):
        for _ in track(range(10), "answer", "batch", total=10):
            raise KeyboardInterrupt
    assert log() == ""


def test_a_terminal_gets_a_bar(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    seen = []
    for number in track(range(3), "train", "step", total=3, state=lambda: f"loss {seen[-1]}"):
        seen.append(number)
    shown = terminal.getvalue()
    assert "train: 100%" in shown and "3/3" in shown and "loss 2" in shown
    assert "3 steps in" not in shown


@pytest.mark.parametrize(
    "shell, widgets, watched", [("ZMQ", True, True), ("ZMQ", False, False), ("Plain", True, False)]
)
def test_a_notebook_is_watched_if_it_can_show_widgets(log, monkeypatch, shell, widgets, watched):
    running = type(f"{shell}InteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: running))
    monkeypatch.setattr(progress.importlib.util, "find_spec", lambda name: name if widgets else None)
    assert progress.is_watched() is watched
