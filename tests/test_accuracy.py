import pandas as pd
import pytest

from covrag_lite import evaluate
from covrag_lite.config import Config
from covrag_lite.runs.outcomes import to_frame
from covrag_lite.tables import Table
from covrag_lite.tables import accuracy as tables


@pytest.fixture
def frame(tmp_path, passages, questions, scripted):
    config = Config().change(k=2, runs=str(tmp_path))
    return to_frame(evaluate.run(config, evaluate.load_resources(config, passages, scripted), questions))


def test_the_long_table_has_n_interval_and_the_papers_value_in_every_row(frame):
    long = tables.accuracy_table(frame, "table2")
    assert list(long.columns) == tables.COLUMNS
    row = long[(long.system == "RAG") & (long.dataset == "nq") & (long.metric == "normalised")].iloc[0]
    assert (row.n, row.value, row.paper) == (2, 50.0, 58.5)
    assert 0 < row.low < 50 < row.high < 100
    webq = long[(long.system == "RAG") & (long.dataset == "webq")].set_index("metric")
    assert (webq.loc["raw", "n"], webq.loc["normalised", "n"]) == (2, 1)  # q4's gold normalises to nothing
    assert (long.groupby(["system", "metric"]).size() == 3).all()  # two sets and their average
    assert long[long.dataset == "average"].paper.isna().all()  # the paper's is of four sets


def test_the_notes_count_what_failed_and_what_was_revised(frame):
    text = "\n".join(tables.notes(frame))
    assert "1 of 4 questions have gold answers that normalise to nothing" in text
    assert "CoV-RAG: 0 of 4 verdicts did not parse; judged true 3, false 1, unclear 0" in text
    assert "CoV-RAG: 1 questions were revised; that helped 0, hurt 0 and left 1" in text


def test_table_and_picture_are_written_and_the_same_each_time(frame, tmp_path):
    long = tables.accuracy_table(frame, "table2")
    text = Table("table2", long, {"Accuracy": tables.wide(long).reset_index()}, ["a note"]).save(tmp_path)
    assert "| RAG " in text
    assert "- a note" in text
    assert (tmp_path / "table2.md").read_text() == text
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "table2.csv"), long, rtol=1e-2, check_dtype=False)
    for name in ("a", "b"):
        tables.plot_accuracy(long, "toy", tmp_path / f"{name}.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
