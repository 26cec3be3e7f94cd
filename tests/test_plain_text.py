"""What commands print: tables that fit a terminal, answers with sources, verdicts in words."""

import sys
import warnings
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest

from covrag_lite import commands
from covrag_lite.commands import answers, ask, evaluate, prediction_text, screen
from covrag_lite.commands.messages import Parser, is_caused, plain_messages
from covrag_lite.records import Passage, Prediction, Question, Round, Verdict
from covrag_lite.systems import evaluate as systems_evaluate

PUMP = Passage("p1", "pump.md", "Hold the green button.")
NOTES = Passage("p2", "notes.txt", "Edith Marrow was born in Stonebridge.")
SECOND_PAGE = Passage("p3", "pump.md", "Then wait.")
QUESTION = Question("q1", "questions", "reset?", ("green button", "the green one"))


def verdict(judgment="false", score=0.1, revised_question=""):
    """A verdict whose scores are all the same."""
    return Verdict(*[score] * 6, judgment, revised_question, True, "")


def predict(*rounds, question=QUESTION, system="CoV-RAG"):
    return Prediction(question, system, rounds)


def read(answer, *passages, judged=None):
    return Round("reset?", passages, answer, judged)


# Widths.


@pytest.mark.parametrize(("columns", "width"), [(40, 79), (80, 79), (100, 99), (300, 119)])
def test_text_is_as_wide_as_the_terminal_within_80_and_120_columns(columns, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    assert screen.screen_width() == width


def test_a_table_has_a_rule_under_its_header():
    text = screen.table(("name", "words"), [("a", "short"), ("bb", "also")], (1, 1))
    assert text.splitlines() == [
        "name  words",
        "----  -----",
        "a     short",
        "bb    also",
    ]


def test_rows_of_several_lines_are_separated_by_blank_lines(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = screen.table(("name", "words"), [("a", "word " * 30), ("b", "short")], (1, 1))
    lines = text.splitlines()
    assert lines.count("") == 1
    assert lines[-1].split() == ["b", "short"]


def test_columns_divide_the_width_by_their_shares(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    long = "x " * 200
    assert screen.divide_width([[long, long]], (1, 3)) == [19, 57]  # 79 - 2 for the gap


def test_a_column_of_ten_letters_is_never_wrapped(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert screen.divide_width([["two shorts", "x " * 200]], (1, 50)) == [10, 67]


def test_a_widened_column_takes_its_room_from_the_widest_one(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    words = ["minutes-of-may.html", "word " * 60, "text " * 60]
    assert screen.keep_words([9, 20, 46], [words]) == [19, 20, 36]


def test_a_column_is_not_widened_for_more_than_24_letters_of_a_word():
    assert screen.keep_words([9, 60], [["x" * 40, "word " * 60]]) == [24, 45]


def test_no_column_is_widened_at_the_cost_of_another_columns_words():
    assert screen.keep_words([5, 7], [["x" * 8, "y" * 7]]) == [5, 7]


def test_a_paragraph_begins_with_its_own_first_words():
    text = screen.paragraph("word " * 30, indent="  ", first="covrag ask: ")
    first, second, *_ = text.splitlines()
    assert first.startswith("covrag ask: word")
    assert second.startswith("  word")


def test_a_hyphenated_name_is_not_broken(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = screen.paragraph("a" * 70 + " minutes-of-the-meeting-in-may")
    assert text.splitlines()[1] == "minutes-of-the-meeting-in-may"


def test_every_citation_gets_one_space_before_it():
    assert screen.separate_citations("19 euros[2]  [1] now[3].") == "19 euros [2] [1] now [3]."


# Answers and their sources.


def test_passages_are_cited_in_their_order_and_once():
    step = read("so[2], and so[1], again[2]", PUMP, NOTES)
    lines = prediction_text.describe_answer("Answer", step).splitlines()
    assert [line for line in lines if line.startswith("  [")] == [
        "  [1] pump.md",
        "  [2] notes.txt",
    ]


def test_the_last_passage_can_be_cited():
    step = read("so[2]", PUMP, NOTES)
    assert "  [2] notes.txt" in prediction_text.describe_answer("Answer", step).splitlines()


def test_the_number_0_cites_no_passage():
    step = read("so[0]", PUMP, NOTES)
    assert "It cites none of the passages." in prediction_text.describe_answer("Answer", step)


def test_a_document_that_was_also_read_is_named_once():
    step = read("born there[2]", PUMP, NOTES, SECOND_PAGE)
    lines = prediction_text.describe_answer("Answer", step).splitlines()
    assert lines[-1] == "  Also read: pump.md"


def test_an_empty_answer_is_described():
    shown = prediction_text.describe_answer("Answer", read("", PUMP))
    assert "(the model wrote nothing)" in shown


def test_an_answer_without_passages_is_only_the_answer():
    assert prediction_text.describe_answer("Answer", read("so")) == "Answer\n  so"


def test_a_note_is_shown_with_its_answer():
    noted = replace(read("so", PUMP), note="the search found nothing new")
    shown = prediction_text.describe_prediction(predict(noted))
    assert "Note\n  the search found nothing new" in shown


def test_a_single_answer_has_no_number():
    shown = prediction_text.describe_prediction(predict(read("so[1]", PUMP)))
    assert "\nAnswer\n  so [1]\n" in shown


def test_the_last_answer_is_not_repeated_as_the_kept_one():
    rounds = (read("a", PUMP, judged=verdict(revised_question="what?")), read("b", PUMP))
    assert "Kept" not in prediction_text.describe_prediction(predict(*rounds))


# Verdicts in words.


@pytest.mark.parametrize(
    ("score", "words"),
    [
        (0.3, "the answer is wrong (score 0.30 of 1)"),
        (0.4, "the answer may be wrong (score 0.40 of 1)"),
        (0.6, "the answer may be wrong (score 0.60 of 1)"),
        (0.7, "the answer is correct (score 0.70 of 1)"),
    ],
)
def test_a_score_is_a_no_below_a_third_and_a_yes_above_two_thirds(score, words):
    assert prediction_text.describe_score(verdict(score=score), "correctness") == words


@pytest.mark.parametrize(
    ("judgment", "words"),
    [
        ("true", "The verifier accepts this answer: "),
        ("false", "The verifier rejects this answer: "),
        ("unclear", "The verifier cannot decide whether this answer is right: "),
        ("perhaps", "The verifier gives no judgment: "),
    ],
)
def test_a_judgment_is_a_sentence(judgment, words):
    shown = prediction_text.describe_verdict(verdict(judgment), True)
    assert " ".join(shown.split()).startswith(f"Verdict {words}")


def test_a_verdict_without_scores_is_its_judgment_alone():
    bare = Verdict(*[None] * 6, "true", "", True, "")
    shown = " ".join(prediction_text.describe_verdict(bare, True).split())
    assert shown == "Verdict The verifier accepts this answer. It asks for no second search."


@pytest.mark.parametrize(
    ("is_last", "name"),
    [(True, "Revised question (not searched)"), (False, "Revised question")],
)
def test_a_revised_question_of_the_last_verdict_was_not_searched(is_last, name):
    shown = prediction_text.describe_verdict(verdict(revised_question="which?"), is_last)
    assert shown.endswith(f"\n\n{name}\n  which?")


def test_only_the_last_verdicts_revised_question_was_not_searched():
    rounds = (
        read("a", PUMP, judged=verdict(revised_question="which one?")),
        read("b", PUMP, judged=verdict(revised_question="which two?")),
    )
    shown = prediction_text.describe_prediction(predict(*rounds))
    assert "Revised question\n  which one?" in shown
    assert "Revised question (not searched)\n  which two?" in shown


# Rows of answers.csv.


def test_a_row_has_both_answers_and_the_verdict_between_them():
    judged = replace(verdict("false", 0.9, "which button?"), correctness=0.1)
    rounds = (read("blue[2]", PUMP, NOTES, judged=judged), read("green button[1]", PUMP, NOTES))
    assert answers.describe_answer(predict(*rounds)) == {
        "system": "CoV-RAG",
        "id": "q1",
        "question": "reset?",
        "gold": "green button | the green one",
        "answer": "green button [1]",
        "source": "pump.md",
        "right": "right",
        "verifier": "rejected; searched again: wrong before, right now",
        "first_answer": "blue [2]",
        "judgment": "false",
        "expected_correctness": 0.1,
        "revised_question": "which button?",
    }


def test_a_row_scores_the_answer_that_is_kept():
    rounds = (
        read("green button", PUMP, judged=verdict(revised_question="which?")),
        read("blue", PUMP),
    )
    kept = replace(predict(*rounds), kept=0)
    assert answers.describe_answer(kept)["right"] == "right"


def test_a_row_without_a_verdict_leaves_its_columns_empty():
    row = answers.describe_answer(predict(read("green button", PUMP)))
    assert (row["verifier"], row["judgment"], row["revised_question"]) == ("–", "", "")
    assert row["expected_correctness"] is None


def test_an_answer_to_a_question_without_usable_gold_is_not_scored():
    question = replace(QUESTION, answers=("---",))
    assert answers.describe_answer(predict(read("a"), question=question))["right"] == "not scored"


@pytest.mark.parametrize(
    ("answer", "source"),
    [
        ("a[2] b[1]", "pump.md; notes.txt"),
        ("a[1] b[3]", "pump.md"),
        ("a[3]", "pump.md"),
        ("a[0] b[4]", "none cited"),
    ],
)
def test_the_sources_of_an_answer_are_named_in_order_and_once(answer, source):
    assert answers.describe_sources(read(answer, PUMP, NOTES, SECOND_PAGE)) == source


def test_a_second_answer_that_is_no_better_is_still_wrong():
    rounds = (read("a", PUMP, judged=verdict(revised_question="which?")), read("b", PUMP))
    assert answers.describe_verifier(predict(*rounds)) == "rejected; searched again: still wrong"


@pytest.mark.parametrize(
    ("judgment", "words"),
    [("true", "accepted"), ("unclear", "undecided"), ("perhaps", "no judgment")],
)
def test_a_verdict_without_a_second_search_is_one_word(judgment, words):
    prediction = predict(read("a", PUMP, judged=verdict(judgment)))
    assert answers.describe_verifier(prediction) == words


def test_the_answers_of_one_system_are_shown(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    predictions = [
        predict(read("green button[1]", PUMP)),
        predict(read("blue[1]", NOTES), system="RAG"),
    ]
    text = answers.show_answers(answers.answer_table(predictions), "RAG")
    assert text.splitlines()[0].split() == list(answers.COLUMNS)
    assert "notes.txt" in text
    assert "pump.md" not in text


# covrag eval


@pytest.fixture
def summary(tmp_path):
    """What `covrag eval` prints about three questions; one of them cannot be scored."""
    vague = replace(QUESTION, id="q3", answers=("---",))
    predictions = []
    for system in ("RAG", "CoV-RAG", "closed-book"):
        predictions += [
            predict(read("green button", PUMP), system=system),
            predict(read("blue", PUMP), question=replace(QUESTION, id="q2"), system=system),
            predict(read("it", PUMP), question=vague, system=system),
        ]
    rows = answers.answer_table(predictions)
    return evaluate.summarise(predictions, rows, tmp_path, "mine")


def test_right_answers_are_counted_among_those_that_can_be_scored(summary):
    assert summary.count("1 of 2") == 3


def test_the_answers_of_cov_rag_are_shown(summary):
    assert "Answers of CoV-RAG:" in summary


def test_without_cov_rag_the_answers_of_the_last_system_are_shown(tmp_path):
    predictions = [predict(read("a"), system=system) for system in ("closed-book", "RAG")]
    rows = answers.answer_table(predictions)
    assert "Answers of RAG (untuned):" in evaluate.summarise(predictions, rows, tmp_path, "mine")


@pytest.mark.parametrize(
    ("folder", "name"),
    [("/data/embedded", "embedded-own"), ("/data/???", "own"), ("/data/manuals", "manuals")],
)
def test_a_run_never_gets_the_name_of_a_folder_of_the_repository(folder, name):
    assert evaluate.choose_name("", folder) == name


def test_a_name_that_is_given_is_kept():
    assert evaluate.choose_name("run-2.b", "/data/manuals") == "run-2.b"


# Messages.


def test_ctrl_c_ends_a_command_like_a_shell(capsys):
    with pytest.raises(SystemExit) as ended, plain_messages("covrag ask"):
        raise KeyboardInterrupt
    assert ended.value.code == 130
    assert capsys.readouterr().err == "covrag ask: interrupted\n"


def test_a_closed_pipe_ends_a_command_quietly(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # restored after the test
    with pytest.raises(SystemExit) as ended, plain_messages("covrag ask"):
        raise BrokenPipeError
    assert ended.value.code == 0
    assert capsys.readouterr().err == ""


@pytest.fixture
def warned(capsys, monkeypatch):
    """A function that warns from a file, and returns what is written."""

    def warn(file):
        monkeypatch.setattr(sys, "__stderr__", sys.stderr)
        with plain_messages("covrag ask"):
            warnings.simplefilter("always")
            warnings.warn_explicit("page 2: no text", UserWarning, file, 1)
        return capsys.readouterr().err

    return warn


def test_a_warning_of_this_package_is_one_sentence(warned):
    assert warned(commands.__file__) == "covrag ask: page 2: no text\n"


def test_a_warning_of_another_package_is_not_shown(warned):
    assert warned(pd.__file__) == ""


@pytest.mark.parametrize(
    ("name", "is_the_users"),
    [
        ("ParameterError", True),
        ("DataChanged", True),
        ("FileNotFoundError", True),
        ("KeyError", False),
        ("SomeError", False),
    ],
)
def test_only_errors_that_a_user_can_cause_need_no_traceback(name, is_the_users):
    assert is_caused(name) == is_the_users


def test_a_wrong_option_is_one_sentence_with_status_2(capsys):
    with pytest.raises(SystemExit) as ended:
        Parser("covrag ask").parse_args(["--wide"])
    assert ended.value.code == 2
    expected = "covrag ask: unrecognized arguments: --wide (covrag ask --help lists all options)\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_status_is_shown_only_in_a_terminal(is_terminal, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    with ask.show_status("working"):
        print("a bar", file=sys.stderr)
    written = capsys.readouterr().err
    assert ("working" in written) == is_terminal


def test_bars_are_hidden_while_a_question_is_answered(capsys):
    with ask.show_status("working"):
        print("a bar", file=sys.stderr)
    assert capsys.readouterr().err == ""


# covrag


def run_covrag(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["covrag", *words])
    commands.covrag()


def test_without_a_command_the_help_is_shown(monkeypatch, capsys):
    run_covrag(monkeypatch)
    assert capsys.readouterr().out.startswith("usage: covrag COMMAND")


def test_an_unknown_command_ends_with_the_nearest_one(monkeypatch, capsys):
    with pytest.raises(SystemExit) as ended:
        run_covrag(monkeypatch, "brwose")
    assert ended.value.code == 2
    expected = "covrag: 'brwose' is not known; did you mean 'browse'? (covrag --help lists all)\n"
    assert capsys.readouterr().err == expected


def test_a_command_gets_the_words_after_its_name(monkeypatch):
    calls = []
    monkeypatch.setattr(ask, "main", calls.append)
    run_covrag(monkeypatch, "ask", "folder", "who?")
    assert calls == [["folder", "who?"]]
    assert sys.argv[0] == "covrag ask"


def test_a_notebook_is_run_by_its_name(monkeypatch):
    calls = []
    monkeypatch.setattr(commands, "run_notebook", lambda *words: calls.append(words))
    run_covrag(monkeypatch, "table2", "-p", "k", "3")
    ((words, name),) = calls
    assert words[0].endswith("notebooks/table2.ipynb")
    assert words[1:] == ["-p", "k", "3"]
    assert name == "covrag table2"


# What eval and ask do before they answer.


def test_the_work_is_described_in_one_sentence():
    described = evaluate.describe_work([QUESTION], ["RAG", "CoV-RAG"])
    assert described == "1 question for 2 systems; a stopped run resumes"


@pytest.mark.parametrize("command", [ask, evaluate])
def test_an_unknown_system_stops_before_any_document_is_read(command, capsys, monkeypatch):
    monkeypatch.setattr(command.own_folder, "load_folder", lambda *_: pytest.fail("read"))
    option = "--system" if command is ask else "--systems"
    with pytest.raises(SystemExit) as ended:
        command.main(["folder", option, "RAGG"])
    assert ended.value.code == 2
    assert f"{command.PROG}: system 'RAGG' is not known" in capsys.readouterr().err


@pytest.fixture
def asked(monkeypatch, capsys):
    """A function that asks with options; returns what was run and what was written to stderr."""
    runs = []

    def load_folder(folder, model, k, name):
        runs.append((folder, model, k, name))
        return SimpleNamespace(config="config", passages=[PUMP], notes=("first note", "second"))

    def run_system(name, config, resources, questions):
        runs.append((name, config, resources, [question.question for question in questions]))
        return [predict(read("so[1]", PUMP), question=questions[0])]

    monkeypatch.setattr(ask.own_folder, "load_folder", load_folder)
    monkeypatch.setattr(systems_evaluate, "load_resources", lambda config, passages: passages)
    monkeypatch.setattr(systems_evaluate, "run_system", run_system)

    def main(*words):
        ask.main(list(words))
        return runs, capsys.readouterr()

    return main


def test_ask_runs_the_system_on_the_whole_question(asked):
    runs, written = asked("manuals", "--model", "m", "--k", "3", "--system", "RAG", "how", "so?")
    assert runs == [("manuals", "m", 3, "ask"), ("RAG", "config", [PUMP], ["how so?"])]
    assert written.out.startswith("Question\n  how so?\n")


def test_ask_uses_cov_rag_by_default_and_writes_its_notes_apart_from_the_answer(asked):
    runs, written = asked("manuals", "how?")
    assert runs[1][0] == "CoV-RAG"
    assert written.err == "covrag ask: first note\ncovrag ask: second\n"
    assert "note" not in written.out
