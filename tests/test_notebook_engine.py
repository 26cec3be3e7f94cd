"""The bar of a cell that runs for minutes is shown in the terminal too."""

from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from papermill.clientwrap import PapermillNotebookClient

from covrag_lite.commands.engine import NotebookClient


@pytest.fixture
def client(monkeypatch):
    """A client without a kernel, whose bar remembers what it shows."""
    monkeypatch.setattr(PapermillNotebookClient, "process_message", lambda *_: None)
    client = NotebookClient.__new__(NotebookClient)
    client.nb_man = SimpleNamespace(pbar=Mock())
    return client


def send(client, kind, **content):
    """Send a message of the kernel, and return what the bar was set to."""
    client.process_message({"msg_type": kind, "content": content}, None, 0)
    return [call.args[0] for call in client.nb_man.pbar.set_postfix_str.call_args_list]


def test_the_last_state_of_a_cells_bar_is_shown(client):
    assert send(client, "stream", name="stderr", text="\rread 1/9\rread 2/9") == ["read 2/9"]


def test_what_a_cell_prints_is_no_bar(client):
    assert send(client, "stream", name="stdout", text="\rread 1/9") == []


def test_a_warning_is_no_bar(client):
    assert send(client, "stream", name="stderr", text="UserWarning: slow\n") == []


def test_the_bar_is_removed_when_a_cell_ends(client):
    assert send(client, "status", execution_state="idle") == [""]
