"""What a card holds is found by processes that are held to its memory, and is not measured twice."""

from types import SimpleNamespace

import pytest
import torch

from benchmarks import card, folders, holding


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
