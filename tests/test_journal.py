"""The journal loses no work: incomplete lines, full disks and killed processes."""

import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys

import pytest
import toy

from covrag_lite import evaluate
from covrag_lite.config import from_notebook
from covrag_lite.data import load_passages, load_questions
from covrag_lite.engine.interface import Completion
from covrag_lite.journal import Journal
from covrag_lite.runs.outcomes import to_frame
from covrag_lite.task_model import TaskModel, beside


def test_what_was_added_is_there_after_reopening_but_for_a_torn_last_line(tmp_path):
    path = tmp_path / "deep" / "journal.jsonl"
    Journal(path).add("answer", {"a": "one\ntwo", "b": "ü"})
    assert Journal(path).texts == {"a": "one\ntwo", "b": "ü"}
    whole = path.read_bytes()
    for cut in range(len(whole) - 1, len(whole) // 2 + 2, -7):
        path.write_bytes(whole[:cut])
        journal = Journal(path)
        assert "a" in journal.texts and "b" not in journal.texts
        journal.add("answer", {"b": "ü"})
        assert path.read_bytes() == whole
    path.write_text('{"key": "a", "text": "one"}\nrubbish\n{"key": "b", "text": "two"}\n')
    with pytest.raises(ValueError, match="line 2: this is not a journal line"):
        Journal(path)


def test_a_full_disk_leaves_the_journal_as_it_was(tmp_path):
    path = tmp_path / "j"
    journal = Journal(path)
    journal.add("answer", {"a": "one"})
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 40, limits[1]))  # the next line fits only in part
    try:
        with pytest.raises(OSError, match="free some disk space and run again"):
            journal.add("answer", {"b": "x" * 500})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before and "b" not in journal.texts
    journal.add("answer", {"b": "two"})
    assert Journal(path).texts["b"] == "two"


def run_tiny(given):
    """Run the tiny model on one question of the fictional world."""
    config = from_notebook(given)
    made = evaluate.run(config, evaluate.load_resources(config, load_passages(config)), load_questions(config))
    assert len(made) == len(config.chain.systems)


def test_a_run_whose_texts_are_all_journaled_loads_neither_torch_nor_weights(tmp_path, tiny_folder):
    given = {"model": str(tiny_folder), "device": "cpu", "n_questions": 1, "datasets": "search"}
    given |= {"systems": "RAG,CoV-RAG", "runs": str(tmp_path), "max_answer_tokens": 8, "max_revised_tokens": 6}
    run_tiny(given)
    assert "torch" in sys.modules
    script = f"import sys, test_journal as test; test.run_tiny({given}); print({{'torch', 'peft'}} & set(sys.modules))"
    own = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    again = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, env=own)
    assert again.stdout == "set()\n"


def run_toy(folder, calls):
    """Run all systems on the toy with a model that is killed after this number of calls."""
    left, complete = iter(range(calls)), toy.Actor.complete

    def complete_or_die(self, *given):
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        return complete(self, *given)

    toy.Actor.complete = complete_or_die
    config, resources = toy.stage(folder, systems=toy.SYSTEMS)
    to_frame(evaluate.run(config, resources, toy.QUESTIONS)).to_csv(folder / "frame.csv")


def test_a_run_killed_three_times_ends_with_the_bytes_of_an_unbroken_one(tmp_path):
    def run(name, calls=1000):
        process = multiprocessing.get_context("fork").Process(target=run_toy, args=(tmp_path / name, calls))
        process.start()
        process.join()
        return process.exitcode

    assert run("unbroken") == 0
    journal = tmp_path / "broken" / "embedded" / "journal.jsonl"
    for calls in (3, 5, 4):
        assert run("broken", calls) == -signal.SIGKILL
        if calls == 5:  # in mid-write
            os.truncate(journal, journal.stat().st_size - 5)
    assert run("broken") == 0
    assert (tmp_path / "broken" / "frame.csv").read_bytes() == (tmp_path / "unbroken" / "frame.csv").read_bytes()
    keys = [json.loads(line)["key"] for line in journal.read_text().splitlines()]
    assert len(keys) == len(set(keys)) > 12


def test_a_text_is_written_after_the_probabilities_behind_it(tmp_path, scripted):
    likelihoods = {"long a": {"likelihood": -1.0}}
    scripted.complete = lambda batch, *_: [Completion(text, likelihoods.get(text)) for text in batch]
    author = TaskModel(scripted.settings, scripted, Journal(tmp_path / "journal.jsonl"))
    author.complete("answer", ["b", "long a"], 9)
    b, a = author.keys("answer", ["b", "long a"], 9).values()
    assert list(author.journal.texts) == [beside(a), a, b]  # so a torn line never costs a text its probabilities
