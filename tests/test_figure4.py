"""Figure 4: gains of the recorded backbones by model size."""

import json

import pytest

from covrag_lite.tables import claim
from covrag_lite.tables import figure4 as sizes

SMALL, LARGE = "smollm2-135m", "qwen2.5-coder-1.5b"
PAIR = {"from": "RAG trained", "to": claim.BEST}


def record(root, backbone, seeds, asked="questions"):
    """The claim of a backbone; `seeds` has each seed's gain and verifier AUROC, pooled as means."""
    folder = root / sizes.REAL / backbone
    rows = [PAIR | {"seed": seed, "difference": gain, "low": gain - 1, "high": gain + 1} for seed, (gain, _) in seeds]
    if len(seeds) > 1:
        mean = sum(row["difference"] for row in rows) / len(rows)
        rows.append(PAIR | {"seed": "pooled", "difference": mean, "low": mean - 0.5, "high": mean + 0.5})
    facts = {}
    for seed, (_, area) in seeds:
        (folder / f"seed-{seed}").mkdir(parents=True)
        manifest = {"data": {"questions": {"sha256": asked}}}
        (folder / f"seed-{seed}" / "claim.manifest.json").write_text(json.dumps(manifest))
        facts[f"judge of RAG trained {seed} AUROC"] = f"{area} [0.100, 0.900]"
        facts[f"search of RAG trained {seed} first answer right"] = "40.0"
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


def test_a_gain_is_the_claims_own_pooled_over_trainings_and_other_levels_are_means(root):
    long = sizes.load(root)
    assert list(dict.fromkeys(long.backbone)) == [SMALL, LARGE]  # by size
    what = "two adapters over RAG trained"
    assert value(long, LARGE, "gain", what) == (1.5, 1.0, 2.0)
    assert value(long, LARGE, "gain", what, "2") == (2.0, 1.0, 3.0)
    assert value(long, SMALL, "gain", what) == (-0.5, -1.5, 0.5)  # the only training
    assert value(long, LARGE, "AUROC", "judge")[0] == 0.75
    assert value(long, LARGE, "AUROC", "judge", "1") == (0.8, 0.1, 0.9)
    assert "CoV-RAG over RAG trained" not in set(long.what)  # as it was not run
    table = sizes.build(long)
    assert table.facts[f"135M {what} gain"] == "−0.5"
    assert table.facts[f"1544M {what} gain interval"] == "[+1.0, +2.0]"
    assert sizes.wide(long).loc[("AUROC", "judge"), LARGE] == "0.75"


def test_runs_on_other_questions_and_backbones_of_unknown_size_are_refused(root):
    record(root, "qwen2.5-coder-0.5b", [("1", (0.0, 0.5))], asked="others")
    with pytest.raises(ValueError, match="asked different questions"):
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
