import json

import pandas as pd
import pytest

from covrag_lite import evaluation
from covrag_lite.config import Config, Retrieval, Run
from covrag_lite.report import pictures, tables
from covrag_lite.speed import report


@pytest.fixture
def frame(tmp_path, passages, questions, scripted):
    config = Config(retrieval=Retrieval(k=2), run=Run(runs=str(tmp_path)))
    return evaluation.to_frame(evaluation.run(config, evaluation.load_tools(config, passages, scripted), questions))


def test_the_long_table_has_n_interval_and_the_papers_value_in_every_row(frame):
    long = tables.accuracy_table(frame, "table2")
    assert list(long.columns) == [
        "table",
        "dataset",
        "system",
        "backbone",
        "metric",
        "n",
        "value",
        "low",
        "high",
        "paper",
    ]
    row = long[(long.system == "RAG") & (long.dataset == "nq") & (long.metric == "normalised")].iloc[0]
    assert (row.n, row.value, row.paper) == (2, 50.0, 58.5) and 0 < row.low < 50 < row.high < 100
    webq = long[(long.system == "RAG") & (long.dataset == "webq")].set_index("metric")
    assert (webq.loc["raw", "n"], webq.loc["normalised", "n"]) == (2, 1)  # q4's gold normalises to nothing
    assert (long.groupby(["system", "metric"]).size() == 3).all()  # two sets and their average


def test_the_papers_averages_are_the_means_of_its_sets():
    for _, values in tables.PAPER.values():
        sets = [value for name, value in values.items() if name != "average"]
        assert values["average"] == pytest.approx(sum(sets) / len(sets), abs=0.1)


def test_systems_are_compared_on_the_same_questions(frame):
    table = tables.compare(frame).set_index(["comparison", "metric"])
    assert table.loc[("CoV-RAG-S → CoV-RAG", "normalised"), "n"] == 3
    assert table.loc[("CoV-RAG-S → CoV-RAG", "normalised"), "gained"] == 0


def test_the_notes_count_what_failed_and_what_was_revised(frame):
    text = "\n".join(tables.notes(frame))
    assert "1 of 4 questions have gold answers that normalise to nothing" in text
    assert "CoV-RAG: 0 of 4 verdicts did not parse; judged true 3, false 1, unclear 0" in text
    assert "CoV-RAG: 1 questions were revised; that helped 0, hurt 0 and left 1" in text


def test_helped_and_hurt_are_told_apart(frame):
    frame.loc[(frame.system == "CoV-RAG") & frame.revised, ["normalised", "first_normalised"]] = [True, False]
    assert "helped 1, hurt 0" in "\n".join(tables.notes(frame))
    frame.loc[(frame.system == "CoV-RAG") & frame.revised, ["normalised", "first_normalised"]] = [False, True]
    assert "helped 0, hurt 1" in "\n".join(tables.notes(frame))


def test_table_and_picture_are_written_and_the_same_each_time(frame, tmp_path):
    long = tables.accuracy_table(frame, "table2")
    text = tables.save_table(tmp_path, "table2", long, tables.compare(frame), ["a note"])
    assert "| RAG " in text and "- a note" in text and (tmp_path / "table2.md").read_text() == text
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "table2.csv"), long, rtol=1e-2, check_dtype=False)
    pictures.plot_accuracy(long, "toy", tmp_path / "a.png")
    pictures.plot_accuracy(long, "toy", tmp_path / "b.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_the_best_way_to_train_is_the_quickest_within_the_memory():
    rows = [
        ("7b", "plain", 1.0, 1.0),
        ("7b", "ours, small", 1.8, 0.4),
        ("7b", "ours, middle", 2.0, 0.6),
        ("7b", "ours, large", 2.2, 0.7),
        ("tiny", "ours", 1.5, None),
    ]
    best = report.best(pd.DataFrame(rows, columns=["shape", "variant", "speed_ratio", "memory_ratio"]))
    assert best.variant.tolist() == ["ours, middle", "ours"]


def test_recorded_speed_can_be_told_in_prose(tmp_path):
    row = {
        "shape": "7b",
        "variant": "ours, 4k",
        "speed_ratio": 1.96,
        "memory_ratio": 0.455,
        "tokens_per_second": 13645.3,
        "operations_per_token": 1,
        "failure": None,
    }
    about = {"device": "a GPU", "torch": "2.0", "commit": "0123456789"}
    (tmp_path / "training.json").write_text(
        json.dumps(
            about | {"matrix_rate": 1e15, "rows": [row, row | {"variant": "left out", "tokens_per_second": None}]}
        )
    )
    (tmp_path / "inference.json").write_text(
        json.dumps(about | {"bm25": {"ours, 10,000 passages": {"faster": 152.44, "queries_per_second": 6645.7}}})
    )
    told = report.facts(tmp_path)
    assert (
        told["7b ours, 4k speed_ratio"] == "2.0"
        and told["7b ours, 4k memory_ratio"] == "0.46"
        and not any("left out" in name for name in told)
    )
    assert (
        "{bm25 ours, 10,000 passages faster}, {bm25 ours, 10,000 passages queries_per_second}".format_map(told)
        == "152.4, 6,646"
    )
