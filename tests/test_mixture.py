"""Single models of other training mixtures next to answer-only readers."""

import numpy as np
import pandas as pd
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


def test_readers_that_were_trained_after_the_plan_do_not_count():
    recorded = {}
    for seed, right in (("7", [1, 0, 0, 0]), ("8", [1, 1, 1, 1])):
        recorded[seed] = make_frame({names.RAG_TRAINED: right}, ["nq"] * 4)
    outcomes = mixture.outcomes_by_system({}, recorded)
    assert list(outcomes[mixture.RECORDED]) == ["7"]


def test_an_arm_is_compared_with_the_mean_of_the_recorded_readers(rows):
    assert rows.loc[(mixture.MEAN_READER, "paper, first answer", "1")].difference == 12.5


def test_a_pooled_difference_is_a_fact(table):
    assert table.facts["paper, first answer → paper, final answer pooled"] == "+6.2"


def test_the_accuracy_of_a_seed_is_a_fact(table):
    assert table.facts["RAG trained again 3"] == "25.00"


def test_training_runs_are_compared_as_random_if_there_are_several(table):
    heading = "Differences with training runs as random, in points (post hoc)"
    assert set(table.parts[heading].runs) == {"3 and 2"}


@pytest.fixture
def pooled(table):
    return table.parts["Paired differences, in points"].set_index(["comparison", "seed"])


@pytest.mark.parametrize(
    "difference, half_width, is_equivalent",
    [(0.0, 0.75, True), (0.5, 0.5, False), (-0.5, 0.5, False), (0.25, 0.5, True)],
)
def test_systems_are_equivalent_if_the_whole_interval_is_within_the_margin(
    difference, half_width, is_equivalent, monkeypatch
):
    span = {"low": difference - half_width, "high": difference + half_width}
    monkeypatch.setattr(mixture, "estimate", lambda means: {"difference": difference} | span)
    outcomes = make_outcomes([1, 0])
    row = mixture.difference("a", "b", "1", outcomes, outcomes)
    assert row["equivalent"] == is_equivalent


def make_outcomes(right):
    index = pd.MultiIndex.from_tuples([("nq", f"q{i}") for i in range(len(right))])
    return pd.Series(right, index=index, dtype=float)


def test_the_smallest_visible_difference_is_written_to_a_thousandth(monkeypatch):
    monkeypatch.setattr(mixture, "detectable_difference", lambda means: 0.12345)
    outcomes = make_outcomes([1, 0])
    assert mixture.difference("a", "b", "1", outcomes, outcomes)["smallest_visible"] == 0.123


def test_a_question_of_one_side_only_is_not_compared():
    row = mixture.difference("a", "b", "1", make_outcomes([1, 0, 0]), make_outcomes([1, 1]))
    assert [row[name] for name in ("n", "accuracy_from", "accuracy_to")] == [2, 50, 100]


def test_a_question_without_an_outcome_is_not_compared():
    row = mixture.difference("a", "b", "1", make_outcomes([1, None]), make_outcomes([0, 1]))
    assert [row[name] for name in ("n", "gained", "lost")] == [1, 0, 1]


def test_later_readers_are_a_baseline_of_their_own():
    readers = {"3": make_outcomes([1, 1]), "4": make_outcomes([0, 0]), "7": make_outcomes([0, 1])}
    arm = {"1": make_outcomes([1, 1])}
    outcomes = {mixture.RECORDED: readers, "paper, first answer": arm}
    rows = pd.DataFrame(list(mixture.compare_all(outcomes))).set_index("from")
    assert rows.accuracy_from.to_dict() == {
        mixture.MEAN_READER: 50.0,
        mixture.LATER_MEAN_READER: 25.0,
    }


def test_without_later_readers_there_is_no_such_baseline(rows):
    assert mixture.LATER_MEAN_READER not in rows.index.get_level_values("from")


def test_the_papers_mixture_is_compared_with_every_other():
    systems = [
        f"{arm}, {answer}" for arm in ("all", "paper") for answer in mixture.ANSWERS.values()
    ]
    pairs = list(mixture.list_pairs([*systems, mixture.RECORDED, mixture.HALF]))
    others = [pair for pair in pairs if pair[0].startswith("paper") and "all" in pair[1]]
    assert others == [(f"paper, {end}", f"all, {end}") for end in mixture.ANSWERS.values()]
    assert pairs[:2] == [(mixture.RECORDED, mixture.AGAIN), (mixture.AGAIN, mixture.HALF)]
    assert ("paper, first answer", "paper, final answer") in pairs


def test_a_table_says_whether_systems_are_equivalent(pooled):
    assert set(pooled.equivalent) == {"no"}


def test_differences_of_seven_readers_are_whole_numbers_of_their_common_step():
    steps = mixture.to_steps(np.array([1 / 7, -2 / 7, 0]))
    assert steps.tolist() == [1, -2, 0]
    assert mixture.to_steps(np.array([0.5, 1 / 3])).tolist() == [3, 2]
    assert mixture.to_steps(np.zeros(2)).tolist() == [0, 0]


def test_training_runs_have_the_standard_deviation_of_their_accuracies(table):
    heading = "Differences with training runs as random, in points (post hoc)"
    row = table.parts[heading].set_index("comparison").iloc[0]
    # Readers: 12.5, 25 and 37.5 %; the first answers of both runs: 37.5 %.
    assert row[["from, sd", "to, sd", "difference"]].tolist() == ["12.50", "0.00", "+12.5"]


def test_one_training_run_is_not_compared_as_random(table):
    heading = "Differences with training runs as random, in points (post hoc)"
    assert not table.parts[heading].comparison.str.contains("trained again|again").any()


def test_a_system_of_no_seed_has_no_mean():
    assert mixture.mean_of_seeds({}).empty


def test_readers_are_not_compared_with_themselves(table):
    heading = "Differences with training runs as random, in points (post hoc)"
    comparisons = set(table.parts[heading].comparison)
    assert comparisons == {
        "RAG (trained) → CoV-RAG, paper's mixture, first answer",
        "RAG (trained) → CoV-RAG, paper's mixture, final answer",
    }


def test_one_reader_is_not_compared_as_random():
    outcomes = {
        mixture.RECORDED: {"1": make_outcomes([1, 0])},
        "paper, first answer": {"1": make_outcomes([1, 0]), "2": make_outcomes([1, 1])},
    }
    assert mixture.compare_runs(outcomes).empty


def test_accuracies_are_listed_by_system_and_seed(table):
    rows = table.parts["Accuracy"]
    assert rows.iloc[0].to_dict() == {
        **{"system": "RAG (trained)", "seed": "1"},
        **{"accuracy": "12.50", "n": "8"},
    }
    assert rows.seed.tolist()[:4] == ["1", "2", "3", "3"]
    assert rows.system[3] == "RAG (trained), repeated"


def test_verdicts_and_searches_of_an_arm_are_named_by_it(table):
    judged = table.parts["How well the verifier judges first answers"]
    assert set(judged["answers of"]) == {"paper"}
    assert judged.seed.tolist() == ["1", "2"]
    assert table.facts["search of paper 1 n"] == "8"


def test_readers_alone_have_no_verdicts():
    readers = {"1": make_frame({names.RAG_TRAINED: FIRST}, SETS)}
    arms = {("again", "1"): make_frame({names.RAG_TRAINED: FINAL}, SETS)}
    assert list(mixture.build_arms(arms, readers).parts) == [
        *["Accuracy", "Paired differences, in points"]
    ]


def test_the_papers_form_is_also_compared_by_set():
    sets = ["nq", "nq", "webq", "webq"]
    again = make_frame({names.RAG_TRAINED: [0, 0, 1, 0]}, sets)
    paper = make_frame({names.COV_RAG_S: [0, 0, 0, 0], names.COV_RAG: [1, 0, 0, 0]}, sets)
    recorded = {"3": make_frame({names.RAG_TRAINED: [0, 0, 0, 0]}, sets)}
    table = mixture.build_arms({("again", "3"): again, ("paper", "1"): paper}, recorded)
    rows = table.part("by question set").set_index("set")
    assert rows.difference.to_dict() == {"NQ": "+50.0", "WebQ": "-50.0"}
    assert table.facts["RAG trained again → paper, final answer NQ pooled"] == "+50.0"


def test_without_the_papers_form_there_is_no_comparison_by_set():
    again = make_frame({names.RAG_TRAINED: FIRST}, SETS)
    recorded = {"3": make_frame({names.RAG_TRAINED: FINAL}, SETS)}
    table = mixture.build_arms({("again", "3"): again}, recorded)
    assert not [heading for heading in table.parts if "by question set" in heading]
