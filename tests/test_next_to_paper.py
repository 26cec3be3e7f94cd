"""Our recorded real run next to the paper, and the gains of the large test, from records made by hand."""

import json

import pandas as pd
import pytest

from covrag_lite.labels import label_of
from covrag_lite.tables import claim, table2, table4
from covrag_lite.tables.accuracy import COLUMNS
from covrag_lite.tables.reproduction import REAL, SEED, load_rows, next_to_paper

SETS = {"nq": 10, "webq": 20, "mintaka": 30}  # our accuracy of the first system


def record_table(root, table, systems, papers):
    """A recorded accuracy table: each system is one point above the one before it."""
    rows = []
    for place, system in enumerate(systems):
        for dataset, value in SETS.items():
            ours = value + place
            for metric in ("raw", "normalised"):
                given = papers.get(system, {}).get(dataset)
                shown = ours if metric == "normalised" else 0
                rows.append((table, dataset, system, "toy", metric, 400, shown, shown - 5, shown + 5, given))
    folder = root / "results" / SEED
    folder.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows, columns=COLUMNS).to_csv(folder / f"{table}.csv", index=False)
    facts = {}
    for before in systems:
        for after in systems:
            gap = systems.index(after) - systems.index(before)
            facts |= {f"{before} → {after} {name} points": f"{gap:+d}.0" for name in SETS}
            facts |= {f"{before} → {after} {name} interval": "[−1.0, +4.0]" if gap else "–" for name in SETS}
    (folder / f"{table}.facts.json").write_text(json.dumps(facts))


@pytest.fixture
def root(tmp_path):
    papers = {"RAG trained": {"nq": 62.8, "webq": 68.3}, "CoV-RAG": {"nq": 66.0, "webq": 68.5}}
    record_table(tmp_path, "table2", [*table2.SHOWN, "CoV-RAG thresholds"], papers)
    return tmp_path


def test_the_papers_value_is_in_the_row_of_our_system(root):
    table = next_to_paper("table2", table2.SHOWN, root=root)
    assert table.index.tolist() == [label_of(system) for system in table2.SHOWN]  # in this order, with labels
    assert table.loc["CoV-RAG"].tolist() == ["CoV-RAG Llama2-13b", "66.0", "13.0 [8–18]", "68.5", "23.0 [18–28]"]
    assert table.loc["CoV-RAG, first answer"].iloc[0] == "–"  # the paper's Table 2 has no such row


def test_only_the_papers_own_sets_are_next_to_the_paper(root):
    table = next_to_paper("table2", table2.SHOWN, root=root)
    assert [name for name, _ in table.columns] == ["", *["NQ, n = 400"] * 2, *["WebQ, n = 400"] * 2]


def test_the_gain_of_the_paper_is_next_to_our_paired_one(root):
    table = next_to_paper("table2", table2.SHOWN, table2.DIFFERENCES, root=root)
    row = table.loc["CoV-RAG − RAG (trained)"].tolist()
    assert row == ["difference", "+3.2", "+2.0 [−1.0, +4.0]", "+0.2", "+2.0 [−1.0, +4.0]"]
    again = next_to_paper("table2", table2.SHOWN, [("RAG", "RAG")], root=root)
    assert again.iloc[-1].tolist()[1:3] == ["–", "+0.0"]  # no paper's value, and no interval where nothing differs


def test_table_4_names_the_place_of_the_revision_next_to_the_papers_name(tmp_path):
    record_table(tmp_path, "table4", list(table4.POSITIONS), {})
    table = next_to_paper("table4", table4.POSITIONS, table4.DIFFERENCES, table4.label, tmp_path)
    assert table.index.tolist()[:3] == ["No revision", "Rewrite first", "CoV-RAG"]
    assert table.iloc[:3, 0].tolist() == ["No-Revise", "Start-Revise", "End-Revise"]
    assert table.index.tolist()[3:] == ["Rewrite first − No revision", "CoV-RAG − No revision"]


def test_other_samples_have_no_value_of_the_paper(root):
    rows = load_rows("table2", root=root).assign(paper=99.0)
    table = table2.on_other_questions(rows)
    assert table.columns.tolist() == ["Mintaka (other questions)"]
    assert table.iloc[0, 0] == "30.0 [25–35]"


def record_claim(root, rows):
    """A recorded claim; a row is from, to, set, seed, both accuracies."""
    columns = ["from", "to", "set", "seed", "accuracy_from", "accuracy_to"]
    frame = pd.DataFrame(rows, columns=columns)
    difference = frame.accuracy_to - frame.accuracy_from
    frame = frame.assign(n=11898, difference=difference, low=difference - 1, high=difference + 1)
    frame = frame.assign(gained=1, lost=0, p=0.0, smallest_visible=0.4)
    (root / "results" / REAL).mkdir(parents=True)
    frame.to_csv(root / "results" / REAL / "claim.csv", index=False)


def test_a_gain_of_the_large_test_is_next_to_the_baseline_of_its_own_seeds(tmp_path):
    rows = [("RAG trained", "CoV-RAG", "all", seed, 27.0, 28.0) for seed in ("1", "3")]
    rows += [("RAG trained", "CoV-RAG", "all", claim.POOLED, 27.0, 26.5)]
    rows += [("RAG trained", claim.PLAIN_TWO, "all", "7", 25.0, 25.5)]
    rows += [("RAG trained", claim.PLAIN_TWO, "nq", "7", 1.0, 2.0), ("CoV-RAG-S", "CoV-RAG", "all", "1", 3.0, 4.0)]
    record_claim(tmp_path, rows)
    table = table2.large_test(root=tmp_path)
    assert table.index.tolist() == ["CoV-RAG", "Two readers, one search (post hoc)"]  # what was run
    assert table.loc["CoV-RAG"].tolist() == ["1, 3", "11,898", "27.0", "26.5", "−0.5", "[−1.5, +0.5]"]
    assert table.iloc[1].tolist() == ["7", "11,898", "25.0", "25.5", "+0.5", "[−0.5, +1.5]"]
