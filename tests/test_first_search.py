"""Does a second search still find new answers if the first search is better?"""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from comparison_frames import row_of
from toy import PASSAGES, QUESTIONS

from covrag_lite.config import Config, Retrieval
from covrag_lite.records import Prediction, Round
from covrag_lite.retrieval import load_retriever
from covrag_lite.runs import recorded
from covrag_lite.runs.recorded import Recorded
from covrag_lite.systems import names
from covrag_lite.tables import all_tables, first_search
from covrag_lite.tables.first_search import BM25, DENSE, EXPANSION, FUSED, QUESTION, REVISION

Q1, Q2 = QUESTIONS[:2]  # "who wrote the harbour lamp", and a question of another set
UNSCORED = replace(Q1, id="q9", answers=("---",))


def predict(question, system, *queries):
    rounds = tuple(Round(query, (), "an answer") for query in queries)
    return Prediction(question, system, rounds, "toy")


# Which queries are searched.


def test_the_second_queries_are_those_of_expansion_and_of_the_verifier_without_scores():
    predictions = [
        predict(Q1, names.RAG_TRAINED, Q1.question),
        predict(Q1, names.EXPANSION, Q1.question, "guessed"),
        predict(Q1, names.TWO_ADAPTERS_NO_CHAIN, Q1.question, "revised"),
        predict(Q1, names.TWO_ADAPTERS, Q1.question, "with scores"),
    ]
    expected = {QUESTION: Q1.question, EXPANSION: "guessed", REVISION: "revised"}
    assert first_search.list_queries(predictions) == {Q1: expected}


def test_a_question_that_is_not_revised_has_no_revised_query():
    predictions = [predict(Q1, names.TWO_ADAPTERS_NO_CHAIN, Q1.question)]
    assert first_search.list_queries(predictions) == {Q1: {QUESTION: Q1.question}}


# What a search finds.


@pytest.fixture
def found():
    """What BM25's first passage contains, for a question with and one without an expanded query."""
    queries = {
        Q1: {QUESTION: "keeper Mira Toll", EXPANSION: "harbour lamp novel", REVISION: "Mira"},
        UNSCORED: {QUESTION: "Harbour Lamp"},
    }
    search = load_retriever(Retrieval(k=1), list(PASSAGES.values()))
    return first_search.search_again(queries, search)


def test_a_query_is_found_if_its_passage_contains_a_gold_answer(found):
    assert found.loc[("one", "q1")].to_dict() == {QUESTION: 0, EXPANSION: 1, REVISION: 0}


def test_nothing_is_known_of_questions_that_cannot_be_scored(found):
    assert found.loc[("one", "q9")].isna().all()


def test_a_gold_answer_must_occur_in_whole_words():
    queries = {replace(Q1, answers=("lam",)): {QUESTION: "harbour", EXPANSION: "", REVISION: ""}}
    found = first_search.search_again(queries, lambda texts: [[PASSAGES["a"]] for _ in texts])
    assert (found == 0).all(axis=None)


# The table, of 40 questions.


def counts_of(**columns):
    """Counts whose columns are texts of 1, 0 and "-" (no such query), one letter per question."""
    defaults = {}
    for retriever in first_search.RETRIEVERS:
        for kind in (QUESTION, EXPANSION, REVISION):
            defaults[f"{retriever} {kind}"] = "0" * 40
    letters = defaults | {name.replace("_", " "): text for name, text in columns.items()}
    frame = pd.DataFrame({name: list(text) for name, text in letters.items()})
    frame = frame.replace("-", np.nan).astype(float)
    frame["dataset"] = ["nq"] * 20 + ["webq"] * 20
    return frame.assign(id=[f"q{number}" for number in range(40)])


@pytest.fixture
def counts():
    return counts_of(
        bm25_question="1" * 10 + "0" * 30,
        bm25_expanded_query="0" * 10 + "1" * 20 + "0" * 10,  # 20 new ones; the first 10 are lost
        bm25_revised_question="-" * 30 + "1" * 10,
        fused_question="1" * 22 + "0" * 18,
        fused_expanded_query="1" * 24 + "0" * 16,  # 2 new ones
        dense_question="0" * 36 + "1" * 4,
        dense_expanded_query="0" * 40,
    )


@pytest.fixture
def table(counts):
    return first_search.build(counts, run=None)


def test_a_gain_counts_answers_that_only_the_second_search_finds(table):
    row = row_of(table, "found", retriever=BM25, second_query=EXPANSION)
    shares = {name: row[name] for name in ("first", "second", "either", "gain")}
    assert shares == {"first": "25.0", "second": "50.0", "either": "75.0", "gain": "+50.0"}


def test_a_gain_is_also_a_share_of_the_questions_that_the_first_search_missed(table):
    row = row_of(table, "found", retriever=BM25, second_query=EXPANSION)
    assert row["of those missed"] == "66.7"  # 20 of 30


def test_questions_without_a_second_query_count_by_their_first_search(table):
    row = row_of(table, "found", retriever=BM25, second_query=REVISION)
    assert (row["searched again"], row["second"]) == ("10", "100.0")
    assert (row["n"], row["either"], row["gain"]) == ("40", "50.0", "+25.0")


def test_the_gains_of_two_retrievers_are_compared_by_question(table):
    row = row_of(table, "Paired", comparison="gain: BM25 → fused")
    # 20 questions gain with BM25 only, questions 22 and 23 with both.
    assert (row["difference"], row["gained"], row["lost"]) == ("-45.0", 0, 18)


def test_the_first_searches_of_two_retrievers_are_compared(table):
    row = row_of(table, "Paired", comparison="first search: BM25 → dense")
    assert (row["difference"], row["gained"], row["lost"]) == ("-15.0", 4, 10)


def test_one_better_search_is_compared_with_two_bm25_searches(table):
    row = row_of(table, "Paired", comparison="two BM25 searches → one fused search")
    assert (row["difference"], row["gained"], row["lost"]) == ("-20.0", 0, 8)


def test_every_better_retriever_is_compared(table):
    comparisons = table.part("Paired").comparison
    for retriever in (FUSED, DENSE):
        assert sum(retriever in name for name in comparisons) == 3


def test_gains_are_shown_for_each_set(table):
    row = row_of(table, "by question set", questions="WebQ")
    del row["95 % interval"]
    assert row == {
        "questions": "WebQ",
        "n": "20",
        "bm25 first": "0.0",
        "bm25 gain": "+50.0",
        "fused first": "10.0",
        "fused gain": "+10.0",
        "difference of gains": "-40.0",
    }


def test_facts_have_the_gains_and_the_comparisons(table):
    facts = table.facts
    assert facts["bm25 expanded query gain"] == "+50.0"
    assert facts["gain: BM25 → fused"] == "−45.0"
    assert facts["gain: BM25 → fused n"] == "40"
    assert facts["WebQ fused gain"] == "+10.0"


# The record.


def test_what_was_found_is_recorded_with_its_data_and_its_source(tmp_path, monkeypatch):
    """The record of a toy run: the questions can be built again, passages are searched by BM25."""
    parameters = Config().change(k=1).flat()
    manifest = {"model_sha256": "abc", "weights": None, "parameters": parameters}
    source = Recorded(tmp_path / "results" / "toy", "claim", manifest, tmp_path)
    source.folder.mkdir(parents=True)
    source.file("manifest.json").write_text(json.dumps(manifest))
    predictions = [
        predict(Q1, names.EXPANSION, "keeper Mira Toll", "harbour lamp novel"),
        predict(Q1, names.TWO_ADAPTERS_NO_CHAIN, "keeper Mira Toll", "harbour lamp"),
        predict(UNSCORED, names.EXPANSION, "x", "y"),
    ]
    asked = []

    def load_some_retriever(settings, passages):
        asked.append((settings.retriever, settings.k, len(passages)))
        return load_retriever(replace(settings, retriever="bm25"), passages)

    monkeypatch.setattr(recorded, "load", lambda run: predictions)
    monkeypatch.setattr(first_search, "load_passages", lambda config: list(PASSAGES.values()))
    monkeypatch.setattr(first_search, "load_retriever", load_some_retriever)
    monkeypatch.setattr(first_search, "hash_encoder", lambda name: f"hash of {name}")

    folder = tmp_path / "new"
    searched = first_search.record(source, folder)

    assert asked == [(name, 1, 6) for name in ("bm25", "dense", "fused")]
    loaded = first_search.load(searched)
    assert loaded.id.tolist() == ["q1"]  # the other one cannot be scored
    row = loaded.iloc[0]
    assert (row["fused question"], row[f"dense {EXPANSION}"]) == (1, 1)
    written = json.loads((folder / "first_search.manifest.json").read_text())
    assert (written["queries"], written["model_sha256"]) == ("results/toy", "abc")
    assert written["encoder_sha256"] == "hash of minilm"
    assert {name: data["n"] for name, data in written["data"].items()} == {
        "questions": 2,
        "passages": 6,
    }


def test_the_command_searches_the_large_test_of_a_run_and_writes_the_table(
    tmp_path, monkeypatch, capsys, counts
):
    run = Recorded(tmp_path, "claim", {})
    monkeypatch.setattr(recorded, "find_in", lambda folder: [replace(run, table="table2"), run])
    monkeypatch.setattr(first_search, "record", lambda source, folder: (source, folder))
    monkeypatch.setattr(first_search, "load", lambda searched: counts)
    first_search.main([str(tmp_path), str(tmp_path / "out")])
    assert "Gain of the expanded query by question set" in capsys.readouterr().out
    assert (tmp_path / "out" / "first_search.facts.json").exists()


def test_a_folder_without_a_run_of_the_large_test_is_one_sentence(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        first_search.main([str(tmp_path), str(tmp_path / "out")])
    assert ended.value.code == 2
    assert "has no recorded run of the table claim" in capsys.readouterr().err


def test_make_check_builds_this_table_from_its_record():
    assert all_tables()["first_search"] == "covrag_lite.tables.first_search"
