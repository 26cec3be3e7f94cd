"""What CoV-RAG gains by kind of failure, on frames made by hand; the kind travels past every model."""

from dataclasses import replace

import pandas as pd

from covrag_lite import evaluate
from covrag_lite.config import Config
from covrag_lite.runs.outcomes import failure_of, load_outcomes, load_outputs, save_outcomes, save_predictions, to_frame
from covrag_lite.tables.failures import failure_table


def test_a_kind_tells_what_may_make_a_question_fail():
    kinds = ("", "author", "author/namesake", "author+misspelt", "two-hop")
    assert [failure_of(kind) for kind in kinds] == ["none", "none", "namesake", "broken wording", "two-hop"]


def make_frame(rows):
    """A frame from (failure, first right, judgment, gold first, gold last, last right) of each question."""
    columns = ["failure", "first_normalised", "judgment", "gold_first", "gold_last", "normalised"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.assign(system="CoV-RAG", revised=frame.judgment == "false")


def test_what_is_caught_mended_and_gained_stands_by_kind_of_failure():
    stale = [("stale", False, "false", False, True, True), ("stale", False, "true", False, False, False)]
    none = [("none", True, "true", True, True, True), ("none", True, "false", True, False, False)]
    table = failure_table(make_frame(stale + none)).set_index("questions")
    assert list(table.index) == ["all", "none", "stale"]
    assert list(table.loc["stale", ["n", "first", "caught", "doubted", "revised"]]) == [2, "0.0", "1 of 2", "0 of 0", 1]
    assert list(table.loc["stale", ["mended", "last", "gain"]]) == ["1 of 1", "50.0", "+50.0"]
    assert list(table.loc["none", ["caught", "doubted", "mended", "gain"]]) == ["0 of 0", "1 of 2", "0 of 0", "-50.0"]
    assert table.loc["all", "gain"] == "+0.0"


def test_a_verdict_that_did_not_parse_catches_and_doubts_nothing():
    rows = [("none", False, "", False, False, False), ("none", True, None, True, True, True)]
    table = failure_table(make_frame(rows))
    assert set(table.caught) == set(table.doubted) == {"0 of 0"}


def test_the_kind_is_in_the_frame_and_in_no_prompt(passages, questions, scripted, tmp_path):
    config = Config().change(k=2, runs=str(tmp_path))
    marked = [replace(question, kind="author/namesake") for question in questions]
    resources = evaluate.load_resources(config, passages, scripted)
    predictions = evaluate.run_system("CoV-RAG", config, resources, marked)
    frame = to_frame(predictions)
    assert set(frame.failure) == {"namesake"}
    assert scripted.asked and not any("namesake" in prompt for prompt in scripted.asked)
    save_outcomes(tmp_path / "o.csv.gz", predictions)
    save_predictions(tmp_path / "p.jsonl.xz", predictions)
    told = to_frame(load_outcomes(tmp_path / "o.csv.gz", load_outputs(tmp_path / "p.jsonl.xz")))
    pd.testing.assert_frame_equal(failure_table(told), failure_table(frame))
