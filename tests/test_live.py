"""A recorded table with live rows, and where live texts part from the recorded ones."""

from dataclasses import replace

import pytest
from toy_project import find

from covrag_lite.runs import recorded
from covrag_lite.runs.outcomes import to_frame
from covrag_lite.tables import accuracy, table2


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


def test_the_same_texts_are_the_recorded_ones(run, known):
    table = table2.compare_texts(known[:5], known)
    said = table2.tell_texts(table, run.manifest, run)
    assert table[table2.SAME].sum() == table.questions.sum() == table[table2.ALIKE].sum() == 5
    assert said.startswith("5 of 5 live predictions are the recorded ones, every text of them. 5 end alike")
    assert said.endswith("Live on a CPU, recorded on a CPU.")


def test_a_text_parts_at_the_first_step_that_differs(known):
    verified = next(p for p in known if p.rounds[0].verdict)
    verdict = replace(verified.rounds[0].verdict, text="another")
    fewer = verified.rounds[0].passages[1:]
    again = replace(verified, rounds=(*verified.rounds, verified.rounds[0]))
    partings = {
        (1, "query"): change(verified, 0, query="another", answer="another"),
        (1, "passages"): change(verified, 0, passages=fewer),
        (1, "answer"): change(verified, 0, answer="another", verdict=verdict),
        (1, "verdict"): change(verified, 0, verdict=verdict),
        (len(verified.rounds) + 1, "query"): again,  # a round that the record does not have
        None: verified,
    }
    assert {step: table2.find_parting(other, verified) for step, other in partings.items()} == {
        step: step for step in partings
    }


def test_partings_are_counted_by_system_and_outcomes_beside_them(run, known):
    right = next(p for p in known if p.rounds[-1].answer == p.question.answers[0])
    longer = change(right, -1, answer=f"{right.answer}, surely")
    wrong = change(right, -1, answer="another")
    for new, alike in ((longer, 1), (wrong, 0)):
        table = table2.compare_texts([new], known)
        said = table2.tell_texts(table, run.manifest, run)
        row = table.loc[right.system]
        assert (row.questions, row[table2.SAME], row[table2.ALIKE]) == (1, 0, alike)
        assert "0 of 1 live predictions are the recorded ones, every text of them; 1 part at the answer" in said


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


@pytest.fixture
def drawn(monkeypatch):
    """What is drawn, in place of pictures: the title, n of each bar, the circles."""
    made = []

    def keep(long, title, path, sample=None):
        made.append((title, set(long[long.dataset != "average"].n), sample))

    monkeypatch.setattr(accuracy, "plot_accuracy", keep)
    return made


def test_the_picture_of_a_sample_has_recorded_bars_and_live_circles(drawn, run, known, tmp_path):
    frame = to_frame(known)
    sample = frame.groupby(["system", "dataset"]).head(1)
    table2.plot(run, (run, known, frame), sample, tmp_path)
    title, sizes, circles = drawn.pop()
    assert title.endswith("\nbars: recorded, n = 2 each; circles: a sample, live, n = 1 each")
    assert sizes == {2}
    assert circles.equals(accuracy.accuracy_table(sample, "table2"))


def test_without_a_larger_record_of_the_same_model_and_systems_the_live_rows_are_the_bars(drawn, run, known, tmp_path):
    frame = to_frame(known)
    sample = frame.groupby(["system", "dataset"]).head(1)
    other = replace(run, manifest=run.manifest | {"model_sha256": "other"})
    table2.plot(run, (None, [], to_frame([])), sample, tmp_path)
    table2.plot(other, (run, known, frame), sample, tmp_path)
    table2.plot(run, (run, known, frame[frame.system != "RAG"]), sample, tmp_path)
    assert [(sizes, circles) for _, sizes, circles in drawn] == 3 * [({1}, None)]
    table2.plot(run, (run, known, frame), frame, tmp_path)
    assert drawn[-1][1:] == ({2}, None)


def test_the_record_of_a_configuration_is_loaded_and_told(project, run, capsys):
    found, predictions, frame = table2.load_record(run.config, project)
    assert found.folder == run.folder and len(predictions) == len(frame) == 3 * run.n
    assert capsys.readouterr().out.startswith("results/toy: ")
    assert table2.load_record(run.config.change(record="none"), project)[1] == []
