"""Figure 4: what the recorded claims of the backbones say, by size, next to the paper."""

import json
from itertools import combinations

import pytest
from matplotlib import pyplot

from covrag_lite.tables import figure4 as sizes

SMALL, LARGE = "smollm2-135m", "qwen2.5-coder-1.5b"
PAIRS = tuple(sizes.GAINS.values())
BASELINE = 40.0  # accuracy of the first system of every pair


def record(root, backbone, seeds, asked="questions", pairs=PAIRS):
    """A claim of a backbone: `seeds` has each seed's gain and the verifier's AUROC; pooled is their mean."""
    folder = root / sizes.REAL / backbone
    rows = []
    for before, after in pairs:
        gains = {seed: gain for seed, (gain, _) in seeds}
        if len(seeds) > 1:
            gains["pooled"] = sum(gains.values()) / len(seeds)
        for seed, gain in gains.items():
            half = 0.5 if seed == "pooled" else 1
            row = {"from": before, "to": after, "seed": seed, "difference": gain, "low": gain - half}
            row |= {"high": gain + half, "accuracy_from": BASELINE, "accuracy_to": BASELINE + gain}
            rows.append(row)
    facts = {}
    for seed, (_, area) in seeds:
        (folder / f"seed-{seed}").mkdir(parents=True)
        manifest = {"data": {"questions": {"sha256": asked}}}
        (folder / f"seed-{seed}" / "claim.manifest.json").write_text(json.dumps(manifest))
        facts[f"judge of RAG trained {seed} AUROC"] = f"{area} [0.100, 0.900]"
    (folder / "claim.json").write_text(json.dumps(rows))
    (folder / "claim.facts.json").write_text(json.dumps(facts))


@pytest.fixture
def root(tmp_path):
    record(tmp_path, LARGE, [("1", (1.0, 0.8)), ("2", (2.0, 0.7))])
    record(tmp_path, SMALL, [("1", (-0.5, 0.6))])
    return tmp_path


def value(long, backbone, measure, what, seed=sizes.MEAN):
    chosen = (long.backbone == backbone) & (long.measure == measure) & (long.what == what) & (long.seed == seed)
    (row,) = long[chosen].to_dict("records")
    return row["value"], row["low"], row["high"]


def test_a_gain_is_the_pooled_one_of_the_claim_and_other_values_are_means(root):
    long = sizes.load(root)
    assert list(dict.fromkeys(long.backbone)) == [SMALL, LARGE]  # by size
    what = sizes.OUR_FORM
    assert value(long, LARGE, "gain", what) == (1.5, 1.0, 2.0)
    assert value(long, LARGE, "gain", what, "2") == (2.0, 1.0, 3.0)
    assert value(long, SMALL, "gain", what) == (-0.5, -1.5, 0.5)  # the only seed
    assert value(long, LARGE, "AUROC", "judge")[0] == 0.75
    assert value(long, LARGE, "AUROC", "judge", "1") == (0.8, 0.1, 0.9)
    table = sizes.build(long)
    assert table.facts[f"135M {what} gain"] == "−0.5"
    assert table.facts[f"1544M {what} gain interval"] == "[+1.0, +2.0]"
    assert sizes.wide(long).loc[("AUROC", "verifier's score"), "Qwen2.5-Coder 1.5B"] == "0.75"


def test_the_accuracies_of_a_backbone_share_their_seeds(tmp_path):
    record(tmp_path, LARGE, [("1", (1.0, 0.8)), ("3", (2.0, 0.7))], pairs=[("RAG trained", "CoV-RAG")])
    long = sizes.load(tmp_path)
    seeds = long[long.measure == "accuracy"].groupby("what").seed.agg(list).to_dict()
    assert seeds == {"RAG trained": ["1", "3", sizes.MEAN], "CoV-RAG": ["1", "3", sizes.MEAN]}
    assert value(long, LARGE, "accuracy", "CoV-RAG")[0] == BASELINE + 1.5
    assert sizes.SECOND_ROUND not in set(long.what)  # it was not run


def test_the_papers_backbones_follow_ours_with_their_gain_over_webglm(root):
    table = sizes.next_to_paper(sizes.load(root))
    assert table.index.tolist() == [
        ("ours", "SmolLM2 135M"),
        ("ours", "Qwen2.5-Coder 1.5B"),
        ("paper", "ChatGLM2-6b"),
        ("paper", "Vicuna-13b"),
        ("paper", "Llama2-13b"),
    ]
    assert table.loc[("paper", "Llama2-13b")].tolist() == ["73.8", "–", "75.1", "+1.3"]  # CoV-RAG-S is only drawn
    assert table.loc[("ours", "SmolLM2 135M")].tolist() == ["40.0", "40.0", "39.5", "−0.5 [−1.5, +0.5]"]


@pytest.fixture
def figure(root, tmp_path):
    drawn = sizes.plot(sizes.load(root), tmp_path / "figure4.png")
    yield drawn
    pyplot.close(drawn)


def test_the_picture_shows_the_papers_values_as_diamonds_right_of_ours(figure):
    accuracy, gain, *_ = figure.axes
    diamonds = [list(line.get_ydata()) for line in accuracy.lines if line.get_marker() == "D" and len(line.get_ydata())]
    assert diamonds == [[71.0, 71.1, 73.8], [72.2, 74.8, 75.1]]
    (gains,) = [line for line in gain.lines if line.get_marker() == "D" and len(line.get_ydata())]
    assert [round(number, 1) for number in gains.get_ydata()] == [1.2, 3.7, 1.3]
    assert [text.get_text() for text in gain.get_xticklabels()][2:] == ["ChatGLM2\n6B", "Vicuna\n13B", "Llama2\n13B"]


def test_series_of_one_panel_differ_in_colour_and_marker_and_have_labels(figure):
    for axes in figure.axes:
        series = [container.lines[0] for container in axes.containers]
        assert len({line.get_color() for line in series}) == len({line.get_marker() for line in series}) == len(series)
        names = [text.get_text() for text in axes.get_legend().get_texts()]
        assert not {"CoV-RAG-S", "RAG trained", sizes.OUR_FORM, "judge", "both"} & set(names)  # recorded names


def test_the_labels_of_the_backbones_do_not_overlap(figure):
    for axes in figure.axes:
        boxes = [text.get_window_extent() for text in axes.get_xticklabels()]
        assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))


def test_runs_on_other_questions_and_backbones_of_unknown_size_are_refused(root):
    record(root, "qwen2.5-coder-0.5b", [("1", (0.0, 0.5))], asked="others")
    with pytest.raises(ValueError, match="have different questions"):
        sizes.load(root)
    record(root, "llama-9", [("1", (0.0, 0.5))])
    with pytest.raises(KeyError, match="llama-9"):
        sizes.load(root)


# From each model's config.json: layers, width, key/value width, MLP width, vocabulary.
@pytest.mark.parametrize(
    "backbone, layers, width, keys, between, words, biased",
    [
        (SMALL, 30, 576, 192, 1536, 49152, 0),
        ("qwen2.5-coder-0.5b", 24, 896, 128, 4864, 151936, 1),
        (LARGE, 28, 1536, 256, 8960, 151936, 1),
    ],
)
def test_the_number_of_parameters_is_that_of_the_models_shape(backbone, layers, width, keys, between, words, biased):
    attention = 2 * width * width + 2 * width * keys + biased * (width + 2 * keys)
    layer = attention + 3 * width * between + 2 * width  # two norms
    assert sizes.load_backbones()[backbone]["parameters"] == words * width + layers * layer + width  # a last norm
