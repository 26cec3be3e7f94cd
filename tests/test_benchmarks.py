"""Benchmarks of other engines and trainers with our prompts, weights and rows."""

import importlib.util
import re
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
from conftest import write_jsonl
from matplotlib import pyplot
from transformers import AutoModelForCausalLM

from benchmarks import folders, generate, inference, options, peer, peers, report, rows, sft, vllm_peer
from benchmarks.rows import Rows
from benchmarks.shapes import full_rows, length_mix
from covrag_lite import prompts
from covrag_lite.config import Config, Retrieval, resolve
from covrag_lite.engine.interface import load_engine
from covrag_lite.retrieval import load_retriever
from covrag_lite.runs.outcomes import save_predictions

VERDICT = prompts.render_verdict([0.5] * 6, "false", "Who wrote it?")


@pytest.fixture(scope="module")
def settings(tiny_folder, tiny_adapters):
    short = {"max_answer_tokens": 5, "max_revised_tokens": 6}
    return Config().change(model=str(tiny_folder), adapters=str(tiny_adapters), **short)


@pytest.fixture(scope="module")
def model(settings):
    return load_engine(settings.model).with_adapter("rag")


@pytest.mark.parametrize("part, way", [("plain", "generate"), ("vllm", "vLLM")])
def test_other_engines_write_our_answers_or_say_why_not(part, way, settings, model, questions, passages, monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    rows, questions = Rows(100), questions[:2]
    search = load_retriever(Retrieval(k=2), passages)
    inference.time_peer(rows, settings, model, *inference.load_peer(part, model), search, questions)
    frame = inference.table(rows.made)
    assert frame.ours_faster["answers, ours"] == 1 and frame.same["answers, ours"] == len(questions)
    if part == "vllm":
        assert frame.failure["answers, vLLM"].startswith("ModuleNotFoundError")
        assert frame.failure["two rounds, vLLM"] == "LookupError: it needs 'verdicts, vLLM', which was not measured"
        return
    assert "failure" not in frame, frame.failure
    assert frame.same[f"answers, {way}"] == len(questions) and (frame.ours_faster > 0).all()


def test_the_schema_as_a_regular_expression_is_what_forced_verdicts_are(model):
    expression = vllm_peer.regex_of(prompts.SCHEMA, 6)
    forced = [one.text for one in model.fill(["one", "why?"], prompts.SCHEMA, 6)]
    for written in [*forced, VERDICT]:
        assert re.fullmatch(expression, written)
    for wrong in (VERDICT.replace("0.50", "1.50"), VERDICT.replace("false", "maybe")):
        assert not re.fullmatch(expression, wrong)
    assert not re.fullmatch(expression, VERDICT.replace("Who wrote it?", "Who " * 40))  # as short as ours must be


def test_the_folder_for_others_holds_what_our_network_computes_with(model, tmp_path):
    generate.write_merged(model, tmp_path)
    written = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    ids = torch.tensor(model.loaded.encode(["What is the folder for?"], 0))
    with torch.inference_mode():
        expected = model.network(ids).logits
        torch.testing.assert_close(written(ids).logits, expected, atol=1e-4, rtol=1e-4)


ABOUT = {"device": "a GPU", "torch": "2.0", "commit": "0123456789"}


@pytest.fixture
def speed(tmp_path, predictions):
    """The work of the toy's questions, on a GPU where a 7B model answers one per second."""
    run = tmp_path / report.WORK
    for name, tokens, samples in (("cov", 3000, 30), ("rag", 1000, 10)):
        write_jsonl(run / f"train.{name}.json", [{"data": {"samples": {"n": samples}}}])
        pd.DataFrame({"step": [1, 2], "tokens": tokens // 2}).to_csv(run / f"train.{name}.losses.csv", index=False)
    answered = [p for p in predictions if p.system in ("RAG", "CoV-RAG-S", "CoV-RAG")]
    save_predictions(run / "table2.predictions.jsonl.xz", answered)
    ours = {"variant": "ours", "speed_ratio": 1.96, "memory_ratio": 0.455, "operations_per_token": 1, "failure": None}
    rates = {"smollm2": 8000, "7b": 80, "13b": 40}
    rows = [ours | {"shape": shape, "tokens_per_second": rate} for shape, rate in rates.items()]
    rows.append(rows[0] | {"variant": "left out", "tokens_per_second": None})
    write_jsonl(tmp_path / "speed-toy" / "training.json", [ABOUT | {"matrix_rate": 1e15, "rows": rows}])
    inference = {
        "batches, 7b shape": {"batches": {"seconds": 4.0, "n": 4}},
        "verdicts, 7b shape": {"forced": {"seconds": 8.0, "n": 4}},
        "batches, smollm2-135m": {"batches": {"seconds": 1.0, "n": 100}},
        "verdicts, smollm2-135m": {"forced": {"seconds": 1.0, "n": 100}},
    }
    write_jsonl(tmp_path / "speed-toy" / "inference.json", [ABOUT | inference])
    return tmp_path / "speed-toy"


def test_recorded_speed_can_be_told_in_prose_and_the_cost_is_the_work_at_the_measured_rates(speed):
    more = {"graphs, 494M": {"answers, graphs": {"faster": 1.52, "same": 393.0, "queries_per_second": 6645.7}}}
    write_jsonl(speed / "inference.of-another-run.json", [ABOUT | more])
    told = report.facts(speed)
    prose = "; ".join(f"{{graphs, 494M answers, graphs {name}}}" for name in ("faster", "same", "queries_per_second"))
    assert prose.format_map(told) == "1.5; 393; 6,646"
    assert (told["7b ours speed_ratio"], told["7b ours memory_ratio"]) == ("2.0", "0.46")
    assert not any("left out" in name for name in told)
    assert (told["price of an hour"], told["7b training"], told["work tokens"]) == ("3.00", "2 min", "8,000")
    work = report.count_work(speed.parent / report.WORK)  # an answer that two systems share is counted once
    assert work == {"tokens": 8000, "synthesis": 80, "answers": 17, "verdicts": 7}  # three of them second answers
    table = report.replication(speed, price=6.0)
    small, middle, large = (table.loc[shape] for shape in ("smollm2", "7b", "13b"))
    assert (middle.training, middle.data, middle.tables) == (100, 80, report.OF_TABLE2 * (17 + 2 * 7))
    assert middle.price == pytest.approx(6 * middle.hours) == pytest.approx(6 * (180 + middle.tables) / 3600)
    assert small.data == pytest.approx(0.8)
    assert large.hours == pytest.approx(2 * middle.hours)  # half as quick in training, so it is in answering
    (speed / "training.json").unlink()
    assert "price of an hour" not in report.facts(speed)


def test_the_notebooks_tables_of_recorded_speed_have_the_recorded_ratios():
    results = resolve("results")
    speed = results / report.RECORDED
    facts = report.facts(speed)
    plain = report.compare_with_plain(speed)
    assert plain.loc["13B", "times as fast as plain"] == facts["13b ours, 4k speed_ratio"]
    peers = report.compare_with_peers(speed).loc[("7B", "our mix", "Unsloth")]
    assert peers["tokens/s"] == facts["7b, our mix, Unsloth tokens_per_second"]
    assert peers["ours, at no more memory: times as fast"] == facts["7b, our mix, Unsloth as_lean_faster"]
    cards = report.compare_cards(speed).loc[("13B", "12 GB")]
    assert cards["tokens per training row"].startswith(facts["13b in 12 GB row"] + " (")
    answering = report.compare_answering(speed)["times as fast"]
    assert answering["answers", "SmolLM2-135M", "vLLM"] == facts["vllm, 135M answers, vLLM merged ours_faster"]
    assert answering["verdicts", "7B shape", "transformers generate"] == facts["verdicts, 7b shape forced faster"]
    assert report.compare_engines(results).index[0] == "ours (bm25s)"


def test_a_figure_of_recorded_speed_is_the_committed_one_or_drawn_for_another_record(speed, tmp_path):
    shown = report.show_figure(resolve("results") / report.RECORDED, tmp_path, "training.png")
    assert Path(shown.filename) == resolve("figures/embedded/speed.training.png")
    shown = report.show_figure(speed, tmp_path, "training.png")
    left, right = pyplot.gcf().axes[:2]
    pyplot.close("all")
    assert Path(shown.filename) == tmp_path / "speed.training.png"
    assert [bar.get_width() for bar in left.patches] == [1.96] and right.patches[0].get_width() == 0.455
    assert left.get_title("left") == "SmolLM2-135M: speed relative to plain"


def test_settings_and_models_have_labels():
    assert report.label_setting("ours away") == "ours, offloaded"
    assert report.label_setting("packed alone, 8k") == "plain + packing, rows of 8,192"
    assert (report.label_model("7b"), report.label_model("another")) == ("7B", "another")


CASE = peer.Case("tiny", "our mix", 2048, 1)


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
    made = {way: peer.measure(peer.WAYS[way], CASE, "cpu", place.parent) for way in ways}
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


def test_a_notebooks_parameters_are_options_or_of_the_configuration():
    made = options.from_notebook({"shapes": "7b,13b", "speed_questions": 3, "model": "a", "_own": 1})
    assert (made.shapes, made.speed_questions, made.config.model.model) == (("7b", "13b"), 3, "a")
    assert made.config.folder().name == "custom"  # only the defaults write to figures/embedded
    assert options.from_notebook({}) == options.Options() and Config().folder().name == "embedded"
    with pytest.raises(ValueError, match="did you mean 'speed_parts'"):
        options.from_notebook({"speed_part": "plain"})
