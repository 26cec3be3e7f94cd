"""Recorded speed: its facts, tables and figures, and the cost of a replication."""

import json
from pathlib import Path

import pandas as pd
import pytest
from conftest import write_jsonl
from matplotlib import pyplot

from covrag_lite.config import resolve
from covrag_lite.runs.predictions import save_predictions
from covrag_lite.systems.names import COV_RAG, COV_RAG_S, RAG
from covrag_lite.tables.speed import comparisons, cost, labels, plots, records, report

RESULTS = resolve("results")
H200 = RESULTS / plots.COMMITTED
MACHINE = {"device": "a GPU", "torch": "2.0", "commit": "0123456789"}


@pytest.fixture
def speed(tmp_path, predictions):
    """The work of the toy's questions, on a GPU where a 7B model answers one per second."""
    write_work(tmp_path / cost.WORK_RUN, predictions)
    folder = tmp_path / "speed-toy"
    write_jsonl(folder / "training.json", [MACHINE | {"matrix_rate": 1e15, "rows": settings()}])
    answering = {
        "batches, 7b shape": {"batches": {"seconds": 4.0, "n": 4}},
        "verdicts, 7b shape": {"forced": {"seconds": 8.0, "n": 4}},
        "batches, smollm2-135m": {"batches": {"seconds": 1.0, "n": 100}},
        "verdicts, smollm2-135m": {"forced": {"seconds": 1.0, "n": 100}},
    }
    write_jsonl(folder / "inference.json", [MACHINE | answering])
    return folder


def write_work(run, predictions):
    """Write a recorded run: two trained adapters, and the answers of three systems."""
    for adapter, tokens, samples in (("cov", 3000, 30), ("rag", 1000, 10)):
        write_jsonl(run / f"train.{adapter}.json", [{"data": {"samples": {"n": samples}}}])
        losses = pd.DataFrame({"step": [1, 2], "tokens": tokens // 2})
        losses.to_csv(run / f"train.{adapter}.losses.csv", index=False)
    answered = [p for p in predictions if p.system in (RAG, COV_RAG_S, COV_RAG)]
    save_predictions(run / "table2.predictions.jsonl.xz", answered)


def settings():
    """Measured training settings of three models, and one that was not measured."""
    ours = {
        "variant": "ours",
        "speed_ratio": 1.96,
        "memory_ratio": 0.455,
        "operations_per_token": 1,
        "failure": None,
    }
    rates = {"smollm2": 8000, "7b": 80, "13b": 40}
    rows = [ours | {"shape": shape, "tokens_per_second": rate} for shape, rate in rates.items()]
    not_measured = {"shape": "7b", "variant": "left out", "tokens_per_second": None}
    return [*rows, ours | not_measured]


def test_a_fact_is_written_as_prose_needs_it(speed):
    row = {"faster": 1.52, "same": 393.0, "queries_per_second": 6645.7}
    part = {"graphs, 494M": {"answers, graphs": row}}
    write_jsonl(speed / "inference.of-another-run.json", [MACHINE | part])
    facts = report.build(speed).facts
    assert facts["graphs, 494M answers, graphs faster"] == "1.5"
    assert facts["graphs, 494M answers, graphs same"] == "393"
    assert facts["graphs, 494M answers, graphs queries_per_second"] == "6,646"
    assert facts["7b ours speed_ratio"] == "2.0"
    assert facts["7b ours memory_ratio"] == "0.46"


def test_a_setting_that_was_not_measured_has_no_facts(speed):
    assert not any("left out" in name for name in report.build(speed).facts)


def test_work_counts_an_answer_that_two_systems_share_once(speed):
    work = cost.count_work(speed.parent / cost.WORK_RUN)
    # Seven answers of RAG; seven first and three second answers of CoV-RAG.
    assert work == {"tokens": 8000, "synthesis": 80, "answers": 17, "verdicts": 7}


def test_the_cost_is_the_work_at_the_measured_rates(speed):
    row = cost.estimate_cost(speed, price=6.0).loc["7b"]
    assert row.training == 100
    assert row.data == 80
    assert row.tables == cost.TABLES_PER_TABLE2 * (17 + 2 * 7)
    assert row.hours == pytest.approx((180 + row.tables) / 3600)
    assert row.price == pytest.approx(6 * row.hours)


def test_a_smaller_model_has_its_own_rate_of_answering(speed):
    assert cost.estimate_cost(speed).data["smollm2"] == pytest.approx(0.8)


def test_a_model_measured_in_training_only_answers_slower_by_the_same_factor(speed):
    hours = cost.estimate_cost(speed).hours
    assert hours["13b"] == pytest.approx(2 * hours["7b"])


def test_costs_are_facts_in_dollars_and_times(speed):
    facts = cost.facts_of_cost(speed)
    assert facts["price of an hour"] == "3.00"
    assert facts["7b training"] == "2 min"
    assert facts["work tokens"] == "8,000"


def test_without_measured_training_there_is_no_cost(speed):
    (speed / "training.json").unlink()
    assert "price of an hour" not in report.build(speed).facts


@pytest.mark.parametrize(
    "seconds, text", [(60, "1 min"), (5399, "90 min"), (5400, "1.5 h"), (36000, "10.0 h")]
)
def test_a_duration_is_in_hours_from_ninety_minutes_on(seconds, text):
    assert cost.format_duration(seconds) == text


def peers(*rows):
    """Return measured programs on the same case, each as (name, tokens per second, peak in GB)."""
    columns = ["way", "tokens_per_second", "peak_gb"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.assign(shape="7b", samples="our mix", steady=2 * frame.tokens_per_second)


def test_a_program_is_compared_with_our_fastest_setting_that_needs_no_more_memory():
    frame = peers(("ours", 30.0, 9.0), ("ours away", 20.0, 5.0), ("ours slow", 1.0, 4.0))
    frame = pd.concat([frame, peers(("trl", 10.0, 5.0))], ignore_index=True)
    row = records.add_lean_settings(frame).iloc[3]
    assert row.as_lean == "ours away"
    assert row.as_lean_faster == 2
    assert row.as_lean_steady == 2


def test_a_program_that_needs_less_memory_than_every_setting_of_ours_is_compared_with_none():
    frame = records.add_lean_settings(peers(("ours", 30.0, 9.0), ("trl", 10.0, 5.0)))
    assert frame.as_lean.isna().all()
    assert frame.as_lean_faster.isna().all()


def test_the_fastest_setting_stays_within_the_memory_target():
    rows = [("ours, 8k", 3.0, 0.7), ("ours, 4k", 2.0, 0.6), ("packed alone", 2.5, 0.5)]
    frame = pd.DataFrame(rows, columns=["variant", "speed_ratio", "memory_ratio"])
    chosen = records.select_fastest(frame.assign(shape="7b"))
    assert chosen.variant.tolist() == ["ours, 4k"]


def test_engines_are_extrapolated_from_their_two_largest_corpora():
    index = [f"engine, {size} passages" for size in ("10", "100", "200")]
    frame = pd.DataFrame({name: [0.0, 1e4, 3e4] for name in records.GROWING_COLUMNS}, index=index)
    row = records.extrapolate(frame, 300).loc["engine"]
    assert row.index_peak_gb == 50
    assert row.cpu_ms_per_query == 5e4


def test_the_page_has_the_extrapolated_memory_of_both_engines():
    frame = records.load_answering(RESULTS / "speed-engines" / "inference.json")["words"]
    peaks = records.extrapolate(frame).index_peak_gb
    page = (RESULTS / "speed.md").read_text()
    assert f"needs about {peaks['lancedb']:.0f} GB to index" in page
    assert f"BM25 needs {peaks['ours (bm25s)']:.0f} GB" in page


# The tables of the notebook have the recorded numbers.


@pytest.fixture(scope="module")
def facts():
    return report.build(H200).facts


def test_the_table_of_plain_training_has_the_recorded_ratios(facts):
    table = comparisons.compare_with_plain(H200)
    assert table.loc["13B", "times as fast as plain"] == facts["13b ours, 4k speed_ratio"]


def test_the_table_of_other_programs_has_the_recorded_rates_and_ratios(facts):
    row = comparisons.compare_with_peers(H200).loc[("7B", "our mix", "Unsloth")]
    assert row["tokens/s"] == facts["7b, our mix, Unsloth tokens_per_second"]
    heading = "ours, at no more memory: times as fast"
    assert row[heading] == facts["7b, our mix, Unsloth as_lean_faster"]


def test_the_table_of_cards_has_the_recorded_sizes(facts):
    row = comparisons.compare_cards(H200).loc[("13B", "12 GB")]
    assert row["tokens per training row"].startswith(facts["13b in 12 GB row"] + " (")


def test_the_table_of_answering_has_the_recorded_ratios(facts):
    ratios = comparisons.compare_answering(H200)["times as fast"]
    of_vllm = ratios["answers", "SmolLM2-135M", "vLLM"]
    assert of_vllm == facts["vllm, 135M answers, vLLM merged ours_faster"]
    of_generate = ratios["verdicts", "7B shape", "transformers generate"]
    assert of_generate == facts["verdicts, 7b shape forced faster"]


def test_the_table_of_search_engines_begins_with_ours():
    assert comparisons.compare_engines(RESULTS).index[0] == "ours (bm25s)"


def test_the_committed_figure_is_shown_for_the_committed_record(tmp_path):
    shown = plots.show_figure(H200, tmp_path, "training.png")
    assert Path(shown.filename) == resolve("figures/embedded/speed.training.png")


def test_a_figure_is_drawn_for_another_record(speed, tmp_path):
    shown = plots.show_figure(speed, tmp_path, "training.png")
    left, right = pyplot.gcf().axes[:2]
    pyplot.close("all")
    assert Path(shown.filename) == tmp_path / "speed.training.png"
    assert [bar.get_width() for bar in left.patches] == [1.96]
    assert right.patches[0].get_width() == 0.455
    assert left.get_title("left") == "SmolLM2-135M: speed relative to plain"


def test_settings_have_labels():
    assert labels.label_setting("ours away") == "ours, offloaded"
    assert labels.label_setting("packed alone, 8k") == "plain + packing, rows of 8,192"


def test_models_have_labels():
    assert labels.label_model("7b") == "7B"
    assert labels.label_model("another") == "another"


def test_the_recorded_training_time_is_the_median_over_seeds(tmp_path):
    for seed, seconds in ((1, 60.0), (2, 300.0), (3, 120.0)):
        folder = tmp_path / "real" / "model-1.5b" / f"seed-{seed}"
        folder.mkdir(parents=True)
        (folder / "train.rag.json").write_text(json.dumps({"wall_seconds": seconds}))
    facts = cost.facts_of_recorded_training(tmp_path)
    assert facts == {"recorded training model-1-5b rag": "2 min"}
