"""What the lesson shows: the curve of thresholds with its slider, calibration, and a verdict."""

import base64
import io
from pathlib import Path

import pandas as pd
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure
from matplotlib.image import imread
from toy import BORN, LOW

from covrag_lite.config import ROOT, Config
from covrag_lite.systems import palette
from covrag_lite.systems.names import COV_RAG, RAG_TRAINED, START_REVISE
from covrag_lite.tables import (
    calibration,
    display,
    lesson,
    method_picture,
    pictures,
    threshold_curve,
)

# The expected correctness of the scored answers is 0.95, 0.3, 0.6, 0.2, 0.7 and 0.25.


def test_sigma_searches_again_below_the_threshold_where_a_question_was_revised(frame):
    table = threshold_curve.accuracy_by_threshold(frame, [0, 0.2, 0.25, 0.3, 1])
    assert table.searches.tolist() == [0, 0, 1, 2, 3]  # q4, q7 and q2 are not below their own value
    assert table.accuracy.tolist() == [66.7, 66.7, 50.0, 66.7, 83.3]


def open_slider(frame, threshold):
    """Return the slider and its figure, which a click shows."""
    (box,) = threshold_curve.build_slider(frame, threshold).children
    return box.children


def test_running_every_cell_does_not_show_the_slider(frame):
    assert threshold_curve.build_slider(frame).selected_index is None


def test_running_every_cell_does_not_show_what_a_class_guesses(frame):
    picture = pictures.to_image(threshold_curve.draw_thresholds(frame, 0.25))
    page = display.fold(pd.DataFrame({"accuracy": [83.3]}), picture).data
    assert page.startswith(f"<details><summary>{display.GUESS_FIRST}</summary>")
    assert page.endswith("</details>")


def test_what_a_class_guesses_is_a_table_and_a_picture(frame):
    picture = pictures.to_image(threshold_curve.draw_thresholds(frame, 0.25))
    page = display.fold(pd.DataFrame({"accuracy": [83.3]}), picture).data
    assert "<td>83.3</td>" in page
    assert base64.b64encode(picture.data).decode() in page


def test_the_slider_is_as_wide_as_its_figure(frame):
    slider, picture = open_slider(frame, 0.1)
    width = imread(io.BytesIO(picture.value)).shape[1]
    assert slider.layout.width == picture.layout.width == f"{width}px" == "900px"


def test_the_slider_draws_its_figure_again(frame):
    slider, picture = open_slider(frame, 0.1)
    before = picture.value
    slider.value = 0.25
    assert picture.value != before


def test_the_figure_of_thresholds_marks_the_chosen_one(frame):
    accuracy, searches = threshold_curve.draw_thresholds(frame, 0.25).axes
    assert accuracy.lines[1].get_ydata().tolist() == [50.0]
    assert searches.lines[1].get_ydata().tolist() == [1]


def test_the_figure_of_thresholds_shows_the_baseline_by_its_label(frame):
    accuracy, _ = threshold_curve.draw_thresholds(frame, 0.25).axes
    labels = [text.get_text() for text in accuracy.get_legend().get_texts()]
    assert labels == ["RAG (trained)"]


@pytest.fixture
def curve(frame):
    return calibration.build_curve(frame)


def test_a_bin_of_the_curve_holds_each_answer_once(curve):
    names = ["0.0 to 0.2", "0.2 to 0.4", "0.4 to 0.6", "0.6 to 0.8", "0.8 to 1.0"]
    assert curve.bin.tolist() == names
    assert curve.n.tolist() == [1, 2, 1, 1, 1]


def test_a_bin_of_the_curve_has_its_mean_expectation_and_its_share_that_is_right(curve):
    assert curve.expected.tolist() == [20.0, 27.5, 60.0, 70.0, 95.0]
    assert curve.value.tolist() == [100.0, 0.0, 100.0, 100.0, 100.0]


def test_the_guesses_of_the_class_are_at_the_middles_of_the_bins(curve):
    *_, guesses = calibration.draw_curve(curve, [20, 40]).axes[0].lines
    assert guesses.get_xdata().tolist() == [10, 30]
    assert guesses.get_ydata().tolist() == [20, 40]


def test_a_verdict_is_listed_in_the_papers_order(cov):
    table = lesson.list_fields(cov[1].rounds[0].verdict)
    assert table.index[0] == "reference correctness"
    assert table.index[-1] == "revised question"
    assert table.written.tolist() == [*(f"{score:.2f}" for score in LOW), "false", BORN]


def test_the_shipped_picture_is_shown_for_the_default_record(cov, monkeypatch):
    monkeypatch.setattr(method_picture, "build", lambda predictions: pytest.fail("drawn again"))
    shown = lesson.show_method(cov, Config())
    assert Path(shown.filename) == ROOT / "figures" / "embedded" / "method.png"


def test_a_picture_is_drawn_for_another_record(cov, tmp_path):
    lesson.show_method(cov, Config().change(figures=str(tmp_path), name="toy"))
    pyplot.close("all")
    assert (tmp_path / "toy" / "method.png").exists()


# The figures.


@pytest.fixture
def thresholds(frame):
    """The two panels of the figure of thresholds, at 0.25."""
    return threshold_curve.draw_thresholds(frame, 0.25).axes


@pytest.mark.parametrize("panel, name", list(enumerate(["accuracy", "searches"])))
def test_the_figure_of_thresholds_shows_each_measure_over_all_thresholds(
    frame, thresholds, panel, name
):
    line = thresholds[panel].lines[0]
    table = threshold_curve.accuracy_by_threshold(frame)
    assert line.get_xdata()[[0, 25, -1]].tolist() == [0, 0.25, 1]
    assert line.get_ydata().tolist() == table[name].tolist()
    assert line.get_color() == palette()[COV_RAG]


@pytest.mark.parametrize(
    "panel, label", list(enumerate(["accuracy (%)", "questions searched again"]))
)
def test_a_panel_of_thresholds_begins_at_zero_and_says_what_it_shows(thresholds, panel, label):
    assert thresholds[panel].get_ylim()[0] == 0
    assert thresholds[panel].get_ylabel() == label


def test_the_chosen_threshold_is_a_dot_at_its_place(thresholds):
    for panel in thresholds:
        assert panel.lines[1].get_xdata().tolist() == [0.25]
        assert panel.lines[1].get_marker() == "o"


def test_the_baseline_of_the_thresholds_is_the_accuracy_of_the_reader(thresholds):
    baseline = thresholds[0].lines[2]
    assert list(baseline.get_ydata()) == pytest.approx([100 / 3] * 2)  # q1 and q3 of six
    assert baseline.get_color() == palette()[RAG_TRAINED]


def test_both_panels_of_the_thresholds_say_what_the_threshold_is(frame):
    labels = {axes.get_xlabel() for axes in threshold_curve.draw_thresholds(frame, 0.25).axes}
    assert labels == {"search again below this expected correctness"}


def test_the_title_of_the_thresholds_counts_what_the_chosen_one_gives(frame):
    figure = threshold_curve.draw_thresholds(frame, 0.25)
    assert figure.get_suptitle() == "threshold 0.25: 50.0 % right, 1 of 6 searched again"


def test_the_slider_goes_from_never_to_always_in_hundredths(frame):
    slider, _ = open_slider(frame, 0.3)
    assert (slider.value, slider.min, slider.max, slider.step) == (0.3, 0, 1, 0.01)


def test_the_slider_shows_the_threshold_it_is_set_to(frame, monkeypatch):
    drawn = []

    def draw(frame, threshold):
        drawn.append(threshold)
        return Figure()

    monkeypatch.setattr(threshold_curve, "draw_thresholds", draw)
    slider, _ = open_slider(frame, 0.3)
    slider.value = 0.7
    slider.min = 0.1
    assert drawn == [0.3, 0.7]


def test_the_interval_of_a_bin_is_that_of_its_share(curve):
    # Wilson, z = 1.96: none of two, and one of one.
    assert curve.loc[1, ["low", "high"]].tolist() == [0.0, 65.8]
    assert curve.loc[0, ["low", "high"]].tolist() == [20.7, 100.0]


def test_an_expectation_of_zero_is_in_the_lowest_bin(frame):
    never = frame.assign(expected_correctness=0.0)
    curve = calibration.build_curve(never)
    assert curve[["bin", "n"]].values.tolist() == [["0.0 to 0.2", 6]]


def test_the_curve_can_be_of_another_system(frame):
    assert calibration.build_curve(frame, RAG_TRAINED).empty  # which has no verdicts


@pytest.fixture
def calibration_axes(curve):
    return calibration.draw_curve(curve, [20, 40]).axes[0]


def test_the_curve_is_drawn_over_the_expectation(curve, calibration_axes):
    line = calibration_axes.lines[1]
    assert line.get_xydata().tolist() == curve[["expected", "value"]].values.tolist()
    assert line.get_color() == palette()[COV_RAG]


def test_a_perfect_judge_is_on_the_diagonal(calibration_axes):
    assert calibration_axes.lines[0].get_xydata().tolist() == [[0, 0], [100, 100]]


def test_the_intervals_of_the_curve_are_drawn_at_its_points(curve, calibration_axes):
    (bars,) = calibration_axes.containers[0].lines[2]
    ends = [segment[:, 1].tolist() for segment in bars.get_segments()]
    assert ends == [pytest.approx(list(pair)) for pair in zip(curve.low, curve.high)]
    assert [segment[0, 0] for segment in bars.get_segments()] == curve.expected.tolist()


def test_a_tick_of_the_curve_names_its_expectation_and_its_answers(calibration_axes):
    texts = [text.get_text() for text in calibration_axes.get_xticklabels()]
    assert texts == ["20\nn = 1", "28\nn = 2", "60\nn = 1", "70\nn = 1", "95\nn = 1"]


def test_the_curve_shows_all_shares(calibration_axes):
    assert calibration_axes.get_xlim() == calibration_axes.get_ylim() == (0, 101)


def test_the_legend_of_the_curve_names_its_three_series(calibration_axes):
    texts = [text.get_text() for text in calibration_axes.get_legend().get_texts()]
    assert texts == [
        *["a perfectly calibrated judge", "the recorded judge", "the guess of the class"]
    ]


def test_the_guesses_have_a_colour_of_their_own(calibration_axes):
    *_, guesses = calibration_axes.lines
    assert guesses.get_color() == palette()[START_REVISE]
    assert guesses.get_marker() == "s"


# Tables of the lesson.


def test_a_verdict_shows_what_the_model_expects_next_to_what_it_wrote(cov):
    table = lesson.list_fields(cov[1].rounds[0].verdict)
    assert table.loc["correctness", ["written", "expected"]].tolist() == ["0.05", "0.30"]
    assert table.loc["judgment"].tolist() == ["is the answer right?", "false", ""]


def test_a_verdict_that_revises_nothing_says_so(cov):
    assert lesson.list_fields(cov[0].rounds[0].verdict).loc["revised question"].written == "(none)"


def test_the_likelihood_is_compared_over_all_questions(frame):
    table = lesson.compare_likelihood(frame)
    assert table.index.tolist() == ["all"]
    assert table.columns.tolist()[1:] == [
        *["AUROC of the verdict", "AUROC of the likelihood", "AUROC of both together"]
    ]


def test_selected_columns_are_in_the_order_and_words_of_the_lesson():
    table = pd.DataFrame({"b": [1], "a": [2], "c": [3]})
    selected = lesson.select_columns(table, {"a": "first", "b": "second"})
    assert selected.index.name == "first"
    assert selected.reset_index().to_dict("list") == {"first": [2], "second": [1]}


@pytest.mark.parametrize(
    "asked, table, record", [("auto", "sigma", "train"), ("mine", "x", "mine")]
)
def test_the_lesson_loads_its_own_record_unless_another_is_set(
    asked, table, record, monkeypatch, capsys
):
    monkeypatch.setattr(lesson, "choose", lambda config, table: (config.run.record, table))
    monkeypatch.setattr(lesson, "describe_run", lambda run: f"{run[0]} {run[1]}")
    monkeypatch.setattr(
        lesson.browse, "load_recorded", lambda run, config: (run, config.run.record)
    )
    (chosen, of_table), of_config = lesson.load(Config().change(record=asked), table)
    assert chosen.split("-")[0] == of_config.split("-")[0] == record
    assert of_table == table
    assert capsys.readouterr().out == f"{chosen} {table}\n"


def test_a_figure_is_shown_without_a_plotting_backend():
    assert pictures.to_image(Figure()).data.startswith(b"\x89PNG")


def test_the_judge_is_compared_by_wording(frame):
    table = lesson.compare_judges(frame)
    assert table.index.tolist() == ["all", "well put", "broken wording"]
    assert table.loc["all"].to_dict() == {
        **{"answers": 6, "right (%)": "66.7", "judge right (%)": "66.7 [30.0, 90.3]"},
        **{"majority right (%)": "66.7", "wording rule right (%)": "83.3"},
        "AUROC of the verdict": "0.75 [0.26, 1.00]",
    }


def test_the_likelihood_has_its_own_column(frame):
    (row,) = lesson.compare_likelihood(frame).to_dict("records")
    assert row["AUROC of the verdict"] == "0.75 [0.26, 1.00]"
    assert row["AUROC of the likelihood"] == "1.00 [1.00, 1.00]"


def test_gains_of_the_lesson_are_by_obstacle(frame):
    table = lesson.gain_by_obstacle(frame)
    assert table.index.name == "obstacle"
    assert table.loc["none"].to_dict() == {
        **{"questions": 5, "right at first (%)": "80.0", "searched again": 2},
        **{"missed passage found": "1 of 1", "right at the end (%)": "80.0"},
        **{"gain (points)": "+0 of 5", "95 % interval": "–"},
    }


def test_a_field_of_a_verdict_says_what_it_asks(cov):
    table = lesson.list_fields(cov[1].rounds[0].verdict)
    assert table.loc["correctness", "asks"] == "is the answer to the question correct?"
    assert table.loc["revised question", "asks"] == "what to search for instead?"
    assert table.index.name == "field"


def test_the_picture_of_the_method_fits_the_page(cov):
    assert lesson.show_method(cov, Config()).width == lesson.PICTURE_WIDTH


def test_axes_of_the_curve_say_what_they_show(calibration_axes):
    assert calibration_axes.get_xlabel() == "expected correctness (%)"
    assert calibration_axes.get_ylabel() == "answers that are right (%)"


def test_a_perfect_judge_and_the_baseline_are_dashed(calibration_axes, thresholds):
    assert calibration_axes.lines[0].get_linestyle() == "--"
    assert thresholds[0].lines[2].get_linestyle() == "--"


def test_a_curve_without_guesses_has_no_squares(curve):
    *_, guesses = calibration.draw_curve(curve).axes[0].lines
    assert len(guesses.get_xdata()) == 0


def test_the_lesson_is_about_table_2(monkeypatch):
    loaded = []
    monkeypatch.setattr(lesson, "choose", lambda config, table: loaded.append(table))
    monkeypatch.setattr(lesson, "describe_run", lambda run: "")
    monkeypatch.setattr(lesson.browse, "load_recorded", lambda run, config: config.run.record)
    record = lesson.load(Config().change(record="auto"))
    assert loaded == ["table2"]
    assert record.startswith("table2-")


def test_the_threshold_of_the_slider_has_a_name(frame):
    slider, _ = open_slider(frame, 0.3)
    assert slider.description == "threshold"
