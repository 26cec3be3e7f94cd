"""A live sample next to the recorded run: its rows, its texts and its answers."""

from dataclasses import replace

import pytest
from toy_project import find

from covrag_lite.config import Config
from covrag_lite.runs import recorded
from covrag_lite.runs.frame import to_frame
from covrag_lite.systems.names import COV_RAG, COV_RAG_S, RAG_TRAINED
from covrag_lite.tables import live
from covrag_lite.tables.labels import label_of


@pytest.fixture(scope="module")
def run(project):
    return find(project, "table2")


@pytest.fixture(scope="module")
def predictions(run):
    return recorded.load(run)


@pytest.fixture(scope="module")
def frame(predictions):
    return to_frame(predictions)


@pytest.fixture(scope="module")
def of_cov_rag(predictions):
    return [prediction for prediction in predictions if prediction.system == COV_RAG]


def answer_again(predictions, ending):
    """A right prediction whose answer is another text, with this ending or altogether."""
    for prediction in predictions:
        *before, last = prediction.rounds
        if last.answer == prediction.question.answers[0]:
            text = f"{last.answer}{ending}" if ending else "another"
            return replace(prediction, rounds=(*before, replace(last, answer=text)))


@pytest.mark.parametrize("ending, n_alike", [(", surely", 1), ("", 0)])
def test_a_changed_text_is_counted_with_its_outcome(run, predictions, ending, n_alike):
    prediction = answer_again(predictions, ending)
    table = live.compare_texts([prediction], predictions)
    row = table.loc[label_of(prediction.system)]
    assert row[["questions", live.SAME_TEXT, live.SAME_OUTCOME]].tolist() == [1, 0, n_alike]


def test_a_sentence_counts_repeated_texts_and_outcomes(run, predictions):
    table = live.compare_texts([answer_again(predictions, ", surely")], predictions)
    text = live.describe_texts(table, run.manifest, run)
    start = "0 of 1 live predictions repeat every recorded text; 1 have the same outcome"
    assert text.startswith(start)


def test_a_sentence_names_other_differences_except_the_size_of_the_sample(run, predictions):
    parameters = run.manifest["parameters"] | {"n_questions": 1, "k": 3}
    other = run.manifest | {"parameters": parameters, "model_sha256": "other"}
    text = live.describe_texts(live.compare_texts(predictions, predictions), other, run)
    assert text.endswith("they also differ in k (3, recorded 5); the weights of the model.")
    assert "n_questions" not in text


def test_recorded_rows_are_shown_by_label(frame):
    labels = ["RAG (untuned)", "CoV-RAG, first answer", "CoV-RAG"]
    assert list(live.recorded_and_live(frame).index) == labels


@pytest.fixture
def with_live_rows(frame):
    is_live = (frame.system == COV_RAG) & frame.dataset.isin(["search", "quiz"])
    return live.recorded_and_live(frame, frame[is_live])


def test_live_rows_are_below_the_recorded_ones_of_their_system(with_live_rows):
    assert list(with_live_rows.index) == [("CoV-RAG", "recorded"), ("CoV-RAG", "live")]
    assert list(with_live_rows.n) == [8, 4]


def test_a_set_without_live_questions_has_a_dash(with_live_rows):
    assert with_live_rows.loc[("CoV-RAG", "live"), "entity questions"] == "–"


def test_few_live_questions_are_counted(with_live_rows):
    assert with_live_rows.loc[("CoV-RAG", "live"), "quiz questions"].endswith(" of 2")


def test_without_a_record_all_rows_are_live(frame):
    table = live.recorded_and_live(to_frame([]), frame)
    assert {answered for _, answered in table.index} == {"live"}


def test_without_a_record_a_sentence_says_so(run, predictions):
    texts = live.compare_texts(predictions, [])
    assert texts.empty
    assert "none of the live questions is recorded" in live.describe_texts(
        texts, run.manifest, None
    )


def test_live_rows_are_saved_with_their_labels(frame, run, predictions, tmp_path):
    table = live.recorded_and_live(to_frame([]), frame)
    texts = live.compare_texts(predictions, [])
    live.save_live(tmp_path / "deep", table, texts, "a sentence")
    saved = (tmp_path / "deep" / "table2.live.md").read_text()
    assert "| CoV-RAG, first answer | live" in saved


def test_live_answers_are_listed_with_the_gold_answer(predictions, of_cov_rag):
    table = live.list_answers(predictions)
    questions = [prediction.question for prediction in of_cov_rag]
    assert table.question.tolist() == [question.question for question in questions]
    assert table["gold answer"].tolist() == [question.answers[0] for question in questions]


def test_live_answers_are_marked_as_right_or_wrong(predictions, of_cov_rag):
    marks = []
    for prediction in of_cov_rag:
        marks.append("✓" if prediction.answer == prediction.question.answers[0] else "✗")
    assert [cell[0] for cell in live.list_answers(predictions)["CoV-RAG"]] == marks
    assert set(marks) == {"✓", "✗"}


def test_live_answers_are_listed_with_the_revised_question(of_cov_rag):
    first, second, *_ = of_cov_rag
    again = replace(first.rounds[0], query="another query")
    revised = replace(first, rounds=(first.rounds[0], again))
    table = live.list_answers([revised, second])
    assert table["revised question"].tolist() == ["another query", "–"]


def test_recorded_predictions_are_counted_by_system(predictions):
    table = live.compare_texts([predictions[-1], *predictions], predictions[1:])
    by_system = {label_of(p.system): 0 for p in [predictions[-1], *predictions]}
    for prediction in [predictions[-1], *predictions[1:]]:
        by_system[label_of(prediction.system)] += 1
    assert table.questions.to_dict() == by_system
    assert list(table.index) == list(by_system)  # in the order in which they were answered


def test_an_outcome_is_that_of_the_answer_that_is_kept(of_cov_rag):
    right = next(p for p in of_cov_rag if p.answer == p.question.answers[0])
    step = right.rounds[0]
    wrong = replace(step, answer="another")
    kept_first = replace(right, rounds=(step, wrong), kept=0)
    kept_last = replace(kept_first, rounds=(wrong, step), kept=1)
    assert live.compare_texts([kept_first], [kept_last])[live.SAME_OUTCOME].tolist() == [1]


def test_a_sentence_names_both_machines(run, predictions):
    texts = live.compare_texts(predictions, predictions)
    on_gpu = run.manifest | {"hardware": {"gpu": "an H200"}}
    on_cpu = run.manifest | {"hardware": {"gpu": None}}
    text = live.describe_texts(texts, on_cpu, replace(run, manifest=on_gpu))
    assert text.endswith("Live on a CPU, recorded on an H200.")


def test_live_rows_are_saved_with_the_counts_of_texts_and_the_sentence(
    frame, predictions, tmp_path
):
    texts = live.compare_texts(predictions, predictions)
    table = live.recorded_and_live(to_frame([]), frame)
    assert live.save_live(tmp_path, table, texts, "a sentence") == "a sentence"
    heading, rows, note = (tmp_path / "table2.live.md").read_text().split("\n\n")[2:]
    assert heading == "Live predictions compared with the recorded ones"
    assert [cell.strip() for cell in rows.splitlines()[0].split("|")[1:-1]] == [
        *["system", "questions", live.SAME_TEXT, live.SAME_OUTCOME]
    ]
    assert note == "- a sentence\n"


def test_recorded_rows_alone_have_their_number_of_questions_first(frame):
    table = live.recorded_and_live(frame)
    assert table.columns[0] == "n"
    assert set(table.n) == {frame.id.nunique()}


def test_without_recorded_and_live_rows_there_is_no_table():
    assert live.recorded_and_live(to_frame([])).empty


def test_an_answer_that_cannot_be_scored_has_no_mark(of_cov_rag):
    prediction = of_cov_rag[0]
    unscored = replace(prediction, question=replace(prediction.question, answers=("---",)))
    assert live.list_answers([unscored])["CoV-RAG"].tolist() == [prediction.answer]


def test_both_systems_answers_to_a_question_are_in_one_row(of_cov_rag):
    prediction = of_cov_rag[0]
    trained = replace(prediction, system=RAG_TRAINED)
    first_answer = replace(prediction, system=COV_RAG_S)  # is not listed
    table = live.list_answers([trained, first_answer, prediction])
    assert list(table.columns) == ["question", "gold answer", "RAG (trained)", "CoV-RAG"]
    assert len(table) == 1


def test_the_record_that_is_shown_is_named(run, monkeypatch, capsys):
    monkeypatch.setattr(live, "choose", lambda settings: run)
    shown, stored = live.load_record(Config())
    assert shown is run
    assert [p.system for p in stored] == [p.system for p in recorded.load(run)]
    assert capsys.readouterr().out == f"{recorded.describe_run(run)}\n"


def test_without_a_record_there_are_no_predictions(monkeypatch):
    monkeypatch.setattr(live, "choose", lambda settings: None)
    assert live.load_record(Config()) == (None, [])


def test_the_first_twenty_questions_are_listed(of_cov_rag):
    many = []
    for number in range(25):
        question = replace(of_cov_rag[0].question, id=f"q{number}", question=f"question {number}")
        many.append(replace(of_cov_rag[0], question=question))
    table = live.list_answers(many)
    assert table.question.tolist() == [f"question {number}" for number in range(20)]


def test_a_mark_is_that_of_the_answer_that_is_kept(of_cov_rag):
    right = next(p for p in of_cov_rag if p.answer == p.question.answers[0])
    wrong = replace(right.rounds[0], answer="another")
    rounds = (wrong, right.rounds[0])
    assert live.list_answers([replace(right, rounds=rounds, kept=1)])["CoV-RAG"][0][0] == "✓"
    assert live.list_answers([replace(right, rounds=rounds, kept=0)])["CoV-RAG"][0][0] == "✗"


@pytest.mark.parametrize("has_run, is_stored", [(True, False), (False, True)])
def test_texts_are_compared_only_with_a_run_that_has_the_questions(
    run, predictions, has_run, is_stored
):
    texts = live.compare_texts(predictions, predictions if is_stored else [])
    text = live.describe_texts(texts, run.manifest, run if has_run else None)
    assert text.startswith("none of the live questions is recorded")


def test_only_recorded_rows_of_live_systems_are_next_to_live_ones(frame):
    table = live.recorded_and_live(frame, frame[frame.system == COV_RAG])
    assert set(table.index.get_level_values("system")) == {"CoV-RAG"}
    assert table.index.names == ["system", "answered"]
