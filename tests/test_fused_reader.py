"""Does query expansion gain less over a better first search, once a reader answers?"""

import json
import shutil
from dataclasses import replace

import pytest
import toy
from comparison_frames import row_of
from toy import QUESTIONS

from covrag_lite.check import check
from covrag_lite.data import load_passages, load_questions
from covrag_lite.records import Outcome, Prediction, Question, Round
from covrag_lite.runs import recorded
from covrag_lite.systems import evaluate, names
from covrag_lite.tables import all_tables, fused_reader
from covrag_lite.tables.fused_reader import build, join_outcomes

PAIR = fused_reader.PLANNED
PLANNED = "gain over BM25 → gain over fused search"


def predict(system, letters):
    """Predictions from a text: is each answer right (1), wrong (0), not scored (-) or absent (.)?

    The first half of the questions is of the set nq, the other of webq.
    """
    values = {"1": True, "0": False, "-": None}
    predictions = []
    for number, letter in enumerate(letters):
        if letter == ".":
            continue
        dataset = "nq" if 2 * number < len(letters) else "webq"
        question = Question(f"q{number}", dataset, "", ())
        outcome = Outcome(None, None, values[letter], None, None, None, None)
        predictions.append(Prediction(question, system, (Round("", (), "", outcome=outcome),)))
    return predictions


def make_parts(bm25, fused):
    """Parts by retriever; each side has the letters of RAG (trained) and of query expansion."""
    parts = {}
    for name, (rag, expansion) in {"bm25": bm25, "fused": fused}.items():
        parts[name] = predict(names.RAG_TRAINED, rag) + predict(names.EXPANSION, expansion)
    return parts


# The gain of a single question.


def compare_gains(*letters):
    """Compare the gains of two questions of one kind.

    The letters are those of RAG (trained) and query expansion over BM25, then over fused search.
    """
    sides = [2 * letter for letter in letters]
    return fused_reader.compare(join_outcomes(make_parts(sides[:2], sides[2:])), *PAIR)


@pytest.mark.parametrize(
    "letters, value",
    [
        ("0100", -1),  # gains over BM25 only
        ("0001", 1),  # gains over fused search only
        ("1000", 1),  # loses over BM25 only
        ("0101", 0),  # gains over both
        ("1001", 2),  # loses over BM25 and gains over fused search
        ("0110", -2),
        ("1111", 0),
    ],
)
def test_the_difference_of_gains_of_a_question(letters, value):
    assert compare_gains(*letters)["difference"] == 100 * value


@pytest.mark.parametrize("letters, counts", [("1001", (2, 0)), ("1000", (2, 0)), ("0010", (0, 2))])
def test_a_loss_that_is_avoided_counts_as_gained(letters, counts):
    row = compare_gains(*letters)
    assert (row["gained"], row["lost"]) == counts


@pytest.mark.parametrize("letter", ["-", "."])
def test_a_question_that_lacks_one_of_the_four_answers_is_not_counted(letter):
    outcomes = join_outcomes(make_parts(("00", "11"), ("01", letter + "1")))
    assert outcomes.index.get_level_values("id").tolist() == ["q1"]


# The table, of 40 questions: 20 gain over BM25 only, 4 over fused search only.

RAG_OVER_BM25 = "0" * 24 + "1" * 16
EXPANSION_OVER_BM25 = "1" * 20 + "0" * 4 + "1" * 16
RAG_OVER_FUSED = "1" * 16 + "0" * 8 + "1" * 16
EXPANSION_OVER_FUSED = "1" * 16 + "0" * 4 + "1" * 20


@pytest.fixture(scope="module")
def table():
    bm25 = (RAG_OVER_BM25, EXPANSION_OVER_BM25)
    fused = (RAG_OVER_FUSED, EXPANSION_OVER_FUSED)
    return build(make_parts(bm25, fused), run=None)


@pytest.mark.parametrize(
    "name, accuracy",
    [
        ("RAG (trained) over BM25", "40.0"),
        ("query expansion over BM25", "90.0"),
        ("RAG (trained) over fused search", "80.0"),
        ("query expansion over fused search", "90.0"),
    ],
)
def test_both_systems_have_an_accuracy_over_both_retrievers(table, name, accuracy):
    row = row_of(table, "Accuracy", answers=name)
    assert (row["accuracy"], row["n"]) == (accuracy, "40")


@pytest.mark.parametrize(
    "comparison, difference, gained, lost",
    [
        ("RAG (trained) over BM25 → query expansion over BM25", "+50.0", 20, 0),
        ("RAG (trained) over fused search → query expansion over fused search", "+10.0", 4, 0),
        (PLANNED, "-40.0", 4, 20),
        ("RAG (trained) over BM25 → RAG (trained) over fused search", "+40.0", 16, 0),
        ("RAG (trained) over fused search → query expansion over BM25", "+10.0", 4, 0),
    ],
)
def test_a_comparison_is_paired_by_question(table, comparison, difference, gained, lost):
    row = row_of(table, "Paired", comparison=comparison)
    assert (row["difference"], row["gained"], row["lost"]) == (difference, gained, lost)


def test_the_p_of_the_gains_is_that_of_random_signs():
    # With +2 of one question and +1 of three, two of the 16 choices of signs give a sum of ±5.
    sides = (("1" + "0" * 7, "0" * 8), ("0" * 8, "1" * 4 + "0" * 4))
    table = build(make_parts(*sides), run=None)
    assert table.facts[f"{PLANNED} p"] == "0.120"  # 0.125 with two digits


def test_gains_are_shown_for_each_set(table):
    row = row_of(table, "by question set", questions="WebQ")
    del row["95 % interval"]
    assert row == {
        "questions": "WebQ",
        "n": "20",
        "RAG (trained) over BM25": "80.0",
        "gain over BM25": "+0.0",
        "RAG (trained) over fused search": "80.0",
        "gain over fused search": "+20.0",
        "difference of gains": "+20.0",
    }


@pytest.mark.parametrize(
    "fact, value",
    [
        (PLANNED, "−40.0"),
        (f"{PLANNED} n", "40"),
        (f"{PLANNED} verdict", "shrinks"),
        ("query expansion over BM25", "90.0"),
        ("query expansion over BM25 n", "40"),
        ("NQ gain over BM25", "+100.0"),
    ],
)
def test_prose_may_use_the_numbers(table, fact, value):
    assert table.facts[fact] == value


# A recorded run, of a part of its questions.


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A recorded run of five of seven questions on data in a folder, and the folder."""
    library = toy.write_library(tmp_path / "library")
    parameters = {"data": str(library), "retrievers": ("bm25", "fused"), "n_questions": 0}
    config, resources = toy.stage(tmp_path, systems=(names.RAG_TRAINED,), **parameters)
    questions = load_questions(config)
    predictions = evaluate.run(config, resources, questions[:5])
    expanded = [replace(p, system=names.EXPANSION) for p in predictions]
    parts = {name: predictions + expanded for name in ("bm25", "fused")}
    data = {"questions": questions, "passages": load_passages(config)}
    monkeypatch.setattr(recorded, "hash_encoder", lambda name: f"hash of {name}")
    folder = tmp_path / "results" / "toy" / "fused-reader"
    saved = recorded.save_run(folder, "fused_reader", parts, config, resources.model, 1.0, data)
    manifest = json.loads(json.dumps(saved.manifest))
    return recorded.Recorded(folder, "fused_reader", manifest, tmp_path), library


@pytest.mark.filterwarnings("ignore:.*normalise to nothing")
def test_the_same_table_is_built_without_its_data(run):
    run, library = run
    with_data = build(fused_reader.load(run), run).files
    shutil.rmtree(library)
    assert build(fused_reader.load(run), run).files == with_data


@pytest.mark.filterwarnings("ignore:.*normalise to nothing")
def test_with_its_data_answers_are_scored_again(run):
    run, _ = run
    part = fused_reader.load(run)["fused"]
    assert part[0].question.answers == QUESTIONS[0].answers


@pytest.mark.filterwarnings("ignore:.*normalise to nothing")
@pytest.mark.parametrize("name", ["corpus", "webq"])
def test_data_that_is_not_that_of_the_run_is_refused(run, name):
    run, library = run
    toy.change_library(library, name)
    with pytest.raises(recorded.DataChanged):
        fused_reader.load(run)


@pytest.mark.filterwarnings("ignore:.*normalise to nothing")
def test_make_check_builds_the_table_from_its_record(run, tmp_path):
    run, _ = run
    build(fused_reader.load(run), run).save(run.folder)
    assert all_tables()["fused_reader"] == fused_reader.__name__
    report = check(tmp_path)
    assert (report.differences, report.notes) == ([], [])
