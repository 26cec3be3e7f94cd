"""Outcomes and recorded predictions: saved without the data, loaded with or without it."""

import json
import lzma
from dataclasses import replace

import pandas as pd
import pytest
from toy import BORN, PASSAGES, QUESTIONS, SYSTEMS

from covrag_lite.files import read_packed, read_rows
from covrag_lite.prompts import DIRECT, parse_verdict, render_verdict
from covrag_lite.records import Prediction, Question, Round
from covrag_lite.runs.frame import outcome_of, to_frame
from covrag_lite.runs.predictions import load_predictions, save_predictions
from covrag_lite.tables import second_answers, sigma

Q2 = 7 * SYSTEMS.index("CoV-RAG") + 1  # index of the prediction of a revised question
BACKBONE = {"model": "smollm2-135m", "adapters": ("rag", "cov", "cov-direct")}


def come_back(folder, predictions):
    """What is known about predictions without their data."""
    save_predictions(folder / "p.xz", predictions)
    return load_predictions(folder / "p.xz", **BACKBONE)


def test_a_verdict_is_read_again_by_the_schema_of_the_adapter_that_verified(tmp_path):
    verdict = parse_verdict(f'{{ "4": "{BORN}" }}', DIRECT, {"empty": 0.25})
    rounds = (Round(QUESTIONS[1].question, (), "Mere", verdict),)
    made = [
        Prediction(QUESTIONS[1], "CoV-RAG w/o chain, two adapters", rounds)
    ]  # `rag` answers, `cov-direct` verifies
    save_predictions(tmp_path / "p.xz", made)
    (again,) = load_predictions(tmp_path / "p.xz", QUESTIONS, [])
    assert again.rounds[0].verdict == verdict and verdict.parsed


def test_what_is_saved_holds_no_question_and_comes_back_to_the_last_number(
    predictions, frame, cov, tmp_path
):
    told = come_back(tmp_path, predictions)
    before = (tmp_path / "p.xz").read_bytes()
    loaded = load_predictions(
        tmp_path / "p.xz", QUESTIONS[::-1], list(PASSAGES.values()), **BACKBONE
    )
    assert loaded == predictions and to_frame(loaded).equals(
        frame
    )  # probabilities and likelihoods too
    save_predictions(tmp_path / "p.xz", loaded)
    assert (tmp_path / "p.xz").read_bytes() == before
    # Its first query is the question itself.
    texts = read_packed(tmp_path / "p.xz")
    (line,) = [line for line in map(json.loads, texts.splitlines()) if line["id"] == "q2"]
    assert [line["rounds"][place]["query"] for place in line["systems"]["CoV-RAG"][0]] == [
        None,
        BORN,
    ]
    assert not any(question.question in texts for question in QUESTIONS)
    # Without the data every table that needs none of its texts is the same.
    assert not any(p.question.question or p.question.answers for p in told)
    columns = [name for name in frame if name not in ("answer", "query", "searched")]
    assert to_frame(told)[columns].equals(frame[columns])
    pd.testing.assert_frame_equal(
        second_answers.compare_rules(told), second_answers.compare_rules(predictions)
    )
    own = [p for p in told if p.system == "CoV-RAG"]
    assert sigma.cross_validate_sigma(own)[1].equals(sigma.cross_validate_sigma(cov)[1])


def test_no_question_is_recorded_where_another_one_was_searched_for(predictions, tmp_path):
    one, other = predictions[Q2], QUESTIONS[0].question
    shuffled = replace(
        one, rounds=(one.rounds[0], replace(one.rounds[1], query=f"Of {other.title()}: Marrow"))
    )
    save_predictions(tmp_path / "p.xz", [*predictions[:Q2], shuffled, *predictions[Q2 + 1 :]])
    assert other not in read_packed(tmp_path / "p.xz").lower()
    made = load_predictions(tmp_path / "p.xz", QUESTIONS, PASSAGES.values())
    assert shuffled.rounds[1].query in [last.query for p in made for last in p.rounds[1:]]


@pytest.mark.parametrize(
    "written",
    [
        "who is it | which novelist of Stonebridge wrote the copper lan",  # cut off
        "which novelist of stonebridge wrote the copper | which novelist of stonebridge wrote the",
        'Which novelist, of Stonebridge, wrote "The Copper Lanterns" in 1893?',  # other signs
        "Which novelist ¦ of Stonebridge wrote The Copper Lanterns, in 1893",
    ],
)
def test_a_question_that_the_model_copied_is_hidden_even_if_the_copy_was_cut_off(
    passages, tmp_path, written
):
    asked = Question(
        "a",
        "nq",
        "which novelist of Stonebridge wrote the copper lanterns in 1893?",
        ("Edith Marrow",),
    )
    one = Prediction(asked, "FaVe", (Round(written, tuple(passages[:1]), written, note=written),))
    save_predictions(tmp_path / "p.xz", [one])
    assert "novelist" not in read_packed(tmp_path / "p.xz").lower()
    (again,) = load_predictions(tmp_path / "p.xz", [asked], passages)
    assert (again.rounds[0].query, again.rounds[0].answer, again.rounds[0].note) == (
        written,
        written,
        written,
    )
    (untold,) = load_predictions(tmp_path / "p.xz")
    assert "⟨question" in untold.rounds[0].query


def test_a_verdict_that_its_question_broke_stays_broken_without_the_question(cov, tmp_path):
    asked = replace(cov[1].question, question='who wrote "Lanterns" first?')
    broken = parse_verdict(
        render_verdict([0.5] * 6, "false", "X").replace("X", asked.question.rstrip("? "))
    )
    one = replace(cov[1], question=asked, rounds=(replace(cov[1].rounds[0], verdict=broken),))
    (told,) = come_back(tmp_path, [one])
    written = json.loads(read_packed(tmp_path / "p.xz"))["rounds"][0]["verdict"]
    assert parse_verdict(written).parsed  # the mark in its place has no quotes
    assert not broken.parsed and not told.rounds[0].verdict.parsed


def test_what_came_of_a_round_is_taken_from_the_record_where_this_leaves_out_its_passages(
    cov, tmp_path
):
    bare = []
    for prediction in cov:
        rounds = []
        for number, round_ in enumerate(prediction.rounds):
            outcome = outcome_of(prediction, number)
            rounds.append(replace(round_, outcome=outcome, passages=()))
        bare.append(replace(prediction, rounds=tuple(rounds)))
    save_predictions(tmp_path / "p.xz", bare)
    told = load_predictions(tmp_path / "p.xz", QUESTIONS, list(PASSAGES.values()), **BACKBONE)
    assert to_frame(told).words_last.tolist() == to_frame(cov).words_last.tolist()
    (tmp_path / "p.xz").write_bytes(
        lzma.compress(read_packed(tmp_path / "p.xz").replace("outcome", "other").encode())
    )
    with pytest.raises(ValueError, match="p.xz does not contain the outcomes of its predictions"):
        load_predictions(tmp_path / "p.xz")


def test_predictions_come_back_system_by_system_though_a_line_holds_a_question_and_each_round_once(
    tmp_path,
):
    questions = [Question(f"q{i}", "nq", f"who is number {i}?", ("nobody",)) for i in range(3)]
    first, last = (
        Round("", (), "first\u2028\x85"),
        Round("", (), "last"),
    )  # line ends to some, to JSONL none
    systems = {
        "RAG": ((last,), -1),
        "CoV-RAG": ((first, last), -1),
        "CoV-RAG, likelier answer": ((first, last), 0),
    }
    made = [
        Prediction(one, name, own, "", kept)
        for name, (own, kept) in systems.items()
        for one in questions
    ]
    made = made[1:]  # the first system has not the first question
    save_predictions(tmp_path / "p.xz", made)
    assert [(line["id"], *line["systems"].values()) for line in read_rows(tmp_path / "p.xz")] == [
        ("q0", [], [[0, 1]], [[0, 1], 0]),
        ("q1", [[0]], [[1, 0]], [[1, 0], 0]),
        ("q2", [[0]], [[1, 0]], [[1, 0], 0]),
    ]
    assert load_predictions(tmp_path / "p.xz", questions, []) == made
    for untold in ([*made, made[-1]], [*made[1::-1], *made[2:]]):
        with pytest.raises(ValueError, match="p.xz: a system has the same question twice, or its"):
            save_predictions(tmp_path / "p.xz", untold)
