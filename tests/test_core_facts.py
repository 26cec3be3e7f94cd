"""Facts about the core that a user would miss: boundaries, defaults, order, and what is left."""

import math
import random
from dataclasses import replace

import pytest
import toy
from scipy.stats import binom
from toy import PASSAGES, QUESTIONS

from covrag_lite import metrics, oracle, prompts, qlora, synthesis
from covrag_lite.method import by_fitted_thresholds, closed_book
from covrag_lite.oracle import Example
from covrag_lite.prompts import DIRECT, parse_verdict, render_verdict, verdict_parts
from covrag_lite.records import Passage, Prediction, Question, Round, Source, digest

A, B, C, D, E, F = PASSAGES.values()
Q1, Q2 = QUESTIONS[:2]
FALSE = parse_verdict(render_verdict([0.1] * 6, "false", "Where was Ada Voss born?"))
TRUE = parse_verdict(render_verdict([0.9] * 6, "true", ""))


class Draws:
    """A random generator that returns the given numbers in order; a choice takes the first."""

    def __init__(self, *numbers):
        self.numbers = list(numbers)

    def random(self):
        return self.numbers.pop(0)

    def randint(self, low, high):
        number = self.numbers.pop(0)
        assert low <= number <= high
        return number

    def randrange(self, low, high):
        return self.randint(low, high - 1)

    def choice(self, items):
        return items[self.numbers.pop(0)]

    def sample(self, items, n):
        return list(items)[:n]


# Records.


def test_the_last_round_is_recorded_by_its_index():
    rounds = (Round("a", (), "first"), Round("b", (), "second"))
    assert Prediction(Q1, "toy", rounds).kept == 1


def test_a_prediction_with_one_round_is_not_revised():
    assert not Prediction(Q1, "toy", (Round("a", (), "first"),)).revised


def test_a_corpus_with_its_own_hash_keeps_it():
    class Corpus(list):
        sha256 = "of the corpus"

    assert digest(Corpus()) == "of the corpus"


def test_the_hash_depends_on_every_record():
    assert digest([A, B]) != digest([A, C])


def test_the_hash_depends_on_the_order_of_records():
    assert digest([A, B]) != digest([B, A])


@pytest.mark.parametrize(
    "kind, form, failure",
    [
        ("author+misspelt", "broken wording", "broken wording"),
        ("two-hop", "two-hop", "two-hop"),
        ("author/stale", "well put", "stale"),
        ("author", "well put", "none"),
        ("", "well put", "none"),
    ],
)
def test_the_form_and_the_failure_of_a_question(kind, form, failure):
    question = Question("q", "one", "who", ("a",), kind=kind)
    assert (question.form, question.failure) == (form, failure)


def test_verdicts_that_say_the_same_are_equal_whatever_their_probabilities():
    assert replace(TRUE, probabilities={"empty": 0.5}) == TRUE


# Method.


def test_fitted_thresholds_cause_no_search_without_a_revised_question():
    assert not by_fitted_thresholds()(Round("a", (), "answer", TRUE))


@pytest.mark.parametrize("name", ["reference_correctness", "correctness"])
def test_fitted_thresholds_count_an_unknown_score_as_below(name):
    without = replace(FALSE, **{name: None})
    assert by_fitted_thresholds(0.5, 0.5)(Round("a", (), "answer", without))


@pytest.mark.parametrize("name", ["reference_correctness", "correctness"])
def test_each_fitted_threshold_looks_at_its_own_score(name):
    high = replace(FALSE, **{name: 0.9})
    assert not by_fitted_thresholds(0.5, 0.5)(Round("a", (), "answer", high))


def test_a_closed_book_prediction_has_no_passages():
    class Tools:
        name = "toy"

        def write_from_question(self, task, x):
            return [f"{task}: {question}" for question in x]

    (prediction,) = closed_book([Q1], Tools())
    assert prediction.rounds == (Round("", (), f"closed-book: {Q1.question}"),)


# Prompts.


def test_an_unfinished_verdict_ends_after_the_judgment():
    assert verdict_parts(FALSE, unfinished=True)[-1] == "false"


def test_an_unfinished_verdict_without_the_chain_ends_after_the_opening_quotation_mark():
    assert verdict_parts(FALSE, with_chain=False, unfinished=True) == (DIRECT[0], ' "')


def test_a_revised_question_ends_with_a_part_of_its_own():
    parts = verdict_parts(FALSE, with_chain=False)
    assert parts == (DIRECT[0], ' "', FALSE.revised_question, '"', DIRECT[-1])


@pytest.mark.parametrize("score, parsed", [(0, True), (1, True), (1.01, False), (-0.01, False)])
def test_scores_are_numbers_from_0_to_1(score, parsed):
    text = prompts.EXAMPLE.replace("0.70", str(score))
    assert parse_verdict(text).parsed == parsed


def test_true_is_no_score():
    assert not parse_verdict(prompts.EXAMPLE.replace("0.70", "true")).parsed


def test_the_example_of_the_output_format():
    verdict = parse_verdict(prompts.EXAMPLE)
    scores = [getattr(verdict, name) for name in prompts.SCORES]
    assert scores == [0.9, 1.0, 0.8, 0.7, 0.8, 0.9]


def test_a_verdict_with_a_score_too_many_is_an_error():
    with pytest.raises(ValueError):
        render_verdict([0.5] * 7, "true", "")


# Metrics.


@pytest.mark.parametrize("gained, lost", [(12, 8), (30, 10), (3, 3)])
def test_the_detectable_effect_is_what_the_exact_test_finds_in_four_of_five_samples(gained, lost):
    differing = gained + lost
    effect = metrics.detectable_effect(gained, lost, 200)
    share = (effect / 100 * 200 / differing + 1) / 2  # of differing questions that are gains
    fewest_losses = max(
        losses for losses in range(differing) if 2 * binom.cdf(losses, differing, 0.5) < 0.05
    )
    assert binom.cdf(fewest_losses, differing, 1 - share) == pytest.approx(0.8)


def test_five_differing_questions_are_too_few_for_a_significant_result():
    assert math.isnan(metrics.detectable_effect(5, 0, 200))


def test_six_differing_questions_can_give_a_significant_result():
    assert metrics.detectable_effect(6, 0, 200) > 0


def test_an_answer_that_begins_in_one_passage_and_ends_in_the_next_is_not_found():
    halves = [Passage("1", "", "It was by Ada"), Passage("2", "", "Voss wrote it.")]
    assert metrics.holds_answer(halves, ["Ada Voss"], "whole") is False


def test_without_gold_passages_it_is_unknown_whether_one_was_found():
    assert metrics.holds_gold([A], []) is None


@pytest.mark.parametrize("ids, is_retrieved", [(("a", "c"), True), (("c", "d"), False)])
def test_one_gold_passage_is_enough(ids, is_retrieved):
    assert metrics.holds_gold([A, B], ids) is is_retrieved


def test_an_empty_gold_answer_is_not_contained_in_any_answer():
    assert metrics.score("Ada Voss", ["", "Mere"], "raw") is False


def test_the_interval_of_whole_differences_needs_no_random_resamples(monkeypatch):
    monkeypatch.setattr(metrics, "_sampled_ends", None)
    # Of two resampled questions both are gained, or none, with a probability of 1 in 4 each.
    assert metrics.mean_bootstrap([1.0, 0.0]) == (0.5, 0.0, 1.0)


def test_the_mean_of_one_question_is_its_value():
    assert metrics.mean_bootstrap([1.0])[0] == 1.0


def test_the_mean_of_no_question_is_unknown():
    assert all(math.isnan(value) for value in metrics.mean_bootstrap([]))


@pytest.mark.parametrize("right", [[True, True], [False, False]])
def test_the_auroc_is_unknown_if_all_answers_are_alike(right):
    assert all(math.isnan(value) for value in metrics.auroc([0.1, 0.9], right))


def test_the_auroc_is_the_share_of_pairs_in_order():
    area, _, _ = metrics.auroc([0.9, 0.5, 0.5, 0.1], [True, False, True, False])
    assert area == pytest.approx(3.5 / 4)  # one pair ties


def test_delongs_interval_of_a_small_example():
    # Right: 4, 2; wrong: 3, 1. Shares below: 1, 0.5; above: 0.5, 1. Variance of both: 0.125.
    area, low, high = metrics.auroc([4, 2, 3, 1], [True, True, False, False])
    half = metrics.Z * (0.125 / 2 + 0.125 / 2) ** 0.5
    assert (area, low, high) == pytest.approx((0.75, 0.75 - half, 1.0))


def test_tangos_interval_if_every_question_is_gained():
    assert metrics.few_pairs_interval(10, 0, 10)[1] == 1.0


def test_tangos_interval_if_every_question_is_lost():
    assert metrics.few_pairs_interval(0, 10, 10)[0] == -1.0


def test_the_paired_interval_is_of_the_second_minus_the_first():
    mean, _, _ = metrics.paired_interval([1.0] * 3 + [0.0] * 7, [0.0] * 10)
    assert mean == pytest.approx(-0.3)


def test_the_average_of_sets_weighs_each_alike():
    mean, _, _ = metrics.mean_interval([(1, 2), (0, 100)])
    assert mean == 0.25


# The oracle.


@pytest.mark.parametrize(
    "answer, accuracy",
    [("Ada Voss", 0.05), ("Ada Voss[2]", 0.05), ("Ada Voss[1]", 0.95), ("Ada Voss[1][2]", 0.5)],
)
def test_citation_accuracy_is_the_share_of_supporting_citations(answer, accuracy):
    assert oracle.citation_accuracy(answer, [1]) == accuracy


@pytest.mark.parametrize("n_words, score", [(30, 0.95), (31, 0.5)])
def test_an_answer_of_more_than_30_words_is_not_concise(n_words, score):
    assert oracle.conciseness("word " * n_words, False) == score


@pytest.mark.parametrize("n_words, right", [(12, False), (13, True)])
def test_a_long_gold_answer_needs_half_of_its_words(n_words, right):
    gold = [f"w{i}" for i in range(n_words)]
    question = Question("q", "one", "why", (" ".join(gold),))
    assert oracle.is_right(" ".join(gold[:-1]), question) is right


def test_half_of_the_words_in_common_is_enough_for_a_long_answer():
    gold = [f"w{i}" for i in range(15)]
    question = Question("q", "one", "why", (" ".join(gold),))
    assert oracle.is_right(" ".join(gold[:5]), question)  # F1 is 2 · 5 / (15 + 5)


def test_less_than_half_of_the_words_in_common_is_wrong():
    gold = [f"w{i}" for i in range(16)]
    question = Question("q", "one", "why", (" ".join(gold),))
    assert not oracle.is_right(" ".join(gold[:5]), question)


def test_only_the_first_three_titles_are_tried_in_a_revised_question():
    passages = tuple(PASSAGES[name] for name in "abcd")
    forms = oracle.propose(Example(Q1, passages, "", "retrieved"), "", "", "")
    assert [form for form in forms if form.startswith("title")] == ["title 1", "title 2", "title 3"]


def test_the_form_that_works_most_often_is_chosen():
    candidates = {"guess": "a", "answer": "b"}
    assert oracle.choose_revision(candidates, {"guess": 1, "answer": 2}) == "b"


def test_the_clear_wording_is_chosen_before_all_other_forms():
    candidates = {"guess": "a", oracle.CLEAN_FORM: "b"}
    assert oracle.choose_revision(candidates, {"guess": 9, oracle.CLEAN_FORM: 1}) == "b"


def test_a_form_without_the_question_is_chosen_last():
    candidates = {oracle.FORMS_WITHOUT_QUESTION[0]: "a", "guess": "b"}
    assert (
        oracle.choose_revision(candidates, {oracle.FORMS_WITHOUT_QUESTION[0]: 9, "guess": 1}) == "b"
    )


# Synthesis.


def source_of(passages):
    return Source([Q1], passages, toy.search, toy.search)


def test_a_gold_passage_that_the_corpus_lacks_is_not_put_in():
    unknown = replace(Q1, gold_passages=("a", "not in the corpus"))
    places = synthesis.with_gold(unknown, [C, D], {"a": A}, random.Random(0))
    assert sorted(passage.id for passage in places) in (["a", "c"], ["a", "d"])


def test_an_answer_of_d1_is_read_from_the_gold_passage():
    (sample,) = synthesis.answer_samples(source_of([A, B, C]), [Q1], "paper")
    assert A.text in sample.prompt


def test_a_right_answer_without_a_supporting_passage_gets_no_wrong_citation(monkeypatch):
    monkeypatch.setattr(synthesis, "CORRUPTED_SHARE", 1.0)
    unsupported = Example(Q1, (C, D), "Ada Voss[1]", "retrieved")
    corrupted = synthesis.corrupt([unsupported] * 20, random.Random(0))
    assert {example.kind for example in corrupted} == {"repetition"}


def test_the_only_wrong_reference_is_cited_even_if_it_is_the_first():
    assert synthesis.move_citations("Ada Voss[2]", [2], 2, Draws(1)) == "Ada Voss[1]"


def test_wrong_citations_are_in_order():
    assert synthesis.move_citations("Ada Voss[2]", [2], 4, Draws(2)) == "Ada Voss[1][3]"


def break_words(text, *draws):
    question = Question("q", "one", text, ("a",))
    return synthesis.break_question(question, Draws(*draws))


def test_a_long_question_may_lose_its_last_words():
    broken = break_words("who wrote the old harbour lamp?", 0.34, 1)
    assert broken.question == "who wrote the old harb"  # and two thirds of the last one remain


def test_of_a_short_last_word_three_letters_remain():
    assert break_words("who wrote the old lamp here?", 0.34, 1).question == "who wrote the old lam"


def test_a_question_of_four_words_is_misspelt_and_not_cut():
    assert break_words("who wrote the lamp?", 0.34, 1, 1, 1, 1).question == "who wote the lmp"


def test_the_longest_words_are_misspelt():
    # The second letter of "harbour" is dropped, that of "wrote" is swapped with the third.
    broken = break_words("who wrote the harbour", 0.35, 1, 1, 1, 0)
    assert broken.question == "who worte the hrbour"


def test_a_third_of_a_long_questions_words_is_misspelt():
    words = "alpha bravo charlie delta echoes foxtrot golfing hotels indigo".split()
    broken = break_words(" ".join(words), 0.9, *[1, 1] * 3).question.split()
    assert sum(before != after for before, after in zip(words, broken)) == 3


def test_words_of_three_letters_are_never_misspelt():
    assert synthesis._misspell("the", Draws()) == "the"


@pytest.mark.parametrize("choice, word", [(0, "lmap"), (1, "lmp"), (2, "laamp")])
def test_the_three_ways_to_misspell_a_word(choice, word):
    assert synthesis._misspell("lamp", Draws(1, choice)) == word


def test_a_broken_question_keeps_its_clear_wording():
    assert break_words("who wrote the lamp?", 0.9, 1, 1, 1, 1).clean_question == (
        "who wrote the lamp?"
    )


def test_a_broken_question_keeps_the_clear_wording_that_it_had():
    question = Question("q", "one", "who rote it", ("a",), clean_question="Who wrote it?")
    broken = synthesis.break_question(question, Draws(0.9, 1, 1))
    assert broken.clean_question == "Who wrote it?"


@pytest.mark.parametrize(
    "draws, answer",
    [
        ((2, 3, 0), "Ada Voss Voss Voss[1]"),
        ((4, 3, 0), "Ada Voss Voss Voss Voss Voss[1]"),
        ((2, 3, 1), "Ada Voss, Ada Voss, Ada Voss[1]"),
        ((2, 4, 1), "Ada Voss, Ada Voss, Ada Voss, Ada Voss[1]"),
    ],
)
def test_the_ways_to_repeat_an_answer(draws, answer):
    assert synthesis.repeat_words("Ada Voss[1]", Draws(*draws)) == answer


def test_an_answer_is_crossed_if_it_may_be_read_from_exactly_k_deeper_passages():
    assert synthesis.deeper_passages(Q1, [A, C, D], 2) == (C, D)


def test_there_are_no_deeper_passages_if_the_answer_is_not_among_the_first_k():
    assert synthesis.deeper_passages(Q1, [C, D, A, E], 2) == ()


def test_the_answer_may_be_the_last_of_the_first_k_passages():
    assert synthesis.deeper_passages(Q1, [C, A, D], 2) == (C, D)


# QLoRA.


def padded_row():
    sample = qlora.Encoded(0, (5, 6, 7), 1)
    shape = qlora.RowShape(tokens=10, sequences=6, targets=4, longest=3)
    return qlora.lay_out([sample], [2.0, 3.0], "cpu", shape)


def test_padding_is_split_into_sequences_no_longer_than_the_longest():
    assert padded_row()["sequence_ends"].tolist() == [0, 3, 6, 9, 10, 10, 10]


def test_the_positions_of_each_padding_sequence_start_at_0():
    assert padded_row()["position_ids"].tolist() == [[0, 1, 2, 0, 1, 2, 0, 1, 2, 0]]


def test_padding_has_no_weight():
    assert padded_row()["weights"].tolist() == [2.0, 2.0, 0.0, 0.0]


def test_a_padded_row_has_the_longest_sequence_of_its_shape():
    assert padded_row()["longest_sequence"] == 3


def test_the_common_shape_has_room_for_the_padding_of_every_row():
    encoded = [qlora.Encoded(0, (1,) * 100, 90), qlora.Encoded(0, (1,) * 130, 60)]
    # Row 1: a sample and 500 tokens of padding; row 2: two samples, 370 tokens, 80 targets.
    shape = qlora.common_shape([[0], [0, 1]], encoded, 600)
    assert shape == qlora.RowShape(tokens=600, sequences=4, targets=128, longest=256)
