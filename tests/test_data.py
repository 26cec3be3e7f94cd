"""Questions and passages of every kind of data; test_world.py tests the fictional world."""

import json
import sys
from types import SimpleNamespace

import pytest
from conftest import write_jsonl

from covrag_lite import data
from covrag_lite.config import Config
from covrag_lite.data import check_disjoint, load_passages, load_questions, pick_question
from covrag_lite.metrics import normalise
from covrag_lite.records import Passage, Question

ROW = {"id": "a", "question": "who?", "answers": ["Edith"], "gold_passage": "p1"}


def folder(tmp_path, rows):
    """A folder with one set, as the data of a run; a row that is a string is written unchanged."""
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (tmp_path / "nq.jsonl").write_text("\n".join(lines))
    return Config().change(data=str(tmp_path), datasets=("nq",), n_questions=0)


def texts(config, split):
    """The normalised questions of a split, from all sets."""
    return [
        normalise(q.question)
        for q in load_questions(config.change(split=split, datasets=("all",), n_questions=0))
    ]


@pytest.fixture
def several_sets(tmp_path):
    """A folder with sets for several splits; each has one question, named like its file."""
    for name in ("webq", "nq", "train_nq", "train_own", "validation_nq", "validation_mine"):
        write_jsonl(tmp_path / f"{name}.jsonl", [{**ROW, "question": name}])
    write_jsonl(tmp_path / "corpus.jsonl", [{"id": "p1", "text": "Edith."}])
    return Config().change(data=str(tmp_path))


@pytest.mark.parametrize(
    "split, expected",
    [
        ("test", ["nq", "webq"]),
        ("train", ["train nq", "train own"]),
        # A single training question cannot be held out.
        ("validation", ["validation mine", "validation nq"]),
    ],
)
def test_all_sets_are_those_that_have_a_file_for_the_split(several_sets, split, expected):
    assert texts(several_sets, split) == expected


def test_questions_of_two_files_with_the_same_id_get_different_ids(several_sets):
    assert [question.id for question in load_questions(several_sets)] == ["nq/a", "webq/a"]


@pytest.mark.parametrize(
    "rows, sentence",
    [
        ([ROW, '{"id": "b", '], "nq.jsonl, line 2: not JSON"),
        ([ROW, {"id": "b", "question": "who?"}], "nq.jsonl, line 2: missing answers"),
        ([ROW, "[1]"], "line 2: missing id, question"),
        ([{**ROW, "answers": "Edith"}], "line 1: answers must be a list of strings"),
        (
            [ROW, {**ROW, "question": "where?"}],
            "line 2: the id 'a' is already used by another question",
        ),
        ([{**ROW, "question": " "}], "line 1: the question is empty"),
        ([], "nq.jsonl is empty"),
    ],
)
def test_a_broken_file_is_named_with_its_line(tmp_path, rows, sentence):
    with pytest.raises(ValueError, match=sentence.replace("[", r"\[")):
        load_questions(folder(tmp_path, rows))


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"n_questions": -1}, "n_questions is -1, but must be 0 .all questions. or more"),
        ({"datasets": ("search", "search")}, "must not name a set twice"),
        ({"split": "dev"}, "split 'dev' is not known; use one of train, validation, test"),
        (
            {"datasets": ("squad",)},
            "dataset 'squad' is not part of the world; use some of search, entity, complex, quiz",
        ),
        ({"data": "nowhere"}, "data is 'nowhere', but it must be 'world', 'hub' or a folder"),
    ],
)
def test_missing_things_are_named(changes, sentence):
    with pytest.raises((ValueError, FileNotFoundError), match=sentence):
        load_questions(Config().change(**changes))


def test_a_folder_without_passages_is_an_error(tmp_path):
    config = folder(tmp_path, [ROW])
    with pytest.raises(FileNotFoundError, match="neither corpus.jsonl nor documents"):
        load_passages(config)


def test_a_set_that_a_folder_lacks_is_an_error_with_the_sets_that_it_has(tmp_path):
    config = folder(tmp_path, [ROW])
    available = "no test file of dataset 'squad'; .* has files of: nq"
    with pytest.raises(FileNotFoundError, match=available):
        load_questions(config.change(datasets=("squad",)))


def test_a_question_of_a_set_can_be_picked_by_its_number():
    config = Config().change(question="entity 2")
    questions = load_questions(config.change(datasets=("entity",), n_questions=3))
    assert pick_question(config) == questions[2]


def test_a_question_of_ones_own_has_no_gold_answer():
    config = Config().change(question="Who am I?")
    assert pick_question(config).answers == ("(not known)",)


@pytest.mark.parametrize(
    "question, sentence",
    [
        ("entity 150", "question is 'entity 150', but entity has questions 0 to 149"),
        ("entitty 2", "'entitty'"),
    ],
)
def test_a_question_that_cannot_be_picked_is_an_error(question, sentence):
    with pytest.raises(ValueError, match=sentence):
        pick_question(Config().change(question=question))


def count_on(config, split, dataset):
    start = {"odd": 1, "even": 2}[dataset]
    return [
        Question(f"{split}-{i}", dataset, f"What is {i}?", (str(i),)) for i in range(start, 9, 2)
    ]


@pytest.fixture
def numbers(monkeypatch):
    """A configuration of a further kind of data, which is one module and one entry."""
    calls = {"sets": lambda config, split: ("odd", "even"), "questions": count_on}
    module = SimpleNamespace(**calls, passages=lambda config: [Passage("p", "Numbers", "1 and 2.")])
    monkeypatch.setitem(sys.modules, "numbers_of_a_test", module)
    monkeypatch.setitem(data.KINDS, "numbers", "numbers_of_a_test")
    return Config().change(data="numbers", n_questions=3)


def test_a_further_kind_of_data_has_sets(numbers):
    ids = ["test-1", "test-3", "test-5", "test-2", "test-4", "test-6"]
    assert [question.id for question in load_questions(numbers)] == ids


def test_a_further_kind_of_data_has_splits(numbers):
    of_split = numbers.change(datasets=("even",), split="train", n_questions=1)
    assert [question.id for question in load_questions(of_split)] == ["train-2"]


def test_a_further_kind_of_data_has_passages(numbers):
    assert load_passages(numbers)[0].title == "Numbers"


def test_the_splits_of_a_further_kind_of_data_are_compared(numbers):
    training = load_questions(numbers.change(split="train", datasets=("odd",), n_questions=0))
    with pytest.raises(ValueError, match="4 validation questions are training questions too"):
        check_disjoint(training, numbers)
