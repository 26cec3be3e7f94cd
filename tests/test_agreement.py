"""What judges' scores say together, against values computed by hand."""

import numpy as np
import pytest

from covrag_lite.judging import agreement


def test_tied_answers_share_the_best_or_the_average_place():
    better = agreement.preferences(np.array([[[0.9, 0.5, 0.5, 0.1]], [[0.2, 0.2, 0.2, 0.2]]]))
    assert agreement.ranks(better, "best").tolist() == [[1, 2, 2, 4], [1, 1, 1, 1]]
    assert agreement.ranks(better, "average").tolist() == [[1, 2.5, 2.5, 4], [2.5] * 4]
    with pytest.raises(ValueError, match="'worst' is not known"):
        agreement.ranks(better, "worst")


def test_a_preference_needs_both_orders():
    better = agreement.preferences(np.array([[[0.9, 0.5, 0.1], [0.8, 0.1, 0.5]]]))[0]
    assert better.tolist() == [[0, 1, 1], [-1, 0, 0], [-1, 0, 0]]


def test_kappa_is_the_one_computed_by_hand():
    # Confusion, rows a and columns b: (-1,-1) 4, (-1,1) 1, (1,-1) 2, (1,1) 3.
    # Agreed 0.7; by chance 0.5·0.6 + 0.5·0.4 = 0.5.
    a = np.array([-1] * 5 + [1] * 5)[:, None]
    b = np.array([-1] * 4 + [1] + [-1] * 2 + [1] * 3)[:, None]
    value, low, high = agreement.kappa(a, b)
    assert value == pytest.approx(0.4) and low < 0.4 < high <= 1
    # A tie is half a disagreement: seen cost (1 + 0) / 2.
    # By chance, a is -1 half of the time and 1 half, b is 0 and 1: (1 + 2 + 1 + 0) / 4.
    assert agreement.kappa(np.array([[-1], [1]]), np.array([[0], [1]]))[0] == pytest.approx(1 - 0.5 / 1)
    assert agreement.kappa(a, a)[0] == 1
    assert np.isnan(agreement.kappa(a * 0, a * 0)[0])
