"""The journal loses no work: incomplete lines, full disks and killed processes."""

import fcntl
import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
import toy

from covrag_lite.config import from_notebook
from covrag_lite.data import load_passages, load_questions
from covrag_lite.engine.interface import Completion
from covrag_lite.engine.journal import Journal, key_of
from covrag_lite.engine.task_model import TaskModel, probabilities_key
from covrag_lite.runs.frame import to_frame
from covrag_lite.systems import evaluate

# The file.


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "journal.jsonl"


def test_texts_are_there_after_reopening(path):
    Journal(path).add("answer", {"a": "one\ntwo", "b": "ü"})
    assert Journal(path).texts == {"a": "one\ntwo", "b": "ü"}


def test_a_journal_begins_empty(path):
    assert Journal(path).texts == {}


def test_a_text_is_not_written_twice(path):
    journal = Journal(path)
    journal.add("answer", {"a": "one"})
    journal.add("answer", {"a": "another", "b": "two"})
    assert Journal(path).texts == {"a": "one", "b": "two"}


@pytest.fixture
def cut_journals(path):
    """Yields the path with the file cut off at several places in its last line."""
    Journal(path).add("answer", {"a": "one\ntwo", "b": "ü"})
    content = path.read_bytes()

    def cut():
        for end in range(len(content) - 1, len(content) // 2 + 2, -7):
            path.write_bytes(content[:end])
            yield path

    return content, cut()


def test_an_incomplete_last_line_is_dropped(cut_journals):
    _, paths = cut_journals
    for path in paths:
        assert Journal(path).texts == {"a": "one\ntwo"}


def test_a_dropped_line_can_be_written_again(cut_journals):
    content, paths = cut_journals
    for path in paths:
        Journal(path).add("answer", {"b": "ü"})
        assert path.read_bytes() == content


def test_a_line_that_is_no_journal_line_is_an_error_with_its_number(path):
    path.parent.mkdir()
    path.write_text('{"key": "a", "text": "one"}\nrubbish\n{"key": "b", "text": "two"}\n')
    with pytest.raises(ValueError, match="line 2: this is not a journal line; delete the line"):
        Journal(path)


def wait_for_lock(path, use):
    """Run `use` in a process while this one has the lock; return the file before and after."""
    with open(path, "ab+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        process = multiprocessing.get_context("fork").Process(target=use)
        process.start()
        process.join(0.3)
        is_waiting = process.is_alive()
        while_locked = path.read_bytes()
        fcntl.flock(file, fcntl.LOCK_UN)
        process.join(10)
    assert process.exitcode == 0
    return is_waiting, while_locked, path.read_bytes()


def test_a_text_is_appended_only_while_no_other_process_writes(path):
    journal = Journal(path)
    waits, before, after = wait_for_lock(path, lambda: journal.add("answer", {"k": "t"}))
    assert waits
    assert before == b""
    assert json.loads(after)["text"] == "t"


def test_a_journal_is_opened_only_while_no_other_process_writes(path):
    path.parent.mkdir()
    path.write_bytes(b'{"key": ')  # the other process is in the middle of this line
    waits, while_locked, _ = wait_for_lock(path, lambda: Journal(path))
    assert waits
    assert while_locked == b'{"key": '


def test_a_text_is_not_appended_to_the_incomplete_line_of_a_killed_process(path):
    journal = Journal(path)
    journal.add("answer", {"a": "one"})
    with path.open("a") as file:
        file.write('{"key": "killed", "te')
    journal.add("answer", {"b": "two"})
    assert Journal(path).texts == {"a": "one", "b": "two"}


def add_many(path, name):
    """Add forty texts, one at a time, as a process of its own."""
    journal = Journal(path)
    for number in range(40):
        journal.add("answer", {f"{name}-{number}": "long enough for several writes " * 200})


def test_two_processes_write_one_journal_without_a_loss(path):
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=add_many, args=(path, name)) for name in ("a", "b")]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert len(Journal(path).texts) == 80


def add_b(path):
    Journal(path).add("answer", {"b": "two"})


def test_lines_are_on_the_disk_when_they_are_added(path, monkeypatch):
    sizes = []
    monkeypatch.setattr(os, "fsync", lambda number: sizes.append(os.fstat(number).st_size))
    add_b(path)
    assert sizes == [path.stat().st_size]


def test_a_key_depends_on_everything_but_the_order_of_names():
    assert key_of(prompt="p", stage="answer") == key_of(stage="answer", prompt="p")


@pytest.mark.parametrize("change", [{"prompt": "q"}, {"stage": "verify"}, {"sample": 1}])
def test_other_settings_have_another_key(change):
    settings = {"prompt": "p", "stage": "answer"}
    assert key_of(**settings | change) != key_of(**settings)


# A full disk.


@contextmanager
def disk_with(n_bytes):
    """Let files grow to this size only."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.fixture
def after_full_disk(path):
    """A journal whose second line did not fit, and the bytes of the file before it."""
    journal = Journal(path)
    journal.add("answer", {"a": "one"})
    before = path.read_bytes()
    with disk_with(len(before) + 40):  # the next line fits only in part
        with pytest.raises(OSError, match="free some disk space and run again"):
            journal.add("answer", {"b": "x" * 500})
    return journal, before


def test_a_full_disk_leaves_the_file_as_it_was(after_full_disk, path):
    _, before = after_full_disk
    assert path.read_bytes() == before


def test_a_text_that_did_not_fit_is_not_in_the_journal(after_full_disk):
    journal, _ = after_full_disk
    assert "b" not in journal.texts


def test_a_journal_continues_when_there_is_room_again(after_full_disk, path):
    journal, _ = after_full_disk
    journal.add("answer", {"b": "two"})
    assert Journal(path).texts == {"a": "one", "b": "two"}


# Runs.


def run_tiny(parameters):
    """Run the tiny model on one question of the fictional world."""
    config = from_notebook(parameters)
    resources = evaluate.load_resources(config, load_passages(config))
    predictions = evaluate.run(config, resources, load_questions(config))
    assert len(predictions) == len(config.chain.systems)


def test_a_run_whose_texts_are_all_journaled_loads_neither_torch_nor_weights(tmp_path, tiny_folder):
    parameters = {
        "model": str(tiny_folder),
        "device": "cpu",
        "n_questions": 1,
        "datasets": "search",
        "systems": "RAG,CoV-RAG",
        "runs": str(tmp_path),
        "max_answer_tokens": 8,
        "max_revised_tokens": 6,
    }
    run_tiny(parameters)
    assert "torch" in sys.modules
    script = (
        f"import sys, test_journal; test_journal.run_tiny({parameters}); "
        "print({'torch', 'peft'} & set(sys.modules))"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    again = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, env=environment
    )
    assert again.stdout == "set()\n"


def run_toy(folder, n_calls):
    """Run all systems on the toy with a model that is killed after this number of calls."""
    calls = iter(range(n_calls))
    complete = toy.Actor.complete

    def complete_or_die(self, *args):
        if next(calls, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        return complete(self, *args)

    toy.Actor.complete = complete_or_die
    config, resources = toy.stage(folder, systems=toy.SYSTEMS)
    to_frame(evaluate.run(config, resources, toy.QUESTIONS)).to_csv(folder / "frame.csv")


def run_in_process(folder, n_calls=1000):
    """Run the toy in a process of its own; returns its exit code."""
    fork = multiprocessing.get_context("fork")
    process = fork.Process(target=run_toy, args=(folder, n_calls))
    process.start()
    process.join()
    return process.exitcode


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The folder of an uninterrupted run, and of a run that was killed three times."""
    folder = tmp_path_factory.mktemp("killed")
    assert run_in_process(folder / "uninterrupted") == 0
    resumed = folder / "resumed"
    journal = resumed / "embedded" / "journal.jsonl"
    for n_calls in (3, 5, 4):
        assert run_in_process(resumed, n_calls) == -signal.SIGKILL
        if n_calls == 5:  # while a line was written
            os.truncate(journal, journal.stat().st_size - 5)
    assert run_in_process(resumed) == 0
    return folder / "uninterrupted", resumed


def test_a_run_killed_three_times_gives_the_output_of_an_uninterrupted_one(killed):
    uninterrupted, resumed = killed
    expected = (uninterrupted / "frame.csv").read_bytes()
    assert (resumed / "frame.csv").read_bytes() == expected


def test_a_run_killed_three_times_writes_no_text_twice(killed):
    _, resumed = killed
    lines = (resumed / "embedded" / "journal.jsonl").read_text().splitlines()
    keys = [json.loads(line)["key"] for line in lines]
    assert len(keys) > 12
    assert len(keys) == len(set(keys))


# A model with a journal.


@pytest.fixture
def model(tmp_path, scripted):
    return TaskModel(scripted.settings, scripted, Journal(tmp_path / "journal.jsonl"))


def test_probabilities_are_journaled_before_their_text(model):
    """So an incomplete line never costs a text its probabilities."""
    likelihoods = {"long a": {"likelihood": -1.0}}
    model.model.complete = lambda batch, *_: [
        Completion(text, likelihoods.get(text)) for text in batch
    ]
    model.complete("answer", ["b", "long a"], 9)
    b, a = model.keys("answer", ["b", "long a"], 9).values()
    assert list(model.journal.texts) == [probabilities_key(a), a, b]


def test_journaled_probabilities_come_back_with_their_text(model):
    probabilities = {"likelihood": -1.0}
    model.model.complete = lambda batch, *_: [Completion("x", probabilities) for _ in batch]
    first = model.complete("answer", ["a"], 9)
    model.model.complete = None  # not called again
    assert model.complete("answer", ["a"], 9) == first == [Completion("x", probabilities)]


def test_only_answers_and_verdicts_have_journaled_probabilities(model):
    model.model.complete = lambda batch, *_: [Completion("x", {"likelihood": -1.0}) for _ in batch]
    model.complete("rewrite", ["a"], 9)
    assert list(model.journal.texts.values()) == ["x"]


@pytest.mark.parametrize("change", [{"limit": 8}, {"stage": "rewrite"}, {"sample": 1}])
def test_a_text_of_other_settings_has_another_key(model, change):
    settings = {"stage": "answer", "texts": ["a"], "limit": 9}
    assert model.keys(**settings | change) != model.keys(**settings)


def test_a_key_stays_the_same_so_that_earlier_runs_can_be_continued(model):
    facts = {"weights": model.model.fingerprint, "device": model.model.device}
    settings = {"quantize": model.model.settings.quantize, "stage": "answer", "limit": 9}
    assert model.keys("answer", ["a"], 9) == {"a": key_of(**facts, **settings, prompt="a")}
