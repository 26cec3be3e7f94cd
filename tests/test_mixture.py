"""Single models of other training mixtures next to answer-only readers."""

import numpy as np
import pytest
from comparison_frames import make_frame

from covrag_lite.systems import names
from covrag_lite.tables import mixture
from covrag_lite.tables.comparisons.differences import sign_flip_p
from covrag_lite.tables.comparisons.pairs import POOLED

SETS = ["nq"] * 8
FIRST = [1, 1, 1, 0, 0, 0, 0, 0]
FINAL = [1, 1, 1, 1, 0, 0, 0, 0]
COUNTS = ["n", "difference", "gained", "lost"]


@pytest.fixture
def table():
    """Recorded readers of three seeds, a repeated reader of one, a single model of two."""
    recorded = {}
    for n_right in (1, 2, 3):
        right = [0] * (8 - n_right) + [1] * n_right
        recorded[str(n_right)] = make_frame({names.RAG_TRAINED: right}, SETS)
    again = make_frame({names.RAG_TRAINED: [1, 1, 0, 0, 0, 0, 0, 0]}, SETS)
    gaining = make_frame({names.COV_RAG_S: FIRST, names.COV_RAG: FINAL}, SETS)
    equal = make_frame({names.COV_RAG_S: FIRST, names.COV_RAG: FIRST}, SETS)
    arms = {("again", "3"): again, ("paper", "1"): gaining, ("paper", "2"): equal}
    return mixture.build_arms(arms, recorded)


@pytest.fixture
def rows(table):
    return table.rows.set_index(["from", "to", "seed"])


def test_a_repeated_reader_is_compared_with_the_recorded_one_of_its_seed(rows):
    row = rows.loc[(mixture.RECORDED, mixture.AGAIN, "3")]
    assert row[COUNTS].tolist() == [8, -12.5, 2, 3]


def test_a_missing_seed_of_a_baseline_is_replaced_by_the_mean_of_its_seeds(rows):
    row = rows.loc[(mixture.AGAIN, "paper, final answer", POOLED)]
    assert row[COUNTS].tolist() == [8, 18.75, 2, 0]


def test_the_p_is_that_of_the_means(rows):
    row = rows.loc[(mixture.AGAIN, "paper, final answer", POOLED)]
    assert row.p == sign_flip_p(np.array([1.0, 0.5, 0, 0, 0, 0, 0, 0]))


def test_an_interval_outside_the_margin_is_not_equivalent(rows):
    assert not rows.loc[(mixture.AGAIN, "paper, final answer", POOLED)].equivalent


def test_an_arm_is_compared_with_the_mean_of_the_recorded_readers(rows):
    assert rows.loc[(mixture.MEAN_READER, "paper, first answer", "1")].difference == 12.5


def test_a_pooled_difference_is_a_fact(table):
    assert table.facts["paper, first answer → paper, final answer pooled"] == "+6.2"


def test_the_accuracy_of_a_seed_is_a_fact(table):
    assert table.facts["RAG trained again 3"] == "25.00"


def test_training_runs_are_compared_as_random_if_there_are_several(table):
    heading = "Differences with training runs as random, in points (post hoc)"
    assert set(table.parts[heading].runs) == {"3 and 2"}
