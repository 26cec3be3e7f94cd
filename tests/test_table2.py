"""A recorded table with live rows, and how many live texts are the recorded ones."""

from dataclasses import replace

import pytest
from toy_project import find

from covrag_lite.runs import recorded
from covrag_lite.runs.outcomes import to_frame
from covrag_lite.tables import table2


@pytest.fixture
def run(project):
    return find(project, "table2")


@pytest.fixture
def known(run):
    return recorded.load(run)


def change(prediction, number, **changes):
    """The prediction with another text in one of its rounds."""
    rounds = list(prediction.rounds)
    rounds[number] = replace(rounds[number], **changes)
    return replace(prediction, rounds=tuple(rounds))


def test_another_text_is_counted_and_its_outcome_beside_it(run, known):
    right = next(p for p in known if p.rounds[-1].answer == p.question.answers[0])
    longer = change(right, -1, answer=f"{right.answer}, surely")
    wrong = change(right, -1, answer="another")
    for new, alike in ((longer, 1), (wrong, 0)):
        table = table2.compare_texts([new], known)
        said = table2.tell_texts(table, run.manifest, run)
        row = table.loc[right.system]
        assert (row.questions, row[table2.SAME], row[table2.ALIKE]) == (1, 0, alike)
        assert said.startswith(f"0 of 1 live predictions are the recorded ones, every text of them; {alike} end alike")


def test_what_else_differs_from_the_recorded_run_is_told(run, known):
    other = run.manifest | {"model_sha256": "other"}
    other["parameters"] = other["parameters"] | {"n_questions": 1, "k": 3}
    said = table2.tell_texts(table2.compare_texts(known, known), other, run)
    assert said.endswith("they also differ in k (3, recorded 5); the weights of the model.")
    assert "n_questions" not in said  # a sample always asks fewer


def test_live_rows_stand_below_the_recorded_ones_of_their_system(known):
    frame = to_frame(known)
    some = frame[(frame.system == "CoV-RAG") & frame.dataset.isin(["search", "quiz"])]
    assert {word for _, word in table2.beside(frame).index} == {table2.RECORDED}
    table = table2.beside(frame, some)
    assert list(table.index) == [("CoV-RAG", "recorded"), ("CoV-RAG", "live")]
    assert list(table.n) == [8, 4]
    assert table.loc[("CoV-RAG", "live"), "entity questions"] != table.loc[("CoV-RAG", "recorded"), "entity questions"]
    style = table2.mark(table).to_html().partition("</style>")[0]
    assert "_row1_col0" in style and "_row0_col0" not in style  # the live row is coloured, and it alone


def test_without_a_record_the_live_rows_stand_alone(known, run, tmp_path):
    table = table2.beside(to_frame([]), to_frame(known))
    assert {word for _, word in table.index} == {table2.LIVE}
    texts = table2.compare_texts(known, [])
    said = table2.tell_texts(texts, run.manifest, None)
    assert texts.empty and "none of the live questions is recorded" in said
    assert table2.save_live(tmp_path / "deep" / "live.md", table, texts, said) == said
    assert "| CoV-RAG   | live" in (tmp_path / "deep" / "live.md").read_text()
