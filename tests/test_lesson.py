"""The lesson: σ and the reliability curve on toys, and the picture of the method."""

import pandas as pd
import pytest
from matplotlib import pyplot
from matplotlib.image import imread

from covrag_lite.records import Passage, Prediction, Question, Round, Verdict
from covrag_lite.tables import lesson, method_picture


def toy(*rows):
    """A frame of CoV-RAG: expected correctness, was it revised, was the first answer right, is the last."""
    columns = ["expected_correctness", "revised", "first_normalised", "normalised"]
    fixed = {"system": "CoV-RAG", "likelihood": None, "judgment": "false", "failure": "none"}
    return pd.DataFrame(rows, columns=columns).assign(**fixed)


FRAME = toy((0.1, True, False, True), (0.3, True, True, False), (0.9, False, True, True), (0.2, False, False, False))


def test_sigma_searches_again_below_the_threshold_and_only_where_a_question_was_revised():
    table = lesson.move_sigma(FRAME, [0, 0.1, 0.25, 1])
    assert table.searches.tolist() == [0, 0, 1, 2]  # at 0.1 the first lies on the threshold, not below it
    assert table.accuracy.tolist() == [50, 50, 75, 50]


def test_a_bin_of_the_curve_holds_each_answer_once_and_its_share_that_is_right():
    curve = lesson.reliability(toy((0.0, False, False, False), (0.2, False, True, True), (1.0, False, True, True)))
    assert curve[["bin", "n", "expected", "value"]].values.tolist() == [
        ["0.0 to 0.2", 2, 10.0, 50.0],
        ["0.8 to 1.0", 1, 100.0, 100.0],
    ]


def predict(first, last, name="q"):
    """A prediction whose two answers are given; the gold answer is Rome."""
    verdict = Verdict(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, "false", "where is it?", True, "")
    found = (Passage("p", "A title that is much longer than any box is wide", "One sentence. Another one."),)
    rounds = (Round("x", found, first, verdict), Round("where is it?", found, last))
    return Prediction(Question(name, "toy", "where", ("Rome",), ("p",)), "CoV-RAG", rounds)


def test_the_picture_shows_a_question_that_the_second_search_rescues(tmp_path):
    hurt, rescued = predict("Rome", "Oslo", "hurt"), predict("Oslo [1]", "Rome [7]", "rescued")
    table = method_picture.build([hurt, rescued])
    texts = dict(table.part("rescued").itertuples(index=False))
    assert (texts["answer"], texts["new answer"]) == ("Oslo [1] ✗ wrong", "Rome [7] ✓ right")
    assert texts["cited anew"] == "[1]: “One sentence.”"  # there is no seventh passage
    table.save(tmp_path)
    pyplot.close("all")
    assert imread(tmp_path / "method.png").shape[1] > 1200
    with pytest.raises(ValueError, match="rescues no question; set record to"):
        method_picture.build([hurt])


def test_a_verdict_is_read_in_the_papers_order():
    table = lesson.read_verdict(predict("", "").rounds[0].verdict)
    assert table.index[0] == "reference correctness" and table.index[-1] == "revised question"
    assert table.written.tolist() == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, "false", "where is it?"]


def test_the_slider_draws_another_picture_where_it_is_moved():
    slider, picture = lesson.slide_sigma(FRAME, 0.1).children
    before = picture.value
    slider.value = 0.25
    assert before and picture.value != before
