"""The commands for own folders, `covrag ask` and `covrag eval`, and messages after mistakes."""

import csv
import errno
import io
import os
import sys
from pathlib import Path

import pytest
from conftest import ScriptedModel

from covrag_lite import commands, config
from covrag_lite.commands import answers, ask, evaluate, own_folder, prediction_text, screen
from covrag_lite.commands.messages import plain_messages
from covrag_lite.records import Passage, Prediction, Question, Round, Verdict

MANUAL = "To reset the pump, hold the green button for ten seconds."
NOTES = "Edith Marrow was born in Stonebridge."


@pytest.fixture
def folder(tmp_path):
    """A folder with two documents and two questions."""
    documents = tmp_path / "manuals"
    documents.mkdir()
    (documents / "pump.md").write_text(MANUAL)
    (documents / "notes.txt").write_text(NOTES)
    (documents / "questions.csv").write_text(
        "question,answer\nWho wrote it?,Edith Marrow\nwher was edit marow born,Stonebridge\n"
    )
    return documents


@pytest.fixture
def scripted_run(monkeypatch, tmp_path):
    """Commands use a scripted model, and keep all their files in a folder of the test."""
    model = ScriptedModel()
    monkeypatch.setattr("covrag_lite.systems.evaluate.load_engine", lambda *settings: model)
    monkeypatch.setattr(config, "ROOT", tmp_path)
    return model


def verdict(judgment, score, revised_question=""):
    """A verdict whose scores are all the same."""
    return Verdict(*[score] * 6, judgment, revised_question, True, "")


def rejected_then_answered():
    """A prediction with two rounds; the second one cites the first of its two passages."""
    passages = (Passage("p1", "pump.md", MANUAL), Passage("p2", "notes.txt", NOTES))
    first = Round("reset?", passages, "the blue one[2]", verdict("false", 0.1, "which button?"))
    second = Round("which button?", passages, "the green button[1]")
    question = Question("q1", "questions", "reset?", ("green button",))
    return Prediction(question, "CoV-RAG", (first, second))


def status_and_errors(capsys, command, *words):
    """The status with which a command ends, and what it wrote to stderr."""
    with pytest.raises(SystemExit) as ended:
        command(list(words))
    return ended.value.code, capsys.readouterr().err


# covrag ask


def test_ask_shows_the_answer_with_the_passage_that_it_cites(folder, scripted_run, capsys):
    ask.main([str(folder), "how do I reset the pump", "--k", "2"])
    shown = capsys.readouterr().out
    assert "Answer" in shown.splitlines()
    assert "  [1] pump.md" in shown.splitlines()


def test_ask_shows_verdict_revised_question_and_second_answer(folder, scripted_run, capsys):
    ask.main([str(folder), "wher was edit marow born"])
    headings = [line for line in capsys.readouterr().out.splitlines() if line[:1].isalpha()]
    assert headings == ["Question", "First answer", "Verdict", "Revised question", "Second answer"]


def test_ask_without_a_question_answers_every_line(folder, scripted_run, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("who is it?\n\nwhere is it?\n"))
    ask.main([str(folder)])
    assert capsys.readouterr().out.count("Question\n") == 2


def test_options_may_stand_before_the_question(folder, scripted_run, capsys):
    ask.main([str(folder), "--k", "1", "who", "is", "it?"])
    assert "  who is it?" in capsys.readouterr().out.splitlines()


def test_an_error_in_an_open_prompt_ends_only_its_question(capsys, monkeypatch):
    def answer(question):
        if question == "bad":
            raise ValueError("no answer")
        return "fine"

    monkeypatch.setattr(sys, "stdin", io.StringIO("bad\ngood\n"))
    ask.answer_until_end(answer)
    written = capsys.readouterr()
    assert (written.out, written.err) == ("fine\n\n", "covrag ask: no answer\n")


def test_lines_fit_a_terminal_of_80_columns(folder, scripted_run, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    (folder / "long.txt").write_text("pump " * 130)
    ask.main([str(folder), "what is a pump " + "or a valve " * 20])
    written = capsys.readouterr()
    assert max(map(len, (written.out + written.err).splitlines())) < 80


# Mistakes end in one sentence.


@pytest.mark.parametrize(
    "words, part",
    [
        (["nowhere", "who?"], "there is no such folder"),
        (["{folder}/pump.md", "who?"], "it is a file"),
        (["{empty}", "who?"], "has neither"),
        (["{broken}", "who?"], "not UTF-8"),
        (["{folder}", "who?", "--k", "0"], "--k is 0"),
        (["{folder}", "who?", "--k", "five"], "invalid int value"),
        (["{folder}", "who?", "--model", "missing.gguf"], "there is no model 'missing.gguf'"),
        (["{folder}", "who?", "--model", "./missing"], "there is no model './missing'"),
        (["{folder}", "who?", "--model", "endpoint:x"], "OPENAI_API_KEY"),
        (["{folder}", "who?", "--system", "CoV"], "system 'CoV' is not known"),
        ([], "required: FOLDER (covrag ask --help"),
    ],
)
def test_a_mistake_ends_in_one_sentence(words, part, folder, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr(config, "ROOT", tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "a.txt").write_bytes("é".encode("latin-1"))
    places = {name: tmp_path / name for name in ("empty", "broken")} | {"folder": folder}
    words = [word.format(**places) for word in words]
    status, errors = status_and_errors(capsys, ask.main, *words)
    last = errors.splitlines()[-1]
    assert status == 2
    assert last.startswith("covrag ask: ")
    assert part in errors
    assert "Traceback" not in errors


def test_with_fewer_passages_than_k_all_are_read(folder):
    loaded = own_folder.load_folder(str(folder), own_folder.DEMO_MODEL, 5, "ask")
    assert loaded.config.retrieval.k == 2
    assert "there are fewer than k = 5 passages, so every search reads all of them" in loaded.notes


def test_a_model_path_starts_where_the_user_is(tmp_path, monkeypatch):
    (tmp_path / "my-model").mkdir()
    monkeypatch.chdir(tmp_path)
    assert own_folder.find_local_model("my-model") == str(tmp_path / "my-model")
    assert own_folder.find_local_model("org/model") == "org/model"


def test_an_error_of_the_program_keeps_its_traceback():
    with pytest.raises(KeyError), plain_messages("covrag ask"):
        {}["missing"]


def test_eval_refuses_a_negative_number_of_questions(folder, capsys):
    status, errors = status_and_errors(capsys, evaluate.main, str(folder), "--n", "-1")
    assert status == 2
    assert errors.endswith("covrag eval: --n is -1, but must be 0 (all) or more\n")


# A prediction in plain words.


def test_a_rejected_answer_is_explained():
    text = prediction_text.describe_prediction(rejected_then_answered())
    sentences = " ".join(text.split())
    assert (
        "The verifier rejects this answer: the passages do not contain an answer (score 0.10 of 1),"
        " and the answer is wrong (score 0.10 of 1)." in sentences
    )


def test_a_cited_passage_is_quoted_and_others_are_named():
    lines = prediction_text.describe_answer("Answer", rejected_then_answered().rounds[1])
    assert lines.splitlines() == [
        "Answer",
        "  the green button [1]",
        "  [1] pump.md",
        f"      {MANUAL}",
        "  Also read: notes.txt",
    ]


def test_a_citation_of_a_passage_that_was_not_read_counts_as_none():
    step = Round("q", (Passage("p", "a.txt", "text"),), "so it is[7]")
    lines = prediction_text.describe_answer("Answer", step).splitlines()
    assert lines[2:] == ["  It cites none of the passages.", "  It read: a.txt"]


def test_a_verdict_that_did_not_parse_is_shown_as_it_was_written():
    unread = Verdict(*[None] * 6, "", "", False, "true, I think")
    shown = prediction_text.describe_verdict(unread, True)
    assert shown == "Verdict\n  It could not be read. The model wrote: true, I think"


def test_the_kept_answer_is_named_if_it_is_not_the_last():
    prediction = rejected_then_answered()
    first_kept = Prediction(prediction.question, "CoV-RAG", prediction.rounds, kept=0)
    assert prediction_text.describe_prediction(first_kept).endswith("Kept\n  the blue one [2]")


def test_control_characters_of_a_document_do_not_reach_the_terminal():
    assert "\x1b" not in screen.clean("a\x1b[31mred\x07")


# Tables.


def test_a_table_wraps_its_cells(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = screen.table(("name", "words"), [("a", "word " * 40), ("b", "short")], (1, 1))
    assert max(map(len, text.splitlines())) <= 79
    assert text.count("word") == 41


def test_a_narrow_column_leaves_its_room_to_the_others():
    assert screen.divide_width([["ab", "x" * 200]], (1, 1)) == [2, screen.screen_width() - 4]


def test_a_column_that_needs_less_than_its_share_leaves_the_rest():
    total = screen.screen_width() - 2
    assert screen.divide_width([["x" * 20, "y " * 200]], (1, 1)) == [20, total - 20]


def test_a_table_breaks_no_name_of_a_file(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = screen.table(("file", "words"), [("minutes-of-may.html", "word " * 60)], (1, 9))
    assert "minutes-of-may.html" in text


# covrag eval


def test_a_row_says_what_the_verifier_did():
    row = answers.describe_answer(rejected_then_answered())
    assert row["verifier"] == "rejected; searched again: wrong before, right now"


def test_a_row_names_the_source_of_the_kept_answer():
    assert answers.describe_answer(rejected_then_answered())["source"] == "pump.md"


def test_eval_writes_every_answer_and_the_tables(folder, scripted_run, tmp_path, capsys):
    evaluate.main([str(folder), "--systems", "RAG,CoV-RAG", "--name", "mine"])
    place = tmp_path / "figures" / "mine"
    rows = list(csv.DictReader((place / "answers.csv").open()))
    assert [(row["system"], row["right"]) for row in rows] == [
        ("RAG", "right"),
        ("RAG", "wrong"),
        ("CoV-RAG", "right"),
        ("CoV-RAG", "wrong"),
    ]
    assert (place / "table2.md").exists()
    assert "Step by step: covrag browse mine" in capsys.readouterr().out


def test_eval_on_a_full_disk_names_the_file(folder, scripted_run, monkeypatch, capsys):
    def replace(path, target):
        if target.name == "answers.csv":
            raise OSError(errno.ENOSPC, "No space left on device")
        os.replace(path, target)

    monkeypatch.setattr(Path, "replace", replace)
    status, errors = status_and_errors(capsys, evaluate.main, str(folder), "--systems", "CoV-RAG")
    assert status == 2
    assert "answers.csv: No space left on device, so this file was not written" in errors


def test_eval_uses_only_the_first_questions(folder, scripted_run, tmp_path):
    evaluate.main([str(folder), "--systems", "RAG", "--n", "1"])
    answers_file = tmp_path / "figures" / "manuals" / "answers.csv"
    assert len(list(csv.DictReader(answers_file.open()))) == 1


def test_eval_needs_questions(folder, capsys):
    (folder / "questions.csv").unlink()
    status, errors = status_and_errors(capsys, evaluate.main, str(folder))
    assert status == 2
    assert "add questions.csv with the columns question and answer" in errors


@pytest.mark.parametrize("name", ["embedded", "../out", "a b"])
def test_a_run_cannot_be_named_like_the_recorded_ones_or_as_a_path(name, folder, capsys):
    status, errors = status_and_errors(capsys, evaluate.main, str(folder), "--name", name)
    assert status == 2
    assert errors.startswith(f"covrag eval: --name is {name!r}")


def test_a_run_is_named_after_its_folder():
    assert evaluate.choose_name("", "/data/My manuals (2)") == "My-manuals-2"


# covrag --help


def test_help_lists_every_command_and_notebook_with_one_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["covrag", "--help"])
    commands.covrag()
    lines = capsys.readouterr().out.splitlines()
    described = {
        line.split()[0]: line for line in lines if line.startswith("  ") and line[2] != " "
    }
    notebooks = {path.stem for path in (config.ROOT / "notebooks").glob("*.ipynb")}
    assert set(described) == set(commands.COMMANDS) | notebooks
    assert all(len(line.split()) > 2 and len(line) < 80 for line in described.values())
