"""No work is lost: torn lines, full disks and killed processes."""

import json
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import time

import pytest

from covrag_lite.config import Config, Data, Model, Run
from covrag_lite.runs.journal import Journal


def test_what_was_added_is_there_after_reopening(tmp_path):
    path = tmp_path / "deep" / "journal.jsonl"
    Journal(path).add("answer", {"a": "one\ntwo", "b": "ü"})
    again = Journal(path)
    assert again["a"] == "one\ntwo"
    assert again["b"] == "ü"
    assert "a" in again and "c" not in again


def test_a_torn_last_line_is_cut_off_and_the_rest_stays(tmp_path):
    path = tmp_path / "j"
    Journal(path).add("answer", {"a": "one", "b": "two"})
    whole = path.read_bytes()
    for cut in range(len(whole) - 1, len(whole) // 2 + 2, -7):
        path.write_bytes(whole[:cut])
        journal = Journal(path)
        assert "a" in journal and "b" not in journal
        journal.add("answer", {"b": "two"})
        assert path.read_bytes() == whole


def test_a_broken_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "j"
    path.write_text('{"key": "a", "text": "one"}\nrubbish\n{"key": "b", "text": "two"}\n')
    with pytest.raises(ValueError, match="line 2: not a journal line"):
        Journal(path)


def test_a_full_disk_leaves_the_journal_as_it_was(tmp_path):
    path = tmp_path / "j"
    journal = Journal(path)
    journal.add("answer", {"a": "one"})
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 40, limits[1]))  # the next line fits only in part
    try:
        with pytest.raises(OSError, match="the 1 texts in it are whole"):
            journal.add("answer", {"b": "x" * 500})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before and "b" not in journal
    journal.add("answer", {"b": "two"})
    assert Journal(path)["b"] == "two"


def slowly(write):
    """The same function, slow enough to be killed in between."""

    def wait_and_write(*given):
        time.sleep(0.05)
        return write(*given)

    return wait_and_write


def run_systems(out, model):
    """All systems of Table 2 with a tiny model, in a process of its own."""
    from covrag_lite import evaluate
    from covrag_lite.data import load_passages, load_questions
    from covrag_lite.engine import prepare
    from covrag_lite.engine.local import LocalEngine
    from covrag_lite.runs.outcomes import to_frame
    from covrag_lite.tables.accuracy import accuracy_table

    LocalEngine.complete = slowly(LocalEngine.complete)
    LocalEngine.fill = slowly(LocalEngine.fill)
    prepare.CPU_TOKENS = 4096
    small = Model(model=str(model), max_answer_tokens=8, max_revised_tokens=6)
    config = Config(data=Data(n_questions=3), model=small, run=Run(runs=str(out)))
    resources = evaluate.load_resources(config, load_passages(config))
    frame = to_frame(evaluate.run(config, resources, load_questions(config)))
    accuracy_table(frame, "table2").to_csv(out / "table2.csv")
    frame.to_csv(out / "frame.csv")


RUN = """
import sys
from covrag_lite import evaluate
from covrag_lite.config import from_notebook
from covrag_lite.data import load_passages, load_questions

for layout in ("paper", "shared"):
    config = from_notebook({given!r} | {{"layout": layout}})
    questions = load_questions(config)
    made = evaluate.run(config, evaluate.load_resources(config, load_passages(config)), questions)
    assert len(made) == len(config.chain.systems) * len(questions)
print(*({{"torch", "transformers", "peft"}} & set(sys.modules)))
"""


def test_a_run_whose_texts_are_all_journaled_loads_neither_torch_nor_weights(tmp_path, tiny_folder, capsys):
    given = {
        "model": str(tiny_folder),
        "device": "cpu",
        "n_questions": 1,
        "systems": "RAG,CoV-RAG",
        "runs": str(tmp_path),
        "max_answer_tokens": 8,
        "max_revised_tokens": 6,
    }
    script = RUN.format(given=given)
    exec(script, {})
    assert "torch" in capsys.readouterr().out
    again = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert again.stdout == "\n"


def test_a_run_killed_three_times_ends_with_the_bytes_of_an_unbroken_one(tmp_path, tiny_folder):
    processes = multiprocessing.get_context("forkserver")
    # Loading torch takes longer than a run: it is loaded once, and every run is forked from there.
    processes.set_forkserver_preload(["covrag_lite.evaluate", "covrag_lite.engine.decoding"])

    def start(out):
        process = processes.Process(target=run_systems, args=(out, tiny_folder))
        process.start()
        return process

    def run(out):
        process = start(out)
        process.join()
        assert process.exitcode == 0

    unbroken = tmp_path / "unbroken"
    broken = tmp_path / "broken"
    run(unbroken)
    size = (unbroken / "embedded" / "journal.jsonl").stat().st_size
    journal = broken / "embedded" / "journal.jsonl"
    moments = sorted(random.Random(os.getpid()).sample(range(1, 9), 3))
    for tenths in moments:
        process = start(broken)
        while process.is_alive() and not (journal.exists() and journal.stat().st_size > size * tenths / 10):
            time.sleep(0.005)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL, f"the run ended before it could be killed at {moments}"
        if tenths == moments[1]:  # a kill in mid-write
            os.truncate(journal, journal.stat().st_size - 5)
    run(broken)
    for name in ("table2.csv", "frame.csv"):
        assert (broken / name).read_bytes() == (unbroken / name).read_bytes()
    keys = [json.loads(line)["key"] for line in journal.read_text().splitlines()]
    assert len(keys) == len(set(keys))


def test_a_text_is_written_after_the_probabilities_behind_it(tmp_path, scripted):
    from covrag_lite.engine.interface import Completion
    from covrag_lite.task_model import beside, write_journaled

    def write(batch):
        return [Completion(text, {"likelihood": -1.0} if text == "long a" else None) for text in batch]

    journal = Journal(tmp_path / "journal.jsonl")
    write_journaled("answer", {"long a": "a", "b": "b"}, ["b", "long a"], write, 9, scripted, journal)
    assert list(journal.texts) == [beside("a"), "a", "b"]  # so a torn line never costs a text its probabilities
