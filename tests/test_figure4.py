"""Figure 4: what the recorded claims of the backbones say, by size, next to the paper."""

import json
from itertools import combinations

import numpy as np
import pytest
from matplotlib import pyplot

from covrag_lite.tables import backbones, figure4

SMALL = "smollm2-135m"
LARGE = "qwen2.5-coder-1.5b"
PAIRS = tuple(backbones.GAINS.values())
BASELINE = 40.0  # accuracy of the first system of every pair


def record(root, backbone, seeds, sha256="questions", pairs=PAIRS):
    """Record the comparisons of a backbone.

    `seeds` has each seed's gain and the verifier's AUROC; pooled is the mean gain.
    """
    folder = root / backbones.REAL / backbone
    rows = []
    for pair in pairs:
        gains = {seed: gain for seed, (gain, _) in seeds}
        if len(seeds) > 1:
            gains["pooled"] = sum(gains.values()) / len(seeds)
        rows += [comparison(*pair, seed, gain) for seed, gain in gains.items()]
    facts = {}
    for seed, (_, area) in seeds:
        (folder / f"seed-{seed}").mkdir(parents=True)
        manifest = {"data": {"questions": {"sha256": sha256}}}
        (folder / f"seed-{seed}" / "claim.manifest.json").write_text(json.dumps(manifest))
        facts[f"judge of RAG trained {seed} AUROC"] = f"{area} [0.100, 0.900]"
    (folder / "claim.json").write_text(json.dumps(rows))
    (folder / "claim.facts.json").write_text(json.dumps(facts))


def comparison(before, after, seed, gain):
    """One row of a recorded claim.json; a pooled gain has the narrower interval."""
    half_width = 0.5 if seed == "pooled" else 1
    return {
        "from": before,
        "to": after,
        "seed": seed,
        "n": 400,
        "difference": gain,
        "low": gain - half_width,
        "high": gain + half_width,
        "accuracy_from": BASELINE,
        "accuracy_to": BASELINE + gain,
    }


def record_two_backbones(root):
    record(root, LARGE, [("1", (1.0, 0.8)), ("2", (2.0, 0.7))])
    record(root, SMALL, [("1", (-0.5, 0.6))])
    return root


@pytest.fixture
def root(tmp_path):
    return record_two_backbones(tmp_path)


def value(long, backbone, measure, what, seed=backbones.MEAN):
    rows = long[(long.backbone == backbone) & (long.measure == measure)]
    (row,) = rows[(rows.what == what) & (rows.seed == seed)].to_dict("records")
    return row["value"], row["low"], row["high"]


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    return backbones.load(record_two_backbones(tmp_path_factory.mktemp("backbones")))


def test_backbones_are_in_the_order_of_their_size(long):
    assert list(dict.fromkeys(long.backbone)) == [SMALL, LARGE]


@pytest.mark.parametrize(
    "backbone, seed, gain",
    [
        (LARGE, backbones.MEAN, (1.5, 1.0, 2.0)),  # pooled
        (LARGE, "2", (2.0, 1.0, 3.0)),
        (SMALL, backbones.MEAN, (-0.5, -1.5, 0.5)),  # of the only seed
    ],
)
def test_a_gain_is_the_recorded_one_with_its_interval(long, backbone, seed, gain):
    assert value(long, backbone, "gain", backbones.OUR_FORM, seed) == gain


def test_the_auroc_of_a_seed_has_its_interval(long):
    assert value(long, LARGE, "AUROC", "judge", "1") == (0.8, 0.1, 0.9)


def test_the_auroc_of_a_backbone_is_the_mean_of_its_seeds(long):
    assert value(long, LARGE, "AUROC", "judge")[0] == 0.75


@pytest.mark.parametrize(
    "fact, text",
    [
        (f"135M {backbones.OUR_FORM} gain", "−0.5"),
        (f"1544M {backbones.OUR_FORM} gain interval", "[+1.0, +2.0]"),
    ],
)
def test_a_mean_is_a_fact(long, fact, text):
    assert figure4.build_figure4(long).facts[fact] == text


def test_the_table_has_one_column_per_backbone(long):
    table = figure4.wide(long)
    assert table.loc[("AUROC", "verifier's score"), "Qwen2.5-Coder 1.5B"] == "0.75"


@pytest.fixture
def without_second_round(tmp_path):
    """The values of a backbone that has only CoV-RAG and its baseline."""
    pairs = [("RAG trained", "CoV-RAG")]
    record(tmp_path, LARGE, [("1", (1.0, 0.8)), ("3", (2.0, 0.7))], pairs=pairs)
    return backbones.load(tmp_path)


def test_the_accuracies_of_a_backbone_share_their_seeds(without_second_round):
    rows = without_second_round[without_second_round.measure == "accuracy"]
    seeds = rows.groupby("what").seed.agg(list).to_dict()
    assert seeds == {
        "RAG trained": ["1", "3", backbones.MEAN],
        "CoV-RAG": ["1", "3", backbones.MEAN],
    }


def test_an_accuracy_is_that_of_the_pooled_comparison(without_second_round):
    assert value(without_second_round, LARGE, "accuracy", "CoV-RAG")[0] == BASELINE + 1.5


def test_what_was_not_run_has_no_value(without_second_round):
    assert backbones.SECOND_ROUND not in set(without_second_round.what)


def test_the_papers_backbones_follow_ours(long):
    assert figure4.next_to_paper(long).index.tolist() == [
        ("ours", "SmolLM2 135M"),
        ("ours", "Qwen2.5-Coder 1.5B"),
        ("paper", "ChatGLM2-6b"),
        ("paper", "Vicuna-13b"),
        ("paper", "Llama2-13b"),
    ]


@pytest.mark.parametrize(
    "row, cells",
    [
        (("paper", "Llama2-13b"), ["73.8", "–", "75.1", "+1.3"]),  # CoV-RAG-S is only drawn there
        (("ours", "SmolLM2 135M"), ["40.0", "40.0", "39.5", "−0.5 [−1.5, +0.5]"]),
    ],
)
def test_accuracies_are_next_to_their_gain(long, row, cells):
    assert figure4.next_to_paper(long).loc[row].tolist() == cells


# The picture.


@pytest.fixture(scope="module")
def figure(long, tmp_path_factory):
    drawn = figure4.plot(long, tmp_path_factory.mktemp("figure4") / "figure4.png")
    yield drawn
    pyplot.close(drawn)


def diamonds_of(axes):
    """The values that a panel shows as diamonds, without those of its legend."""
    values = [line.get_ydata() for line in axes.lines if line.get_marker() == "D"]
    return [list(series.round(1)) for series in map(np.asarray, values) if len(series)]


def series_of(axes):
    return [container.lines[0] for container in axes.containers]


def test_the_papers_accuracies_are_diamonds(figure):
    assert diamonds_of(figure.axes[0]) == [[71.0, 71.1, 73.8], [72.2, 74.8, 75.1]]


def test_the_papers_gains_are_diamonds(figure):
    assert diamonds_of(figure.axes[1]) == [[1.2, 3.7, 1.3]]


def test_the_papers_backbones_are_right_of_ours(figure):
    labels = [text.get_text() for text in figure.axes[1].get_xticklabels()]
    assert labels[2:] == ["ChatGLM2\n6B", "Vicuna\n13B", "Llama2\n13B"]


@pytest.mark.parametrize("panel", range(4))
def test_series_of_one_panel_differ_in_colour(figure, panel):
    series = series_of(figure.axes[panel])
    assert len({line.get_color() for line in series}) == len(series)


@pytest.mark.parametrize("panel", range(4))
def test_series_of_one_panel_differ_in_marker(figure, panel):
    series = series_of(figure.axes[panel])
    assert len({line.get_marker() for line in series}) == len(series)


@pytest.mark.parametrize("panel", range(4))
def test_a_legend_shows_labels_and_no_recorded_names(figure, panel):
    texts = {text.get_text() for text in figure.axes[panel].get_legend().get_texts()}
    assert not {"CoV-RAG-S", "RAG trained", backbones.OUR_FORM, "judge", "both"} & texts


@pytest.mark.parametrize("panel", range(4))
def test_the_labels_of_the_backbones_do_not_overlap(figure, panel):
    boxes = [text.get_window_extent() for text in figure.axes[panel].get_xticklabels()]
    overlapping = [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]
    assert overlapping == []


def test_our_means_are_at_their_backbones(figure):
    accuracy, gain, area, second = (series_of(axes) for axes in figure.axes)
    # plain, first answer, CoV-RAG: 0.2 apart; CoV-RAG of the large model is 1.5 points better
    assert [line.get_xydata().tolist() for line in accuracy] == [
        [[-0.2, 40], [0.8, 40]],
        [[0, 40], [1, 40]],
        [[0.2, 39.5], [1.2, 41.5]],
    ]
    assert [line.get_xydata().tolist() for line in gain] == [[[0, -0.5], [1, 1.5]]]
    assert area[0].get_ydata().tolist() == [0.6, 0.75]
    assert [line.get_xdata().tolist() for line in second] == [[-0.1, 0.9], [0.1, 1.1]]


def test_our_gains_have_their_intervals(figure):
    bars = figure.axes[1].containers[0].lines[2][0]
    ends = [segment[:, 1].tolist() for segment in bars.get_segments()]
    assert ends == [[-1.5, 0.5], [1.0, 2.0]]


def test_single_seeds_are_rings_if_there_are_several(figure):
    rings = [line for line in figure.axes[1].lines if line.get_markersize() == 4]
    drawn = [point for line in rings for point in line.get_xydata().tolist()]
    assert [value for _, value in drawn] == [1.0, 2.0]
    assert {round(place) for place, _ in drawn} == {1}


def test_the_papers_diamonds_are_right_of_ours_and_beside_each_other(figure):
    accuracy, gain = figure.axes[:2]
    places = [
        [list(line.get_xdata()) for line in axes.lines if line.get_marker() == "D"]
        for axes in (accuracy, gain)
    ]
    assert places[0][:2] == [[1.8, 2.8, 3.8], [2.2, 3.2, 4.2]]
    assert places[1][0] == [2, 3, 4]


def test_a_line_separates_ours_from_the_papers(figure):
    for axes in figure.axes[:2]:
        assert [1.5, 1.5] in [list(line.get_xdata()) for line in axes.lines]
        assert axes.get_xlim() == (-0.5, 4.5)


@pytest.mark.parametrize("panel, place", [(1, 0), (2, 0.5), (3, 0)])
def test_chance_and_no_gain_are_dashed_lines(figure, panel, place):
    dashed = [line for line in figure.axes[panel].lines if line.get_linestyle() == "--"]
    assert [list(line.get_ydata()) for line in dashed] == [[place, place]]


def test_panels_say_what_they_show(figure):
    assert [(axes.get_title(), axes.get_ylabel()) for axes in figure.axes] == [
        ("Accuracy", "right answers (%)"),
        ("CoV-RAG − RAG (trained), one model", "points"),
        ("Separating right from wrong answers", "AUROC"),
        ("What the second round gains", "points"),
    ]


# Runs that do not fit.


def test_runs_on_other_questions_are_refused(root):
    record(root, "qwen2.5-coder-0.5b", [("1", (0.0, 0.5))], sha256="others")
    with pytest.raises(ValueError, match="have different questions"):
        backbones.load(root)


def test_backbones_of_unknown_size_are_refused(root):
    record(root, "llama-9", [("1", (0.0, 0.5))])
    with pytest.raises(KeyError, match="llama-9"):
        backbones.load(root)


# From each model's config.json: layers, width, key/value width, MLP width, vocabulary.
@pytest.mark.parametrize(
    "backbone, layers, width, keys, between, words, biased",
    [
        (SMALL, 30, 576, 192, 1536, 49152, 0),
        ("qwen2.5-coder-0.5b", 24, 896, 128, 4864, 151936, 1),
        (LARGE, 28, 1536, 256, 8960, 151936, 1),
    ],
)
def test_the_number_of_parameters_is_that_of_the_models_shape(
    backbone, layers, width, keys, between, words, biased
):
    attention = 2 * width * width + 2 * width * keys + biased * (width + 2 * keys)
    norms = 2 * width
    layer = attention + 3 * width * between + norms
    last_norm = width
    parameters = words * width + layers * layer + last_norm
    assert backbones.load_backbones()[backbone]["parameters"] == parameters


# The table of a notebook.


def test_the_table_keeps_the_order_of_measures_systems_and_sizes(long):
    table = figure4.wide(long)
    assert list(table) == ["SmolLM2 135M", "Qwen2.5-Coder 1.5B"]
    assert table.index.tolist() == [
        ("accuracy", "RAG (trained)"),
        ("accuracy", "CoV-RAG, first answer"),
        ("accuracy", "CoV-RAG"),
        ("AUROC", "verifier's score"),
        ("gain", "Two adapters − RAG (trained)"),
        ("gain", "CoV-RAG − RAG (trained)"),
        ("gain", "CoV-RAG − its first answer"),
    ]


def test_the_table_can_show_some_measures_only(long):
    table = figure4.wide(long, ("gain", "AUROC"))
    assert set(table.index.get_level_values("measure")) == {"gain", "AUROC"}


def test_a_negative_gain_of_the_table_has_a_minus_sign(long):
    gains = figure4.wide(long, ("gain",))
    assert gains.loc[("gain", "CoV-RAG − RAG (trained)"), "SmolLM2 135M"] == "−0.5 [−1.5, +0.5]"


def test_what_one_backbone_did_not_run_is_a_dash_in_the_table(long):
    is_missing = (long.backbone == SMALL) & (long.measure == "AUROC")
    table = figure4.wide(long[~is_missing])
    assert table.loc[("AUROC", "verifier's score")].to_dict() == {
        "SmolLM2 135M": "–",
        "Qwen2.5-Coder 1.5B": "0.75",
    }


def test_the_table_next_to_the_paper_names_its_systems_and_the_gain(long):
    table = figure4.next_to_paper(long)
    assert table.index.names == ["whose", "backbone"]
    assert list(table) == ["RAG (trained)", "CoV-RAG, first answer", "CoV-RAG", "CoV-RAG − RAG"]


# What a backbone has.


def test_single_accuracies_are_not_drawn(figure):
    assert [line for line in figure.axes[0].lines if line.get_markersize() == 4] == []


def test_a_panel_of_ours_names_our_backbones_only(figure):
    for axes in figure.axes[2:]:
        assert [text.get_text() for text in axes.get_xticklabels()] == [
            "SmolLM2\n135M",
            "Qwen\n1.5B",
        ]
        assert axes.get_xlim() == (-0.5, 1.5)


def test_the_paper_is_in_the_legend_of_the_panels_that_show_it(figure):
    named = []
    for axes in figure.axes:
        texts = [text.get_text() for text in axes.get_legend().get_texts()]
        named.append("the paper (other questions)" in texts)
    assert named == [True, True, False, False]


def test_accuracies_are_on_an_axis_of_all_shares(figure):
    assert figure.axes[0].get_ylim() == (0, 100)


def test_a_drawn_figure_is_closed(figure):
    assert not pyplot.fignum_exists(figure.number)


def test_the_mean_auroc_is_over_the_seeds_that_have_one(tmp_path):
    record(tmp_path, LARGE, [("1", (1.0, 0.8)), ("2", (2.0, 0.7)), ("3", (3.0, 0.6))])
    file = tmp_path / backbones.REAL / LARGE / "claim.facts.json"
    facts = json.loads(file.read_text())
    del facts["judge of RAG trained 2 AUROC"]
    facts["judge of RAG trained 3 AUROC"] = "0.6"
    file.write_text(json.dumps(facts))
    long = backbones.load(tmp_path)
    assert long[long.measure == "AUROC"].seed.tolist() == ["1", "3", backbones.MEAN]
    mean, _, _ = value(long, LARGE, "AUROC", "judge")
    assert mean == pytest.approx(0.7)
    of_third, low, high = value(long, LARGE, "AUROC", "judge", "3")
    assert of_third == 0.6
    assert np.isnan([low, high]).all()


def test_figure_4_is_saved_with_three_digits(long):
    row = figure4.build_figure4(long.assign(value=1 / 3)).files["csv"].splitlines()[1]
    assert ",0.333," in row


def test_a_series_without_a_label_of_its_own_is_a_system():
    assert backbones.label("both") == "both (likelihood + 3 × score)"
    assert backbones.label("RAG trained") == "RAG (trained)"
