"""What a card holds is found by processes that are held to its memory, and is not measured twice."""

import json
from types import SimpleNamespace

import pytest
import torch

from benchmarks import card, folders, holding, rows


def test_the_largest_size_that_fits_is_looked_for_upwards_and_from_above():
    tried = []

    def attempt(size):
        tried.append(size)
        return size / 10 if size <= 40 else None

    sizes = (10, 20, 40, 80, 160)
    assert max(holding.largest(attempt, sizes)) == 40 and tried == [10, 20, 40, 80]
    tried.clear()
    assert holding.largest(attempt, sizes, 4) == {40: 4.0} and tried == [160, 80, 40]
    assert holding.largest(lambda size: None, sizes) == {}


def test_what_is_known_is_not_measured_again_unless_it_failed(tmp_path, monkeypatch):
    tasks = []

    def run_child(module, task, *_):
        tasks.append((task.get("work"), task.get("card"), task.get("size")))
        if task.get("work") == "answering":
            raise rows.ChildFailed("CUDA error")
        return {"peak": task.get("size", 0) / 1000 if task.get("size", 0) < 500 * task.get("card", 0) else None}

    monkeypatch.setattr(holding, "run_child", run_child)
    out = tmp_path / "holding.json"
    known = {"backbone": "7b", "card_gb": 24.0, "row": 8192, "training_peak_gb": 8.0, "away_failure": "Killed"}
    out.write_text(json.dumps({"rows": [known]}))
    holding.measure(["7b"], [12.0, 24.0], "cpu", out=out)
    assert tasks[:3] == [(None, None, None), ("training", 12.0, 8192), ("training", 12.0, 4096)]  # down from 8192
    first, second = json.loads(out.read_text())["rows"]
    assert (first["row"], first["away_row"], second["row"], second["training_peak_gb"]) == (8192, 8192, 4096, 4.096)
    assert "away_failure" not in first and first["answering_failure"] == "CUDA error"
    frame = holding.measure(["7b"], [12.0], "cpu", seconds=-1, out=out, works=["answering"])
    assert frame.answering_failure.tolist() == ["CUDA error", rows.LATE]


@pytest.mark.parametrize("work, size", [("training", 1024), ("away", 1024), ("answering", 2)])
def test_a_size_that_fits_is_told_by_its_peak(work, size, tmp_path):
    task = {"work": work, "shape": "tiny", "size": size, "card": 12, "device": "cpu", "folder": str(tmp_path)}
    folders.write_folder("tiny", tmp_path, "cpu")
    assert card.attempt(task) == 0.0


def test_a_process_is_capped_before_it_loads_and_only_a_shortage_of_memory_means_that_a_size_does_not_fit(monkeypatch):
    done, task = [], {"work": "answering", "card": 12, "device": "cuda"}

    def fails(task):
        done.append("loaded")
        try:
            raise RuntimeError(task.get("said", "CUDA out of memory."))
        finally:
            raise RuntimeError("operation failed due to a previous error during capture")

    monkeypatch.setattr(card, "answer", fails)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=100 * 2**30))
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", done.append)
    assert card.attempt(task) is None
    assert done == [0.1125, "loaded"]  # a process takes 0.75 GiB before its first tensor
    with pytest.raises(RuntimeError, match="during capture"):
        card.attempt(task | {"said": "no kernel image"})
