import json
import shutil
from dataclasses import asdict, replace

import pytest
from conftest import write_jsonl

from covrag_lite import evaluate
from covrag_lite.config import Config, Retrieval
from covrag_lite.data import load_passages, load_questions
from covrag_lite.retrieval import load_retriever
from covrag_lite.runs import recorded
from covrag_lite.runs.outcomes import to_frame
from covrag_lite.tables import table6
from covrag_lite.tables.table6 import join_retrievers, retrieval_table, search_twice, wide


@pytest.fixture
def frame(tmp_path, passages, questions, scripted):
    config = Config().change(k=1, runs=str(tmp_path))
    resources = evaluate.load_resources(config, passages, scripted)
    made = evaluate.run_system("CoV-RAG", config, resources, questions)
    return join_retrievers({"one": made, "two": made})


def test_the_share_before_and_after_has_n_intervals_and_what_was_gained_and_lost(frame):
    frame.loc[(frame.retriever == "two") & (frame.id == "q2"), ["found_first", "found_last"]] = [False, True]
    long = retrieval_table(frame).set_index(["measure", "questions", "retriever"])
    row = long.loc[("answer", "NQ", "two")]
    assert (row.n, row["first"], row["last"], row.delta, row.gained, row.lost) == (2, 50, 100, 50, 1, 0)
    assert row.first_low < 50 < row.first_high
    assert row.delta_low <= 50 <= row.delta_high
    # The gold answer of q4 normalises to nothing, so it has no share in it.
    assert long.loc[("answer", "all", "one"), "n"] == 3
    assert long.loc[("gold passage", "broken wording", "one"), "n"] == 1
    assert long.loc[("gold passage", "well put", "one"), "n"] == 2


def test_of_a_page_of_the_web_nobody_knows_whether_it_is_gold(passages, questions):
    made = search_twice(questions, lambda queries: [passages[:2] for _ in queries])
    frame = join_retrievers({"bm25": made, "web-ddgs": made}).groupby("retriever").gold_first.count()
    assert frame.to_dict() == {"bm25": 3, "web-ddgs": 0}


def test_the_papers_engines_stand_beside_its_own_sets_and_measure_alone(frame):
    paper = retrieval_table(frame).query("n.isna()")
    assert set(paper.measure) == {"answer"}
    assert set(paper.questions) == {"NQ", "WebQ"}
    assert set(paper.retriever) == {"Bing*", "Chrome*"}
    shown = wide(retrieval_table(frame)).set_index(["questions", "retriever"])
    assert shown.loc[("NQ", "Bing*")].tolist() == ["", "65.0", "66.8", "+1.8", "", "", ""]


def test_without_a_model_the_second_round_asks_in_the_clean_wording(passages, questions):
    questions[1] = replace(questions[1], question="edit marow of the copper lanterns")
    find = load_retriever(Retrieval(k=1), passages)
    asked = []

    def search(queries):
        asked.append(queries[:2])
        return find(queries)

    frame = to_frame(search_twice(questions, search)).set_index("id")
    assert asked == [
        ["who wrote the copper lanterns", "edit marow of the copper lanterns"],
        ["who wrote the copper lanterns", "Where was Edith Marrow born?"],
    ]
    assert not frame.loc["q2", "gold_first"]
    assert frame.loc["q2", "gold_last"]
    assert frame.loc["q4", "gold_first"] is None
    assert "Where was Edith Marrow born?" not in frame["query"].tolist()  # the data's own text is not recorded


@pytest.fixture
def run(tmp_path, passages, questions, scripted):
    """A recorded Table 6 over a folder, two questions of each set answered and all of them searched."""
    files = {name: [one for one in questions if one.dataset == name] for name in ("nq", "webq")}
    for name, rows in (files | {"corpus": passages}).items():
        write_jsonl(tmp_path / "library" / f"{name}.jsonl", map(asdict, rows))
    changes = {"data": str(tmp_path / "library"), "retrievers": ("bm25",), "k": 1}
    config = Config().change(runs=str(tmp_path), n_questions=2, systems=("CoV-RAG",), **changes)
    asked, corpus = load_questions(config), load_passages(config)
    resources = evaluate.load_resources(config, corpus, scripted)
    made = evaluate.run(config, resources, asked) + search_twice(asked, resources.search)
    data = {"questions": asked, "every": asked, "passages": corpus}
    run = recorded.save_run(tmp_path, "table6", {"bm25": made}, config, scripted, 1.0, data)
    return recorded.Recorded(tmp_path, "table6", json.loads(json.dumps(run.manifest)), tmp_path)


@pytest.mark.filterwarnings("ignore:.*normalise to nothing")
def test_table_6_is_made_anew_byte_for_byte_where_its_data_is_gone(run, tmp_path):
    for name in ("with", "without"):
        table6.build(table6.load(run), run).save(tmp_path / name)
        shutil.rmtree(tmp_path / "library", ignore_errors=True)
    with pytest.raises(FileNotFoundError, match="library"):
        table6.score_searches(run)
    made = {file.name: file.read_bytes() for file in (tmp_path / "without").iterdir()}
    assert made == {file.name: file.read_bytes() for file in (tmp_path / "with").iterdir()}
    assert set(made) == {f"table6.{end}" for end in ("csv", "md", "png", "clean.png", "facts.json")}
