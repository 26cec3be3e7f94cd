"""What a card holds is found by processes that are held to its memory, and is not measured twice."""

import pytest

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
