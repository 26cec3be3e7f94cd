"""Peers get the same weights, rows and steps as we do; what is not installed, late or fails says so in a sentence."""

import importlib.util
from dataclasses import replace

import pandas as pd
import pytest

from benchmarks import folders, options, peer, peers, rows, sft
from benchmarks.shapes import full_rows, length_mix
from covrag_lite.config import Config

CASE = peer.Case("tiny", "our mix", 4096, 1)
SHORT = replace(CASE, step_tokens=2048)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return folders.write_folder("tiny", tmp_path_factory.mktemp("folders"), "cpu")


def test_a_row_tells_a_peer_where_samples_end_and_what_counts():
    assert [len(one.ids) for one in full_rows(3, 100, 64)] == [64] * 3
    samples = length_mix(2, 50)
    row = sft.to_row(samples)
    assert row["seq_lengths"] == [len(one.ids) for one in samples] and len(row["labels"]) == len(row["input_ids"])
    counted = [label for label in row["labels"] if label != -100]
    assert counted == [token for one in samples for token in one.ids[one.start :]]


def test_the_plain_way_and_trl_have_our_losses_on_the_same_rows(place, monkeypatch):
    monkeypatch.setattr(peer, "WARM_UP", 1)
    monkeypatch.setitem(peer.SAMPLES, "our mix", 2048)
    ways = ["ours", "plain"] + ["trl"] * bool(importlib.util.find_spec("trl"))
    made = {way: peer.measure(peer.WAYS[way], SHORT, "cpu", place.parent) for way in ways}
    for row in made.values():
        assert "failure" not in row, row
        assert row["losses"] == pytest.approx(made["ours"]["losses"], abs=2e-4)
        assert len(row["losses"]) == len(row["step_seconds"]) == 2 and row["tokens_per_second"] > 0
    assert made["plain"]["useful"] < 0.97 <= made["ours"]["useful"]


def test_what_is_not_installed_too_late_or_fails_is_told_in_a_sentence(monkeypatch, place):
    monkeypatch.setitem(peer.WAYS, "missing", peer.Way("trl", ("no_such_package",)))
    task = {"way": "missing", "case": vars(CASE), "device": "cpu", "folder": str(place.parent)}
    assert peers.run_way(task, 0, "", None) == {"failure": "not installed: no_such_package"}
    assert peers.run_way(task | {"way": "ours"}, 0, "", None) == {"failure": rows.LATE}
    broken = peer.measure(peer.Way("ours", given={"lora_rank": -1}), CASE, "cpu", place.parent)
    assert broken["failure"].startswith("ValueError: ")


def test_our_speed_is_told_over_each_peers():
    about = {"shape": "7b", "samples": "our mix"}
    frame = peers.compare(
        [
            about | {"way": "ours", "tokens_per_second": 22.0, "steady": 24.0, "peak_gb": 8.0},
            about | {"way": "trl", "tokens_per_second": 10.0, "steady": 20.0, "peak_gb": 16.0},
            about | {"way": "plain", "tokens_per_second": 11.0},  # of an older record
            {"shape": "7b", "samples": "rows of 2,048", "way": "trl", "failure": "no"},
        ]
    )
    assert frame.ours_faster.round(1).tolist()[:3] == [1.0, 2.2, 2.0] and frame.ours_memory[1] == 0.5
    assert frame.ours_faster_steady[1] == 1.2 and pd.isna(frame.ours_faster_steady[2])
    assert frame.loc[3, ["ours_faster", "ours_faster_steady", "ours_memory"]].isna().all()


def test_a_notebooks_parameters_are_options_or_of_the_configuration(tmp_path):
    made = options.from_notebook({"shapes": "7b,13b", "speed_questions": 3, "model": "a", "_own": 1})
    assert (made.shapes, made.speed_questions, made.config.model.model) == (("7b", "13b"), 3, "a")
    assert made.config.folder().name == "custom"  # the defaults alone write to figures/embedded
    assert options.from_notebook({}) == options.Options() and Config().folder().name == "embedded"
    with pytest.raises(ValueError, match="did you mean 'speed_parts'"):
        options.from_notebook({"speed_part": "plain"})
