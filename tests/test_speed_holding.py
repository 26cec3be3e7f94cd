"""What a card holds is found in processes of their own, is written as it comes, and is not measured twice."""

import json
import runpy
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch

from benchmarks import card, folders, holding, training
from benchmarks.saying import last_words, tell_root

SIZES = (10, 20, 40, 80, 160)


@pytest.fixture
def tasks(monkeypatch):
    """What the processes were asked; each answers that all sizes up to ten a GiB fit."""
    asked = []

    def answer(task, until):
        asked.append(json.loads(json.dumps(task)))
        return {"held": {str(size): size / 10 for size in task["sizes"] if size <= 10 * task.get("card", 0)}}

    monkeypatch.setattr(holding, "run_child", answer)
    return asked


def measure(shapes=("7b",), cards=(1.0, 8.0), **given):
    works = {"works": ("training", "answering")}
    return holding.measure(shapes, cards, "cpu", rows=SIZES, batches=SIZES, **works | given)


def test_the_largest_size_that_fits_is_looked_for_upwards_and_from_above():
    tried = []

    def attempt(size):
        tried.append(size)
        return size / 10 if size <= 40 else None

    assert max(card.largest(attempt, SIZES)) == 40 and tried == [10, 20, 40, 80]
    tried.clear()
    assert card.largest(attempt, SIZES, 4) == {40: 4.0} and tried == [160, 80, 40]
    assert card.largest(lambda size: None, SIZES) == {}
    tried.clear()
    assert card.search(attempt, SIZES, {}, 24) == {40: 4.0} and tried == [40, 80]
    tried.clear()
    assert card.search(attempt, SIZES, {80: 9.0, 160: 13.0}, 12) == {40: 4.0} and tried == [80, 40]
    tried.clear()
    assert card.search(attempt, SIZES, {80: 13.0, 999: 1.0}, 12) == {40: 4.0} and tried == [40, 80]
    assert holding.told("training", {}) == {"row": holding.NOTHING, "training_peak_gb": None}


def test_what_a_card_holds_is_measured_for_training_and_answering(tmp_path, monkeypatch, capsys):
    def run_here(task, until):
        """As its own process would, without a process."""
        monkeypatch.setattr(sys, "argv", ["card", json.dumps(task)])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the module is imported already
            runpy.run_module("benchmarks.card", run_name="__main__")
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    monkeypatch.setattr(holding, "run_child", run_here)
    out = tmp_path / "holding.json"
    frame = holding.measure(["tiny"], [12], "cpu", out=out, rows=(1024,), batches=(2, 4))
    held = frame[["backbone", "card_gb", "row", "away_row", "batch"]]
    assert held.to_numpy().tolist() == [["tiny", 12, 1024, 1024, 4]]
    assert json.loads(out.read_text())["rows"][0]["batch"] == 4


def test_each_shape_card_and_work_has_a_process_of_its_own_and_weights_are_written_by_another(tasks):
    frame = measure()
    assert [(task["work"], task.get("card")) for task in tasks] == [
        ("folder", None),
        ("training", 8.0),
        ("training", 1.0),
        ("answering", 8.0),
        ("answering", 1.0),
    ]
    assert tasks[2]["before"] == {"10": 1.0, "20": 2.0, "40": 4.0, "80": 8.0}  # where to begin on the smaller card
    assert frame[["card_gb", "row", "batch"]].to_numpy().tolist() == [[8, 80, 80], [1, 10, 10]]


def test_weights_are_written_outside_the_cap(monkeypatch, tmp_path):
    done = []
    monkeypatch.setattr(card, "cap", lambda *given: done.append(given))
    monkeypatch.setattr(folders, "write_folder", lambda *given: done.append("written") or Path(given[1]))
    task = {"work": "folder", "shape": "13b", "device": "cpu", "folder": str(tmp_path), "sizes": SIZES}
    card.work(task)
    assert done == ["written"]


def test_what_is_known_is_not_measured_again_unless_it_failed(tasks, tmp_path):
    out = tmp_path / "holding.json"
    known = [
        {"backbone": "7b", "card_gb": 8.0, "row": 40, "training_peak_gb": 4.0, "answering_failure": "Killed"},
        {"backbone": "7b", "card_gb": 1.0, "failure": holding.LATE},
        {"backbone": "1.5b", "card_gb": 8.0, "row": holding.NOTHING, "training_peak_gb": None, "batch": 20},
    ]
    out.write_text(json.dumps({"commit": "0123456", "rows": known}))
    measure(out=out)
    assert [task["work"] for task in tasks] == ["folder", "training", "answering", "answering"]
    assert tasks[1]["card"] == 1.0 and tasks[1]["before"] == {"40": 4.0}
    rows = json.loads(out.read_text())["rows"]
    assert [(row["row"], row["batch"]) for row in rows] == [(40, 80), (10, 10), (holding.NOTHING, 20)]
    assert not any(name.endswith("failure") for row in rows for name in row)
    tasks.clear()
    measure(out=out)
    assert not tasks


def test_a_process_that_dies_is_told_by_its_last_words_and_the_others_go_on(tmp_path, monkeypatch):
    out = tmp_path / "holding.json"
    program = tmp_path / "python"
    program.write_text(
        """#!/bin/sh
case "$3" in
*'"work": "folder"'*) echo '{}' ;;
*'"work": "training"'*) echo 'noise'; echo '{"held": {"10": 1.0}}' ;;
*) echo 'loading' >&2; echo 'CUDA error: an illegal memory access' >&2; kill -9 $$ ;;
esac
"""
    )
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    measure(out=out, cards=(8.0,), workers=2)
    (row,) = json.loads(out.read_text())["rows"]
    assert row.pop("answering_failure") == "CUDA error: an illegal memory access"
    assert row == {"backbone": "7b", "card_gb": 8.0, "row": 10, "training_peak_gb": 1.0}


def test_a_process_that_hangs_is_stopped(tmp_path, monkeypatch):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(holding, "GRACE", 0.2)
    with pytest.raises(holding.ChildFailed, match="stopped after 0 seconds"):
        holding.run_child({"folder": str(tmp_path)}, 0)


def test_a_late_pair_is_left_out_and_results_are_written_as_they_come(tasks, tmp_path, monkeypatch):
    out = tmp_path / "holding.json"
    frame = measure(out=out, seconds=-1)
    assert (
        not tasks and (frame.training_failure == holding.LATE).all() and (frame.answering_failure == holding.LATE).all()
    )
    answer = holding.run_child

    def interrupted(task, until):
        if task["work"] == "answering":
            raise KeyboardInterrupt
        return answer(task, until)

    monkeypatch.setattr(holding, "run_child", interrupted)
    with pytest.raises(KeyboardInterrupt):
        measure(out=out)
    assert [row["row"] for row in json.loads(out.read_text())["rows"]] == [80, 10]


def test_after_an_attempt_that_leaves_memory_behind_another_process_goes_on(monkeypatch, tmp_path):
    tried, left = [], []

    def training_of(task):
        left.clear()  # a new process

        def attempt(size):
            tried.append((size, len(left)))
            left.append(size)
            return size / 10 if size <= 20 else None

        return attempt

    monkeypatch.setattr(card, "train_once", training_of)
    monkeypatch.setattr(card, "in_use", lambda device: 3.0 * len(left))
    monkeypatch.setattr(holding, "run_child", lambda task, until: json.loads(json.dumps(card.work(task))))
    task = {"work": "training", "shape": "7b", "device": "cpu", "sizes": list(SIZES), "card": 12, "before": {}}
    assert holding.search_in_children(task, 0) == {20: 2.0}
    assert tried == [(40, 0), (20, 0)]


def test_training_is_measured_with_weights_loaded_from_4_bits_and_not_built_within_the_cap(monkeypatch, tmp_path):
    loaded = []
    load = folders.load_four_bit
    monkeypatch.setattr(folders, "load_four_bit", lambda *given: loaded.append(given) or load(*given))
    monkeypatch.setattr(training, "build_network", None)
    folders.write_folder("tiny", tmp_path, "cpu")
    attempt = card.train_once({"work": "training", "shape": "tiny", "device": "cpu", "folder": str(tmp_path)})
    assert attempt(1024) == 0.0
    assert loaded == [(tmp_path / "tiny", "cpu")]


@pytest.mark.parametrize("work, activations", [("training", "recompute"), ("away", "offload")])
def test_away_is_measured_with_what_layers_keep_on_the_cpu(work, activations, monkeypatch, tmp_path):
    given = []
    monkeypatch.setattr(training, "measure", lambda *all: given.append(all[1]) or {"peak_gb": 2.0})
    attempt = card.train_once({"work": work, "shape": "tiny", "device": "cpu", "folder": str(tmp_path)})
    assert attempt(1024) == 2.0 and given[0].activations == activations


def test_only_a_shortage_of_memory_means_that_a_size_does_not_fit(monkeypatch, tmp_path):
    said = {"failure": "RuntimeError: Triton Error: no kernel image"}
    monkeypatch.setattr(training, "measure", lambda *_: said)
    attempt = card.train_once({"work": "training", "shape": "tiny", "device": "cpu", "folder": str(tmp_path)})
    with pytest.raises(RuntimeError, match="no kernel image"):
        attempt(1024)
    said["failure"] = "OutOfMemoryError: CUDA out of memory. Tried to allocate 86.00 MiB."
    assert attempt(1024) is None
    try:
        try:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        finally:
            raise RuntimeError("operation failed due to a previous error during capture")
    except RuntimeError as error:
        assert tell_root(error) == "OutOfMemoryError: CUDA out of memory."
    assert tell_root(ValueError("no")) == "ValueError: no"


def test_a_process_is_capped_before_it_loads_and_weights_that_do_not_fit_hold_nothing(monkeypatch):
    done = []

    def too_many(task):
        done.append("loaded")
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(card, "load", too_many)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=100 * 2**30))
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", done.append)
    task = {"work": "answering", "shape": "13b", "device": "cuda", "sizes": [4], "card": 12, "before": {}, "tried": {}}
    assert card.work(task) == {"held": {}}
    assert done == [0.1125, "loaded"]  # a process takes 0.75 GiB before its first tensor


def test_a_process_is_told_by_its_last_line():
    assert last_words("Traceback\n  File x\nKeyError: 'x'\n\n") == "KeyError: 'x'"
    assert last_words(" \n") == "it ended without a word"


def test_old_records_and_new_ones_are_read_alike(tmp_path):
    from benchmarks import report

    rows = [
        {"backbone": "7b", "card_gb": 24.0, "row": 8192, "training_peak_gb": 12.8, "batch": 16},
        {"backbone": "7b", "card_gb": 12.0, "row": "does not fit", "training_peak_gb": None, "answering_failure": "no"},
    ]
    (tmp_path / "holding.json").write_text(json.dumps({"rows": rows}))
    (tmp_path / "inference.json").write_text(json.dumps({"device": "a GPU", "torch": "2.0", "commit": "0123456789"}))
    told = report.facts(tmp_path)
    assert told["7b in 24 GB row"] == "8,192" and told["7b in 24 GB batch"] == "16"
    assert not any(name.startswith("7b in 12 GB row") for name in told)
    assert isinstance(report.load_holding(tmp_path), pd.DataFrame)
