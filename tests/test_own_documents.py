"""What to expect on own documents: the table of small folders and of the large test."""

from pathlib import Path

import pandas as pd
import pytest

from covrag_lite.tables import own_documents

# Of four questions about the documents, one was not found in the large test.
LARGE = {
    "1": [("q1", True, True), ("q2", True, False), ("q3", True, True), ("q4", False, False)],
    "2": [("q1", True, True), ("q2", True, True), ("q3", True, True), ("q4", False, False)],
}


def frame(system, rows):
    """Answers of a system: id, whether a passage has the answer, and whether it is right."""
    columns = ["id", "found_first", "normalised"]
    return pd.DataFrame(rows, columns=columns).assign(system=system)


@pytest.fixture
def table():
    small = frame("RAG trained", [(f"q{n}", True, n == 1) for n in (1, 2, 3, 4)])
    readers = {}
    for seed, rows in LARGE.items():
        other = ("another question", True, False)
        of_seed = frame("RAG trained", [*rows, other])
        readers[seed] = pd.concat([of_seed, frame("CoV-RAG", [("q1", True, False)])])
    built = own_documents.build({"own-toy-small": ("small", small)}, {"large": readers})
    return built.rows.set_index("searched")


def test_a_folder_shows_the_share_of_its_right_answers(table):
    assert table.loc[own_documents.FOLDER, ["n", "right"]].tolist() == [4, 25.0]


def test_the_same_questions_are_taken_from_the_large_test(table):
    # q1, q3 always, q2 once of twice, q4 never; another question and CoV-RAG do not count.
    assert table.loc[own_documents.LARGE, ["n", "right"]].tolist() == [4, 62.5]


def test_questions_whose_answer_was_not_found_can_be_left_out(table):
    row = table.loc[own_documents.FOUND]
    assert row.n == 3
    assert row.right == pytest.approx(100 * 2.5 / 3)


def test_the_documents_are_named_by_their_folder(table):
    assert set(table.documents) == {"toy"}


def test_the_interval_of_one_run_is_wilsons(table):
    assert table.loc[own_documents.FOLDER, ["low", "high"]].round(1).tolist() == [4.6, 69.9]


def test_a_backbone_without_these_questions_has_no_row():
    small = frame("RAG trained", [("q1", True, True)])
    other = {"1": frame("RAG trained", [("another question", True, True)])}
    built = own_documents.build({"own-toy-small": ("small", small)}, {"large": other})
    assert built.rows.model.tolist() == ["small"]


def build_with_readers(*readers):
    """The table of two questions about documents, with readers of a large test."""
    small = frame("RAG trained", [("q1", True, True), ("q2", True, True)])
    seeds = {str(seed): frame("RAG trained", rows) for seed, rows in enumerate(readers, 1)}
    return own_documents.build({"own-toy-small": ("small", small)}, {"large": seeds})


ANSWERS = [("q1", True, True), ("q2", True, False)]


def test_a_mean_over_readers_that_answered_every_question_is_built():
    rows = build_with_readers(ANSWERS, ANSWERS[::-1]).rows
    assert rows[rows.searched == own_documents.LARGE].right.tolist() == [50.0]


@pytest.mark.parametrize(
    ("other", "fault"),
    [
        (ANSWERS[:1], "has 0 answers to 'q2'"),
        ([], "has 0 answers to 'q1'"),
        ([*ANSWERS, ANSWERS[0]], "has 2 answers to 'q1'"),
    ],
)
def test_a_reader_without_one_answer_to_each_question_is_an_error(other, fault):
    with pytest.raises(ValueError, match=fault) as raised:
        build_with_readers(ANSWERS, other)
    sentence = str(raised.value)
    assert sentence.startswith("own documents (toy, large): seed 2 must answer each of 2 questions")


def test_questions_that_all_readers_lack_are_an_error_too():
    with pytest.raises(ValueError, match="seed 1 .* has 0 answers to 'q2'"):
        build_with_readers(ANSWERS[:1], ANSWERS[:1])


@pytest.mark.parametrize(
    ("name", "is_own"), [("own-squad-x", True), ("own-documents", False), ("seed-1", False)]
)
def test_a_run_on_own_documents_is_known_by_its_folder(name, is_own):
    assert own_documents.is_own(Path("results", name)) == is_own


@pytest.fixture
def shown():
    """Two runs on the same documents, each with one question, and a reader of both."""
    runs = {
        "own-toy-small": ("small", frame("RAG trained", [("q1", True, True)])),
        "own-toy-large": ("large", frame("RAG", [("q2", True, False)])),
    }
    reader = {"1": frame("RAG trained", [("q1", True, True), ("q2", True, False)])}
    return own_documents.build(runs, {"a reader": reader})


def test_runs_on_the_same_documents_are_next_to_one_row_of_the_large_test(shown):
    rows = shown.rows[["documents", "model", "searched", "n"]].values.tolist()
    assert rows == [
        ["toy", "small", own_documents.FOLDER, 1],
        ["toy", "large", own_documents.FOLDER, 1],
        ["toy", "a reader", own_documents.LARGE, 2],
        ["toy", "a reader", own_documents.FOUND, 2],
    ]


def test_right_answers_on_own_documents_have_an_interval(shown):
    part = shown.parts["Right answers in %"]
    assert part.right.tolist()[0] == "100.0 [21–100]"  # Wilson: one of one
    assert part.system.tolist() == ["RAG (trained)", "RAG (untuned)", *["RAG (trained)"] * 2]


def test_right_answers_on_own_documents_are_facts(shown):
    name = "toy large, RAG (untuned), the folder:"
    assert shown.facts[f"{name} right"] == "0.0"
    assert shown.facts[f"{name} interval"] == "[0–79]"
    assert shown.facts["toy a reader, RAG (trained), the large test: n"] == "2"


def test_a_question_whose_answer_no_reader_found_is_left_out_there():
    runs = {"own-toy-small": ("small", frame("RAG trained", [("q1", True, True)]))}
    reader = {"1": frame("RAG trained", [("q1", False, False)])}
    rows = own_documents.build(runs, {"a reader": reader}).rows
    assert rows.searched.tolist() == [own_documents.FOLDER, own_documents.LARGE]


def test_runs_on_different_questions_are_also_compared_on_their_common_ones():
    all_questions = frame("RAG trained", [("q1", True, True), ("q2", True, False)])
    runs = {
        "own-toy-small": ("small", all_questions),
        "own-toy-large": ("large", frame("RAG", [("q1", True, True)])),
    }
    rows = own_documents.build(runs, {}).rows
    shared = rows[rows.searched == own_documents.COMMON].set_index("model")
    assert shared.n.to_dict() == {"small": 1, "large": 1}
    assert shared.right.to_dict() == {"small": 100.0, "large": 100.0}
