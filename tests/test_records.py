from covrag_lite.prompts import parse_verdict, render_verdict
from covrag_lite.records import Prediction, Question, Round


def prediction(passages, answer="Edith <b>Marrow</b> [1][9]"):
    question = Question("q1", "nq", "who wrote <it>?", ("Edith Marrow",), ("p0",))
    verdict = parse_verdict(render_verdict((0.21, 0.5, 0.81, 0.91, 0.82, 1), "false", "Who wrote it?"))
    return Prediction(
        question,
        "CoV-RAG",
        (
            Round("who wrote <it>?", tuple(passages[:2]), answer, verdict),
            Round("Who wrote it?", tuple(passages[2:4]), "Nobody [2]", parse_verdict("rubbish <i>")),
        ),
    )


def test_a_prediction_shows_itself_as_escaped_html(passages):
    text = prediction(passages)._repr_html_()
    assert "who wrote &lt;it&gt;?" in text and "Edith &lt;b&gt;Marrow" in text and "rubbish &lt;i&gt;" in text
    assert "<a href='#q1-1-1'>[1]</a>" in text and "id='q1-1-1'" in text  # a citation is tied to its passage
    assert "width:21px" in text and "✓ gold" in text


def test_a_prediction_prints_its_whole_way(passages):
    text = repr(prediction(passages))
    assert text == str(prediction(passages))
    for part in (
        "round 1: searched for",
        "verdict: false (reference_correctness 0.21",
        "revised question: Who wrote it?",
        "round 2",
        "verdict: unparsed",
        "gold: Edith Marrow",
    ):
        assert part in text


def test_the_last_answer_is_the_answer(passages):
    assert prediction(passages).answer == "Nobody [2]" and prediction(passages).revised
