import pandas as pd
import pytest

from covrag_lite import evaluation
from covrag_lite.config import Config, Retrieval, Run
from covrag_lite.report import retrieval
from covrag_lite.report.retrieval import WORDINGS, retrieval_table, wide
from covrag_lite.retrieval import load_retriever, search_twice


@pytest.fixture
def frame(tmp_path, passages, questions, scripted):
    config = Config(retrieval=Retrieval(k=1), run=Run(runs=str(tmp_path)))
    made = evaluation.run_system("CoV-RAG", config, evaluation.load_tools(config, passages, scripted), questions)
    return pd.concat([evaluation.to_frame(made).assign(retriever=name) for name in ("one", "two")], ignore_index=True)


def test_the_share_before_and_after_has_n_intervals_and_what_was_gained_and_lost(frame):
    frame.loc[(frame.retriever == "two") & (frame.id == "q2"), ["found_first", "found_last"]] = [False, True]
    long = retrieval_table(frame).set_index(["measure", "questions", "retriever"])
    row = long.loc[("answer", "NQ", "two")]
    assert (row.n, row["first"], row["last"], row.delta, row.gained, row.lost) == (2, 50, 100, 50, 1, 0)
    assert row.first_low < 50 < row.first_high and row.delta_low <= 50 <= row.delta_high
    assert (
        long.loc[("answer", "all", "one"), "n"] == 3
    )  # the gold answer of q4 normalises to nothing, so it has no share in it
    assert (
        long.loc[("gold passage", "broken wording", "one"), "n"],
        long.loc[("gold passage", "well put", "one"), "n"],
    ) == (1, 2)


def test_the_papers_engines_stand_beside_its_own_sets_and_measure_alone(frame):
    paper = retrieval_table(frame).query("n.isna()")
    assert (
        set(paper.measure) == {"answer"}
        and set(paper.questions) == {"NQ", "WebQ"}
        and set(paper.retriever) == {"Bing*", "Chrome*"}
    )
    assert wide(retrieval_table(frame)).set_index(["questions", "retriever"]).loc[("NQ", "Bing*")].tolist() == [
        "",
        "65.0",
        "66.8",
        "+1.8",
        "",
        "",
        "",
    ]


def test_searched_without_a_model_nothing_stands_beside_the_paper(passages, questions):
    made = evaluation.to_frame(search_twice(questions, load_retriever(Retrieval(k=1), passages))).assign(
        retriever="bm25"
    )
    assert retrieval_table(made).n.notna().all()


def test_table_and_pictures_are_written_and_the_same_each_time(frame, tmp_path):
    long = retrieval_table(frame)
    text = retrieval.save(tmp_path, long, long, ["a note"])
    assert (
        "| single iteration" in text
        and f"| {WORDINGS[1]}" in text
        and "- a note" in text
        and (tmp_path / "table6.md").read_text() == text
    )
    assert len(pd.read_csv(tmp_path / "table6.csv")) == 2 * len(long)
    for name in ("a", "b"):
        retrieval.plot_retrieval(long, "toy", tmp_path / f"{name}.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
