"""Two-hop questions: what second queries find."""

import json
import lzma
from dataclasses import replace

import pandas as pd
import pytest

from covrag_lite.data.missing import DataMissing
from covrag_lite.records import Passage, Question
from covrag_lite.runs import recorded
from covrag_lite.runs.recorded import Recorded
from covrag_lite.systems import names
from covrag_lite.tables import all_tables, two_hop
from covrag_lite.tables.two_hop import (
    BEST_TITLE,
    EXPANSION,
    FIRST_TITLE,
    GOLD_TITLES,
    NAMED_TITLES,
    QUESTION,
)

# The first passage names the film's director; only the director's passage has the answer.
FILM = Passage("film", "Silver Tide", "Silver Tide is a film directed by Mira Toll.")
DIRECTOR = Passage("director", "Mira Toll", "She comes from Stonebridge.")
OTHER = Passage("other", "Harbour", "A harbour with silver boats.")
PASSAGES = [FILM, DIRECTOR, OTHER]
ASKED = Question(
    "q1", "y_2wiki", "Where is the maker of the film Silver Tide from?", ("Stonebridge",),
    ("film", "director"),
)  # fmt: skip


def search(queries):
    """Find the director's passage by the name, and else the film's."""
    return [[DIRECTOR] if "Mira Toll" in query else [FILM] for query in queries]


@pytest.fixture
def found(monkeypatch):
    """Whether each search finds an answer, with one passage per search."""
    monkeypatch.setattr(two_hop, "N_TITLES", 1)
    return two_hop.search_all([ASKED], {"q1": "a guess"}, PASSAGES, search).iloc[0]


def test_the_question_and_a_wrong_guess_do_not_find_the_second_passage(found):
    assert not found[QUESTION]
    assert not found[EXPANSION]


def test_the_title_of_the_first_passage_leads_back_to_it(found):
    assert not found[FIRST_TITLE]
    assert not found[BEST_TITLE]


def test_titles_are_named_by_passages_or_by_the_question():
    titles = ["Silver Tide", "Mira Toll"]
    assert two_hop.select_named(ASKED.question, titles, [FILM]) == ["Mira Toll"]
    assert two_hop.select_named(ASKED.question, titles, [OTHER]) == []


def test_a_name_counts_in_whole_words_only():
    assert not two_hop.is_named("Mira Toll", ["Mira Tollmann"])


def test_a_title_that_only_the_first_passage_names_finds_the_answer(found):
    assert found[NAMED_TITLES]
    assert found[GOLD_TITLES]


def test_the_recorded_expanded_query_gets_its_question_back(tmp_path):
    folder = tmp_path / "seed-6"
    folder.mkdir()
    run = Recorded(folder, "claim", {}, tmp_path)
    rounds = [{"query": None}, {"query": "⟨question 401⟩? Jane Austen"}]
    row = {"id": "q1", "rounds": rounds, "systems": {names.EXPANSION: [[0, 1]]}}
    other = {"id": "q2", "rounds": rounds, "systems": {names.EXPANSION: []}}
    write_rows(run.predictions(), [row, other])
    questions = {name: replace(ASKED, id=name, question="who wrote emma") for name in ("q1", "q2")}
    assert two_hop.load_expanded(run, questions) == {"q1": "Who wrote Emma? Jane Austen"}


def write_rows(path, rows):
    path.write_bytes(lzma.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))


@pytest.fixture
def table():
    """Of four questions, the second query of each kind finds answers for these."""
    found = {
        QUESTION: [1, 0, 0, 0],
        EXPANSION: [0, 1, 0, 0],
        FIRST_TITLE: [0, 0, 0, 0],
        BEST_TITLE: [0, 1, 1, 0],
        NAMED_TITLES: [1, 1, 1, 0],
        GOLD_TITLES: [1, 1, 1, 1],
    }
    about = {"dataset": ["y_2wiki"] * 3 + ["y_musique"], "id": list("abcd")}
    return two_hop.build(pd.DataFrame(about | found), None)


def test_a_query_is_counted_alone_and_with_the_question(table):
    assert table.facts["all expanded query"] == "25.0"
    assert table.facts["all expanded query with"] == "50.0"


def test_queries_are_compared_with_the_expanded_one(table):
    assert table.facts["expanded query → best of three titles"] == "+25.0"
    assert table.facts["with the question: expanded query → titles of the gold passages"] == "+50.0"


def test_each_set_has_its_own_rows(table):
    assert table.facts["MuSiQue titles of the gold passages"] == "100.0"
    assert table.facts["2Wiki titles of the gold passages n"] == "3"


def test_the_table_is_built_by_make_check():
    assert all_tables()["two_hop"] == two_hop.__name__


@pytest.mark.parametrize("kind", [DataMissing, ValueError])
def test_missing_or_faulty_data_is_one_sentence(kind, tmp_path, monkeypatch, capsys):
    def find_nothing(*arguments):
        raise kind("no passages")

    run = Recorded(tmp_path, "claim", {})
    monkeypatch.setattr(recorded, "find_in", lambda folder: [run])
    monkeypatch.setattr(two_hop, "record", find_nothing)
    with pytest.raises(SystemExit) as ended:
        two_hop.main([str(tmp_path), str(tmp_path / "data"), str(tmp_path / "out")])
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith("error: no passages\n")
