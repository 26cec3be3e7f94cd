import numpy as np
import pytest

from covrag_lite import metrics


def test_raw_is_case_sensitive_and_normalised_is_not():
    assert metrics.score("It was Edith Marrow.", ["Edith Marrow"], "raw")
    assert not metrics.score("It was edith marrow.", ["Edith Marrow"], "raw")
    assert metrics.score("It was EDITH-MARROW!", ["Edith Marrow"], "normalised")


def test_a_reference_mark_is_not_an_answer():
    assert metrics.score("Several bridges [3].", ["3"], "raw")  # WebGLM's rule keeps the marks
    assert not metrics.score("Several bridges [3].", ["3"], "normalised")


def test_gold_that_normalises_to_nothing_gives_no_score():
    assert metrics.is_defective(["---", ")"])
    assert metrics.score("anything", ["---"], "normalised") is None
    assert metrics.score("a --- b", ["---"], "raw") is True
    assert metrics.score("b", ["---", "b"], "normalised") is True  # one good answer is enough


def test_an_unknown_metric_is_named():
    with pytest.raises(ValueError, match="'exact' is not known"):
        metrics.score("a", ["a"], "exact")


def test_wilson_knows_the_textbook_values():
    assert metrics.wilson(200, 400) == pytest.approx((0.4512, 0.5488), abs=1e-4)  # the ±4.9 points of n = 400
    low, high = metrics.wilson(0, 10)
    assert low == 0 and high == pytest.approx(0.2775, abs=1e-4)
    assert np.isnan(metrics.wilson(0, 0)).all()


def test_the_average_of_one_set_is_that_set_and_four_sets_are_surer():
    assert metrics.mean_interval([(30, 100)]) == pytest.approx((0.3, *metrics.wilson(30, 100)))
    mean, low, high = metrics.mean_interval([(30, 100)] * 4)
    one = metrics.wilson(30, 100)
    assert mean == pytest.approx(0.3) and high - low == pytest.approx((one[1] - one[0]) / 2)


def test_mcnemar_counts_only_where_the_systems_differ():
    a, b = [True] * 50 + [False] * 10, [True] * 50 + [True] * 9 + [False]
    assert metrics.mcnemar(a, b) == (9, 0, pytest.approx(2 * 0.5**9))
    assert metrics.mcnemar(a, a) == (0, 0, 1.0)


def test_the_paired_bootstrap_agrees_with_resampling_questions_one_by_one():
    rng = np.random.default_rng(1)
    a, b = rng.random(80) < 0.4, rng.random(80) < 0.6
    difference, low, high = metrics.paired_bootstrap(a, b)
    slow = [np.mean((b.astype(float) - a)[rng.integers(0, 80, 80)]) for _ in range(4000)]
    assert difference == pytest.approx(b.mean() - a.mean())
    assert (low, high) == pytest.approx(tuple(np.percentile(slow, [2.5, 97.5])), abs=0.02)
    assert metrics.paired_bootstrap(a, b) == (difference, low, high)  # same seed, same interval
