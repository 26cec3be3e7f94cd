"""Outcomes and recorded predictions: saved without the data, loaded with or without it."""

import json
import lzma
from dataclasses import replace

import pandas as pd
import pytest
from toy import BORN, PASSAGES, QUESTIONS, SYSTEMS

from covrag_lite.files import read_packed, read_rows
from covrag_lite.prompts import DIRECT, parse_verdict, render_verdict
from covrag_lite.records import Passage, Prediction, Question, Round
from covrag_lite.runs.frame import outcome_of, to_frame
from covrag_lite.runs.predictions import load_predictions, save_predictions
from covrag_lite.tables import second_answers, sigma

Q2 = 7 * SYSTEMS.index("CoV-RAG") + 1  # index of the prediction of a revised question
BACKBONE = {"model": "smollm2-135m", "adapters": ("rag", "cov", "cov-direct")}


@pytest.fixture(scope="module")
def record(predictions, tmp_path_factory):
    """The file of the recorded predictions."""
    path = tmp_path_factory.mktemp("record") / "p.xz"
    save_predictions(path, predictions)
    return path


@pytest.fixture(scope="module")
def loaded(record):
    """The predictions, loaded with the data."""
    return load_predictions(record, QUESTIONS[::-1], list(PASSAGES.values()), **BACKBONE)


@pytest.fixture(scope="module")
def dataless(record):
    """The predictions, loaded without the data."""
    return load_predictions(record, **BACKBONE)


def test_what_is_saved_comes_back(loaded, predictions):
    assert loaded == predictions


def test_probabilities_and_likelihoods_come_back_to_the_last_digit(loaded, frame):
    assert to_frame(loaded).equals(frame)


def test_the_same_predictions_give_identical_files(loaded, record, tmp_path):
    save_predictions(tmp_path / "p.xz", loaded)
    assert (tmp_path / "p.xz").read_bytes() == record.read_bytes()


def test_no_text_of_a_question_is_saved(record):
    text = read_packed(record)
    assert not any(question.question in text for question in QUESTIONS)


def test_a_first_query_is_saved_as_nothing_because_it_is_the_question(record):
    (row,) = [row for row in read_rows(record) if row["id"] == "q2"]
    queries = [row["rounds"][place]["query"] for place in row["systems"]["CoV-RAG"][0]]
    assert queries == [None, BORN]


def test_without_the_data_questions_have_no_text(dataless):
    assert not any(prediction.question.question for prediction in dataless)


def test_without_the_data_questions_have_no_gold_answers(dataless):
    assert not any(prediction.question.answers for prediction in dataless)


def test_without_the_data_all_columns_but_those_of_texts_are_the_same(dataless, frame):
    columns = [name for name in frame if name not in ("answer", "query", "searched")]
    assert to_frame(dataless)[columns].equals(frame[columns])


def test_without_the_data_the_comparison_of_rules_is_the_same(dataless, predictions):
    rules = second_answers.compare_rules(predictions)
    pd.testing.assert_frame_equal(second_answers.compare_rules(dataless), rules)


def test_without_the_data_the_choice_of_sigma_is_the_same(dataless, cov):
    dataless_cov = [p for p in dataless if p.system == "CoV-RAG"]
    choice = sigma.cross_validate_sigma(cov)[1]
    assert sigma.cross_validate_sigma(dataless_cov)[1].equals(choice)


def save_direct_verdict(path):
    """Save a verdict without the chain: `rag` answers, `cov-direct` verifies."""
    verdict = parse_verdict(f'{{ "4": "{BORN}" }}', DIRECT, {"empty": 0.25})
    rounds = (Round(QUESTIONS[1].question, (), "Mere", verdict),)
    save_predictions(path, [Prediction(QUESTIONS[1], "CoV-RAG w/o chain, two adapters", rounds)])
    return verdict


def test_a_verdict_is_read_again_by_the_schema_of_the_adapter_that_verified(tmp_path):
    verdict = save_direct_verdict(tmp_path / "p.xz")
    (prediction,) = load_predictions(tmp_path / "p.xz", QUESTIONS, [])
    assert prediction.rounds[0].verdict == verdict


def test_a_verdict_without_the_chain_is_parsed_before_it_is_saved(tmp_path):
    assert save_direct_verdict(tmp_path / "p.xz").parsed


# Copies of questions.


@pytest.fixture(scope="module")
def crossed_record(predictions, tmp_path_factory):
    """A query that contains another question of the run, and the file of the predictions."""
    path = tmp_path_factory.mktemp("crossed") / "p.xz"
    prediction = predictions[Q2]
    query = f"Of {QUESTIONS[0].question.title()}: Marrow"
    rounds = (prediction.rounds[0], replace(prediction.rounds[1], query=query))
    crossed = replace(prediction, rounds=rounds)
    save_predictions(path, [*predictions[:Q2], crossed, *predictions[Q2 + 1 :]])
    return query, path


def test_no_question_is_recorded_where_another_one_was_searched_for(crossed_record):
    _, path = crossed_record
    assert QUESTIONS[0].question not in read_packed(path).lower()


def test_a_query_that_contains_another_question_comes_back(crossed_record):
    query, path = crossed_record
    later_queries = []
    for prediction in load_predictions(path, QUESTIONS, PASSAGES.values()):
        later_queries += [later.query for later in prediction.rounds[1:]]
    assert query in later_queries


COPIES = [
    "who is it | which novelist of Stonebridge wrote the copper lan",  # cut off
    "which novelist of stonebridge wrote the copper | which novelist of stonebridge wrote the",
    'Which novelist, of Stonebridge, wrote "The Copper Lanterns" in 1893?',  # other signs
    "Which novelist ¦ of Stonebridge wrote The Copper Lanterns, in 1893",
]
NOVEL = Passage(
    "p0", "Copper Lanterns", "The Copper Lanterns is a novel by Edith Marrow, published in 1893."
)
COPIED = Question(
    "a",
    "nq",
    "which novelist of Stonebridge wrote the copper lanterns in 1893?",
    ("Edith Marrow",),
)


@pytest.fixture(scope="module", params=COPIES)
def copy(request):
    """What a model wrote, with a copy of the question."""
    return request.param


@pytest.fixture(scope="module")
def copy_record(copy, tmp_path_factory):
    """The file of a prediction that repeats the copy as query, answer and note."""
    path = tmp_path_factory.mktemp("copy") / "p.xz"
    rounds = (Round(copy, (NOVEL,), copy, note=copy),)
    save_predictions(path, [Prediction(COPIED, "FaVe", rounds)])
    return path


@pytest.fixture(scope="module")
def copy_round(copy_record):
    """The round, loaded with the data."""
    (prediction,) = load_predictions(copy_record, [COPIED], [NOVEL])
    return prediction.rounds[0]


def test_a_copied_question_is_not_recorded(copy_record):
    assert "novelist" not in read_packed(copy_record).lower()


def test_a_query_with_a_copied_question_comes_back(copy, copy_round):
    assert copy_round.query == copy


def test_an_answer_with_a_copied_question_comes_back(copy, copy_round):
    assert copy_round.answer == copy


def test_a_note_with_a_copied_question_comes_back(copy, copy_round):
    assert copy_round.note == copy


def test_without_the_data_a_mark_is_in_place_of_the_copied_question(copy_record):
    (prediction,) = load_predictions(copy_record)
    assert "⟨question" in prediction.rounds[0].query


@pytest.fixture
def broken_record(cov, tmp_path):
    """A verdict that the quotes of its question broke, and its file."""
    path = tmp_path / "p.xz"
    question = replace(cov[1].question, question='who wrote "Lanterns" first?')
    text = render_verdict([0.5] * 6, "false", "X")
    broken = parse_verdict(text.replace("X", question.question.rstrip("? ")))
    rounds = (replace(cov[1].rounds[0], verdict=broken),)
    save_predictions(path, [replace(cov[1], question=question, rounds=rounds)])
    return broken, path


def test_quotes_in_a_copied_question_break_a_verdict(broken_record):
    verdict, _ = broken_record
    assert not verdict.parsed


def test_the_mark_in_place_of_a_question_has_no_quotes_that_break_a_verdict(broken_record):
    _, path = broken_record
    recorded = json.loads(read_packed(path))["rounds"][0]["verdict"]
    assert parse_verdict(recorded).parsed


def test_a_verdict_that_its_question_broke_stays_broken_without_the_question(broken_record):
    _, path = broken_record
    (prediction,) = load_predictions(path, **BACKBONE)
    assert not prediction.rounds[0].verdict.parsed


# Outcomes that the data cannot give.


@pytest.fixture
def bare_record(cov, tmp_path):
    """The file of predictions that have outcomes and no passages."""
    bare = []
    for prediction in cov:
        rounds = []
        for number, round_ in enumerate(prediction.rounds):
            outcome = outcome_of(prediction, number)
            rounds.append(replace(round_, outcome=outcome, passages=()))
        bare.append(replace(prediction, rounds=tuple(rounds)))
    save_predictions(tmp_path / "p.xz", bare)
    return tmp_path / "p.xz"


def test_outcomes_of_retrieval_come_from_a_record_that_leaves_out_its_passages(bare_record, cov):
    loaded = load_predictions(bare_record, QUESTIONS, list(PASSAGES.values()), **BACKBONE)
    assert to_frame(loaded).words_last.tolist() == to_frame(cov).words_last.tolist()


def test_a_record_without_outcomes_cannot_be_loaded_without_the_data(bare_record):
    text = read_packed(bare_record).replace("outcome", "other")
    bare_record.write_bytes(lzma.compress(text.encode()))
    with pytest.raises(ValueError, match="p.xz does not contain the outcomes of its predictions"):
        load_predictions(bare_record)


# Lines: one per question, with each round once.

FIRST = Round("", (), "first\u2028\x85")  # line ends to some readers, not in JSONL
LAST = Round("", (), "last")
NUMBERED = [Question(f"q{i}", "nq", f"who is number {i}?", ("nobody",)) for i in range(3)]


def build_numbered():
    """Predictions of three systems that share rounds; the first has not the first question."""
    predictions = [Prediction(question, "RAG", (LAST,), "", -1) for question in NUMBERED[1:]]
    for system, kept in {"CoV-RAG": -1, "CoV-RAG, likelier answer": 0}.items():
        for question in NUMBERED:
            predictions.append(Prediction(question, system, (FIRST, LAST), "", kept))
    return predictions


def test_a_line_holds_a_question_and_each_of_its_rounds_once(tmp_path):
    save_predictions(tmp_path / "p.xz", build_numbered())
    rows = [(row["id"], *row["systems"].values()) for row in read_rows(tmp_path / "p.xz")]
    assert rows == [
        ("q0", [], [[0, 1]], [[0, 1], 0]),
        ("q1", [[0]], [[1, 0]], [[1, 0], 0]),
        ("q2", [[0]], [[1, 0]], [[1, 0], 0]),
    ]


def test_predictions_come_back_system_by_system(tmp_path):
    predictions = build_numbered()
    save_predictions(tmp_path / "p.xz", predictions)
    assert load_predictions(tmp_path / "p.xz", NUMBERED, []) == predictions


def refuse(path, predictions):
    with pytest.raises(ValueError, match="p.xz: a system has the same question twice, or its"):
        save_predictions(path, predictions)


def test_a_system_that_has_a_question_twice_is_not_saved(tmp_path):
    predictions = build_numbered()
    refuse(tmp_path / "p.xz", [*predictions, predictions[-1]])


def test_a_system_that_has_its_questions_in_another_order_is_not_saved(tmp_path):
    predictions = build_numbered()
    refuse(tmp_path / "p.xz", [*predictions[1::-1], *predictions[2:]])
