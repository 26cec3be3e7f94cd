"""Figure 4: what the recorded backbones have in common, by their size."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from covrag_lite import metrics
from covrag_lite.prompts import parse_verdict, render_verdict
from covrag_lite.records import Prediction, Question, Round
from covrag_lite.tables import figure4 as sizes

SMALL, LARGE = "smollm2-135m", "qwen2.5-coder-1.5b"


def place(backbone, seed, table="table2"):
    return Path("results", "real", backbone, f"seed-{seed}", table)


def answers(system, rights, n=8):
    """A system's predictions; the verdict and the likelihood are surer of the first half of the questions."""
    made = []
    for number in range(n):
        question = Question(f"q{number}", "nq", f"question {number}", ("Stonebridge",))
        sure = 1 - number / n
        verdict = parse_verdict(render_verdict([sure] * 6, "true", "")) if system == "CoV-RAG" else None
        answer = "Stonebridge" if number in rights else "no"
        made.append(Prediction(question, system, (Round("x", (), answer, verdict, -number),)))
    return made


def table2(trained, first, last):
    return answers("RAG trained", trained) + answers("CoV-RAG-S", first) + answers("CoV-RAG", last)


@pytest.fixture
def bases():
    """Two trainings of the larger backbone, one of the smaller, and records that are none of the figure's."""
    return {
        place(LARGE, 1): table2({0, 1}, {0, 1}, {0, 1, 2}),
        place(LARGE, 2): table2({0}, {0, 1}, {0, 1, 7}),
        place(SMALL, 1): table2({0}, {7}, {6, 7}),
        place(SMALL, 1, "table4"): answers("CoV-RAG", {0}),
        Path("results", "real", LARGE, "first-recipe", "table2"): table2({0}, {0}, {0}),
        Path("results", "table2-smollm2-135m-h200", "table2"): table2({0}, {0}, {0}),
    }


def test_rag_trained_for_longer_is_a_control_beside_the_mean_of_cov_rags_seeds(bases):
    control = {Path("results", "real", LARGE, "longer-3", "table2"): answers("RAG trained", {0, 1, 3})}
    long = sizes.size_table(sizes.gather(bases | control))
    about = (LARGE, "RAG trained for 3 epochs")
    assert value(long, about[0], "control", about[1])["value"] == pytest.approx(100 * 3 / 8)
    assert value(long, about[0], "gain over control", about[1])["value"] == pytest.approx(0)  # 3 of 8 in both seeds
    assert not long[long.backbone == SMALL].measure.str.contains("control").any()
    facts = sizes.build(sizes.gather(bases | control)).facts
    assert facts["1544M RAG trained for 3 epochs gain over control"] == "+0.0"


def value(long, backbone, measure, what, seed=sizes.MEAN):
    chosen = (long.backbone == backbone) & (long.measure == measure) & (long.what == what) & (long.seed == seed)
    (row,) = long[chosen].to_dict("records")
    return row


def test_a_gain_is_the_difference_of_two_accuracies_on_the_same_questions_and_means_are_over_seeds(bases):
    long = sizes.size_table(sizes.gather(bases))
    assert value(long, LARGE, "accuracy", "CoV-RAG", "1")["value"] == 37.5
    assert value(long, LARGE, "gain", "its first round", "1")["value"] == 12.5
    assert value(long, LARGE, "gain", "RAG trained", "2")["value"] == 25.0
    mean = value(long, LARGE, "gain", "RAG trained")
    assert (mean["n"], mean["value"]) == (8, 18.75) and mean["low"] < 18.75 < mean["high"]
    assert "RAG" not in set(long.what)  # as it was not run
    only = value(long, SMALL, "gain", "its first round")
    assert only == value(long, SMALL, "gain", "its first round", "1") | {"seed": sizes.MEAN}


def test_the_judge_is_measured_on_first_answers_beside_their_likelihood(bases):
    long = sizes.size_table(sizes.gather(bases))
    assert value(long, LARGE, "AUROC", "judge", "1")["value"] == 1  # the three it is surest of are right
    assert value(long, SMALL, "AUROC", "judge")["value"] == 0
    scores, right = [8, 7, 6, 5, 4, 3, 2, 1], np.isin(range(8), [0, 1, 7])
    second = value(long, LARGE, "AUROC", "likelihood", "2")
    assert [second[name] for name in ("value", "low", "high")] == pytest.approx(metrics.auroc(scores, right))
    assert value(long, LARGE, "AUROC", "both")["value"] == pytest.approx((1 + second["value"]) / 2)


def test_runs_on_other_questions_and_backbones_of_unknown_size_are_refused_in_a_sentence(bases):
    for where in (place(SMALL, 1), place(LARGE, 1).parent.with_name("longer-3") / "table2"):
        with pytest.raises(ValueError, match="asked different questions"):
            sizes.gather(bases | {where: [p for p in bases[place(SMALL, 1)] if p.question.id != "q3"]})
    with pytest.raises(ValueError, match="results/real/llama-9: add the backbone and its number of parameters"):
        sizes.gather(bases | {place("llama-9", 1): bases[place(SMALL, 1)]})


# Layers, width, width of keys and values, width between, vocabulary: each model's config.json.
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
    assert sizes.count_parameters(backbone) == words * width + layers * layer + width  # a last norm


def test_a_verdict_that_one_seed_could_not_read_is_left_out_of_the_mean_alone(bases):
    torn = list(bases[place(LARGE, 2)])
    assert (torn[-1].question.id, torn[-1].system) == ("q7", "CoV-RAG")
    torn[-1] = replace(torn[-1], rounds=(replace(torn[-1].rounds[0], verdict=parse_verdict("")),))
    long = sizes.size_table(sizes.gather(bases | {place(LARGE, 2): torn}))
    assert value(long, LARGE, "AUROC", "judge", "1")["n"] == 8
    assert value(long, LARGE, "AUROC", "judge", "2")["n"] == 7
    assert value(long, LARGE, "AUROC", "judge")["n"] == 7
