"""Peers get the same weights, rows and steps as we do; what is not installed or fails says so in its own words."""

import importlib.util
import json

import pytest
import torch
from transformers import PreTrainedModel

from covrag_lite.config import Config, Data, Model, Retrieval, World
from covrag_lite.model import serving
from covrag_lite.model.local import load_model
from covrag_lite.retrieval import load_retriever
from covrag_lite.speed import continuous, folders, peer, peers, sft
from covrag_lite.speed.shapes import build_network, full_rows, length_mix

PROMPTS = ["who wrote it?", "where was the author of the copper lanterns born, and when?", "why", "who wrote it?" * 9]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return folders.write_folder("tiny", tmp_path_factory.mktemp("folders"), "cpu")


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(peer, "WARM_UP", 1)
    return peers.Case("tiny", "our mix", 4096, 2)


def test_a_folder_in_four_bits_gives_back_the_very_network(place):
    ours = build_network("tiny", "cpu")
    theirs = folders.load_four_bit(place, "cpu")
    assert isinstance(theirs, PreTrainedModel) and theirs.is_loaded_in_4bit
    ids = torch.arange(40)[None]
    assert torch.allclose(ours(ids).logits, theirs(ids).logits, atol=1e-5)


def test_a_models_own_weights_are_quantised_once_and_learn_from_a_text(tiny_folder, tmp_path):
    place = folders.write_folder(str(tiny_folder), tmp_path, "cpu")
    case = peers.Case(str(tiny_folder), "our mix", 4096, 1)
    steps = peer.steps_of(case, place, 4096)
    assert "quantization_config" in json.loads((place / "config.json").read_text())
    ids = [one.ids for one in steps[0][0]]
    text = folders.load_tokenizer(place).decode(ids[0])
    assert " the " in text  # of our passages
    assert folders.write_folder(str(tiny_folder), tmp_path, "cuda") == place  # not once more
    network = load_model(Model(model=str(tiny_folder), adapters="none", device="cpu")).network
    probe = torch.arange(40)[None]
    assert torch.allclose(network(probe).logits, folders.load_four_bit(place, "cpu")(probe).logits, atol=1e-5)


def test_all_rows_of_full_samples_are_full():
    samples = full_rows(3, 100, 64)
    assert [len(one.ids) for one in samples] == [64] * 3
    assert all(0 < len(one.ids) - one.start <= 32 for one in samples)


def test_a_row_tells_a_peer_where_samples_end_and_what_counts():
    samples = length_mix(2, 50)
    row = sft.to_row(samples)
    assert row["seq_lengths"] == [len(one.ids) for one in samples] and len(row["labels"]) == len(row["input_ids"])
    counted = [label for label in row["labels"] if label != -100]
    assert counted == [token for one in samples for token in one.ids[one.start :]]


def test_the_plain_way_has_our_losses_on_the_same_rows(few, place):
    made = {way: peer.measure(peers.WAYS[way], few, "cpu", place.parent) for way in ("ours", "plain")}
    assert made["ours"]["losses"] == pytest.approx(made["plain"]["losses"], abs=2e-4)
    assert len(made["ours"]["losses"]) == 3 and made["ours"]["tokens_per_second"] > 0


@pytest.mark.skipif(not importlib.util.find_spec("trl"), reason="trl is not installed: pip install trl")
def test_trl_has_our_losses_on_the_same_rows(few, place):
    ours, theirs = (peer.measure(peers.WAYS[way], few, "cpu", place.parent) for way in ("ours", "trl"))
    assert "failure" not in theirs, theirs
    assert theirs["losses"] == pytest.approx(ours["losses"], abs=2e-4)


def test_what_is_not_installed_or_fails_is_told_in_one_sentence(monkeypatch, tmp_path, place):
    case = peers.Case("tiny", "our mix", 4096, 1)
    monkeypatch.setitem(peers.WAYS, "missing", peers.Way("trl", ("no_such_package",)))
    outcome = tmp_path / "outcome.jsonl"
    task = {"way": "missing", "cases": [vars(case)], "seconds": 9, "outcome": str(outcome)}
    peer.work(task)
    assert json.loads(outcome.read_text())["failure"] == "not installed: no_such_package"
    broken = peer.measure(peers.Way("ours", given={"checkpointing": 2.0}), case, "cpu", place.parent)
    assert broken["failure"].startswith("ValueError: checkpointing is 2.0")


def test_a_process_that_dies_is_told_by_its_last_words(monkeypatch, tmp_path):
    monkeypatch.setitem(peers.WAYS, "unheard of", peers.Way("trl"))  # here, and not in the process
    out, log = tmp_path / "peers.json", tmp_path / "peers.log"
    frame = peers.benchmark(["unheard of"], ["tiny"], "cpu", out=out, log=log)
    assert frame.failure.tolist() == ["KeyError: 'unheard of'"] * 2
    again = peers.benchmark([], ["tiny"], "cpu", out=out)  # what is there of other ways stays
    assert again.way.tolist() == ["unheard of"] * 2 and again.tokens_per_second.isna().all()
    assert "KeyError" in log.read_text()


def test_our_speed_is_told_over_each_peers():
    rows = [
        {"shape": "7b", "samples": "our mix", "way": "ours", "tokens_per_second": 22.0, "peak_gb": 8.0},
        {"shape": "7b", "samples": "our mix", "way": "trl", "tokens_per_second": 10.0, "peak_gb": 16.0},
        {"shape": "7b", "samples": "rows of 2,048", "way": "trl", "failure": "no"},
    ]
    frame = peers.compare(rows)
    assert frame.ours_faster.round(1).tolist()[:2] == [1.0, 2.2] and frame.ours_memory[1] == 0.5
    assert frame.loc[2, ["ours_faster", "ours_memory"]].isna().all()


def test_continuous_batching_writes_the_same_answers(tiny_folder, questions, passages):
    model = Model(model=str(tiny_folder), max_answer_tokens=5, max_revised_tokens=6)
    config = Config(model=model, data=Data(n_questions=1), world=World(n_passages=1000))
    search = load_retriever(Retrieval(k=2), passages)
    loaded = load_model(model)
    frame = continuous.against(config, loaded, search, questions, load_model(model).network)
    assert loaded.quick_network.config._attn_implementation == serving.GROUPED  # as it was before
    assert "failure" not in frame or frame.failure.isna().all(), frame.failure
    assert frame.same[frame.index.str.startswith("answers")].tolist() == [4, 4, 4]
    assert (frame.per_second > 0).all() and frame.ours_faster["two rounds, ours"] == 1
    assert frame.parsed["verdicts, generate_batch"] == 0  # random weights know no schema


def test_a_capped_process_has_only_what_the_cap_leaves(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (90, 100))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 10)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 4)
    for fraction, free in ((1.0, 96), (0.5, 46)):
        monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda fraction=fraction: fraction)
        assert serving.free_memory("cuda") == free
