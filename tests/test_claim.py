"""Paired differences: their tests, pooling over seeds, and the rules that choose an answer."""

import numpy as np
import pandas as pd
import pytest

from covrag_lite import metrics, replication
from covrag_lite.config import ROOT
from covrag_lite.labels import label_of
from covrag_lite.tables import claim, mixture


def test_flipping_signs_is_mcnemars_exact_test_for_one_training():
    rng = np.random.default_rng(1)
    for n, share in ((40, 0.3), (400, 0.6), (3000, 0.52)):
        a = rng.random(n) < 0.4
        b = np.where(rng.random(n) < 0.2, rng.random(n) < share, a)
        expected = metrics.mcnemar(a.tolist(), b.tolist())[2]
        assert claim.sign_flip(b.astype(float) - a) == pytest.approx(expected, rel=1e-6)
    assert claim.sign_flip(np.zeros(5)) == 1.0


def test_three_trainings_that_agree_are_not_three_times_the_questions():
    differences = np.array([1.0] * 12 + [-1.0] * 4 + [0.0] * 84)
    once = claim.sign_flip(differences)
    assert claim.sign_flip(np.mean([differences] * 3, axis=0)) == pytest.approx(once)
    assert claim.sign_flip(np.array([1 / 3] * 6)) == pytest.approx(2 / 2**6)


def frame(right: dict[str, list[int]], sets: list[str]) -> pd.DataFrame:
    """A frame with the outcomes of several systems on the same questions."""
    rows = []
    for system, values in right.items():
        for number, (value, name) in enumerate(zip(values, sets)):
            row = dict(system=system, dataset=name, id=f"{name}-{number}", whole=bool(value), first_whole=bool(value))
            row |= dict(judgment="true", expected_correctness=0.9 if value else 0.2, likelihood=-0.1, words_first=True)
            row |= dict(first_weight=2.6 if value else 0.5, weight=2.6 if value else 0.5)
            rows.append(row | dict(words_last=True, revised=False, unrevised=None))
    return pd.DataFrame(rows)


def test_questions_are_paired_by_id_and_a_pooled_question_counts_once():
    sets = ["nq"] * 4 + ["webq"] * 4
    one = frame({"RAG trained": [0, 0, 0, 1, 1, 0, 0, 0], "CoV-RAG": [1, 1, 0, 1, 0, 0, 0, 1]}, sets)
    two = frame({"RAG trained": [0, 0, 0, 1, 1, 0, 0, 0], "CoV-RAG": [1, 0, 0, 1, 1, 0, 0, 0]}, sets)
    rows = claim.build_seeds({"1": one.sample(frac=1, random_state=3), "2": two}).rows
    rows = rows[(rows["from"] == "RAG trained") & (rows.to == "CoV-RAG")].set_index(["set", "seed"])
    assert rows.loc[("all", "1"), ["n", "difference", "gained", "lost"]].tolist() == [8, 25.0, 3, 1]
    assert rows.loc[("nq", "1"), ["n", "difference", "gained", "lost"]].tolist() == [4, 50.0, 2, 0]
    pooled = rows.loc[("all", "pooled")]
    assert (pooled.n, pooled.difference, pooled.gained, pooled.lost) == (8, 18.75, 4, 1)
    assert pooled.p == pytest.approx(claim.sign_flip(np.array([1, 0.5, 0, 0, -0.5, 0, 0, 0.5])), rel=0.05)


def test_the_picture_has_a_row_a_comparison_with_its_trainings_and_the_first_one_by_set(tmp_path):
    sets = ["nq"] * 4 + ["webq"] * 4
    both = frame({"RAG trained": [0, 0, 0, 1, 1, 0, 0, 0], claim.BEST: [1, 1, 0, 1, 0, 0, 0, 1]}, sets)
    once = frame({"RAG trained": [0, 0, 0, 1, 1, 0, 0, 0], claim.DIRECT: [0, 0, 1, 1, 1, 0, 0, 1]}, sets)
    table = claim.build_seeds({"1": pd.concat([both, once.iloc[8:]]), "2": both})
    by_set = table.part("by set").groupby("comparison").seed.unique().map(list).to_dict()
    two_adapters, no_scores = (f"RAG (trained) → {label_of(system)}" for system in (claim.BEST, claim.DIRECT))
    assert by_set[two_adapters] == ["pooled"] and by_set[no_scores] == ["1"]
    left, right = claim.plot(table.rows, tmp_path / "claim.png").axes
    rows, sets = ([label.get_text() for label in axis.get_yticklabels()] for axis in (left, right))
    assert [row.splitlines()[1] for row in rows] == ["2 seeds, n = 8", "1 seed, n = 8", "2 seeds, n = 8"]
    assert sets == ["NQ (4)", "WebQ (4)"]
    dots = [line.get_xdata().tolist() for line in left.lines if len(line.get_xdata()) == 2 and line.get_marker() == "o"]
    assert dots == [[25.0, 25.0], [0.0, 0.0]]  # both seeds of two adapters, and of two plain readers


def test_each_comparison_holds_both_accuracies_on_the_same_questions_and_seeds():
    sets = ["nq"] * 4
    first = frame({"RAG trained": [0, 0, 1, 1], "CoV-RAG": [1, 0, 1, 1], "CoV-RAG-S": [0, 0, 0, 1]}, sets)
    second = frame({"RAG trained": [0, 0, 0, 0], "CoV-RAG-S": [0, 0, 1, 1]}, sets)  # CoV-RAG was not run
    rows = claim.compare_systems({"1": first, "2": second}).query("set == 'all'").set_index(["from", "to", "seed"])
    of_cov_rag = rows.loc[("RAG trained", "CoV-RAG", "1"), ["accuracy_from", "accuracy_to", "difference"]]
    assert of_cov_rag.tolist() == [50.0, 75.0, 25.0]  # seed 1's baseline only
    of_first = rows.loc[("RAG trained", "CoV-RAG-S", "pooled"), ["accuracy_from", "accuracy_to", "difference"]]
    assert of_first.tolist() == [25.0, 37.5, 12.5]


def test_two_plain_readers_keep_the_answer_with_the_higher_likelihood():
    sets = ["nq"] * 3
    first, second = (frame({"RAG trained": right}, sets) for right in ([1, 0, 0], [0, 1, 1]))
    second["likelihood"] = [-0.5, -0.05, -0.5]  # the first reader's answers have -0.1
    shuffled = second.sample(frac=1, random_state=1)
    rows = claim.compare_systems({"1": first, "2": shuffled})
    pooled = rows[(rows.to == claim.PLAIN_TWO) & (rows.set == "all") & (rows.seed == "pooled")]
    assert pooled.accuracy_to.item() == pytest.approx(200 / 3, abs=0.001)  # the first two questions


def test_an_interval_of_few_differing_pairs_contains_zero_exactly_where_mcnemar_is_not_significant():
    for gained in range(12):
        for lost in range(12):
            low, high = metrics.few_pairs_interval(gained, lost, 300)
            p = metrics.mcnemar([False] * gained + [True] * lost, [True] * gained + [False] * lost)[2]
            assert (low <= 0 <= high) or p < 0.05
            assert low <= (gained - lost) / 300 <= high


def test_four_losses_of_284_questions_do_not_exclude_zero():
    mean, low, high = metrics.difference_interval([-1.0] * 4 + [0.0] * 280)  # MuSiQue
    assert mean == pytest.approx(-4 / 284)
    # Clopper-Pearson for 0 gains of 4: at most 1 - 0.025 ** (1 / 4) = 0.602.
    assert high == pytest.approx((2 * (1 - 0.025**0.25) - 1) * 4 / 284)
    assert low < -4 / 284  # more than four of other questions may be lost


def test_an_interval_without_differing_pairs_depends_on_how_many_were_asked():
    low, high = metrics.few_pairs_interval(0, 0, 400)
    assert (low, high) == pytest.approx((-(1.96**2) / (400 + 1.96**2), 1.96**2 / (400 + 1.96**2)), rel=1e-3)


def test_an_interval_of_few_pairs_covers_the_truth():
    rng = np.random.default_rng(3)
    draws = rng.multinomial(400, [0.05, 0.005, 0.945], size=300)
    ends = [metrics.few_pairs_interval(gained, lost, 400) for gained, lost, _ in draws]
    assert np.mean([low <= 0.045 <= high for low, high in ends]) > 0.93


def test_many_differing_pairs_are_bootstrapped_and_a_mean_of_seeds_with_few_has_no_interval():
    many = [1.0] * 20 + [-1.0] * 5 + [0.0] * 75
    assert metrics.difference_interval(many) == metrics.mean_bootstrap(many)
    assert np.isnan(metrics.difference_interval([0.5, 0.0, -0.5])[1:]).all()


def test_the_judge_stands_beside_likelihood_and_majority_and_counts_trust_beside_an_answer():
    made = frame({"CoV-RAG": [1, 1, 0, 0, 0]}, ["nq"] * 5)
    (row,) = claim.judge_rows(made, "1")
    assert (row["right"], row["majority"], row["wrong ones beside an answer trusted"]) == ("40.0", "60.0", "100.0")
    assert row["AUROC"].startswith("1.000") and row["AUROC of the likelihood"].startswith("0.500")
    made.loc[2, "judgment"] = "false"  # a wrong answer: two of three are trusted, both right ones are
    found = [True, True, True, True, None]  # which leaves one of two next to an answer
    (row,) = claim.judge_rows(made.assign(words_first=found), "1")
    assert (row["right ones trusted"], row["wrong ones trusted"], row["right"]) == ("100.0", "66.7", "60.0")
    assert row["wrong ones beside an answer trusted"] == "50.0"
    made["expected_correctness"] = [0.8, 0.7, 0.9, 0.1, 0.1]  # from 0.8 on: one right and one wrong answer
    made["first_weight"] = [2.4, 2.1, 2.0, 0.2, 0.2]  # of which the wrong one's likelihood takes more
    (row,) = claim.judge_rows(made, "1")
    assert row["right, trusting from 0.8"] == "60.0" and row["AUROC"].startswith("0.667")
    assert row["AUROC of both, weighed"].startswith("1.000")


def test_the_threshold_of_trust_is_the_best_on_validation_answers_of_the_same_reader():
    known = pd.read_csv(ROOT / "results/real/qwen2.5-coder-1.5b/validation/validation.candidates.csv.gz")
    known = known[(known.layout == "shared") & (known.kind == "near") & (known.candidate == "rag first")]
    right = {t / 20: ((known.correctness >= t / 20) == known.right).mean() for t in range(1, 20)}
    assert max(right, key=right.get) == claim.TRUST and len(known) == 3022


def test_controls_with_two_readers_take_the_heavier_answer():
    right = {
        "CoV-RAG, two adapters": [1, 0, 0, 1],
        "CoV-RAG": [0, 1, 1, 0],
        claim.NEXT: [0, 0, 0, 1],
        "RAG trained": [0] * 4,
    }
    made = frame(right, ["nq"] * 4)
    made.loc[:7, "first_weight"] = [2.6, 0.5, 1.7, 0.8, 0.2, 2.3, 1.4, 1.1]
    made.loc[8:11, "weight"] = [0.1, 3.0, 1.0, 1.0]  # of the answers that reading on keeps
    first = claim.choose_reader(made, "CoV-RAG, two adapters", "first_")
    assert first.tolist() == [1, 1, 0, 0]  # the second reader's second and fourth answers
    assert claim.choose_reader(made, claim.NEXT, "").tolist() == [0, 0, 1, 0]
    rows = claim.compare_systems({"1": made})
    gained = rows[rows.set == "all"].set_index(["from", "to"]).gained
    assert gained["RAG trained", claim.CONTROL] == 2 and gained["RAG trained", claim.READ_ON] == 1
    made.loc[6, "first_weight"] = None  # a verdict that was not read takes nothing
    assert claim.choose_reader(made, claim.NEXT, "").tolist() == [0, 0, 0, 0]


def test_of_two_trainings_readers_the_likelier_answer_counts_beside_either_and_a_third_stands_alone():
    made = {
        seed: frame({claim.EXPANDED: right}, ["nq"] * 3) for seed, right in zip("678", ([1, 0, 0], [0, 1, 1], [0] * 3))
    }
    for seed, likelihoods in {"6": [-0.1, -0.9, -0.2], "7": [-0.5, -0.3, None], "8": [0, 0, 0]}.items():
        made[seed]["kept_likelihood"] = likelihoods
    rows = claim.compare_systems(made)
    rows = rows[(rows.to == claim.TWO) & (rows.set == "all")].set_index("seed")
    assert rows.gained.to_dict() == {"6": 1, "7": 1, "pooled": 2} and rows.lost.to_dict() == {
        "6": 0,
        "7": 1,
        "pooled": 1,
    }


def test_queries_are_expanded_where_the_verifier_doubts_or_as_often_where_answers_are_unlikely():
    made = frame({"RAG trained": [0, 0, 1, 1], claim.EXPANDED: [1, 1, 0, 0], claim.DIRECT: [0, 0, 1, 1]}, ["nq"] * 4)
    made.loc[8:, "revised"] = [True, False, True, False]
    made.loc[:3, "likelihood"] = [-2.0, -3.0, -0.1, -0.2]
    told = claim.expand_some(made.sample(frac=1, random_state=1))
    assert told[claim.WHERE_DOUBTED].tolist() == [1, 0, 0, 1]
    assert told[claim.WHERE_UNLIKELY].tolist() == [1, 1, 1, 1]
    rows = claim.compare_systems({"1": made})
    assert rows[(rows["from"] == claim.WHERE_UNLIKELY) & (rows.set == "all")].difference.tolist() == [-50.0]


def test_without_a_chain_trust_is_the_chance_that_nothing_is_revised():
    made = frame({"CoV-RAG w/o chain, two adapters": [1, 0, 1, 0]}, ["nq"] * 4)
    made = made.assign(expected_correctness=None, unrevised=[0.9, 0.6, 0.4, 0.1], words_first=False)
    row = next(claim.judge_rows(made, "4"))
    assert row["answers of"] == "RAG trained, w/o chain" and row["AUROC"].startswith("0.750")


def test_the_second_search_stands_beside_a_perfect_choice_between_both_answers():
    made = frame({"CoV-RAG": [1, 0, 0, 0]}, ["nq"] * 4)
    made = made.assign(whole=[False, True, False, False], revised=[True, True, False, False])
    (row,) = claim.search_rows(made.assign(words_first=[True, False, False, None]), "1")
    found = row["an answer in the first passages"], row["in the last"]
    assert (row["searched again"], *found) == ("50.0", "33.3", "100.0")  # of three that are known
    assert (row["first answer right"], row["last"], row["the better of both"]) == ("25.0", "25.0", "50.0")


def test_a_difference_of_means_is_visible_from_2_8_standard_errors_on():
    # 80 % power at p < 0.05: (1.96 + 0.8416) · √(1/3) / √4
    assert claim.visible(np.array([0.5, -0.5, 0.5, -0.5])) == pytest.approx(80.88, abs=0.01)


def test_a_claim_without_two_systems_to_compare_is_refused_before_anything_runs():
    with pytest.raises(SystemExit, match="-p claim has no two systems that can be compared"):
        replication.main(["smollm2-135m-world", "-p", "claim", "RAG trained", "--stages", "claim"])


def test_single_models_of_other_mixtures_stand_beside_the_readers_and_a_missing_seed_is_their_mean():
    sets, nothing = ["nq"] * 8, [0] * 8
    recorded = {str(n): frame({"RAG trained": nothing[n:] + [1] * n}, sets) for n in (1, 2, 3)}
    again = frame({"RAG trained": [1, 1, 0, 0, 0, 0, 0, 0]}, sets)
    first, final = [1, 1, 1, 0, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0, 0, 0]
    one, two = frame({"CoV-RAG-S": first, "CoV-RAG": final}, sets), frame({"CoV-RAG-S": first, "CoV-RAG": first}, sets)
    table = mixture.build_arms({("again", "3"): again, ("paper", "1"): one, ("paper", "2"): two}, recorded)
    rows = table.rows.set_index(["from", "to", "seed"])
    drift = rows.loc[("RAG trained", "RAG trained again", "3")]  # beside the recorded reader of its own seed
    assert (drift.difference, drift.gained, drift.lost) == (-12.5, 2, 3)
    pooled = rows.loc[("RAG trained again", "paper, final answer", "pooled")]
    assert (pooled.n, pooled.difference, pooled.gained, pooled.lost) == (8, 18.75, 2, 0)
    assert pooled.p == claim.sign_flip(np.array([1.0, 0.5, 0, 0, 0, 0, 0, 0])) and not pooled.equivalent
    assert rows.loc[("mean of recorded readers", "paper, first answer", "1")].difference == 12.5
    assert table.facts["paper, first answer → paper, final answer pooled"] == "+6.2"
    assert table.facts["RAG trained again 3"] == "25.00"
