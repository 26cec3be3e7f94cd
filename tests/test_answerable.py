"""Comparisons on the questions whose answer is in the corpus."""

from dataclasses import asdict, replace

import pandas as pd
import pytest
from conftest import write_jsonl
from toy import PASSAGES, QUESTIONS

from covrag_lite.config import Retrieval
from covrag_lite.retrieval import load_retriever
from covrag_lite.systems.names import COV_RAG_S, EXPANSION, RAG_TRAINED
from covrag_lite.tables import answerable

Q1, Q2 = QUESTIONS[:2]


@pytest.fixture
def search():
    return load_retriever(Retrieval(k=2), list(PASSAGES.values()))


def test_a_question_is_answerable_if_its_answer_finds_a_passage_with_it(search):
    assert answerable.find_answerable([Q1], search) == [Q1]


def test_a_question_whose_answer_is_in_no_passage_is_not_answerable(search):
    unknown = Q1.__class__("q9", "one", "who sank the lamp", ("Agnes Vale",))
    assert answerable.find_answerable([unknown], search) == []


def test_ids_are_loaded_as_they_were_saved(tmp_path):
    answerable.save_ids(tmp_path / "ids.xz", [Q1, Q2])
    assert answerable.load_ids(tmp_path / "ids.xz") == {("one", "q1"), ("one", "q2")}


def frame_of(outcomes):
    """A frame of two systems: by question id, whether each of them is right."""
    rows = []
    for name, (baseline, expanded) in outcomes.items():
        for system, right in ((RAG_TRAINED, baseline), (EXPANSION, expanded)):
            rows.append(
                {
                    "system": system,
                    "dataset": "one",
                    "id": name,
                    "whole": right,
                    "likelihood": -1.0,
                    "kept_likelihood": -1.0,
                    "words_first": baseline,
                }
            )
    return pd.DataFrame(rows)


# Of 60 questions, 40 are answerable; expansion gains 30 of these and loses 10 of the others.
GAINED = {f"a{i}": (False, i < 30) for i in range(40)}
LOST = {f"b{i}": (i < 10, False) for i in range(20)}
IDS = {("one", name) for name in GAINED}


@pytest.fixture
def table():
    return answerable.build({"1": frame_of(GAINED | LOST)}, {}, IDS)


def test_the_gain_on_answerable_questions_is_theirs_alone(table):
    row = table.rows[table.rows.questions == "answerable"].iloc[0]
    assert (row.n, row.difference) == (40, 75.0)


def test_the_gain_on_the_other_questions_is_separate(table):
    row = table.rows[table.rows.questions == "other"].iloc[0]
    assert (row.n, row.difference) == (20, -50.0)


def test_facts_count_the_answerable_questions(table):
    assert table.facts["n answerable"] == "40"
    assert table.facts["share answerable"] == "67"
    assert table.facts["found by the first search"] == "0"


def test_a_question_is_searched_with_its_first_gold_answer():
    queries = []
    answerable.find_answerable([Q1], lambda texts: queries.extend(texts) or [[]])
    assert queries == ["who wrote the harbour lamp Ada Voss"]


def test_any_gold_answer_counts_if_it_occurs_in_whole_words():
    question = replace(Q1, answers=("nobody", "lamp"))
    passages = [[PASSAGES["a"]], [replace(PASSAGES["a"], text="lampshade", title="")]]
    found = answerable.find_answerable([question, question], lambda texts: passages)
    assert found == [question]


def test_ids_are_saved_by_set_in_a_folder_of_their_own(tmp_path):
    path = tmp_path / "new" / "deep" / "ids.xz"
    answerable.save_ids(path, [Q1, replace(Q2, dataset="two")])
    assert answerable.load_ids(path) == {("one", "q1"), ("two", "q2")}


def test_the_answerable_questions_of_a_folder_are_found_by_a_deep_search(
    tmp_path, monkeypatch, capsys
):
    asked = []

    def load_retriever(retrieval, passages):
        asked.append((retrieval.k, len(passages)))
        return lambda queries: [list(PASSAGES.values()) for _ in queries]

    monkeypatch.setattr(answerable, "load_retriever", load_retriever)
    rows = {"one": [Q1, replace(Q1, id="q9", answers=("Agnes Vale",))]}
    for name, records in (rows | {"corpus": PASSAGES.values()}).items():
        write_jsonl(tmp_path / "data" / f"{name}.jsonl", map(asdict, records))
    answerable.main([str(tmp_path / "data"), str(tmp_path / "ids.xz")])
    assert answerable.load_ids(tmp_path / "ids.xz") == {("one", "q1")}
    assert capsys.readouterr().out == "1 of 2 questions are answerable\n"
    assert asked == [(answerable.DEPTH, len(PASSAGES))]


def test_every_question_of_the_folder_is_searched(tmp_path, monkeypatch):
    configs = []
    monkeypatch.setattr(answerable, "load_questions", lambda config: configs.append(config) or [Q1])
    monkeypatch.setattr(answerable, "load_passages", lambda config: [])
    monkeypatch.setattr(answerable, "load_retriever", lambda *asked: lambda queries: [[]])
    monkeypatch.setattr("sys.argv", ["answerable", "folder", str(tmp_path / "ids.xz")])
    answerable.main()
    (config,) = configs
    assert (config.data.data, config.data.n_questions) == ("folder", 0)
    assert (tmp_path / "ids.xz").exists()


def test_facts_have_no_seed_in_their_names(table):
    assert table.facts["answerable RAG trained → RAG trained, every query expanded by guesses"]
    name = "answerable RAG trained → RAG trained, every query expanded by guesses seeds"
    assert table.facts[name] == "1"


def test_a_comparison_names_the_seeds_that_ran_both_systems():
    both = frame_of(GAINED | LOST)
    frames = {"1": both, "2": both[both.system == RAG_TRAINED], "3": both}
    rows = answerable.compare(frames)
    of_pair = next(row for row in rows if row["to"] == EXPANSION)
    assert (of_pair["seed"], of_pair["n"]) == ("1, 3", 60)


def test_the_papers_mixture_is_compared_with_a_reader_over_its_seeds():
    reader = frame_of(GAINED)
    reader = reader[reader.system == RAG_TRAINED]
    first = reader.assign(system=COV_RAG_S, whole=True)
    arms = {("again", "3"): reader, ("paper", "1"): first, ("paper", "2"): first}
    (row,) = answerable.compare_mixture(arms, {"1": reader})
    assert (row["from"], row["to"]) == ("RAG trained again", "paper, first answer")
    assert (row["seed"], row["set"], row["difference"]) == ("1, 2", "all", 100.0)


def test_questions_whose_answer_the_first_search_finds_are_counted_among_the_answerable():
    all_listed = {("one", name) for name in GAINED | LOST}
    facts = answerable.count_facts(frame_of(GAINED | LOST), all_listed)
    assert facts == {
        **{"n answerable": "60", "n": "60", "share answerable": "100"},
        "found by the first search": "17",  # 10 of 60
    }


def test_a_question_is_listed_by_its_set_and_id():
    frame = frame_of(GAINED)
    assert answerable.select(frame.assign(dataset="two"), IDS, keep=True).empty
    assert len(answerable.select(frame.assign(dataset="two"), IDS, keep=False)) == len(frame)


def test_both_kinds_of_questions_are_a_part_with_labels(table):
    assert list(table.parts) == ["Questions: answerable", "Questions: other"]
    part = table.part("other")
    assert part.comparison.tolist() == ["RAG (trained) → Query expansion"]
    assert part.n.tolist() == ["20"]
    assert table.notes == [answerable.ANSWERABLE_NOTE]


def test_large_numbers_of_questions_have_a_comma():
    many = {f"a{i}": (False, i < 30) for i in range(1200)}
    table = answerable.build({"1": frame_of(many)}, {}, {("one", name) for name in many} - IDS)
    assert table.facts["n"] == "1,200"
    assert table.facts["n answerable"] == "1,160"
    assert table.part("Questions: answerable").n.tolist() == ["1,160"]
