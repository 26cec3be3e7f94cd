"""Questions are paired by their ids, with rows in any order and with rows that are missing."""

import pandas as pd
import pytest
from comparison_frames import make_frame

from covrag_lite.systems import names
from covrag_lite.tables import mixture
from covrag_lite.tables.comparisons import baselines
from covrag_lite.tables.comparisons.differences import (
    compare_systems,
    select_main,
    select_poolable,
)
from covrag_lite.tables.comparisons.pairs import (
    ALL_SETS,
    BASELINE,
    OURS,
    POOLED,
    TWO_PLAIN_READERS,
    TWO_READERS_TWO_SEARCHES,
)
from covrag_lite.tables.comparisons.table import build_seeds
from covrag_lite.tables.paired import compare_pairs

SIDES = ["n", "accuracy_from", "accuracy_to", "difference"]


def without(frame, *numbers, dataset="nq"):
    """Return a frame without the questions of these numbers."""
    return frame[~frame.id.isin([f"{dataset}-{number}" for number in numbers])]


def shuffle(frame):
    return frame.sample(frac=1, random_state=5)


def compare(frames, after):
    rows = compare_systems(frames)
    rows = rows[(rows["from"] == BASELINE) & (rows.to == after) & (rows.set == ALL_SETS)]
    return rows.set_index("seed")


@pytest.fixture
def uneven():
    """Two seeds with four questions each, of which they share three.

    CoV-RAG gains question 1 in both seeds, and loses questions 0 or 4, which only one seed has.
    """
    first = {BASELINE: [1, 0, 0, 1, 0], names.COV_RAG: [0, 1, 0, 1, 0]}
    second = {BASELINE: [0, 0, 0, 1, 1], names.COV_RAG: [0, 1, 0, 0, 0]}
    frames = {
        "1": without(make_frame(first, ["nq"] * 5), 4),
        "2": shuffle(without(make_frame(second, ["nq"] * 5), 0)),
    }
    return compare(frames, names.COV_RAG)


def test_seeds_are_pooled_over_the_questions_that_all_of_them_answered(uneven):
    # Question 1: +1 and +1; question 2: 0 and 0; question 3: 0 and -1.
    assert uneven.loc[POOLED, ["n", "difference"]].tolist() == [3, 16.667]


def test_pooled_accuracies_are_of_the_same_questions(uneven):
    assert uneven.loc[POOLED, SIDES[1:3]].tolist() == [33.333, 50.0]


def test_a_seed_alone_has_all_of_its_questions(uneven):
    assert uneven.loc["1", SIDES].tolist() == [4, 50.0, 50.0, 0.0]


def test_a_question_that_one_system_did_not_answer_is_no_pair():
    frame = make_frame({BASELINE: [1, 1, 0], names.COV_RAG: [1, 1, 1]}, ["nq"] * 3)
    lacks = (frame.system == names.COV_RAG) & (frame.id == "nq-0")
    row = compare({"1": shuffle(frame[~lacks])}, names.COV_RAG).loc["1"]
    assert row[SIDES].tolist() == [2, 50.0, 100.0, 50.0]


def test_a_question_that_cannot_be_scored_is_no_pair():
    frame = make_frame({BASELINE: [1, 1, 0], names.COV_RAG: [1, 1, 1]}, ["nq"] * 3)
    frame["whole"] = frame.whole.astype(object)
    frame.loc[frame.id == "nq-2", "whole"] = None
    assert compare({"1": frame}, names.COV_RAG).loc["1"][SIDES].tolist() == [2, 100, 100, 0]


@pytest.fixture
def two_readers():
    """The answers of two readers; the second did not answer question 0, and is higher on 2."""
    index = pd.MultiIndex.from_tuples([("nq", f"nq-{i}") for i in range(4)], names=baselines.KEY)
    first = pd.DataFrame({"right": [1.0, 1, 0, 0], "score": [-0.2] * 4}, index)
    second = pd.DataFrame({"right": [0.0, 0, 1, 1], "score": [-0.1, -0.9, -0.1, -0.2]}, index)
    return first, shuffle(second.drop(index[0]))


def test_the_answer_with_the_higher_score_is_chosen_question_by_question(two_readers):
    right = baselines.choose_higher(*two_readers).right.sort_index()
    assert right.to_dict() == {("nq", "nq-1"): 1, ("nq", "nq-2"): 1, ("nq", "nq-3"): 0}


def test_of_equally_scored_answers_the_first_counts(two_readers):
    assert baselines.choose_higher(*two_readers).right["nq", "nq-3"] == 0


@pytest.mark.parametrize(("which", "number"), [("first", 0), ("second", 1)])
def test_an_answer_without_a_score_is_an_error_that_names_the_question(two_readers, which, number):
    two_readers[number].loc[("nq", "nq-2"), "score"] = None
    with pytest.raises(ValueError, match=f"question 'nq-2' of nq: the answer of the {which} of"):
        baselines.choose_higher(*two_readers)


def test_a_missing_score_of_a_question_that_only_one_reader_answered_does_not_matter(two_readers):
    first, second = two_readers
    first.loc[("nq", "nq-0"), "score"] = None  # the second reader did not answer it
    assert len(baselines.choose_higher(first, second)) == 3


def test_a_reader_is_paired_with_the_next_and_the_last_with_the_first():
    frames = {}
    for seed, likelihood in (("1", -0.3), ("2", -0.2), ("3", -0.1)):
        frames[seed] = make_frame({BASELINE: [int(seed == "2")]}, ["nq"])
        frames[seed]["likelihood"] = likelihood
    tables = baselines.build_outcomes(frames)
    # The likelier one of 1 and 2 is 2, which is right; of 2 and 3 and of 3 and 1 it is 3.
    assert [table[TWO_PLAIN_READERS].item() for table in tables.values()] == [1, 0, 0]


def test_combined_scores_are_compared_question_by_question():
    right = {OURS: [1, 0, 0], names.COV_RAG: [0, 1, 0]}
    frame = make_frame(right, ["nq"] * 3)
    ours = frame[frame.system == OURS]
    others = frame[frame.system == names.COV_RAG].iloc[::-1]
    table = baselines.outcomes_of_seed(pd.concat([ours, others]))
    assert table[TWO_READERS_TWO_SEARCHES].tolist() == [1, 1, 0]


def test_a_set_is_compared_over_all_seeds_that_were_run():
    frames = {}
    for seed, after in (("1", [1, 0]), ("2", [1, 1])):
        right = {BASELINE: [0, 0], names.COV_RAG: after}
        frames[seed] = make_frame(right, ["nq", "webq"])
    by_set = build_seeds(frames).part("by set")
    assert set(by_set.seed) == {POOLED}


def test_the_systems_of_table_2_are_paired_by_id():
    frame = make_frame({"RAG": [0, 1, 1, 0], names.RAG_TRAINED: [1, 1, 1, 0]}, ["nq"] * 4)
    frame = frame.assign(raw=frame.whole, normalised=frame.whole)
    pairs = shuffle(frame)
    row = compare_pairs(pairs, [("RAG", names.RAG_TRAINED)]).iloc[0]
    assert (row.gained, row.lost) == (1, 0)


def series(**right):
    index = pd.MultiIndex.from_tuples([("nq", name) for name in right], names=baselines.KEY)
    return pd.Series(list(right.values()), index, dtype=float)


def test_the_mean_of_readers_is_over_the_questions_of_all_of_them():
    mean = mixture.mean_of_seeds({"1": series(a=1, b=1, c=0), "2": series(c=1, b=1)})
    assert mean.to_dict() == {("nq", "b"): 1, ("nq", "c"): 0.5}


def test_an_arm_and_its_reader_are_paired_by_id():
    row = mixture.difference("from", "to", "1", series(a=1, b=0, c=0), series(c=0, b=1, d=1))
    assert [row[name] for name in ("n", "gained", "lost")] == [2, 1, 0]


def test_an_arm_is_compared_with_the_reader_of_its_own_seed():
    outcomes = {
        mixture.RECORDED: {},
        mixture.AGAIN: {"1": series(a=1, b=1), "2": series(a=0, b=0)},
        "paper, first answer": {"1": series(a=1, b=1)},
    }
    outcomes[mixture.RECORDED] = {"1": series(a=0, b=0)}
    rows = pd.DataFrame(list(mixture.compare_all(outcomes))).set_index(["from", "to", "seed"])
    assert rows.loc[(mixture.AGAIN, "paper, first answer", "1")].difference == 0


def test_two_systems_are_compared_on_the_questions_that_both_answered():
    rows = []
    for system, ids in ((names.RAG, ("q1", "q2", "q3")), (names.RAG_TRAINED, ("q1",))):
        for identity in ids:
            scores = {"raw": False, "normalised": False, "whole": False}
            rows.append({"system": system, "dataset": "nq", "id": identity} | scores)
    table = compare_pairs(pd.DataFrame(rows))
    assert table.n.tolist() == [1, 1, 1]
    assert table.gained.tolist() == [0, 0, 0]


# Which seeds are pooled.


def outcomes_of(**n_questions):
    """Outcome tables by seed, with so many questions each."""
    return {seed[1:]: pd.DataFrame(index=range(n)) for seed, n in n_questions.items()}


def test_the_largest_group_of_seeds_with_equally_many_questions_is_pooled():
    tables = outcomes_of(s1=9, s2=5, s3=5)
    assert list(select_poolable(BASELINE, names.EXPANSION, tables)) == ["2", "3"]


def test_of_equally_large_groups_the_one_with_more_questions_is_pooled():
    tables = outcomes_of(s1=5, s2=9)
    assert list(select_poolable(BASELINE, names.EXPANSION, tables)) == ["2"]


def test_a_verifier_of_few_verdicts_is_not_pooled_with_others():
    tables = outcomes_of(s7=5, s8=9, s9=9)
    assert list(select_poolable(BASELINE, names.EXPANSION_COMBINED, tables)) == ["7"]
    assert list(select_poolable(BASELINE, names.EXPANSION, tables)) == ["8", "9"]


def test_verifiers_of_few_verdicts_are_pooled_if_there_is_no_other():
    tables = outcomes_of(s8=9, s9=9)
    assert list(select_poolable(BASELINE, names.EXPANSION_COMBINED, tables)) == ["8", "9"]


def test_the_main_row_is_not_of_a_verifier_of_few_verdicts():
    row = {"from": BASELINE, "to": names.EXPANSION_COMBINED, "set": ALL_SETS}
    rows = pd.DataFrame([row | {"seed": "7", "n": 5}, row | {"seed": "8", "n": 9}])
    assert select_main(rows).seed.tolist() == ["7"]
