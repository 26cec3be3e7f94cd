"""Accuracy tables of the toy: values, intervals, comparisons, notes and files.

CoV-RAG answers q1 to q5 and q7 (q6 has no gold answer). Its first answers are right, wrong, right,
right, right and wrong; its last answers are right, right, right, wrong, right and right. q1 to q4
are in set one, the others in set two.
"""

from types import SimpleNamespace

import pandas as pd
import pytest
import toy
from matplotlib import pyplot
from toy import SYSTEMS

from covrag_lite.config import Config
from covrag_lite.metrics import METRICS
from covrag_lite.runs.frame import to_frame
from covrag_lite.systems import SYSTEMS as ENTRIES
from covrag_lite.tables.accuracy import (
    accuracy_table,
    build_accuracy,
    facts_of_accuracy,
    facts_on_paper_sets,
    legend,
    notes,
    wide,
)
from covrag_lite.tables.accuracy_picture import plot_accuracy
from covrag_lite.tables.facts import facts_of, facts_of_rows
from covrag_lite.tables.intervals import share, with_interval
from covrag_lite.tables.labels import format_p, label_of
from covrag_lite.tables.paired import (
    compare_pairs,
    count_changes,
    format_difference,
    with_detectable_effects,
)
from covrag_lite.tables.table import Table

# Right answers: normalised, of 4 questions in set one and 2 in set two, with the plain mean of both
# accuracies (pooling would weight set one twice); raw, of 4 and 3, where capitals, quotation marks
# and the 2 of a citation count.
RIGHT = {
    "closed-book": (0, 0, 0.0, 0, 0),
    "RAG": (1, 0, 12.5, 1, 1),  # q3 by its second gold answer
    "RAG trained": (2, 0, 25.0, 2, 1),
    "CoV-RAG w/o chain": (2, 0, 25.0, 2, 1),  # q1 by its second gold answer
    "CoV-RAG-S": (3, 1, 62.5, 2, 1),  # q4 with a curly quotation mark
    "Start-Revise trained": (4, 1, 75.0, 3, 1),
    "CoV-RAG thresholds": (4, 1, 75.0, 3, 1),
    "CoV-RAG": (3, 2, 87.5, 3, 1),  # q7 in capitals
    "CoV-RAG, likelier answer": (4, 2, 100.0, 3, 1),
}


@pytest.fixture(scope="session")
def long(frame):
    return accuracy_table(frame, "table2")


def cells_of(long, metric, system):
    rows = long[(long.metric == metric) & (long.system == system)]
    return rows.set_index("dataset")


# Values and intervals.


def test_systems_are_in_the_order_of_a_tables_rows(long):
    assert list(dict.fromkeys(long.system)) == list(SYSTEMS)


@pytest.mark.parametrize("system", RIGHT)
def test_questions_without_a_gold_answer_count_only_for_the_raw_accuracy(long, system):
    assert cells_of(long, "normalised", system).n.tolist() == [4, 2, 6]
    assert cells_of(long, "raw", system).n.tolist() == [4, 3, 7]


@pytest.mark.parametrize("system", RIGHT)
def test_the_average_is_the_plain_mean_of_both_sets(long, system):
    first_set, second_set, mean, _, _ = RIGHT[system]
    expected = [25 * first_set, 50 * second_set, mean]
    assert cells_of(long, "normalised", system).value.tolist() == pytest.approx(expected)


@pytest.mark.parametrize("system", RIGHT)
def test_a_gold_answer_must_occur_as_whole_words(long, system):
    first_set, second_set, _, _, _ = RIGHT[system]
    second_whole = max(0, second_set - 1)  # q5's 2 is in 1829
    expected = [25 * first_set, 50 * second_whole, 12.5 * first_set + 25 * second_whole]
    assert cells_of(long, "whole", system).value.tolist() == pytest.approx(expected)


@pytest.mark.parametrize("system", RIGHT)
def test_the_raw_accuracy_compares_characters(long, system):
    _, _, _, first_raw, second_raw = RIGHT[system]
    expected = [25 * first_raw, 100 * second_raw / 3, 12.5 * first_raw + 50 * second_raw / 3]
    assert cells_of(long, "raw", system).value.tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    "dataset, low, high",
    [
        # Wilson, z = 1.96: (p + z²/2n ± z √(p(1 - p)/n + z²/4n²)) / (1 + z²/n)
        ("one", 30.064, 95.441),  # p = 3/4, n = 4
        ("two", 34.238, 100),  # p = 1, n = 2
        # MOVER: 87.5 - √(44.936² + 65.762²) / 2 and 87.5 + √(20.441² + 0²) / 2
        ("average", 47.676, 97.721),
    ],
)
def test_the_interval_of_an_accuracy(long, dataset, low, high):
    cell = cells_of(long, "normalised", "CoV-RAG").loc[dataset]
    assert (cell.low, cell.high) == pytest.approx((low, high), abs=0.001)


def test_a_share_of_nothing_is_unknown():
    assert with_interval("{:.1f}", *share([])) == "–"


def test_a_value_without_an_interval_is_written_alone():
    assert with_interval("{:.1f}", 50.0, float("nan"), float("nan")) == "50.0"


# The paper's values.


def test_a_value_of_the_paper_is_next_to_its_own_sets_only(cov):
    long = accuracy_table(to_frame(toy.of_public_sets(cov)), "table2")
    of_paper = cells_of(long, "normalised", "CoV-RAG").paper.to_dict()
    assert of_paper["nq"] == 66.0
    assert of_paper["webq"] == 68.5
    assert pd.isna(of_paper["average"])  # its average is of four sets


def test_other_sets_have_no_value_of_the_paper(long):
    assert long.paper.isna().all()


# Comparisons of two systems.


@pytest.fixture(scope="session", params=[None, 3, 11])
def comparisons(request, frame):
    """The comparisons of the frame, also with its rows in two other orders."""
    if request.param is not None:
        frame = frame.sample(frac=1, random_state=request.param)
    return compare_pairs(frame).set_index(["comparison", "metric"])


@pytest.mark.parametrize(
    "comparison, metric, row",
    [
        ("CoV-RAG-S → CoV-RAG", "normalised", [6, "+1 of 6", "–", 2, 1, "1.000"]),  # q4 is lost
        (
            "RAG trained → CoV-RAG, likelier answer",
            "normalised",
            [6, "+4 of 6", "–", 4, 0, "0.125"],  # 2 · 0.5⁴
        ),
        ("RAG trained → CoV-RAG", "whole", [6, "+2 of 6", "–", 2, 0, "0.500"]),
        ("closed-book → RAG", "raw", [7, "+2 of 7", "–", 2, 0, "0.500"]),
    ],
)
def test_questions_are_paired_by_their_ids(comparisons, comparison, metric, row):
    assert comparisons.loc[(comparison, metric)].tolist() == row


def test_a_difference_of_a_small_sample_is_a_count():
    first = [False] * 29
    last = [True] * 29
    assert format_difference(first, last) == ("+29 of 29", "–")


def test_a_difference_of_thirty_questions_or_more_is_in_points_with_its_interval():
    first = [False] * 40
    last = [True] * 30 + [False] * 10
    assert format_difference(first, last) == ("+75.0", "[+60.0, +87.5]")


@pytest.mark.parametrize(
    "p, text", [(0.0004, "< 0.001"), (0.001, "0.001"), (0.0213, "0.021"), (1.0, "1.000")]
)
def test_a_tiny_p_is_written_as_an_inequality(p, text):
    assert format_p(p) == text


def test_few_differing_questions_have_no_minimum_detectable_effect(frame, long):
    facts = facts_of_accuracy(frame, long, compare_pairs(frame))
    # On 4 questions no result has p < 0.05.
    assert facts["RAG trained → CoV-RAG, likelier answer visible"] == "–"


def test_the_minimum_detectable_effect_is_in_points():
    # 27 of 40 differing questions are detected; a share of 0.722 has as many in 80 %:
    # (2 · 0.722 - 1) · 40 / 400.
    many = pd.DataFrame({"gained": [24], "lost": [16], "n": [400]})
    assert with_detectable_effects(many).detectable.tolist() == ["4.4"]


@pytest.mark.parametrize("end, value", [("points", "+1 of 6"), ("gained", "2"), ("lost", "1")])
def test_a_comparison_is_a_fact(frame, long, end, value):
    facts = facts_of_accuracy(frame, long, compare_pairs(frame))
    assert facts[f"CoV-RAG-S → CoV-RAG {end}"] == value


def test_changes_are_counted_for_one_system(frame):
    assert count_changes(frame[frame.system == "CoV-RAG"]) == (3, 2, 1)


# Notes, facts and labels.


def test_a_note_counts_questions_without_a_gold_answer(frame):
    first = "1 of 7 questions have gold answers that normalise to nothing"
    assert notes(frame)[0].startswith(first)


@pytest.mark.parametrize(
    "note",
    [
        "CoV-RAG: 0 of 7 verdicts did not parse; judgments: true 2, false 4, unclear 1.",
        "CoV-RAG: 3 questions were searched again; that helped 2, hurt 1"
        " and changed nothing for 0.",
        "CoV-RAG: the last search finds an answer for 83 % of the questions,"
        " a gold passage for 80 %.",
    ],
)
def test_notes_describe_verdicts_and_searches(frame, note):
    assert note in notes(frame)


def test_a_fact_is_named_by_the_columns_of_its_row():
    rows = pd.DataFrame([{"system": "RAG", "value": -1.25, "n": 4}])
    facts = facts_of_rows(rows, "{system} all", {"": "{value:.1f}", "n": "{n}"})
    assert facts == {"RAG all": "−1.2", "RAG all n": "4"}


def test_without_forms_every_column_but_the_first_is_a_fact():
    rows = pd.DataFrame([{"system": "RAG", "value": 1.5, "n": 4}])
    assert facts_of_rows(rows, "{system}") == {"RAG value": "1.5", "RAG n": "4"}


def test_a_negative_fact_has_a_minus_sign():
    assert facts_of("a", {"": -1}) == {"a": "−1"}


def test_every_system_has_a_label_of_its_own():
    labels = [label_of(system) for system in ENTRIES]
    assert len(set(labels)) == len(ENTRIES)


def test_labels_fit_a_column():
    assert max(len(label_of(system)) for system in ENTRIES) <= 45


# Files.


@pytest.fixture
def saved(long, tmp_path):
    """The folder of a saved table, and its text."""
    table = Table("table2", long, {"Accuracy": wide(long).reset_index()}, ["a note"])
    return tmp_path, table.save(tmp_path)


def test_a_table_is_saved_as_markdown_with_its_notes(saved):
    folder, text = saved
    assert (folder / "table2.md").read_text() == text
    assert "| RAG " in text
    assert "- a note" in text


def test_a_table_is_saved_in_long_form(saved, long):
    stored = pd.read_csv(saved[0] / "table2.csv")
    expected = long.astype({"paper": float})
    pd.testing.assert_frame_equal(stored, expected, rtol=1e-2, check_dtype=False)


def test_a_table_without_facts_or_pictures_has_no_files_of_them(saved):
    assert {path.name for path in saved[0].iterdir()} == {"table2.md", "table2.csv"}


def test_a_picture_has_the_same_bytes_each_time(long, tmp_path):
    for name in ("a", "b"):
        plot_accuracy(long, "toy", tmp_path / f"{name}.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


@pytest.mark.parametrize("digits, cell", [(2, "1.23"), (3, "1.235"), (None, "1.23456")])
def test_a_table_is_saved_with_its_digits(digits, cell):
    table = Table("toy", pd.DataFrame({"value": [1.23456]}), digits=digits)
    assert table.files["csv"] == f"value\n{cell}\n"


def test_a_tables_text_has_its_parts_and_then_its_notes():
    part = pd.DataFrame({"system": ["RAG", "CoV-RAG"], "%": [5, 12.5]})
    table = Table("toy", pd.DataFrame(), {"First": part, "Second part": part[:1]}, ["a", "b"])
    assert table.text == (
        "First\n\n| system  | %    |\n|---------|------|\n| RAG     | 5.0  |\n"
        "| CoV-RAG | 12.5 |\n\n"
        "Second part\n\n| system | %   |\n|--------|-----|\n| RAG    | 5.0 |\n\n- a\n- b\n"
    )
    assert table.part("Second").equals(part[:1])


def test_a_table_has_files_only_for_what_it_has():
    facts = Table("toy", pd.DataFrame(), facts={"a": "−1"}, other_files={"json": "[]"})
    assert facts.files == {"json": "[]", "facts.json": '{\n"a": "−1"\n}\n'}


def test_a_table_is_saved_in_a_new_folder_with_its_pictures(tmp_path):
    drawn = []
    table = Table("toy", pd.DataFrame({"value": [1.0]}), plots={"png": drawn.append})
    table.save(tmp_path / "a" / "b")
    assert drawn == [tmp_path / "a" / "b" / "toy.png"]
    table.save(tmp_path / "c", draw=False)
    assert len(drawn) == 1


# What is shown.


def test_sets_are_columns_in_the_order_of_the_questions(frame):
    reordered = pd.concat([frame[frame.dataset == "two"], frame[frame.dataset == "one"]])
    table = wide(accuracy_table(reordered, "table2"))
    assert list(table) == ["two", "one", "Average"]


def test_many_questions_have_an_interval_and_the_papers_value(long):
    rows = long.assign(n=30)
    rows["paper"] = rows.paper.astype(float).where(rows.dataset != "one", 66.04)
    cell = wide(rows).loc["CoV-RAG", "one"]
    assert cell == "75.0 [30–95] (66.0)"
    assert wide(rows, digits=(2, 1)).loc["CoV-RAG", "one"] == "75.00 [30.1–95.4] (66.04)"


def test_one_column_per_metric_has_intervals_whatever_the_sample(long):
    rows = long[long.dataset == "one"]
    assert wide(rows, None).loc["CoV-RAG", "normalised"] == "75.0 [30–95]"


def test_a_legend_names_the_paper_only_where_it_has_a_value(long):
    assert legend(long) == "ours [95 % interval]"
    assert legend(long.assign(paper=[1.0] + [None] * (len(long) - 1))) == (
        "ours [95 % interval] (the paper)"
    )


@pytest.fixture(scope="module")
def built(frame):
    """The toy's accuracy table with a further fact."""
    run = SimpleNamespace(config=Config())
    return build_accuracy("table4", frame, run, {"another": "fact"})


def test_an_accuracy_table_has_a_part_per_metric_and_its_comparisons(built):
    headings = list(built.parts)
    assert [heading.partition(": ")[0] for heading in headings] == [
        *[f"Accuracy in %, {metric}" for metric in METRICS],
        "Paired comparisons on the same questions",
    ]
    for metric, heading in zip(METRICS, headings):
        row = built.parts[heading].set_index("system").loc["CoV-RAG"]
        n_right = RIGHT["CoV-RAG"][0 if metric == "normalised" else 3]
        assert row["one"] == f"{n_right if metric != 'whole' else 3} of 4"


def test_an_accuracy_table_has_its_notes_and_facts(built, frame):
    assert built.notes == notes(frame)
    assert built.facts["another"] == "fact"
    assert built.facts["CoV-RAG average"] == "87.5"
    assert built.facts["CoV-RAG average n"] == "6"
    assert built.facts["CoV-RAG gold"] == "80.0"
    assert built.facts["CoV-RAG-S → CoV-RAG p"] == "1.000"


def test_the_picture_of_an_accuracy_table_has_its_title(built, tmp_path):
    figure = built.plots["png"](tmp_path / "table4.png")
    title = figure.axes[0].get_title()
    pyplot.close(figure)
    assert title.startswith("A sample: too few questions")
    assert "Table 4: smollm2-135m on the fictional world, n = 2 to 4" in title


def test_comparisons_on_one_of_the_papers_sets_are_facts(predictions):
    frame = to_frame(toy.of_public_sets(predictions))
    facts = facts_on_paper_sets(frame)
    assert facts["CoV-RAG-S → CoV-RAG nq points"] == "+0 of 4"  # q2 is gained, q4 lost
    assert facts["CoV-RAG-S → CoV-RAG webq points"] == "+1 of 2"
    assert facts_on_paper_sets(frame[frame.dataset == "webq"]).keys() < facts.keys()


def test_a_system_that_does_not_search_has_no_note_on_its_search(frame):
    noted = [note.partition(":")[0] for note in notes(frame) if "the last search finds" in note]
    assert label_of("closed-book") not in noted
    assert label_of("RAG") in noted


def test_changes_count_only_revised_questions_that_can_be_scored(frame):
    rows = frame[frame.system == "CoV-RAG"].assign(revised=True)
    assert count_changes(rows) == (6, 2, 1)


@pytest.mark.parametrize("n, is_count", [(29, True), (30, False)])
def test_thirty_pairs_are_enough_for_an_interval(n, is_count):
    difference, interval = format_difference([False] * n, [True] * n)
    assert difference == (f"+{n} of {n}" if is_count else "+100.0")
    assert (interval == "–") == is_count


def test_the_systems_that_ran_are_compared_with_what_they_build_on(frame):
    rows = compare_pairs(frame)
    assert rows[rows.metric == "whole"].comparison.tolist() == [
        "closed-book → RAG",
        "RAG → RAG trained",
        "RAG trained → CoV-RAG-S",
        "RAG trained → CoV-RAG",
        "CoV-RAG-S → CoV-RAG",
        "RAG trained → CoV-RAG, likelier answer",
        "CoV-RAG-S → CoV-RAG, likelier answer",
        "CoV-RAG-S → Start-Revise trained",
        "Start-Revise trained → CoV-RAG",
        "CoV-RAG w/o chain → CoV-RAG",
    ]


def test_an_accuracy_is_a_fact_with_its_interval(frame, long):
    facts = facts_of_accuracy(frame, long, compare_pairs(frame))
    assert facts["CoV-RAG one interval"] == "[30–95]"
    assert facts["CoV-RAG one n"] == "4"


def test_notes_follow_the_order_in_which_systems_ran(frame):
    reordered = pd.concat([frame[frame.system == name] for name in ("RAG", "CoV-RAG")])
    systems = [note.partition(":")[0] for note in notes(reordered)[1:]]
    assert list(dict.fromkeys(systems)) == ["RAG (untuned)", "CoV-RAG"]


def test_a_search_whose_gold_passages_are_not_known_is_described_by_its_answers(frame):
    rows = frame[frame.system == "RAG"].assign(gold_last=None)
    assert notes(rows)[-1] == (
        "RAG (untuned): the last search finds an answer for 83 % of the questions."
    )
