"""Our recorded run next to the paper, and the gains of the large test, from hand-made records."""

import json
from itertools import product

import pandas as pd
import pytest

from covrag_lite.tables import table2, table4
from covrag_lite.tables.accuracy import COLUMNS
from covrag_lite.tables.comparisons.pairs import POOLED, TWO_PLAIN_READERS
from covrag_lite.tables.labels import label_of
from covrag_lite.tables.paper_comparison import REAL, SEED, load_rows, next_to_paper

SETS = {"nq": 10, "webq": 20, "mintaka": 30}  # our accuracy of the first system


def record_table(root, table, systems, papers):
    """Record an accuracy table: each system is one point above the one before it."""
    rows = []
    for place, system in enumerate(systems):
        for dataset, first_value in SETS.items():
            of_paper = papers.get(system, {}).get(dataset)
            for metric in ("raw", "normalised"):
                value = first_value + place if metric == "normalised" else 0
                about = (table, dataset, system, "toy", metric, 400)
                rows.append((*about, value, value - 5, value + 5, of_paper))
    folder = root / "results" / SEED
    folder.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows, columns=COLUMNS).to_csv(folder / f"{table}.csv", index=False)
    facts = {}
    for before, after in product(systems, repeat=2):
        gap = systems.index(after) - systems.index(before)
        for dataset in SETS:
            name = f"{before} → {after} {dataset}"
            facts[f"{name} points"] = f"{gap:+d}.0"
            facts[f"{name} interval"] = "[−1.0, +4.0]" if gap else "–"
    (folder / f"{table}.facts.json").write_text(json.dumps(facts))


@pytest.fixture
def root(tmp_path):
    papers = {"RAG trained": {"nq": 62.8, "webq": 68.3}, "CoV-RAG": {"nq": 66.0, "webq": 68.5}}
    record_table(tmp_path, "table2", [*table2.SHOWN, "CoV-RAG thresholds"], papers)
    return tmp_path


@pytest.fixture
def table(root):
    return next_to_paper("table2", table2.SHOWN, table2.DIFFERENCES, root=root)


def test_systems_are_shown_with_their_labels_in_this_order(table):
    labels = [label_of(system) for system in table2.SHOWN]
    assert table.index.tolist() == [*labels, "CoV-RAG − RAG (trained)"]


def test_the_papers_value_is_in_the_row_of_our_system(table):
    cells = ["CoV-RAG Llama2-13b", "66.0", "13.0 [8–18]", "68.5", "23.0 [18–28]"]
    assert table.loc["CoV-RAG"].tolist() == cells


def test_a_system_that_the_paper_does_not_have_has_no_row_name_of_it(table):
    assert table.loc["CoV-RAG, first answer"].iloc[0] == "–"


def test_only_the_papers_own_sets_are_next_to_the_paper(table):
    headings = [heading for heading, _ in table.columns]
    assert headings == ["", *["NQ, n = 400"] * 2, *["WebQ, n = 400"] * 2]


def test_the_gain_of_the_paper_is_next_to_our_paired_one(table):
    cells = ["difference", "+3.2", "+2.0 [−1.0, +4.0]", "+0.2", "+2.0 [−1.0, +4.0]"]
    assert table.loc["CoV-RAG − RAG (trained)"].tolist() == cells


def test_a_gain_without_a_value_of_the_paper_or_an_interval_is_shown_alone(root):
    table = next_to_paper("table2", table2.SHOWN, [("RAG", "RAG")], root=root)
    assert table.iloc[-1].tolist()[1:3] == ["–", "+0.0"]


@pytest.fixture
def table_4(tmp_path):
    record_table(tmp_path, "table4", list(table4.POSITIONS), {})
    return next_to_paper("table4", table4.POSITIONS, table4.DIFFERENCES, table4.label, tmp_path)


def test_table_4_names_the_place_of_the_revision(table_4):
    assert table_4.index.tolist()[:3] == ["No revision", "Rewrite first", "CoV-RAG"]


def test_table_4_has_the_papers_names_next_to_ours(table_4):
    assert table_4.iloc[:3, 0].tolist() == ["No-Revise", "Start-Revise", "End-Revise"]


def test_differences_of_table_4_are_named_after_both_places(table_4):
    differences = ["Rewrite first − No revision", "CoV-RAG − No revision"]
    assert table_4.index.tolist()[3:] == differences


def test_other_samples_have_no_value_of_the_paper(root):
    rows = load_rows("table2", root=root).assign(paper=99.0)
    table = table2.on_other_questions(rows)
    assert table.columns.tolist() == ["Mintaka (other questions)"]
    assert table.iloc[0, 0] == "30.0 [25–35]"


def record_comparisons(root, rows):
    """Record comparisons; a row is from, to, set, seed and both accuracies."""
    columns = ["from", "to", "set", "seed", "accuracy_from", "accuracy_to"]
    frame = pd.DataFrame(rows, columns=columns)
    difference = frame.accuracy_to - frame.accuracy_from
    frame = frame.assign(n=11898, difference=difference, low=difference - 1, high=difference + 1)
    frame = frame.assign(gained=1, lost=0, p=0.0, smallest_visible=0.4)
    (root / "results" / REAL).mkdir(parents=True)
    frame.to_csv(root / "results" / REAL / "claim.csv", index=False)


@pytest.fixture
def large_test(tmp_path):
    """A large test of CoV-RAG with two seeds and of two readers with one."""
    rows = [("RAG trained", "CoV-RAG", "all", seed, 27.0, 28.0) for seed in ("1", "3")]
    rows += [
        ("RAG trained", "CoV-RAG", "all", POOLED, 27.0, 26.5),
        ("RAG trained", TWO_PLAIN_READERS, "all", "7", 25.0, 25.5),
        ("RAG trained", TWO_PLAIN_READERS, "nq", "7", 1.0, 2.0),
        ("CoV-RAG-S", "CoV-RAG", "all", "1", 3.0, 4.0),
    ]
    record_comparisons(tmp_path, rows)
    return table2.large_test(root=tmp_path)


def test_the_large_test_shows_what_was_run(large_test):
    assert large_test.index.tolist() == ["CoV-RAG", "Two readers, one search (post hoc)"]


def test_a_gain_of_several_seeds_is_the_pooled_one(large_test):
    cells = ["1, 3", "11,898", "27.0", "26.5", "−0.5", "[−1.5, +0.5]"]
    assert large_test.loc["CoV-RAG"].tolist() == cells


def test_a_gain_is_next_to_the_baseline_of_its_own_seeds(large_test):
    cells = ["7", "11,898", "25.0", "25.5", "+0.5", "[−0.5, +1.5]"]
    assert large_test.iloc[1].tolist() == cells
