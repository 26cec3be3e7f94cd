"""Baselines that are computed from recorded answers: two readers, expansion of some queries."""

import pytest
from comparison_frames import make_frame

from covrag_lite.systems import names
from covrag_lite.tables.comparisons.baselines import (
    build_outcomes,
    choose_by_combined_score,
    expand_some_queries,
)
from covrag_lite.tables.comparisons.differences import compare_systems
from covrag_lite.tables.comparisons.pairs import (
    ALL_EXPANDED_READERS,
    ALL_SETS,
    BASELINE,
    EXPANSION_IF_FLAGGED,
    EXPANSION_IF_UNLIKELY,
    OURS_NO_CHAIN,
    POOLED,
    TWO_EXPANDED_READERS,
    TWO_EXPANDED_READERS_COMBINED,
    TWO_PLAIN_READERS,
    TWO_READERS_NEXT,
    TWO_READERS_ONE_SEARCH,
)
from covrag_lite.tables.comparisons.table import build_seeds

NEXT = names.TWO_ADAPTERS_NEXT


def overall(frames):
    """The comparisons over all questions."""
    rows = compare_systems(frames)
    return rows[rows.set == ALL_SETS]


# Two readers with a verifier.


@pytest.fixture
def readers():
    right = {
        names.TWO_ADAPTERS: [1, 0, 0, 1],
        names.COV_RAG: [0, 1, 1, 0],
        NEXT: [0, 0, 0, 1],
        BASELINE: [0, 0, 0, 0],
    }
    frame = make_frame(right, ["nq"] * 4)
    frame.loc[frame.system == names.TWO_ADAPTERS, "first_weight"] = [2.6, 0.5, 1.7, 0.8]
    frame.loc[frame.system == names.COV_RAG, "first_weight"] = [0.2, 2.3, 1.4, 1.1]
    frame.loc[frame.system == NEXT, "weight"] = [0.1, 3.0, 1.0, 1.0]
    return frame


def test_of_two_readers_answers_the_one_with_the_higher_combined_score_counts(readers):
    right = choose_by_combined_score(readers, names.TWO_ADAPTERS, "first_")
    assert right.tolist() == [1, 1, 0, 0]  # the second reader's second and fourth answers


def test_the_answer_that_is_returned_may_be_the_one_that_is_compared(readers):
    assert choose_by_combined_score(readers, NEXT, "").tolist() == [0, 0, 1, 0]


def test_an_answer_without_a_combined_score_replaces_none(readers):
    readers.loc[(readers.system == names.COV_RAG) & (readers.id == "nq-2"), "first_weight"] = None
    assert choose_by_combined_score(readers, NEXT, "").tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("baseline, gained", [(TWO_READERS_ONE_SEARCH, 2), (TWO_READERS_NEXT, 1)])
def test_two_readers_are_compared_with_one(readers, baseline, gained):
    rows = overall({"1": readers}).set_index(["from", "to"])
    assert rows.gained[BASELINE, baseline] == gained


# Two readers without a verifier.


def test_of_two_plain_readers_answers_the_one_with_the_higher_likelihood_counts():
    first = make_frame({BASELINE: [1, 0, 0]}, ["nq"] * 3)
    second = make_frame({BASELINE: [0, 1, 1]}, ["nq"] * 3)
    second["likelihood"] = [-0.5, -0.05, -0.5]  # the first reader's answers have -0.1
    rows = overall({"1": first, "2": second.sample(frac=1, random_state=1)})
    pooled = rows[(rows.to == TWO_PLAIN_READERS) & (rows.seed == POOLED)]
    assert pooled.accuracy_to.item() == pytest.approx(200 / 3, abs=0.001)  # the first two questions


@pytest.fixture
def expanded_readers():
    """Two readers of expanded queries, compared with each; a third seed has no partner."""
    answers = {
        "6": ([1, 0, 0], [-0.1, -0.9, -0.2]),
        "7": ([0, 1, 1], [-0.5, -0.3, -0.4]),
        "8": ([0, 0, 0], [0, 0, 0]),
    }
    frames = {}
    for seed, (right, likelihoods) in answers.items():
        frames[seed] = make_frame({names.EXPANSION: right}, ["nq"] * 3)
        frames[seed]["kept_likelihood"] = likelihoods
    rows = overall(frames)
    return rows[rows.to == TWO_EXPANDED_READERS].set_index("seed")


def test_readers_of_expanded_queries_are_paired_two_by_two(expanded_readers):
    assert expanded_readers.index.tolist() == ["6", "7", POOLED]


def test_the_likelier_of_two_answers_to_an_expanded_query_counts_for_both_seeds(expanded_readers):
    assert expanded_readers.gained.to_dict() == {"6": 1, "7": 1, POOLED: 2}
    assert expanded_readers.lost.to_dict() == {"6": 0, "7": 1, POOLED: 1}


@pytest.fixture
def verified_readers():
    """Two readers of expanded queries with a verifier, and a third one without a partner."""
    answers = {
        "7": ([0, 0, 0, 0], [9, 9, 9, 9]),
        "8": ([1, 0, 1, 1], [2.6, 1.0, 0.9, 0.2]),
        "9": ([0, 1, 0, 0], [2.5, 1.1, 0.7, 0.3]),
    }
    frames = {}
    for seed, (right, weights) in answers.items():
        systems = {names.EXPANSION: right, names.EXPANSION_COMBINED: right}
        frames[seed] = make_frame(systems, ["nq"] * 4).assign(kept_likelihood=-0.1)
        is_verified = frames[seed].system == names.EXPANSION_COMBINED
        frames[seed].loc[is_verified, "weight"] = weights
    unverified = frames["7"][frames["7"].system == names.EXPANSION]
    return {"6": unverified.copy(), "7": frames["7"], "8": frames["8"], "9": frames["9"]}


def test_of_two_verified_readers_answers_the_one_with_the_higher_combined_score_counts(
    verified_readers,
):
    right = build_outcomes(verified_readers)["8"][TWO_EXPANDED_READERS_COMBINED]
    assert right.tolist() == [1, 1, 1, 0]


def test_readers_of_expanded_queries_are_verified_only_if_both_of_a_pair_are(verified_readers):
    outcomes = build_outcomes(verified_readers)
    has_baseline = [seed for seed in outcomes if TWO_EXPANDED_READERS_COMBINED in outcomes[seed]]
    assert has_baseline == ["8", "9"]


def test_a_verifiers_choice_between_two_readers_is_compared_with_that_of_the_likelihood(
    verified_readers,
):
    rows = overall(verified_readers).set_index(["from", "to", "seed"])
    row = rows.loc[(TWO_EXPANDED_READERS, TWO_EXPANDED_READERS_COMBINED, "8")]
    assert [row.n, row.gained, row.lost] == [4, 1, 1]  # equally likely: reader 8's 1, 0, 1, 1


def test_two_readers_that_both_seeds_share_are_compared_once(verified_readers):
    rows = overall(verified_readers)
    is_shared = (rows["from"] == TWO_EXPANDED_READERS) & (rows.to == TWO_EXPANDED_READERS_COMBINED)
    assert rows[is_shared].seed.tolist() == ["8"]


def test_comparisons_whose_margin_was_planned_have_a_verdict(verified_readers):
    facts = build_seeds(verified_readers).facts
    names_of_verdicts = {name for name in facts if name.endswith("verdict")}
    to_one_reader = f"{TWO_EXPANDED_READERS} → {names.EXPANSION_COMBINED}"
    to_two_readers = f"{TWO_EXPANDED_READERS} → {TWO_EXPANDED_READERS_COMBINED}"
    assert names_of_verdicts == {
        f"{to_one_reader} 8 verdict",
        f"{to_one_reader} 9 verdict",
        f"{to_two_readers} 8 verdict",
    }
    assert facts[f"{to_two_readers} 8 verdict"] == "not settled"


def test_the_second_pair_was_expected_to_help(verified_readers):
    seeds = {"10": verified_readers["8"], "11": verified_readers["9"]}
    facts = build_seeds(seeds).facts
    name = f"{TWO_EXPANDED_READERS} → {TWO_EXPANDED_READERS_COMBINED} 10 verdict"
    assert facts[name] == "not settled"


def test_all_complete_readers_are_compared_with_a_verified_pair(verified_readers):
    """Readers 6 to 9 are all right about question 1 or 2; the highest likelihood decides."""
    for seed, likelihood in {"6": -0.5, "7": -0.4, "8": -0.3, "9": -0.2}.items():
        verified_readers[seed]["kept_likelihood"] = likelihood
    outcomes = build_outcomes(verified_readers)
    assert outcomes["8"][ALL_EXPANDED_READERS].tolist() == [0, 1, 0, 0]  # as reader 9
    assert ALL_EXPANDED_READERS not in outcomes["6"]


def test_a_reader_of_a_part_of_the_questions_is_none_of_all(verified_readers):
    for seed, likelihood in {"6": -0.5, "7": -0.4, "8": -0.3, "9": -0.2}.items():
        verified_readers[seed]["kept_likelihood"] = likelihood
    frame = verified_readers["9"]
    verified_readers["9"] = frame[frame.id != "nq-1"]
    right = build_outcomes(verified_readers)["8"][ALL_EXPANDED_READERS]
    assert right.tolist() == [1, 0, 1, 1]  # as reader 8


def test_a_verified_reader_without_a_partner_has_no_second_one(verified_readers):
    del verified_readers["9"]
    outcomes = build_outcomes(verified_readers)
    assert TWO_EXPANDED_READERS_COMBINED not in outcomes["8"]
    assert TWO_EXPANDED_READERS in outcomes["7"]


def test_readers_of_a_part_of_the_questions_are_compared_on_those_of_both(verified_readers):
    frame = verified_readers["9"]
    verified_readers["9"] = frame[(frame.id != "nq-1") | (frame.system == names.EXPANSION)]
    rows = overall(verified_readers).set_index(["from", "to", "seed"])
    assert rows.loc[(TWO_EXPANDED_READERS, TWO_EXPANDED_READERS_COMBINED, "8")].n == 3


# Query expansion on some questions only.


@pytest.fixture
def expansion():
    right = {
        BASELINE: [0, 0, 1, 1],
        names.EXPANSION: [1, 1, 0, 0],
        OURS_NO_CHAIN: [0, 0, 1, 1],
    }
    frame = make_frame(right, ["nq"] * 4)
    frame.loc[frame.system == OURS_NO_CHAIN, "revised"] = [True, False, True, False]
    frame.loc[frame.system == BASELINE, "likelihood"] = [-2.0, -3.0, -0.1, -0.2]
    return frame.sample(frac=1, random_state=1)


def test_queries_are_expanded_where_the_verifier_flags_an_answer(expansion):
    assert expand_some_queries(expansion)[EXPANSION_IF_FLAGGED].tolist() == [1, 0, 0, 1]


def test_as_many_queries_are_expanded_where_answers_are_unlikely(expansion):
    assert expand_some_queries(expansion)[EXPANSION_IF_UNLIKELY].tolist() == [1, 1, 1, 1]


def test_queries_are_expanded_among_the_verified_questions_only(expansion):
    is_unverified = (expansion.system == OURS_NO_CHAIN) & expansion.id.isin(["nq-2", "nq-3"])
    outcomes = expand_some_queries(expansion[~is_unverified])
    assert outcomes[EXPANSION_IF_FLAGGED].to_dict() == {("nq", "nq-0"): 1, ("nq", "nq-1"): 0}


def test_both_ways_to_expand_some_queries_are_compared(expansion):
    rows = overall({"1": expansion})
    assert rows[rows["from"] == EXPANSION_IF_UNLIKELY].difference.tolist() == [-50.0]


def test_expansion_of_some_queries_needs_plain_answers(expansion):
    rows = overall({"1": expansion[expansion.system != BASELINE]})
    assert EXPANSION_IF_FLAGGED not in {*rows["from"], *rows.to}


def test_equally_likely_answers_do_not_change_how_many_queries_are_expanded(expansion):
    expansion["likelihood"] = -0.1
    right = expand_some_queries(expansion)[EXPANSION_IF_UNLIKELY]
    # The first two of four equals: nq-0 and nq-1, whose answers are right only if expanded.
    assert right.tolist() == [1, 1, 1, 1]


def test_of_equally_scored_answers_that_of_the_first_reader_is_kept(readers):
    readers["first_weight"] = 1.0
    right = choose_by_combined_score(readers, names.TWO_ADAPTERS, "first_")
    assert right.tolist() == [1, 0, 0, 1]


def test_one_reader_alone_has_no_second_one():
    frame = make_frame({BASELINE: [1, 0, 0]}, ["nq"] * 3)
    assert TWO_PLAIN_READERS not in build_outcomes({"1": frame})["1"]


def test_two_readers_with_a_verifier_need_both_readers(readers):
    alone = readers[readers.system != names.COV_RAG]
    assert TWO_READERS_ONE_SEARCH not in build_outcomes({"1": alone})["1"]
