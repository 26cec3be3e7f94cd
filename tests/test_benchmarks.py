"""Benchmarks of other engines and trainers with our prompts, weights and rows."""

import importlib.util
import json
import re
import sys

import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM

from benchmarks import cards, folders, inference, methods, options, other_engines, peers, sft
from benchmarks.rows import LATE, ChildFailed, TimedRows, load_rows
from benchmarks.shapes import full_rows, length_mix
from benchmarks.training import labels_of, pack_steps, samples_of
from covrag_lite import prompts
from covrag_lite.config import Config, Retrieval
from covrag_lite.engine import load_engine
from covrag_lite.engine.verdict_forms import regex_of
from covrag_lite.qlora import Encoded
from covrag_lite.retrieval import load_retriever

VERDICT = prompts.render_verdict([0.5] * 6, "false", "Who wrote it?")


# Rows.


def fail():
    raise ValueError("first line\nsecond line")


def test_an_error_becomes_a_row_with_its_first_line():
    rows = TimedRows(100)
    rows.measure("a", fail)
    assert rows.by_name == {"a": {"failure": "ValueError: first line"}}


def test_after_its_time_a_row_says_so():
    rows = TimedRows(-1)
    rows.measure("a", lambda: {"seconds": 1.0})
    assert rows.by_name == {"a": {"failure": LATE}}


@pytest.mark.parametrize("row", [None, {"failure": LATE}])
def test_a_required_row_must_have_been_measured(row):
    rows = TimedRows(100)
    if row:
        rows.by_name["a"] = row
    with pytest.raises(LookupError, match="it needs 'a', which was not measured"):
        rows.require("a")


def test_a_file_that_is_no_record_is_refused_with_a_cure(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text("[]")
    with pytest.raises(SystemExit, match="is not a record .*; name another file"):
        load_rows(path)


# Answering.


@pytest.fixture(scope="module")
def settings(tiny_folder, tiny_adapters):
    short = {"max_answer_tokens": 5, "max_revised_tokens": 6}
    return Config().change(model=str(tiny_folder), adapters=str(tiny_adapters), **short)


@pytest.fixture(scope="module")
def model(settings):
    return load_engine(settings.model).with_adapter("rag")


def compare_engines(part, settings, model, questions, passages):
    """Measure one part on two questions, and return its table."""
    search = load_retriever(Retrieval(k=2), passages)
    workload = inference.Workload(settings, search, questions[:2])
    rows = TimedRows(100)
    name, other = inference.load_other_engine(part, model)
    inference.compare_engines(rows, workload, model, name, other)
    return inference.build_table(rows.by_name)


def test_generate_writes_the_answers_of_our_batches(settings, model, questions, passages):
    frame = compare_engines("plain", settings, model, questions, passages)
    assert "failure" not in frame, frame.failure
    assert frame.index.tolist() == ["answers, ours", "answers, generate"]
    assert frame.same.tolist() == [2, 2]


def test_our_speed_is_relative_to_our_own_row(settings, model, questions, passages):
    frame = compare_engines("plain", settings, model, questions, passages)
    assert frame.ours_faster["answers, ours"] == 1
    assert frame.ours_faster["answers, generate"] > 0


def test_an_engine_that_is_not_installed_says_so_in_every_stage(
    settings, model, questions, passages, monkeypatch
):
    monkeypatch.setitem(sys.modules, "vllm", None)
    frame = compare_engines("vllm", settings, model, questions, passages)
    assert frame.same["verdicts, ours"] == 2
    assert frame.failure["answers, vLLM"].startswith("ModuleNotFoundError")
    error = "LookupError: it needs 'verdicts, vLLM', which was not measured"
    assert frame.failure["two rounds, vLLM"] == error


def test_llama_cpp_is_not_compared_with_an_adapter(model):
    with pytest.raises(ValueError, match="has only the base model; use --adapters none"):
        inference.load_other_engine("llama.cpp", model)


def test_the_cpu_time_of_an_engine_is_measured(settings, model, questions, passages):
    frame = compare_engines("plain", settings, model, questions, passages)
    assert (frame.cpu_seconds > 0).all()


def test_the_cost_of_a_layout_is_relative_to_one_round_of_rag():
    rows = {"RAG trained, paper layout": {"seconds": 2.0}, "CoV-RAG, paper layout": {"seconds": 5}}
    assert inference.build_table(rows).times_rag.tolist() == [1.0, 2.5]


def test_a_warm_up_prompt_has_the_same_words_in_reverse():
    assert inference.reverse_words("who wrote  it") == "it  wrote who"


def test_the_regular_expression_accepts_forced_verdicts(model):
    expression = regex_of(prompts.SCHEMA, 6)
    completions = model.fill(["one", "why?"], prompts.SCHEMA, 6)
    for text in [*(completion.text for completion in completions), VERDICT]:
        assert re.fullmatch(expression, text)


@pytest.mark.parametrize(
    "part, other",
    [("0.50", "1.50"), ("false", "maybe"), ("Who wrote it?", "Who " * 40)],
    ids=["a score above 1", "an unknown judgment", "a revised question that is too long"],
)
def test_the_regular_expression_refuses(part, other):
    assert not re.fullmatch(regex_of(prompts.SCHEMA, 6), VERDICT.replace(part, other))


def test_merged_weights_give_the_logits_of_our_network(model, tmp_path):
    other_engines.write_merged(model, tmp_path)
    merged = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    ids = torch.tensor(model.prepared.encode(["What is the folder for?"], 0))
    with torch.inference_mode():
        expected = model.network(ids).logits
        torch.testing.assert_close(merged(ids).logits, expected, atol=1e-4, rtol=1e-4)


# Training.

CASE = methods.Case("tiny", "our mix", 2048, 1)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    return folders.write_folder("tiny", tmp_path_factory.mktemp("folders"), "cpu")


@pytest.fixture(scope="module")
def results(model_folder):
    """One timed step with our method, the plain one and, if it is installed, trl."""
    names = ["ours", "plain"]
    if importlib.util.find_spec("trl"):
        names.append("trl")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(methods, "WARM_UP", 1)
        patch.setitem(methods.ROW_TOKENS, "our mix", 2048)
        folder = model_folder.parent
        return {name: methods.measure(methods.METHODS[name], CASE, "cpu", folder) for name in names}


def test_all_methods_have_the_same_losses(results):
    for row in results.values():
        assert "failure" not in row, row
        assert row["losses"] == pytest.approx(results["ours"]["losses"], abs=2e-4)


def test_every_step_of_a_method_is_timed(results):
    for row in results.values():
        assert len(row["losses"]) == len(row["step_seconds"]) == 2
        assert row["tokens_per_second"] > 0


def test_packing_computes_less_padding_than_the_plain_method(results):
    assert results["plain"]["useful"] < 0.97 <= results["ours"]["useful"]


def test_full_rows_have_the_length_of_a_row():
    assert [len(sample.ids) for sample in full_rows(3, 100, 64)] == [64] * 3


def test_a_mix_has_answers_and_verdicts_of_our_lengths():
    lengths = {sample.task: len(sample.ids) for sample in length_mix(2, 50)}
    assert 450 <= lengths[0] <= 550
    assert 700 <= lengths[1] <= 800


def test_a_row_for_trl_has_the_lengths_of_its_samples():
    samples = length_mix(2, 50)
    row = sft.to_row(samples)
    assert row["seq_lengths"] == [len(sample.ids) for sample in samples]
    assert len(row["labels"]) == len(row["input_ids"]) == sum(row["seq_lengths"])


def test_only_targets_have_a_label():
    assert labels_of(Encoded(0, (7, 8, 9), 1)) == [-100, 8, 9]


def test_rows_that_are_too_long_are_packed_again_with_all_their_samples():
    (step,) = pack_steps(full_rows(4, 100, 64), 256, 256, 1)
    assert methods.split_rows(step, 256) == step
    short = methods.split_rows(step, 128)
    assert [methods.count_tokens([row]) for row in short] == [128, 128]
    assert set(samples_of(short)) == set(samples_of(step))


def test_a_larger_network_has_more_operations_per_token():
    sizes = {
        "hidden_size": 4,
        "intermediate_size": 10,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
    }
    # Per layer: query and output 2 * 16, keys and values 2 * 8, three matrices of 40.
    assert methods.count_operations(sizes) == 4 * 2 * (32 + 16 + 120)


def measure_task(folder, **changes):
    task = {"way": "ours", "case": vars(CASE), "device": "cpu", "folder": str(folder)}
    return peers.measure(task | changes, 0, "", None)


def test_a_method_that_is_not_installed_says_so(monkeypatch, tmp_path):
    missing = methods.Method("trl", ("no_such_package",))
    monkeypatch.setitem(methods.METHODS, "missing", missing)
    result = measure_task(tmp_path, way="missing")
    assert result == {"failure": "not installed: no_such_package"}


def test_a_method_that_is_too_late_says_so(tmp_path):
    assert measure_task(tmp_path) == {"failure": LATE}


def test_a_method_that_fails_gives_its_error(model_folder):
    broken = methods.Method("ours", settings={"lora_rank": -1})
    result = methods.measure(broken, CASE, "cpu", model_folder.parent)
    assert result["failure"].startswith("ValueError: ")


@pytest.fixture(scope="module")
def ratios():
    case = {"shape": "7b", "samples": "our mix"}
    rows = [
        case | {"way": "ours", "tokens_per_second": 22.0, "steady": 24.0, "peak_gb": 8.0},
        case | {"way": "trl", "tokens_per_second": 10.0, "steady": 20.0, "peak_gb": 16.0},
        case | {"way": "plain", "tokens_per_second": 11.0},
        case | {"samples": "rows of 2,048", "way": "trl", "failure": "no"},
    ]
    return peers.add_ratios(rows)


def test_our_speed_is_divided_by_that_of_each_method(ratios):
    assert ratios.ours_faster.tolist()[:3] == [1.0, 2.2, 2.0]
    assert ratios.ours_faster_steady[1] == 1.2


def test_our_memory_is_divided_by_that_of_each_method(ratios):
    assert ratios.ours_memory[1] == 0.5


def test_a_value_that_was_not_measured_has_no_ratio(ratios):
    assert pd.isna(ratios.ours_faster_steady[2])
    assert ratios.loc[3, list(peers.RATIOS)].isna().all()


@pytest.mark.parametrize("n_steps, kept", [(4, True), (2, False)])
def test_a_row_is_kept_if_it_has_as_many_steps(n_steps, kept):
    case = methods.Case("7b", "our mix", 16384, n_steps)
    row = peers.row_start("ours", case) | {"tokens_per_second": 1.0, "losses": [0.0] * 6}
    assert peers.is_kept({peers.key_of_row(row): row}, "ours", case) == kept


def test_an_unknown_method_is_refused():
    with pytest.raises(ValueError, match="way 'our' is not known; use some of ours, "):
        peers.benchmark(["our"], ["tiny"], "cpu")


# Cards.


@pytest.mark.parametrize(
    "begin, limit, fitting",
    [
        (0, 3, [1, 2]),  # up to the first that fails
        (2, 8, [4, 8]),
        (2, 3, [2]),  # down to the first that fits
        (2, 0, []),
    ],
)
def test_the_largest_size_that_fits_is_searched_from_the_middle(begin, limit, fitting):
    def peak_of(size):
        return size / 10 if size <= limit else None

    peaks = cards.find_fitting(peak_of, (1, 2, 4, 8), begin)
    assert peaks == {size: size / 10 for size in fitting}


def measure_cards(monkeypatch, tmp_path, run_child, **options):
    monkeypatch.setattr(cards, "run_child", run_child)
    out = tmp_path / "cards.json"
    cards.measure(["tiny"], [12.0, 24.0], "cpu", out=out, works=["answering"], **options)
    return json.loads(out.read_text())["rows"]


def fits_on_card(module, task, *_):
    """A batch of as many prompts as the card has GB fits."""
    if module == "benchmarks.folders":
        return {}
    return {"peak": task["size"] / 2 if task["size"] <= task["card"] else None}


def test_every_card_gets_its_largest_batch(monkeypatch, tmp_path):
    rows = measure_cards(monkeypatch, tmp_path, fits_on_card)
    batches = {row["card_gb"]: (row["batch"], row["answering_peak_gb"]) for row in rows}
    assert batches == {24.0: (16, 8.0), 12.0: (8, 4.0)}


def test_cards_of_an_earlier_run_are_kept(monkeypatch, tmp_path):
    earlier = {"backbone": "tiny", "card_gb": 24.0, "batch": 32}
    (tmp_path / "cards.json").write_text(json.dumps({"rows": [earlier]}))
    rows = measure_cards(monkeypatch, tmp_path, fits_on_card)
    assert rows[0] == earlier


def test_a_card_that_cannot_be_measured_says_why(monkeypatch, tmp_path):
    def run_child(module, task, *_):
        if module == "benchmarks.card":
            raise ChildFailed("no driver")
        return {}

    rows = measure_cards(monkeypatch, tmp_path, run_child)
    assert {row["answering_failure"] for row in rows} == {"no driver"}


# The parameters of the notebook.


def test_a_parameter_is_an_option_or_of_the_configuration():
    names = {"shapes": "7b,13b", "speed_questions": 3, "model": "a", "_private": 1}
    chosen = options.from_notebook(names)
    assert chosen.shapes == ("7b", "13b")
    assert chosen.speed_questions == 3
    assert chosen.config.model.model == "a"


def test_other_options_write_to_a_folder_of_their_own():
    assert options.from_notebook({"speed_questions": 3}).config.folder().name == "custom"
    assert options.from_notebook({}).config.folder().name == "embedded"


def test_the_defaults_are_the_options():
    assert options.from_notebook({}) == options.Options()


def test_a_parameter_that_is_not_known_is_refused_with_a_suggestion():
    with pytest.raises(ValueError, match="did you mean 'speed_parts'"):
        options.from_notebook({"speed_part": "plain"})
