"""The picture of the method: a question that the second search rescues, and its texts."""

from dataclasses import replace

import pytest
from matplotlib import pyplot
from matplotlib.image import imread

from covrag_lite.tables import method_picture


@pytest.fixture
def table(cov):
    """The picture of q2; its second answer cites a passage that there is not."""
    first, last = cov[1].rounds
    rescued = replace(cov[1], rounds=(first, replace(last, answer="Stell[7]")))
    return method_picture.build([cov[3], rescued])  # the second search has hurt q4


@pytest.fixture
def texts(table):
    return dict(table.part("q2").itertuples(index=False))


def test_the_answers_are_marked_as_wrong_and_right(texts):
    assert texts["answer"] == "Mere [1] ✗ wrong"
    assert texts["new answer"] == "Stell [7] ✓ right"


def test_the_quoted_sentence_has_the_words_that_the_revised_question_adds(texts):
    assert "Stell" in texts["quoted"]


def test_without_a_cited_passage_the_first_sentence_is_quoted(texts):
    assert texts["quoted again"].startswith("[1]: “")


def test_the_picture_has_a_title_and_a_heading_per_box(table, tmp_path):
    table.save(tmp_path)
    drawn = {text.get_text() for text in pyplot.gcf().axes[0].texts}
    pyplot.close("all")
    assert {*method_picture.BOXES, method_picture.TITLE} <= drawn


def test_the_picture_can_be_read_at_a_width_of_700_pixels(table, tmp_path):
    table.save(tmp_path)
    pyplot.close("all")
    assert imread(tmp_path / "method.png").shape[1] > 1200


def test_the_example_is_preferred_to_an_earlier_rescued_question(cov):
    question = replace(cov[1].question, id=method_picture.EXAMPLE)
    example = replace(cov[1], question=question)
    assert method_picture.pick_rescued([cov[1], example]) is example


def test_a_run_without_a_rescued_question_says_which_parameter_to_set(cov):
    with pytest.raises(ValueError, match="rescues no question of this run; set record to"):
        method_picture.build(cov[3:4])
