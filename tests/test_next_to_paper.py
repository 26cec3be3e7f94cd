"""Our recorded run next to the paper, and the gains of the large test, from hand-made records."""

import json
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import pandas as pd
import pytest

from covrag_lite.config import Config
from covrag_lite.runs.recorded import Recorded
from covrag_lite.tables import accuracy, paper_comparison, table2, table4
from covrag_lite.tables.accuracy import COLUMNS
from covrag_lite.tables.comparisons.pairs import POOLED, TWO_PLAIN_READERS
from covrag_lite.tables.labels import label_of, label_of_comparison
from covrag_lite.tables.paper_comparison import COMPLETE_SEED, REAL, load_rows, next_to_paper

# The main comparisons whose two systems the toy runs.
COMPARED = (
    ("closed-book", "RAG"),
    ("RAG", "RAG trained"),
    ("RAG trained", "CoV-RAG-S"),
    ("RAG trained", "CoV-RAG"),
    ("CoV-RAG-S", "CoV-RAG"),
)
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
    folder = root / "results" / COMPLETE_SEED
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


def test_a_system_that_the_picture_calls_post_hoc_is_called_so_in_the_table(large_test):
    assert [("post hoc" in name) for name in large_test.index] == [False, True]


def test_the_large_test_names_its_baseline(large_test):
    assert large_test.columns.tolist() == [
        *["seeds", "n", "RAG (trained), %", "this system, %", "difference", "95 % interval"]
    ]


def test_main_systems_are_compared_by_normalised_answers(frame):
    table = table2.compare_main_systems(frame)
    assert table.index.tolist() == [label_of_comparison(f"{a} → {b}") for a, b in COMPARED]
    assert table.columns.tolist() == [
        *["difference", "95 % interval", "gained", "lost", "McNemar p", "detectable"]
    ]
    assert table.loc["RAG (trained) → CoV-RAG"].tolist()[:4] == ["+3 of 6", "–", 3, 0]


def test_a_loss_of_the_main_systems_has_a_minus_sign(frame):
    swapped = frame.assign(
        system=frame.system.replace({"RAG": "closed-book", "closed-book": "RAG"})
    )
    row = table2.compare_main_systems(swapped).iloc[0]
    assert row.difference == "−1 of 6"


def test_gains_by_obstacle_are_called_by_their_obstacle(frame):
    table = table2.gain_by_failure(frame)
    assert table.index.tolist() == ["all", "no failure", "broken wording"]
    assert table.loc["broken wording"].tolist() == [1, "0.0", 1, "100.0", "+1 of 1", "–"]


@pytest.mark.parametrize("order, shown", [(1, "q2"), (-1, "q7")])
def test_the_first_rescued_question_is_shown(cov, order, shown):
    assert table2.rescued(cov[::order]).question.id == shown


def test_without_a_rescued_question_the_last_one_is_shown(cov):
    assert table2.rescued([cov[3], cov[0]]) is cov[0]


@pytest.mark.parametrize("n_larger, is_kept", [(3, True), (2, False), (0, False)])
def test_a_sample_of_a_larger_run_keeps_its_picture(
    predictions, tmp_path, monkeypatch, n_larger, is_kept
):
    larger = Recorded(tmp_path, "table2", {"data": {"questions": {"n": n_larger}}})
    larger.file("png").write_bytes(b"of the larger run")
    monkeypatch.setattr(table2, "choose", lambda config, root: larger if n_larger else None)
    monkeypatch.setattr("covrag_lite.tables.accuracy.plot_accuracy", write_drawn)
    run = SimpleNamespace(config=Config(), root=tmp_path, n=2)
    table2.build(predictions, run).plots["png"](tmp_path / "drawn.png")
    expected = b"of the larger run" if is_kept else b"drawn"
    assert (tmp_path / "drawn.png").read_bytes() == expected


def write_drawn(long, title, path):
    assert title.startswith("A sample: ")
    path.write_bytes(b"drawn")


def test_the_papers_own_sets_show_a_dash_where_the_paper_has_no_value(root):
    shown = accuracy.next_to_paper(load_rows("table2", root=root))
    assert shown["NQ, n = 400"].loc["RAG"].tolist() == ["–", "10.0 [5–15]"]
    assert shown["WebQ, n = 400"].loc["CoV-RAG"].tolist() == ["68.5", "23.0 [18–28]"]


def test_another_metric_can_be_next_to_the_paper(root):
    shown = accuracy.next_to_paper(load_rows("table2", root=root), "raw")
    assert shown["NQ, n = 400"].loc["CoV-RAG", "ours"] == "0.0 [-5–5]"


def test_recorded_outcomes_of_the_real_run_are_those_of_the_table(monkeypatch):
    runs = [SimpleNamespace(table="table4"), SimpleNamespace(table="table2")]
    monkeypatch.setattr(paper_comparison, "find_under", lambda folder, root: runs)
    monkeypatch.setattr(paper_comparison, "load_part", lambda run: run.table)
    assert paper_comparison.load_outcomes("table2") == "table2"


def test_a_question_whose_kept_answer_is_wrong_is_not_rescued(cov):
    kept_first = [replace(p, kept=0) if p.question.id == "q2" else p for p in cov]
    assert table2.rescued([*kept_first, cov[0]]).question.id == "q7"


def test_only_cov_rag_rescues(cov):
    others = [replace(p, system="RAG") for p in cov]
    assert table2.rescued(others) is others[-1]


def test_the_large_test_can_show_other_systems(tmp_path):
    rows = [("RAG trained", system, "all", "1", 20.0, 30.0) for system in ("CoV-RAG-S", "CoV-RAG")]
    record_comparisons(tmp_path, rows)
    shown = table2.large_test(systems=("CoV-RAG", "CoV-RAG-S"), root=tmp_path)
    assert shown.index.tolist() == ["CoV-RAG", "CoV-RAG, first answer"]
    assert shown.index.name == "system"


def test_recorded_outcomes_are_those_of_the_seed_with_all_tables(tmp_path, monkeypatch):
    asked = []

    def find_under(folder, root):
        asked.append((folder, root))
        return [SimpleNamespace(table="table2")]

    monkeypatch.setattr(paper_comparison, "find_under", find_under)
    monkeypatch.setattr(paper_comparison, "load_part", lambda run: run.table)
    paper_comparison.load_outcomes("table2", tmp_path)
    assert asked == [(tmp_path / "results" / COMPLETE_SEED, tmp_path)]


def test_our_systems_are_in_the_order_that_is_asked_for(root):
    table = next_to_paper("table2", table2.SHOWN[::-1], root=root)
    assert table.index.tolist() == [label_of(system) for system in table2.SHOWN[::-1]]


def test_our_systems_on_other_questions_have_their_labels(root):
    table = table2.on_other_questions(load_rows("table2", root=root))
    assert table.index.tolist() == [label_of(system) for system in table2.SHOWN]
