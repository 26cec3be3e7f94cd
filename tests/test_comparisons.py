"""Paired differences of systems: pairing, pooling over seeds, their test, facts and picture."""

import json

import numpy as np
import pandas as pd
import pytest
from comparison_frames import make_frame
from matplotlib import pyplot
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex

import covrag_lite.replication.__main__ as replication
from covrag_lite import metrics
from covrag_lite.systems import names
from covrag_lite.tables.comparisons.differences import (
    compare_systems,
    detectable_difference,
    facts_by_seed,
    format_span,
    list_main_seeds,
    round_p,
    select_main,
    sign_flip_p,
    to_whole_numbers,
)
from covrag_lite.tables.comparisons.pairs import (
    ALL_SETS,
    BASELINE,
    COMPARISONS,
    OURS,
    OURS_NO_CHAIN,
    POOLED,
    TWO_EXPANDED_READERS_COMBINED,
    TWO_PLAIN_READERS,
)
from covrag_lite.tables.comparisons.picture import (
    COLOURS,
    REPLACED,
    UNVERIFIED,
    VERIFIED,
    label_and_kind,
    plot,
)
from covrag_lite.tables.comparisons.table import build_seeds
from covrag_lite.tables.labels import SYSTEM_LABELS, label_of

TWO_SETS = ["nq"] * 4 + ["webq"] * 4
COUNTS = ["n", "difference", "gained", "lost"]
SIDES = ["accuracy_from", "accuracy_to", "difference"]


# The test of a difference.


@pytest.mark.parametrize("n, share", [(40, 0.3), (400, 0.6), (3000, 0.52)])
def test_the_p_of_one_seed_is_that_of_mcnemars_exact_test(n, share):
    rng = np.random.default_rng(1)
    before = rng.random(n) < 0.4
    after = np.where(rng.random(n) < 0.2, rng.random(n) < share, before)
    _, _, p = metrics.mcnemar(before.tolist(), after.tolist())
    assert sign_flip_p(after.astype(float) - before) == pytest.approx(p, rel=1e-6)


def test_without_a_differing_question_p_is_one():
    assert sign_flip_p(np.zeros(5)) == 1.0


def test_three_seeds_that_agree_are_not_three_times_the_questions():
    differences = np.array([1.0] * 12 + [-1.0] * 4 + [0.0] * 84)
    mean_of_three = np.mean([differences] * 3, axis=0)
    assert sign_flip_p(mean_of_three) == pytest.approx(sign_flip_p(differences))


def test_six_questions_that_gain_in_one_of_three_seeds_have_the_p_of_six_coin_flips():
    assert sign_flip_p(np.array([1 / 3] * 6)) == pytest.approx(2 / 2**6)


def test_differences_that_are_no_means_of_seeds_are_refused():
    with pytest.raises(ValueError, match="no means of at most 12 seeds"):
        sign_flip_p(np.array([0.1234567, 1.0]))


def test_the_detectable_difference_of_a_mean_of_seeds_is_2_8_standard_errors():
    # 80 % power at p < 0.05: (1.96 + 0.8416) · √(1/3) / √4
    assert detectable_difference(np.array([0.5, -0.5, 0.5, -0.5])) == pytest.approx(80.88, abs=0.01)


# Pairing and pooling.


@pytest.fixture
def pooled_rows():
    """CoV-RAG over RAG (trained), with two seeds; the first frame is in another order."""
    before = [0, 0, 0, 1, 1, 0, 0, 0]
    first = make_frame({BASELINE: before, names.COV_RAG: [1, 1, 0, 1, 0, 0, 0, 1]}, TWO_SETS)
    second = make_frame({BASELINE: before, names.COV_RAG: [1, 0, 0, 1, 1, 0, 0, 0]}, TWO_SETS)
    rows = build_seeds({"1": first.sample(frac=1, random_state=3), "2": second}).rows
    rows = rows[(rows["from"] == BASELINE) & (rows.to == names.COV_RAG)]
    return rows.set_index(["set", "seed"])


def test_questions_are_paired_by_their_ids(pooled_rows):
    assert pooled_rows.loc[(ALL_SETS, "1"), COUNTS].tolist() == [8, 25.0, 3, 1]


def test_a_set_has_a_row_of_its_own(pooled_rows):
    assert pooled_rows.loc[("nq", "1"), COUNTS].tolist() == [4, 50.0, 2, 0]


def test_a_pooled_question_counts_once_by_its_mean(pooled_rows):
    assert pooled_rows.loc[(ALL_SETS, POOLED), COUNTS].tolist() == [8, 18.75, 4, 1]


def test_the_pooled_p_is_that_of_the_means(pooled_rows):
    means = np.array([1, 0.5, 0, 0, -0.5, 0, 0, 0.5])
    assert pooled_rows.loc[(ALL_SETS, POOLED)].p == pytest.approx(sign_flip_p(means), rel=0.05)


@pytest.fixture
def partial_rows():
    """Two seeds with four questions, and one that answered only two of them."""
    before = [0, 0, 0, 1]
    after = {"1": [1, 0, 0, 1], "2": [1, 1, 0, 1], "3": [0, 0]}
    frames = {}
    for seed, right in after.items():
        systems = {BASELINE: before[: len(right)], names.COV_RAG: right}
        frames[seed] = make_frame(systems, ["nq"] * len(right))
    rows = build_seeds(frames).rows
    rows = rows[(rows["from"] == BASELINE) & (rows.to == names.COV_RAG) & (rows.set == ALL_SETS)]
    return rows.set_index("seed")


def test_a_seed_with_a_part_of_the_questions_is_not_pooled(partial_rows):
    assert partial_rows.loc[POOLED, COUNTS].tolist() == [4, 37.5, 3, 0]


def test_a_seed_with_a_part_of_the_questions_has_a_row_of_its_own(partial_rows):
    assert partial_rows.loc["3", COUNTS].tolist() == [2, 0.0, 0, 0]


def test_without_a_pooled_row_the_seed_with_the_most_questions_is_the_main_one():
    frames = {}
    for seed, n in (("1", 2), ("2", 4), ("3", 3)):
        frames[seed] = make_frame({BASELINE: [0] * n, names.COV_RAG: [1] * n}, ["nq"] * n)
    assert set(select_main(build_seeds(frames).rows).seed) == {"2"}


def test_only_the_seeds_that_are_pooled_are_listed(partial_rows):
    assert list_main_seeds(partial_rows.reset_index()) == ["1", "2"]


@pytest.fixture
def uneven_rows():
    """Two seeds, of which only the first ran CoV-RAG."""
    first = {BASELINE: [0, 0, 1, 1], names.COV_RAG: [1, 0, 1, 1], names.COV_RAG_S: [0, 0, 0, 1]}
    second = {BASELINE: [0, 0, 0, 0], names.COV_RAG_S: [0, 0, 1, 1]}
    frames = {"1": make_frame(first, ["nq"] * 4), "2": make_frame(second, ["nq"] * 4)}
    rows = compare_systems(frames)
    return rows[rows.set == ALL_SETS].set_index(["from", "to", "seed"])


def test_a_comparison_has_the_baseline_of_its_own_seeds(uneven_rows):
    assert uneven_rows.loc[(BASELINE, names.COV_RAG, "1"), SIDES].tolist() == [50.0, 75.0, 25.0]


def test_a_pooled_comparison_has_the_mean_accuracies_of_its_seeds(uneven_rows):
    row = uneven_rows.loc[(BASELINE, names.COV_RAG_S, POOLED), SIDES]
    assert row.tolist() == [25.0, 37.5, 12.5]


def test_a_comparison_of_one_seed_is_not_pooled(uneven_rows):
    assert (BASELINE, names.COV_RAG, POOLED) not in uneven_rows.index


def test_every_compared_system_has_a_label():
    compared = set()
    for pair in COMPARISONS:
        compared.update(pair)
    assert compared <= set(SYSTEM_LABELS)


def test_a_comparison_without_two_systems_is_refused_before_anything_runs():
    with pytest.raises(SystemExit, match="-p claim has no two systems that can be compared"):
        replication.main(["smollm2-135m-world", "-p", "claim", BASELINE, "--stages", "claim"])


# Facts.


def test_a_fact_is_named_by_comparison_set_and_seed():
    rows = pd.DataFrame([{"comparison": "a → b", "set": "NQ", "seed": "1", "n": 4}])
    assert facts_by_seed("", rows) == {"a → b NQ 1 n": "4"}


def test_a_fact_over_all_questions_names_no_set():
    rows = pd.DataFrame([{"answers of": "a", "set": ALL_SETS, "seed": "1", "AUROC": "0.70"}])
    assert facts_by_seed("judge of", rows) == {"judge of a 1 AUROC": "0.70"}


def test_the_difference_is_the_fact_without_an_ending():
    rows = pd.DataFrame([{"comparison": "a → b", "seed": "1", "difference": "-1.0"}])
    assert facts_by_seed("", rows) == {"a → b 1": "−1.0"}


# The picture.


@pytest.fixture
def table():
    """Two seeds of two adapters; only the first seed ran those without scores."""
    before = [0, 0, 0, 1, 1, 0, 0, 0]
    both = make_frame({BASELINE: before, OURS: [1, 1, 0, 1, 0, 0, 0, 1]}, TWO_SETS)
    only_first = make_frame({OURS_NO_CHAIN: [0, 0, 1, 1, 1, 0, 0, 1]}, TWO_SETS)
    return build_seeds({"1": pd.concat([both, only_first]), "2": both})


@pytest.fixture
def panels(table, tmp_path):
    return plot(table.rows, tmp_path / "claim.png").axes


def test_by_set_a_comparison_is_pooled_if_it_has_several_seeds(table):
    seeds = table.part("by set").groupby("comparison").seed.unique().map(list)
    assert seeds[f"RAG (trained) → {label_of(OURS)}"] == [POOLED]
    assert seeds[f"RAG (trained) → {label_of(OURS_NO_CHAIN)}"] == ["1"]


def test_a_row_of_the_picture_names_its_seeds(panels):
    rows = [label.get_text().splitlines()[1] for label in panels[0].get_yticklabels()]
    # Two adapters, without scores, and two plain readers.
    assert rows == ["2 seeds, n = 8", "1 seed, n = 8", "2 seeds, n = 8"]


def test_the_second_panel_has_one_row_per_set(panels):
    assert [label.get_text() for label in panels[1].get_yticklabels()] == ["NQ (4)", "WebQ (4)"]


def test_single_seeds_are_dots_if_there_are_several(panels):
    dots = []
    for line in panels[0].lines:
        if line.get_marker() == "o":
            dots.append(line.get_xdata().tolist())
    assert dots == [[25.0, 25.0], [0.0, 0.0]]  # of two adapters, and of two plain readers


@pytest.fixture(scope="module")
def gains():
    """Three systems over all questions and by set; one was run with one seed only."""
    rows = []

    def add(system, dataset, seed, gain, n=1234):
        about = {"from": BASELINE, "to": system, "set": dataset, "seed": seed, "n": n}
        rows.append(about | {"difference": gain, "low": gain - 1, "high": gain + 2})

    for seed, gain in (("1", 1.0), ("2", 3.0), (POOLED, 2.0)):
        add(OURS, ALL_SETS, seed, gain)
        add(OURS, "nq", seed, gain + 10, 400)
        add(OURS, "webq", seed, gain + 20, 300)
    add(names.EXPANSION, ALL_SETS, "4", 0.5)
    add(names.EXPANSION, "nq", "4", 5.0, 400)
    add(names.EXPANSION, "webq", "4", 6.0, 300)
    add(names.TWO_ADAPTERS_NEXT, ALL_SETS, "4", -3.0)
    others = pd.DataFrame(rows).assign(**{"from": names.COV_RAG_S, "difference": 99.0})
    return pd.concat([pd.DataFrame(rows), others])


@pytest.fixture(scope="module")
def gain_panels(gains, tmp_path_factory):
    figure = plot(gains, tmp_path_factory.mktemp("gains") / "claim.png")
    yield figure.axes
    pyplot.close(figure)


def diamonds_of(axes):
    """Place and value of each diamond, with its interval and colour, from top to bottom."""
    points = [c for c in axes.collections if isinstance(c, PathCollection)]
    spans = [c.get_segments()[0] for c in axes.collections if isinstance(c, LineCollection)]
    rows = []
    for point, span in zip(points, spans):
        ((value, place),) = point.get_offsets().tolist()
        assert span[:, 1].tolist() == [place, place]
        colour = to_hex(point.get_facecolor()[0])
        rows.append((round(place, 2), value, *span[:, 0].tolist(), colour))
    return rows


def test_gains_over_all_questions_are_pooled_or_of_the_only_seed(gain_panels):
    assert diamonds_of(gain_panels[0]) == [
        (0, 2.0, 1.0, 4.0, COLOURS[VERIFIED]),
        (-1, 0.5, -0.5, 2.5, COLOURS[UNVERIFIED]),
        (-2, -3.0, -4.0, -1.0, COLOURS[REPLACED]),
    ]


def test_gains_by_set_are_one_below_the_other(gain_panels):
    assert diamonds_of(gain_panels[1]) == [
        (0.17, 12.0, 11.0, 14.0, COLOURS[VERIFIED]),
        (-0.83, 22.0, 21.0, 24.0, COLOURS[VERIFIED]),
        (-0.17, 5.0, 4.0, 7.0, COLOURS[UNVERIFIED]),
        (-1.17, 6.0, 5.0, 8.0, COLOURS[UNVERIFIED]),
    ]


def test_a_row_of_gains_names_its_system_its_seeds_and_its_questions(gain_panels):
    texts = [text.get_text() for text in gain_panels[0].get_yticklabels()]
    assert texts == [
        "CoV-RAG, two adapters\n2 seeds, n = 1,234",
        "query expansion\n1 seed, n = 1,234",
        "two adapters, next five passages\n1 seed, n = 1,234",
    ]
    assert gain_panels[0].get_yticks().tolist() == [0, -1, -2]


def test_single_seeds_are_below_their_mean(gain_panels):
    dots = [line for line in gain_panels[0].lines if line.get_marker() == "o"]
    assert [line.get_xydata().tolist() for line in dots] == [[[1.0, -0.28], [3.0, -0.28]]]


def test_a_legend_has_the_kinds_and_the_systems_that_are_shown(gain_panels):
    texts = [[text.get_text() for text in axes.get_legend().get_texts()] for axes in gain_panels]
    assert texts == [[VERIFIED, UNVERIFIED, REPLACED], ["CoV-RAG, two adapters", "query expansion"]]


def test_sets_are_named_with_their_questions(gain_panels):
    assert [text.get_text() for text in gain_panels[1].get_yticklabels()] == [
        "NQ (400)",
        "WebQ (300)",
    ]
    assert gain_panels[1].get_yticks().tolist() == [0, -1]


def test_no_gain_is_a_line(gain_panels):
    for axes in gain_panels:
        lines = [line for line in axes.lines if list(line.get_xdata()) == [0, 0]]
        assert lines


def test_only_systems_that_were_thought_of_later_are_post_hoc():
    assert label_and_kind(TWO_PLAIN_READERS) == ("two readers, one search (post hoc)", UNVERIFIED)
    assert label_and_kind(OURS) == ("CoV-RAG, two adapters", VERIFIED)
    planned = ("query expansion, two readers + verifier choice", VERIFIED)
    assert label_and_kind(TWO_EXPANDED_READERS_COMBINED) == planned


def test_the_picture_without_the_first_system_by_set_names_the_sets_all_the_same(gains, tmp_path):
    figure = plot(gains[gains.to == names.EXPANSION], tmp_path / "claim.png")
    texts = [text.get_text() for text in figure.axes[1].get_yticklabels()]
    pyplot.close(figure)
    assert texts == ["NQ (400)", "WebQ (300)"]


# How differences are written.


def test_a_difference_is_written_with_both_sides_and_its_test(table):
    part = table.part("over all questions").set_index(["comparison", "seed"])
    row = part.loc[(f"RAG (trained) → {label_of(OURS)}", "1")]
    assert row[["n", "from, %", "to, %", "difference", "gained", "lost"]].tolist() == [
        *[8, "25.0", "50.0", "+25.0", 3, 1]
    ]
    assert row.p == "0.620"  # 5 / 8, in two significant digits


def test_differences_over_all_questions_have_no_column_of_sets(table):
    assert "set" not in table.part("over all questions")
    assert set(table.part("by set")["set"]) == {"NQ", "WebQ"}


def test_the_recorded_rows_have_no_missing_number():
    frame = make_frame({BASELINE: [0, 1], OURS: [0, 1]}, ["nq", "nq"])
    rows = json.loads(build_seeds({"1": frame}).files["json"])
    assert rows[0]["difference"] == 0
    assert rows[0]["smallest_visible"] is None
    assert "set" not in rows[0]


def test_all_numbers_of_the_comparisons_are_facts(table):
    name = f"{BASELINE} → {OURS}"
    assert table.facts[f"{name} 1"] == "+25.0"
    assert table.facts[f"{name} 1 n"] == "8"
    assert table.facts[f"{name} 1 gained"] == "3"
    assert table.facts[f"{name} NQ {POOLED}"] == "+50.0"


def test_an_interval_that_is_not_known_is_a_dash():
    assert format_span(float("nan"), float("nan")) == "–"
    assert format_span(-0.25, 1.06) == "[-0.2, +1.1]"


@pytest.mark.parametrize("step", [1, 2, 3, 7, 12])
def test_differences_are_whole_numbers_of_the_smallest_step(step):
    assert to_whole_numbers(np.array([1 / step, -2 / step])).tolist() == [1, -2]


def test_the_detectable_difference_of_one_seed_is_that_of_mcnemars_test():
    means = np.array([1.0] * 24 + [-1.0] * 16 + [0.0] * 360)
    assert detectable_difference(means) == metrics.detectable_effect(24, 16, 400)
    assert detectable_difference(-means) == metrics.detectable_effect(16, 24, 400)


def test_a_p_has_two_significant_digits():
    assert [round_p(p) for p in (0.01234, 0.5678, 1.0)] == [0.012, 0.57, 1.0]


def test_a_tiny_p_is_above_zero():
    assert 0 < sign_flip_p(np.ones(60)) < 1e-9


def test_numbers_of_a_comparison_have_three_decimals():
    right = {BASELINE: [0, 0, 0], names.COV_RAG: [1, 0, 0]}
    row = compare_systems({"1": make_frame(right, ["nq"] * 3)}).iloc[0]
    assert row[["accuracy_to", "difference"]].tolist() == [33.333, 33.333]
    assert (row.low, row.high) == (round(row.low, 3), round(row.high, 3))


def test_a_system_that_is_not_in_the_picture_is_not_drawn(gains, tmp_path):
    other = gains.assign(to=gains.to.replace(names.TWO_ADAPTERS_NEXT, "another system"))
    figure = plot(other, tmp_path / "claim.png")
    pyplot.close(figure)
    assert len(figure.axes[0].get_yticks()) == 2


def test_panels_of_the_comparisons_have_titles(gain_panels):
    assert [axes.get_title() for axes in gain_panels] == ["All questions", "By question set"]
