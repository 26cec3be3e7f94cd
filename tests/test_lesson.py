"""What the lesson shows: the curve of thresholds with its slider, calibration, and a verdict."""

import io
from pathlib import Path

import pytest
from matplotlib import pyplot
from matplotlib.image import imread
from toy import BORN, LOW

from covrag_lite.config import ROOT, Config
from covrag_lite.tables import calibration, lesson, method_picture, threshold_curve

# The expected correctness of the scored answers is 0.95, 0.3, 0.6, 0.2, 0.7 and 0.25.


def test_sigma_searches_again_below_the_threshold_where_a_question_was_revised(frame):
    table = threshold_curve.accuracy_by_threshold(frame, [0, 0.2, 0.25, 0.3, 1])
    assert table.searches.tolist() == [0, 0, 1, 2, 3]  # q4, q7 and q2 are not below their own value
    assert table.accuracy.tolist() == [66.7, 66.7, 50.0, 66.7, 83.3]


def test_the_slider_is_as_wide_as_its_figure(frame):
    slider, picture = threshold_curve.build_slider(frame, 0.1).children
    width = imread(io.BytesIO(picture.value)).shape[1]
    assert slider.layout.width == picture.layout.width == f"{width}px" == "900px"


def test_the_slider_draws_its_figure_again(frame):
    slider, picture = threshold_curve.build_slider(frame, 0.1).children
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
