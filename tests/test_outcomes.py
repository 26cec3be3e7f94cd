import json
from dataclasses import replace

import pytest

from covrag_lite import evaluate
from covrag_lite.config import Config
from covrag_lite.prompts import parse_verdict, render_verdict
from covrag_lite.records import Prediction, Question, Round
from covrag_lite.runs.outcomes import (
    load_outcomes,
    load_outputs,
    load_predictions,
    read_packed,
    read_rows,
    save_outcomes,
    save_predictions,
)


@pytest.fixture
def predictions(tmp_path, passages, questions, scripted):
    config = Config().change(k=2, runs=str(tmp_path))
    return evaluate.run(config, evaluate.load_resources(config, passages, scripted), questions)


def test_saved_predictions_hold_ids_and_outputs_but_no_question_and_are_the_same_bytes(
    predictions, questions, tmp_path
):
    for name in ("a", "b"):
        save_predictions(tmp_path / f"{name}.xz", predictions)
    assert (tmp_path / "a.xz").read_bytes() == (tmp_path / "b.xz").read_bytes()
    rows = read_rows(tmp_path / "a.xz")
    assert len(rows) == len(predictions)
    assert rows[-3]["rounds"][1]["query"] == "Where was Edith Marrow born?"
    assert rows[-3]["rounds"][0]["query"] is None  # the question itself
    assert not any(question.question in read_packed(tmp_path / "a.xz") for question in questions)


def come_back(folder, predictions):
    """What is known of predictions without their data."""
    save_predictions(folder / "p.xz", predictions)
    save_outcomes(folder / "o.gz", predictions)
    return load_outcomes(folder / "o.gz", load_outputs(folder / "p.xz"))


def test_outcomes_hold_no_text(predictions, questions, tmp_path):
    told = come_back(tmp_path, predictions)
    text = read_packed(tmp_path / "o.gz")
    for question in questions:
        assert question.question not in text
        assert not any(answer in text for answer in question.answers)
    assert not any(p.question.question or p.question.answers for p in told)


def test_records_under_an_earlier_name_of_a_system_are_read_under_todays(predictions, questions, passages, tmp_path):
    old = [replace(p, system="CoV-RAG surer") for p in predictions if p.system == "CoV-RAG"]
    told = come_back(tmp_path, old)
    for made in (load_predictions(tmp_path / "p.xz", questions, passages), told):
        assert {p.system for p in made} == {"CoV-RAG, likelier answer"} and len(made) == len(old)


def test_no_question_is_recorded_where_another_one_was_searched_for(predictions, questions, passages, tmp_path):
    one, other = predictions[-3], questions[0].question
    shuffled = replace(one, rounds=(one.rounds[0], replace(one.rounds[1], query=f"Of {other.title()}: Marrow")))
    save_predictions(tmp_path / "p.xz", [*predictions, shuffled])
    assert other not in read_packed(tmp_path / "p.xz").lower()
    assert load_predictions(tmp_path / "p.xz", questions, passages)[-1].rounds[1].query == shuffled.rounds[1].query


@pytest.mark.parametrize(
    "written",
    [
        "who is it | which novelist of Stonebridge wrote the copper lan",  # cut off by a limit of tokens
        "which novelist of stonebridge wrote the copper | which novelist of stonebridge wrote the",
        'Which novelist, of Stonebridge, wrote "The Copper Lanterns" in 1893?',  # the same words, other signs
        "Which novelist ¦ of Stonebridge wrote The Copper Lanterns, in 1893",
    ],
)
def test_a_question_that_the_model_copied_is_hidden_even_if_the_copy_was_cut_off(passages, tmp_path, written):
    asked = Question("a", "nq", "which novelist of Stonebridge wrote the copper lanterns in 1893?", ("Edith Marrow",))
    one = Prediction(asked, "FaVe", (Round(written, tuple(passages[:1]), written, note=written),))
    save_predictions(tmp_path / "p.xz", [one])
    assert "novelist" not in read_packed(tmp_path / "p.xz").lower()
    (again,) = load_predictions(tmp_path / "p.xz", [asked], passages)
    assert (again.rounds[0].query, again.rounds[0].answer, again.rounds[0].note) == (written, written, written)
    (untold,) = load_outputs(tmp_path / "p.xz")
    assert "⟨question" in untold.rounds[0].query


def test_a_verdict_that_its_question_broke_stays_broken_without_the_question(predictions, tmp_path):
    asked = replace(predictions[-3].question, question='who wrote "Lanterns" first?')
    broken = parse_verdict(render_verdict([0.5] * 6, "false", "X").replace("X", asked.question.rstrip("? ")))
    one = replace(predictions[-3], question=asked, rounds=(replace(predictions[-3].rounds[0], verdict=broken),))
    (told,) = come_back(tmp_path, [one])
    assert load_outputs(tmp_path / "p.xz")[0].rounds[0].verdict.parsed  # the mark in its place has no quotes
    assert not broken.parsed and not told.rounds[0].verdict.parsed


def test_predictions_come_back_system_by_system_though_a_questions_lines_stand_together(tmp_path):
    questions = [Question(f"q{i}", "nq", f"who is number {i}?", ("nobody",)) for i in range(3)]
    systems = ("RAG", "CoV-RAG")
    made = [Prediction(one, system, (Round("", (), f"{system} {one.id}"),)) for system in systems for one in questions]
    save_predictions(tmp_path / "p.xz", made)
    lines = read_packed(tmp_path / "p.xz").splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["q0", "q0", "q1", "q1", "q2", "q2"]
    loaded = load_predictions(tmp_path / "p.xz", questions, [])
    assert [(p.system, p.question.id) for p in loaded] == [(p.system, p.question.id) for p in made]
    save_predictions(tmp_path / "p.xz", [*made[1:3], *made[3:]])  # the first system has not the first question
    loaded = load_predictions(tmp_path / "p.xz", questions, [])
    assert [(p.system, p.question.id) for p in loaded] == [(p.system, p.question.id) for p in made[1:]]
