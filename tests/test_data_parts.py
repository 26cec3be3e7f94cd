"""Files of questions and passages: which file counts, which rows, what is held out or left out."""

import gzip
import json
import os
from unittest.mock import Mock

import datasets
import huggingface_hub
import pytest
from conftest import write_jsonl

from covrag_lite import data
from covrag_lite.config import Config
from covrag_lite.data import documents, folder, hub
from covrag_lite.data.documents import LINE_LENGTH, cut_lines, html_to_text, read_documents
from covrag_lite.data.folder import hold_out
from covrag_lite.data.missing import DataMissing
from covrag_lite.data.rows import read_rows
from covrag_lite.engine import weights
from covrag_lite.metrics import normalise
from covrag_lite.records import Question

ROW = {"id": "a", "question": "who?", "answers": ["Edith"]}


def own(folder, **changes):
    return Config().change(data=str(folder), n_questions=0, **changes)


def write_packed(path, rows):
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))


def ask(n):
    return [Question(f"q{i}", "nq", f"What is {i}?", (str(i),)) for i in range(n)]


# Which file counts.


@pytest.fixture
def three_files(tmp_path):
    """The same set as JSONL, as packed JSONL and as a table; each names itself."""
    write_jsonl(tmp_path / "nq.jsonl", [ROW | {"question": "plain?"}])
    write_packed(tmp_path / "nq.jsonl.gz", [ROW | {"question": "packed?"}])
    (tmp_path / "nq.csv").write_text("question,answer\ntable?,Edith\n")
    return tmp_path


@pytest.mark.parametrize(
    ("removed", "question"),
    [((), "plain?"), (("nq.jsonl",), "packed?"), (("nq.jsonl", "nq.jsonl.gz"), "table?")],
)
def test_an_unpacked_file_counts_before_a_packed_one_and_a_table_last(
    three_files, removed, question
):
    for name in removed:
        (three_files / name).unlink()
    assert [q.question for q in data.load_questions(own(three_files))] == [question]


def test_a_corpus_counts_before_documents_and_unpacked_before_packed(tmp_path):
    (tmp_path / "notes.txt").write_text("from a document")
    assert data.load_passages(own(tmp_path))[0].text == "from a document"
    write_packed(tmp_path / "corpus.jsonl.gz", [{"id": 1, "text": "packed"}])
    assert data.load_passages(own(tmp_path))[0].text == "packed"
    write_jsonl(tmp_path / "corpus.jsonl", [{"id": 1, "text": "plain"}])
    assert data.load_passages(own(tmp_path))[0].text == "plain"


def test_a_passage_needs_no_title_and_its_number_becomes_its_id(tmp_path):
    write_jsonl(tmp_path / "corpus.jsonl", [{"id": 7, "text": "plain", "title": None}])
    (passage,) = data.load_passages(own(tmp_path))
    assert (passage.id, passage.title) == ("7", "")


# Rows.


def test_blank_lines_are_skipped_and_counted(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": 1}\n\n  \n{"id": 2}\n')
    assert list(read_rows(path, ["id"])) == [(1, {"id": 1}), (4, {"id": 2})]


def test_an_empty_value_is_missing(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", [{"id": 0, "text": None}])
    with pytest.raises(ValueError, match="line 1: missing text$"):
        list(read_rows(path, ["id", "text"]))


def table(tmp_path, text):
    (tmp_path / "questions.csv").write_text(text, encoding="utf-8")
    return data.load_questions(own(tmp_path))


def test_a_table_may_have_ids_of_its_own(tmp_path):
    loaded = table(tmp_path, "id,question,answer\nx,who?,Edith\n,where?,here\n")
    assert [question.id for question in loaded] == ["x", "questions-3"]


def test_a_table_of_a_spreadsheet_may_begin_with_a_mark(tmp_path):
    assert table(tmp_path, "\ufeffquestion,answer\nwho?,Edith\n")[0].question == "who?"


def test_empty_answers_between_bars_are_left_out(tmp_path):
    (question,) = table(tmp_path, "question,answer\n who? , Edith | | Marrow |\n")
    assert (question.question, question.answers) == ("who?", ("Edith", "Marrow"))


def test_one_missing_column_is_named(tmp_path):
    with pytest.raises(ValueError, match="line 1: no column answer; separate columns by commas"):
        table(tmp_path, "question,reply\nwho?,Edith\n")


# Questions.


def load_row(tmp_path, **row):
    write_jsonl(tmp_path / "nq.jsonl", [ROW | row])
    (question,) = data.load_questions(own(tmp_path))
    return question


@pytest.mark.parametrize(
    ("row", "gold"),
    [
        ({}, ()),
        ({"gold_passage": "p1"}, ("p1",)),
        ({"gold_passages": ["p1", 2]}, ("p1", "2")),
        ({"gold_passages": ["p1"], "gold_passage": "p2"}, ("p1",)),
        ({"gold_passages": [], "gold_passage": "p2"}, ("p2",)),
    ],
)
def test_a_question_has_one_gold_passage_or_several(tmp_path, row, gold):
    assert load_row(tmp_path, **row).gold_passages == gold


def test_a_question_keeps_what_its_row_says(tmp_path):
    question = load_row(tmp_path, id=3, clean_question="Who is it?", kind="misspelt")
    assert question == Question("3", "nq", "who?", ("Edith",), (), "Who is it?", "misspelt")


def test_a_list_with_a_number_is_no_list_of_answers(tmp_path):
    with pytest.raises(ValueError, match="answers must be a list of strings, not"):
        load_row(tmp_path, answers=["Edith", 7])


def test_of_exact_duplicates_the_first_is_kept(tmp_path):
    rows = [ROW, ROW | {"question": "Who?", "answers": ["other"]}]
    write_jsonl(tmp_path / "nq.jsonl", rows)
    (question,) = data.load_questions(own(tmp_path))
    assert (question.question, question.answers) == ("who?", ("Edith",))


# What is held out.


@pytest.mark.parametrize(("n", "n_held_out"), [(1, 0), (2, 1), (19, 1), (20, 2), (35, 3)])
def test_a_tenth_of_the_training_questions_is_held_out(n, n_held_out):
    assert len(hold_out(ask(n), "validation")) == n_held_out
    assert len(hold_out(ask(n), "train")) == n - n_held_out


def test_held_out_questions_keep_their_order_and_are_not_trained_on():
    held_out = hold_out(ask(50), "validation")
    trained = hold_out(ask(50), "train")
    assert sorted([*held_out, *trained], key=lambda q: int(q.id[1:])) == ask(50)
    assert held_out == [question for question in ask(50) if question in held_out]


def test_spellings_of_a_question_are_held_out_together():
    doubled = [*ask(20), *(Question(f"x{i}", "nq", f"what is {i}", ("",)) for i in range(20))]
    held_out = {normalise(question.question) for question in hold_out(doubled, "validation")}
    trained = {normalise(question.question) for question in hold_out(doubled, "train")}
    assert (len(held_out), len(held_out & trained)) == (2, 0)


def test_a_set_with_only_training_questions_has_validation_questions(tmp_path):
    rows = [{"id": i, "question": f"what is {i}?", "answers": ["a"]} for i in range(20)]
    write_jsonl(tmp_path / "train_b.jsonl", rows)
    write_jsonl(tmp_path / "validation_a.jsonl", rows[:1])
    config = own(tmp_path, split="validation")
    assert data.choose_sets(config) == ("a", "b")
    assert [question.dataset for question in data.load_questions(config)] == ["a", "b", "b"]


CITED = {"question": "who?", "answer": "Edith[1].", "references": ["Edith wrote it."]}


@pytest.fixture
def cited(tmp_path):
    """A folder with a training set in the form of WebGLM-QA, and a plain one."""
    write_jsonl(tmp_path / "train_web.jsonl", [CITED, CITED | {"question": "where?"}])
    write_jsonl(tmp_path / "train_nq.jsonl", [ROW])
    return tmp_path


def test_a_cited_answer_is_the_only_answer_of_its_question(cited):
    questions = data.load_questions(own(cited, split="train", datasets=("web",)))
    assert [(q.id, q.question, q.answers) for q in questions] == [
        ("web-1", "who?", ("Edith[1].",)),
        ("web-2", "where?", ("Edith[1].",)),
    ]


def test_cited_answers_of_a_folder_are_not_for_validation(cited):
    assert data.load_questions(own(cited, split="validation", datasets=("web",))) == []


@pytest.mark.parametrize(("name", "is_cited"), [("web", True), ("nq", False), ("none", False)])
def test_only_sets_with_references_are_read_as_cited(cited, name, is_cited):
    rows = folder.read_cited(own(cited), name)
    assert (rows is not None) == is_cited
    if is_cited:
        assert next(rows) == (1, CITED)


# Choosing.


@pytest.mark.parametrize(
    ("split", "file"), [("test", "questions.csv"), ("train", "train_questions.csv")]
)
def test_a_folder_without_questions_of_a_split_names_the_file_to_add(tmp_path, split, file):
    with pytest.raises(DataMissing, match=f"has no {split} questions; add {file} with"):
        data.load_questions(own(tmp_path, split=split))


@pytest.mark.parametrize("text", ["who wrote 1984", "entity two", "7", "nq"])
def test_a_text_that_is_no_set_and_number_is_an_own_question(text):
    assert data.pick_question(Config().change(question=text)).question == text


def test_the_first_and_the_last_question_of_a_set_can_be_picked(tmp_path):
    rows = [{"id": i, "question": f"what is {i}?", "answers": ["a"]} for i in range(3)]
    write_jsonl(tmp_path / "nq.jsonl", rows)
    ids = [data.pick_question(own(tmp_path, question=f"nq {i}")).id for i in (0, 2)]
    assert ids == ["0", "2"]


def test_the_world_takes_no_other_corpus():
    with pytest.raises(ValueError, match="corpus is 'x', but the world has its own; set data to"):
        data.load_passages(Config().change(corpus="x"))


def test_a_folder_may_take_a_named_corpus(tmp_path):
    corpus = write_jsonl(tmp_path / "other.jsonl", [{"id": 1, "text": "plain"}])
    (tmp_path / "notes.txt").write_text("from a document")
    (passage,) = data.load_passages(own(tmp_path, corpus=str(corpus)))
    assert passage.text == "plain"


def test_public_questions_have_no_corpus_of_their_own():
    with pytest.raises(ValueError, match="which has only questions; set corpus to nq-wikipedia"):
        data.load_passages(Config().change(data="hub"))


def test_an_unknown_public_set_is_an_error_with_the_known_ones():
    sentence = "dataset 'squad' is not known; use some of nq, webq, mintaka, triviaqa, webglm"
    with pytest.raises(ValueError, match=sentence):
        data.load_questions(Config().change(data="hub", datasets=("squad",)))


@pytest.mark.parametrize("split", ["validation", "test"])
def test_a_training_question_that_is_held_out_is_an_error_with_both_ids(tmp_path, split):
    name = "nq" if split == "test" else "validation_nq"
    write_jsonl(tmp_path / f"{name}.jsonl", [ROW | {"id": "held", "question": "WHO"}])
    train = [Question("mine", "nq", "who?", ())]
    sentence = f"1 {split} questions are training questions too .'held' is the same as 'mine'"
    with pytest.raises(ValueError, match=sentence):
        data.check_disjoint(train, own(tmp_path))


# Documents.


def test_documents_are_read_in_the_order_of_their_names_without_any_readme(tmp_path):
    for name in ("b.TXT", "a.md", "readme.html", "Readme.txt", "readme-b.txt", "c.json"):
        (tmp_path / name).write_text("text")
    assert [p.title for p in read_documents(tmp_path)] == ["a.md", "b.TXT", "readme-b.txt"]


def test_a_folder_is_no_document(tmp_path):
    (tmp_path / "notes.txt").mkdir()
    assert documents.list_documents(tmp_path) == []


def test_the_passages_of_a_document_are_numbered_from_1(tmp_path):
    (tmp_path / "a.txt").write_text("\n\n".join("word " * 100 for _ in range(3)))
    assert [passage.id for passage in read_documents(tmp_path)] == ["a.txt#1", "a.txt#2", "a.txt#3"]


def test_documents_that_are_read_fast_are_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(documents, "WORTH_KEEPING", 1e9)
    (tmp_path / "a.txt").write_text("text")
    read_documents(tmp_path)
    assert not (tmp_path / "cache").exists()


def test_a_document_of_the_same_size_that_was_changed_later_is_read_again(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("one")
    before = documents.hash_files([file])
    os.utime(file, ns=(1, file.stat().st_mtime_ns + 1))
    assert documents.hash_files([file]) != before


def test_markdown_is_split_at_its_headings():
    part = "word " * 60
    text = f"# One\n\n{part}\n\n{part}\n\n# Two\n\n{part}"
    assert [piece[:5] for piece in documents.split_text(text, 700, ".MD")] == ["# One", "# Two"]


def test_a_long_line_is_cut_between_words():
    line = "river " * (LINE_LENGTH // 6 + 2)
    first, second = cut_lines(line).split("\n\n")
    assert len(first) == LINE_LENGTH - LINE_LENGTH % 6
    assert set(first.split()) == set(second.split()) == {"river"}


@pytest.mark.parametrize(("n", "is_shown"), [(99, False), (100, True)])
def test_progress_is_shown_from_a_hundred_documents(n, is_shown, monkeypatch):
    monkeypatch.setattr(documents, "track", lambda items, *_, total: f"bar of {total}")
    shown = documents.show_progress(list(range(n)), "read", "document")
    assert (shown == "bar of 100") == is_shown


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<table><tr><td>a</td><td>b</td></tr></table>", "a b"),
        ("a<br>b", "a\nb"),
        ("a<br><br>b", "a\n\nb"),
        ("<p>a</p><p>b</p>", "a\n\nb"),
        ("a <b>b</b>c", "a bc"),
        ("a<svg><style>x</style>y</svg>b", "ab"),
        ("a<svg><template>x</svg>b", "ab"),  # the inner element was not closed
        ("a</script>b", "ab"),
    ],
)
def test_the_text_of_a_page(page, text):
    assert html_to_text(page) == text


# Public sets.


@pytest.mark.parametrize(
    ("row", "answers"),
    [
        ({"value": "a", "aliases": ["a", "b"]}, ["a", "b"]),
        ({"value": None, "aliases": ["b", None]}, ["b"]),
        ({"value": 7, "aliases": []}, ["7"]),
    ],
)
def test_the_answers_of_all_columns_count_once(row, answers):
    entry = hub.Entry("x", answers=("value", "aliases"))
    assert hub.find_answers(entry, row) == answers


def test_a_set_whose_files_are_named_is_downloaded_as_these_files(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(
        huggingface_hub,
        "snapshot_download",
        lambda place, **options: calls.append((place, options)) or str(tmp_path),
    )
    load = Mock()
    monkeypatch.setattr(datasets, "load_dataset", load)
    files = {"train": "a/*.parquet", "test": "b/*.parquet"}
    hub.fetch(hub.Entry("someone/set", revision="v1", files=files, config="en"))
    options = {"repo_type": "dataset", "allow_patterns": list(files.values()), "revision": "v1"}
    assert calls == [("someone/set", options)]
    load.assert_called_once_with(str(tmp_path), "en", data_files=files)


def test_a_set_is_loaded_at_its_revision(monkeypatch):
    load = Mock()
    monkeypatch.setattr(datasets, "load_dataset", load)
    hub.fetch(hub.Entry("someone/set", revision="v1"))
    hub.fetch(hub.Entry("someone/set"))
    assert [call.kwargs["revision"] for call in load.call_args_list] == ["v1", None]
    assert load.call_args.args == ("someone/set", None)
