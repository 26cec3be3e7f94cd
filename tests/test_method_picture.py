"""The picture of the method: a question that the second search rescues, and its texts."""

from dataclasses import replace
from itertools import combinations, pairwise

import pytest
from matplotlib import pyplot
from matplotlib.colors import to_hex
from matplotlib.image import imread
from matplotlib.text import Annotation
from toy import BORN, TEXTS

from covrag_lite.records import Passage, Round
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


# What is written.


@pytest.fixture
def rescued(cov):
    """The prediction of q2, whose second search finds the answer."""
    return cov[1]


@pytest.fixture
def written(rescued):
    return method_picture.write_texts(rescued)


def test_a_box_has_the_text_of_its_step(written):
    plain = {name: " ".join(text.split()) for name, text in written.items()}
    assert plain["question"] == TEXTS["q2"]
    assert plain["verdict"] == "judgment: false references: 0.05 correctness: 0.05 …"
    assert plain["revised question"] == BORN


def test_passages_are_numbered_and_those_that_state_the_answer_are_ticked(written):
    assert written["passages"] == "[1] Stell\n[2] Bridge"
    assert written["new passages"] == "[1] Ada Voss ✓\n[2] Harbour Lamp"


def test_a_title_of_more_letters_than_fit_is_cut(rescued):
    letters = method_picture.MAX_TITLE - len("[1] ")
    titles = {}
    for n in (letters, letters + 1):
        passage = Passage("z", "t" * n, "")
        step = replace(rescued.rounds[0], passages=(passage,))
        titles[n] = method_picture.summarise_round(step, rescued.question).titles
    assert titles[letters] == f"[1] {'t' * letters}"
    assert titles[letters + 1] == f"[1] {'t' * (letters - 1)}…"


def quote(texts, words, answer="It is so.[2]"):
    passages = tuple(Passage(str(n), "", text) for n, text in enumerate(texts))
    return method_picture.quote_sentence(Round("", passages, answer), words)


@pytest.mark.parametrize(
    "words, quoted",
    [
        ({"lamp", "kept"}, "[1]: “The lamp is kept.”"),
        ({"lamp"}, "[2]: “A lamp.”"),  # of the cited passage, because as many words are in both
        (set(), "[2]: “One town.”"),  # the first one of the cited passage
        ({"unknown"}, "[2]: “One town.”"),
    ],
)
def test_the_sentence_with_the_most_added_words_is_quoted(words, quoted):
    texts = ["A hill. The lamp is kept.", "One town. A lamp. The lamp."]
    assert quote(texts, words) == quoted


def test_without_a_citation_the_first_passage_counts_as_cited():
    assert quote(["One town.", "A lamp."], set(), "It is so.") == "[1]: “One town.”"


def test_a_long_sentence_is_quoted_in_part():
    text = quote(["word " * 40], set())
    assert text.startswith("[1]: “word word")
    assert text.endswith(" …”")
    assert len(text) <= method_picture.MAX_QUOTE + len("[1]: “”")


def test_words_that_the_question_has_already_are_not_added(rescued):
    first, _ = rescued.rounds
    step = replace(first, passages=(Passage("z", "", "wher was it. Voss lived."),))
    asked = replace(rescued.question, question="wher was it")
    summary = method_picture.summarise_round(step, asked, "wher was Voss")
    assert summary.quote == "[1]: “Voss lived.”"


# Which question is shown.


def test_only_cov_rag_rescues(rescued):
    other = replace(rescued, system="RAG")
    assert method_picture.is_rescued(rescued)
    assert not method_picture.is_rescued(other)


def test_an_answer_that_stays_right_or_wrong_is_not_rescued(cov):
    by_id = {prediction.question.id: prediction for prediction in cov}
    rescued = [name for name, p in by_id.items() if method_picture.is_rescued(p)]
    assert rescued == ["q2", "q7"]
    right_twice = replace(cov[1], rounds=(cov[1].rounds[1], cov[1].rounds[1]))
    assert not method_picture.is_rescued(right_twice)


def test_the_last_answer_counts_even_if_it_is_not_kept(cov):
    assert method_picture.is_rescued(replace(cov[1], kept=0))


# Where it is drawn.


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """The axes of the picture with a short text in every box."""
    texts = {name: f"text of {name}" for name in (*method_picture.BOXES, "quoted", "quoted again")}
    figure = method_picture.draw(texts, tmp_path_factory.mktemp("method") / "method.png")
    yield figure.axes[0]
    pyplot.close(figure)


def box_of(patch):
    return patch.get_x(), patch.get_y(), patch.get_width(), patch.get_height()


def test_no_two_boxes_overlap_and_all_are_within_the_picture(drawn):
    boxes = [patch.get_window_extent() for patch in drawn.patches]
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
    for x, y, width, height in map(box_of, drawn.patches):
        assert 0 < x < x + width < method_picture.WIDTH
        assert 0 < y < y + height < method_picture.HEIGHT


def test_a_box_has_its_name_its_text_and_its_colour(drawn):
    names = list(method_picture.BOXES)
    written = [text for text in drawn.texts if text.get_text()]
    for name, patch in zip(names, drawn.patches):
        x, y, width, height = box_of(patch)
        inside = []
        for text in written:
            left, top = text.get_position()
            if x < left < x + width and y < top < y + height and text.get_ha() == "left":
                inside.append(text)
        assert [text.get_text() for text in inside] == [name, f"text of {name}"]
        assert to_hex(inside[0].get_color()) == to_hex(patch.get_edgecolor())


def test_an_arrow_leads_from_each_box_to_the_next(drawn):
    boxes = dict(zip(method_picture.BOXES, map(box_of, drawn.patches)))

    def touches(point, box):
        x, y, width, height = box
        inside_x = x - 0.01 <= point[0] <= x + width + 0.01
        return inside_x and y - 0.01 <= point[1] <= y + height + 0.01

    arrows = []
    for arrow in drawn.texts:
        if isinstance(arrow, Annotation):
            ends = (arrow.get_position(), arrow.xy)
            arrows.append(tuple(next(n for n, b in boxes.items() if touches(e, b)) for e in ends))
    names = list(method_picture.BOXES)
    assert sorted(arrows) == sorted([*pairwise(names), ("question", "new answer")])
