"""Peers get the same weights, rows and steps as we do; what is not installed or fails says so in its own words."""

import importlib.util
import json

import pandas as pd
import pytest
import torch
from transformers import PreTrainedModel

from benchmarks import continuous, folders, peer, peers, sft
from benchmarks.shapes import build_network, full_rows, length_mix
from covrag_lite.config import Config, Data, Model, Retrieval, World
from covrag_lite.engine import prepare as serving
from covrag_lite.engine.local import load_model
from covrag_lite.retrieval import load_retriever

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


def test_shorter_rows_hold_a_steps_samples_and_no_others(few, place):
    (step, *_) = peer.steps_of(few, place, 4096)
    short = peer.shorten(step, 2048)
    assert len(short) > len(step) and max(sum(len(one.ids) for one in row) for row in short) <= 2048
    samples, again = (sorted(id(one) for row in rows for one in row) for rows in (step, short))
    assert samples == again
    assert peer.shorten(step, 4096) is step


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
    ways = ("ours", "ours away leanest", "plain")
    made = {way: peer.measure(peers.WAYS[way], few, "cpu", place.parent) for way in ways}
    assert made["ours"]["losses"] == pytest.approx(made["plain"]["losses"], abs=2e-4)
    assert made["ours"]["losses"] == pytest.approx(made["ours away leanest"]["losses"], abs=2e-4)
    assert len(made["ours"]["losses"]) == 3 and made["ours"]["tokens_per_second"] > 0
    for row in made.values():
        assert len(row["step_seconds"]) == 3 and min(row["step_seconds"]) > 0
        assert row["steady"] >= row["tokens_per_second"]


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
    broken = peer.measure(peers.Way("ours", given={"activations": "shelved"}), case, "cpu", place.parent)
    assert broken["failure"].startswith("ValueError: activations 'shelved' is not known")


def test_a_process_that_dies_is_told_by_its_last_words(monkeypatch, tmp_path):
    monkeypatch.setattr(peers, "write_folders", lambda *_: None)
    monkeypatch.setitem(peers.WAYS, "unheard of", peers.Way("trl"))  # here, and not in the process
    out, log = tmp_path / "peers.json", tmp_path / "peers.log"
    frame = peers.benchmark(["unheard of"], ["tiny"], "cpu", out=out, log=log)
    assert frame.failure.tolist() == ["KeyError: 'unheard of'"] * 2
    again = peers.benchmark([], ["tiny"], "cpu", out=out)  # what is there of other ways stays
    assert again.way.tolist() == ["unheard of"] * 2 and again.tokens_per_second.isna().all()
    assert "KeyError" in log.read_text()


@pytest.fixture
def calls(monkeypatch):
    """What is done in which order, by processes that measure at once; "slow" says that its time is up."""
    done = []

    def write_folders(cases, device, folder):
        done.append(("folders", [case.shape for case in cases]))

    def run_way(way, cases, device, library, seconds, folder):
        (folder / peers.LOG).write_text("")
        done.append((way, [(case.shape, case.samples) for case in cases]))
        for case in cases:
            row = peers.about(way, case)
            losses = [1.0] * (peers.WARM_UP + case.n_steps)
            measured = {"tokens_per_second": 10.0 * len(done), "losses": losses}
            yield row | ({"failure": peers.LATE} if case.shape == "slow" else measured)

    monkeypatch.setattr(peers, "write_folders", write_folders)
    monkeypatch.setattr(peers, "run_way", run_way)
    return done


def test_what_was_left_out_is_measured_when_asked_again_and_what_was_measured_is_not(calls, tmp_path):
    out = tmp_path / "peers.json"
    late = {"shape": "7b", "samples": "our mix", "way": "trl", "failure": peers.LATE}
    known = {"shape": "7b", "samples": "our mix", "way": "ours", "tokens_per_second": 9.0, "losses": [2.0] * 5}
    other = known | {"shape": "13b", "losses": [2.0] * 4}  # of fewer steps
    out.write_text(json.dumps({"rows": [late, known, other]}))

    def ask(**given):
        return peers.benchmark(["ours", "trl"], ["7b", "13b"], "cpu", n_steps=3, kinds=["our mix"], out=out, **given)

    frame = ask()
    assert dict(calls[1:]) == {"ours": [("13b", "our mix")], "trl": [("7b", "our mix"), ("13b", "our mix")]}
    assert frame.tokens_per_second.notna().all() and frame.failure.isna().all()
    assert frame[frame.way == "ours"].tokens_per_second.tolist() == [9.0, 20.0]
    calls.clear()
    ask()
    assert not [way for way, cases in calls if cases]
    ask(again=True)
    assert [way for way, cases in calls if cases] == ["folders", "ours", "trl"]


def test_a_measured_row_does_not_give_way_to_one_that_came_too_late(calls, tmp_path):
    out = tmp_path / "peers.json"
    known = {"shape": "slow", "samples": "our mix", "way": "ours", "tokens_per_second": 9.0, "losses": [2.0] * 4}
    out.write_text(json.dumps({"rows": [known]}))
    frame = peers.benchmark(["ours"], ["slow"], "cpu", kinds=["our mix"], out=out)
    assert len(calls) == 2 and frame.tokens_per_second.tolist() == [9.0]


def test_time_counts_from_when_the_weights_are_there(monkeypatch):
    now = [0.0]
    left = []

    def write_folders(*_):
        now[0] += 1000

    def run_way(way, cases, device, library, seconds, folder):
        left.append(seconds)
        now[0] += 50
        return iter(())

    monkeypatch.setattr(peers.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(peers, "write_folders", write_folders)
    monkeypatch.setattr(peers, "run_way", run_way)
    peers.benchmark(["ours", "plain"], ["tiny"], "cpu", seconds=200)
    assert left == [100, 150]


def test_rows_are_written_as_a_way_tells_them(monkeypatch, tmp_path):
    out = tmp_path / "peers.json"
    seen = []

    def run_way(way, cases, *_):
        for case in cases:
            yield peers.about(way, case) | {"tokens_per_second": 1.0}
            seen.append(len(json.loads(out.read_text())["rows"]))
        raise KeyboardInterrupt

    monkeypatch.setattr(peers, "write_folders", lambda *_: None)
    monkeypatch.setattr(peers, "run_way", run_way)
    with pytest.raises(KeyboardInterrupt):
        peers.benchmark(["ours"], ["tiny"], "cpu", out=out)
    assert seen == [1, 2]


def test_a_process_is_heard_while_it_works_and_stopped_when_it_hangs(monkeypatch, tmp_path):
    program = tmp_path / "python"
    row = json.dumps(peers.about("ours", peers.Case("tiny", "our mix", 9, 1)) | {"tokens_per_second": 3.0})
    program.write_text(f"#!/bin/sh\necho '{row}' >> outcome.jsonl\nprintf half >> outcome.jsonl\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(peers.sys, "executable", str(program))
    monkeypatch.setattr(peers, "GRACE", 1)
    cases = peers.cases_of(["tiny"], peers.BOTH, 9, 1)
    told = list(peers.run_way("ours", cases, "cpu", "", 0, tmp_path))
    assert told[0]["tokens_per_second"] == 3.0 and told[1]["samples"] == "rows of 2,048"
    assert told[1]["failure"] == "stopped after 1 seconds"


def test_weights_are_written_before_and_one_that_cannot_be_does_not_stop_the_others(tmp_path, capsys):
    task = {"shapes": ["no such model", "tiny"], "device": "cpu", "folder": str(tmp_path)}
    peer.write_folders(task)
    assert [one.name for one in tmp_path.iterdir()] == ["tiny"]
    assert "no such model" in capsys.readouterr().err


def test_a_shape_keeps_the_name_that_it_was_given_by(monkeypatch, tmp_path, capsys):
    (tmp_path / "q4_k_m.gguf").write_text("")
    (tmp_path / "Some2.5-Model.gguf").symlink_to(tmp_path / "q4_k_m.gguf")
    asked = []

    def benchmark(ways, shapes, *_, **__):
        asked.extend(peers.cases_of(shapes, ["our mix"], 9, 1))
        return peers.compare([])

    monkeypatch.setattr(peers, "benchmark", benchmark)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(peers.sys, "argv", ["peers", "--shapes", "Some2.5-Model.gguf,tiny"])
    peers.main()
    assert asked[0].shape == str(tmp_path / "Some2.5-Model.gguf")
    assert [peers.about("ours", case)["shape"] for case in asked] == ["Some2.5-Model", "tiny"]


def test_our_speed_is_told_over_each_peers():
    ours = {"tokens_per_second": 22.0, "steady": 24.0, "peak_gb": 8.0}
    rows = [
        {"shape": "7b", "samples": "our mix", "way": "ours"} | ours,
        {"shape": "7b", "samples": "our mix", "way": "trl", "tokens_per_second": 10.0, "steady": 20.0, "peak_gb": 16.0},
        {"shape": "7b", "samples": "our mix", "way": "plain", "tokens_per_second": 11.0},  # of an older record
        {"shape": "7b", "samples": "rows of 2,048", "way": "trl", "failure": "no"},
    ]
    frame = peers.compare(rows)
    assert frame.ours_faster.round(1).tolist()[:3] == [1.0, 2.2, 2.0] and frame.ours_memory[1] == 0.5
    assert frame.ours_faster_steady[1] == 1.2 and pd.isna(frame.ours_faster_steady[2])
    assert frame.loc[3, ["ours_faster", "ours_faster_steady", "ours_memory"]].isna().all()


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


def test_every_way_can_be_asked_for_by_its_name():
    assert not [name for name in peers.WAYS if "," in name or name != name.strip()]
