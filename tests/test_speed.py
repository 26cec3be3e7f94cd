"""Recorded speed: its facts, tables and figures, and the cost of a replication."""

import json
from pathlib import Path

import pandas as pd
import pytest
from conftest import write_jsonl
from matplotlib import pyplot
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from covrag_lite.config import resolve
from covrag_lite.runs.predictions import save_predictions
from covrag_lite.systems import palette
from covrag_lite.systems.names import CLOSED_BOOK, COV_RAG, COV_RAG_S, RAG
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


# The tables of a live measurement.


@pytest.fixture
def live_frame():
    """Live programs on two kinds of samples, of which the second row failed."""
    frame = peers(("trl", 10.0, 5.0), ("unsloth", None, None), ("ours", 1234.5, 4.0))
    frame = frame.assign(samples=["long", "short", "long"], last_loss=[1.23456, None, 2.0])
    return frame.assign(failure=[None, "out of memory", None], way=frame.way)


def test_live_programs_are_listed_by_samples_in_the_order_in_which_they_ran(live_frame):
    table = comparisons.list_live_programs(live_frame)
    assert table.index.tolist() == [
        *[("7b", "long", "trl"), ("7b", "long", "ours"), ("7b", "short", "unsloth")]
    ]


def test_samples_of_live_programs_keep_their_order(live_frame):
    reordered = live_frame.iloc[[1, 0, 2]].reset_index(drop=True)
    ways = comparisons.list_live_programs(reordered).index.get_level_values("way")
    assert ways.tolist() == ["unsloth", "trl", "ours"]


def test_live_programs_have_readable_numbers(live_frame):
    row = comparisons.list_live_programs(live_frame).loc["7b", "long", "ours"]
    assert row[["tokens per second", "fastest step", "peak", "last loss"]].tolist() == [
        *["1,234", "2,469", "4.00 GB", "2.000"]
    ]


def test_a_live_program_that_failed_has_dashes_and_a_reason(live_frame):
    row = comparisons.list_live_programs(live_frame).loc["7b", "short", "unsloth"]
    assert row[["tokens per second", "failure"]].tolist() == ["–", "out of memory"]


def test_without_a_failure_no_column_is_about_it(live_frame):
    table = comparisons.list_live_programs(live_frame[live_frame.failure.isna()])
    assert "failure" not in table


def test_without_live_programs_there_is_no_table():
    assert comparisons.list_live_programs(pd.DataFrame()).empty


def test_counts_of_a_live_measurement_are_integers_that_may_be_missing():
    frame = pd.DataFrame({"n": [4.0, None], "same": [3.0, 2.0], "seconds": [1.5, 2.0]})
    counted = comparisons.count_as_integers(frame)
    assert counted.n.tolist() == [4, pd.NA]
    assert counted.dtypes.astype(str).tolist() == ["Int64", "Int64", "float64"]


@pytest.mark.parametrize("compare", [comparisons.compare_with_peers, comparisons.compare_cards])
def test_a_folder_without_such_records_has_an_empty_table(compare, tmp_path):
    assert compare(tmp_path).empty


# The other tables, from small records.


@pytest.fixture
def other_programs(tmp_path):
    """Our setting, and three programs on two kinds of samples, one of which was not measured."""
    names = ["way", "samples", "tokens_per_second", "peak_gb", "steady", "ours_faster", "shape"]
    rows = [
        ("ours", "b", 3000.0, 4.0, 4000.0, None, "7b"),
        ("trl", "b", 1500.0, 5.0, 1000.0, 2.0, "7b"),
        ("Axolotl", "B", 1000.4, 5.0, 1000.0, None, "7b"),
        ("unsloth", "A", 500.0, 3.0, 500.0, 6.0, "7b"),
        ("left out", "A", None, None, None, None, "7b"),
    ]
    rows = [dict(zip(names, row)) for row in rows]
    return write_jsonl(tmp_path / records.PEERS_FILE, [{"rows": rows}]).parent


def test_other_programs_are_sorted_by_samples_without_regard_to_capitals(other_programs):
    table = comparisons.compare_with_peers(other_programs)
    assert table.index.tolist() == [
        *[("7B", "A", "unsloth"), ("7B", "b", "trl"), ("7B", "B", "Axolotl")]
    ]


def test_an_unknown_ratio_is_a_dash_and_a_missing_column_is_left_out(other_programs):
    table = comparisons.compare_with_peers(other_programs)
    assert table["ours: times as fast"].tolist() == ["6.00", "2.00", "–"]
    assert "ours: times its memory" not in table


def test_a_program_is_compared_with_ours_on_the_same_samples(other_programs):
    frame = records.load_peers(other_programs).set_index("way")
    assert frame.as_lean.dropna().to_dict() == {"trl": "ours"}
    assert frame.as_lean_faster["trl"] == 2
    assert frame.as_lean_steady["trl"] == 4


def test_what_ours_reaches_at_no_more_memory_precedes_the_rates(other_programs):
    columns = list(records.load_peers(other_programs))
    place = columns.index("tokens_per_second")
    assert columns[place - 3 : place] == ["as_lean", "as_lean_faster", "as_lean_steady"]


def test_a_card_holds_a_size_with_its_peak_or_a_word(tmp_path):
    row = {"backbone": "7b", "card_gb": 12.0, "row": 4096, "training_peak_gb": 11.26}
    row |= {"away_row": 8192.0, "away_peak_gb": 10.0, "batch": "none", "answering_peak_gb": None}
    larger = row | {"card_gb": 24.0, "batch": 64, "answering_peak_gb": 20.0}
    write_jsonl(tmp_path / records.CARDS_FILE, [{"rows": [row, larger]}])
    assert comparisons.compare_cards(tmp_path).loc[("7B", "12 GB")].tolist() == [
        *["4,096 (11.3 GB)", "8,192 (10.0 GB)", "none"]
    ]
    facts = report.build(tmp_path).facts
    assert facts["7b in 12 GB row"] == "4,096"
    assert "7b in 12 GB batch" not in facts
    assert facts["7b in 24 GB batch"] == "64"


@pytest.mark.parametrize("value, is_size", [(4, True), (0.5, True), (None, False), ("all", False)])
def test_only_a_number_is_a_size(value, is_size):
    assert records.is_size(value) == is_size
    assert not records.is_size(float("nan"))


def test_search_engines_have_their_times_recall_and_memory(tmp_path):
    rows = {}
    for engine, factor in (("b", 1), ("a", 2)):
        for size, milliseconds in (("10,000", 1.0), ("100,000", 10.0), ("1,000,000", 1000.0)):
            row = {"cpu_ms_per_query": factor * milliseconds, "index_peak_mb": factor * 2600.0}
            row["recall"] = 0.9 if size == "100,000" else 0.1
            rows[f"{engine}, {size} passages"] = row
    del rows["a, 10,000 passages"]
    folder = tmp_path / "speed-engines"
    write_jsonl(folder / records.ANSWERING_FILE, [{"words": rows}])
    table = comparisons.compare_engines(tmp_path)
    assert table.index.tolist() == ["b", "a"]
    assert table.loc["b"].tolist() == ["1.0", "10.0", "1,000.0", "90 %", "2.6"]
    assert table.loc["a"].tolist() == ["–", "20.0", "2,000.0", "90 %", "5.2"]


def test_an_engine_of_one_corpus_is_not_extrapolated():
    frame = pd.DataFrame({name: [1.0] for name in records.GROWING_COLUMNS})
    frame.index = ["engine, 1,000 passages"]
    assert records.extrapolate(frame).empty


def test_the_largest_corpora_are_those_of_the_largest_numbers():
    sizes = ("9", "1,000", "200")
    index = [f"engine, {size} passages" for size in sizes]
    frame = pd.DataFrame({name: [0.0, 36e5, 0.0] for name in records.GROWING_COLUMNS}, index=index)
    row = records.extrapolate(frame, 1800).loc["engine"]
    assert row.tolist() == [2000, 7200, 7200, 7200, 72e5]  # twice those of 1,000


def test_the_fastest_setting_is_chosen_for_each_model():
    rows = [("a", "ours", 1.0, None), ("b", "ours", 2.0, 0.5), ("b", "ours, 4k", 3.0, 0.7)]
    frame = pd.DataFrame(rows, columns=["shape", "variant", "speed_ratio", "memory_ratio"])
    chosen = records.select_fastest(frame, 0.65)
    assert chosen[["shape", "variant"]].values.tolist() == [["a", "ours"], ["b", "ours"]]
    assert records.select_fastest(frame, 0.7).variant.tolist() == ["ours", "ours, 4k"]


def test_measured_training_names_its_machine(speed):
    frame, machine = records.load_training(speed)
    assert machine == "a GPU, torch 2.0; 1000 × 10¹² operations per second in large matrix products"
    assert frame["shape"].tolist() == ["smollm2", "7b", "13b"]
    assert not {"operations_per_token", "failure"} & set(frame)


# The figures.


@pytest.fixture
def losses_figure(tmp_path):
    """Losses of three programs on two kinds of samples; one more of our settings is not shown."""
    rows = [("ours", "a"), ("trl", "a"), ("ours", "b"), ("ours slow", "b"), ("trl", "b")]
    frame = pd.DataFrame(rows, columns=["way", "samples"]).assign(shape="7b")
    frame["losses"] = [[3.0, 2.0], [4.0, 3.0], [5.0, 1.0], [9.0, 9.0], None]
    drawn = plots.plot_losses(frame, tmp_path / "losses.png")
    yield drawn
    pyplot.close(drawn)


def test_losses_are_drawn_by_step_for_each_kind_of_samples(losses_figure):
    titles = [axes.get_title("left") for axes in losses_figure.axes]
    assert titles == ["7B, a", "7B, b"]
    first, second = losses_figure.axes
    assert [line.get_xydata().tolist() for line in first.lines] == [
        *[[[1, 3], [2, 2]], [[1, 4], [2, 3]]]
    ]
    assert [line.get_ydata().tolist() for line in second.lines] == [[5, 1]]


def test_a_program_has_the_same_look_in_every_panel_and_another_than_others(losses_figure):
    first, second = losses_figure.axes
    ours, other = first.lines
    assert ours.get_color() == second.lines[0].get_color() != other.get_color()
    assert ours.get_linestyle() == second.lines[0].get_linestyle() != other.get_linestyle()


def test_the_legend_of_the_losses_names_every_program_once(losses_figure):
    texts = [text.get_text() for text in losses_figure.legends[0].get_texts()]
    assert texts == ["ours", "trl"]


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


# Bars of settings, and rates of answering.


@pytest.fixture
def bar_axes():
    """Bars of three settings, of which the last one has no value, with a target of 2."""
    rows = [("plain", 1.0), ("ours", 2.54), ("packed alone", None)]
    frame = pd.DataFrame(rows, columns=["variant", "speed_ratio"])
    axes = Figure().subplots()
    plots.draw_bars(axes, frame, "speed_ratio", "{:.1f}×", 2.0)
    return axes


def test_a_bar_has_its_value_and_the_colour_of_its_kind(bar_axes):
    assert [bar.get_width() for bar in bar_axes.patches] == [1.0, 2.54, 0.0]
    assert [text.get_text() for text in bar_axes.texts] == ["1.0×", "2.5×", ""]
    colours = [to_hex(bar.get_facecolor()) for bar in bar_axes.patches]
    assert colours == [to_hex(palette()[name]) for name in (CLOSED_BOOK, COV_RAG, RAG)]


def test_bars_are_named_by_their_settings(bar_axes):
    names = [text.get_text() for text in bar_axes.get_yticklabels()]
    assert names == ["plain", "ours", "plain + packing"]


def test_the_target_is_a_dashed_line(bar_axes):
    (line,) = bar_axes.lines
    assert (list(line.get_xdata()), line.get_linestyle()) == ([2.0, 2.0], "--")


@pytest.mark.parametrize("value, target", [(1.0, None), (None, 2.0)])
def test_without_a_target_or_a_value_there_is_no_line(value, target):
    frame = pd.DataFrame({"variant": ["ours"], "speed_ratio": [value]})
    axes = Figure().subplots()
    plots.draw_bars(axes, frame, "speed_ratio", "{:.1f}×", target)
    assert list(axes.lines) == []


def test_a_panel_without_losses_is_empty(tmp_path):
    frame = pd.DataFrame({"way": ["ours"], "samples": "a", "shape": "7b", "losses": [[3.0, 2.0]]})
    figure = plots.plot_losses(frame, tmp_path / "losses.png")
    pyplot.close(figure)
    assert [axes.axison for axes in figure.axes] == [True, False]


def test_without_a_recorded_loss_the_figure_of_losses_is_empty(tmp_path):
    frame = pd.DataFrame({"way": ["ours"], "samples": "a", "shape": "7b", "losses": [None]})
    figure = plots.plot_losses(frame, tmp_path / "losses.png")
    pyplot.close(figure)
    assert [axes.axison for axes in figure.axes] == [False, False]
    assert figure.legends == []


def test_the_offloaded_setting_of_ours_is_among_the_losses(tmp_path):
    frame = pd.DataFrame({"way": ["ours", "ours away", "ours slow"], "samples": "a"})
    frame = frame.assign(shape="7b", losses=[[3.0]] * 3)
    figure = plots.plot_losses(frame, tmp_path / "losses.png")
    pyplot.close(figure)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "ours",
        "ours, offloaded",
    ]


def test_axes_of_losses_say_what_they_show(losses_figure):
    assert {(axes.get_xlabel(), axes.get_ylabel()) for axes in losses_figure.axes} == {
        ("step", "loss")
    }


def test_a_folder_without_other_programs_has_no_figure_of_losses(speed):
    assert set(plots.list_plots(speed)) == {"training.png"}
    (speed / "training.json").unlink()
    assert plots.list_plots(speed) == {}


def test_a_ratio_of_answering_is_that_of_both_rates():
    rows = comparisons.compare_with_generate(H200) + comparisons.compare_with_vllm(H200)
    for *_, ours, theirs, faster in rows:
        assert ours / theirs == pytest.approx(faster, rel=0.02)


def test_answering_is_compared_by_task_and_model():
    rows = comparisons.compare_answering(H200).index.tolist()
    assert rows[:2] == [
        ("answers", "SmolLM2-135M", "transformers generate"),
        ("answers", "7B shape", "transformers generate"),
    ]
    assert rows[4:7] == [
        (task, "SmolLM2-135M", "vLLM") for task in ("answers", "verdicts", "two rounds")
    ]


def test_the_table_of_plain_training_has_all_recorded_numbers(facts):
    row = comparisons.compare_with_plain(H200).loc["13B"]
    assert row["our setting"] == "rows of 4,096"
    assert row["share of plain's memory"] == facts["13b ours, 4k memory_ratio"]
    assert row["useful tokens/s"] == facts["13b ours, 4k tokens_per_second"]


def test_other_programs_have_their_memory(other_programs):
    row = comparisons.compare_with_peers(other_programs).loc["7B", "b", "trl"]
    assert row[["tokens/s", "peak (GB)"]].tolist() == ["1,500", "5.00"]


def test_a_live_frame_without_counts_stays_as_it_is():
    frame = pd.DataFrame({"seconds": [1.5]})
    assert comparisons.count_as_integers(frame).equals(frame)


def test_a_short_training_time_is_in_seconds(tmp_path):
    folder = tmp_path / "train-smollm2-135m-h200"
    folder.mkdir()
    (folder / "train.cov.json").write_text(json.dumps({"wall_seconds": 89.6}))
    (folder / "train.rag.json").write_text(json.dumps({"wall_seconds": 90.0}))
    (folder / "train.rewrite.json").write_text(json.dumps({}))
    assert cost.facts_of_recorded_training(tmp_path) == {
        "recorded training world cov": "90 s",
        "recorded training world rag": "2 min",
    }


def test_without_the_run_whose_work_is_counted_there_is_no_cost(speed):
    (speed.parent / cost.WORK_RUN).rename(speed.parent / "elsewhere")
    assert cost.facts_of_cost(speed) == {}


def test_costs_together_and_their_price_are_facts(speed):
    row = cost.estimate_cost(speed).loc["7b"]
    facts = cost.facts_of_cost(speed)
    assert facts["7b together"] == cost.format_duration(3600 * row.hours)
    assert facts["7b price"] == f"{row.price:.2f}"
    assert cost.facts_of_cost(speed, price=6.0)["price of an hour"] == "6.00"


def test_a_program_is_not_compared_with_ours_on_another_model():
    ours = peers(("ours", 30.0, 4.0))
    other = peers(("trl", 10.0, 5.0)).assign(shape="13b")
    frame = records.add_lean_settings(pd.concat([ours, other], ignore_index=True))
    assert frame.as_lean.isna().all()


def test_a_part_of_a_record_without_rows_is_no_frame(tmp_path):
    record = MACHINE | {"empty": {}, "words": {"ours": {"seconds": 1.0}}}
    path = write_jsonl(tmp_path / "inference.json", [record])
    assert list(records.load_answering(path)) == ["words"]


def test_records_of_answering_are_listed_by_name(tmp_path):
    for name in ("inference.vllm.json", "inference.json", "training.json"):
        (tmp_path / name).touch()
    names = [path.name for path in records.list_answering_files(tmp_path)]
    assert names == ["inference.json", "inference.vllm.json"]
