"""Properties of parsers, splits, balance, redaction and numbers, tested on random inputs."""

import itertools
import random
import string
from collections import Counter
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from toy import BORN, LOW, write_verdict

from covrag_lite import metrics, oracle, prompts, synthesis
from covrag_lite.data.folder import hold_out
from covrag_lite.metrics import normalise
from covrag_lite.oracle import Example
from covrag_lite.prompts import DIRECT, JUDGMENTS, parse_verdict, render_verdict, verdict_parts
from covrag_lite.records import SCORES, Passage, Question, Verdict
from covrag_lite.runs.redaction import core, index_questions, redact, restore
from covrag_lite.synthesis import balance, halve

SIGNS = ".,;:!?'\"()-–—…’‘“”[]"
LETTERS = string.ascii_letters + string.digits + "éßİ"


def seeds(n):
    """This number of random generators, the same in every run."""
    return map(random.Random, range(n))


def draw_text(rng, n_words=6):
    words = [
        "".join(rng.choices(LETTERS, k=rng.randint(1, 8))) for _ in range(rng.randint(1, n_words))
    ]
    return "".join(
        word + rng.choice([" ", " ", "  ", ", ", f" {rng.choice(SIGNS)}"]) for word in words
    ).strip()


# Normalising.


@pytest.fixture(scope="module")
def cited_texts():
    """Random texts, each with a citation."""
    return [(draw_text(rng), f"[{rng.randint(1, 9)}]") for rng in seeds(300)]


@pytest.fixture(scope="module")
def normalised_texts(cited_texts):
    return [normalise(text) for text, _ in cited_texts]


def test_normalising_a_second_time_changes_nothing(normalised_texts):
    for text in normalised_texts:
        assert normalise(text) == text


def test_a_normalised_text_has_no_punctuation(normalised_texts):
    for text in normalised_texts:
        assert not set(text) & set(SIGNS)


def test_a_normalised_text_has_no_double_space(normalised_texts):
    for text in normalised_texts:
        assert "  " not in text


def test_a_normalised_text_has_no_space_at_its_ends(normalised_texts):
    for text in normalised_texts:
        assert text == text.strip()


def test_a_citation_after_a_text_does_not_count(cited_texts):
    for text, citation in cited_texts:
        assert normalise(f"{text}{citation}") == normalise(f"{text} ")


@pytest.mark.parametrize("sign", SIGNS)
def test_a_sign_separates_words(sign):
    assert normalise(f"A{sign}B") == "a b"


def test_a_citation_separates_words():
    assert normalise("Ada[12]Voss") == "ada voss"


# Accuracy.


class Scored(NamedTuple):
    """Gold answers, an answer that contains one of them, and any other answer."""

    golds: list
    right: str
    other: str


@pytest.fixture(scope="module")
def scored_answers():
    cases = []
    for rng in seeds(200):
        golds = [draw_text(rng, 2) for _ in range(3)]
        contained = rng.choice([gold for gold in golds if normalise(gold)] or ["x"])
        golds.append(contained)
        right = f"{draw_text(rng)} {contained} {draw_text(rng)}"
        cases.append(Scored(golds, right, draw_text(rng)))
    return cases


@pytest.mark.parametrize("metric", metrics.METRICS)
def test_an_answer_that_contains_any_of_its_gold_answers_is_right(scored_answers, metric):
    for case in scored_answers:
        assert metrics.score(case.right, case.golds, metric)


def test_what_is_right_as_whole_words_is_right_as_normalised(scored_answers):
    for case in scored_answers:
        whole = metrics.score(case.other, case.golds, "whole")
        assert whole <= metrics.score(case.other, case.golds, "normalised")


def test_an_unknown_metric_is_an_error():
    with pytest.raises(ValueError, match="'exact' is not known"):
        metrics.score("a", ["a"], "exact")


# Verdicts.


def draw_verdict(rng):
    scores = [rng.randint(0, 100) / 100 for _ in SCORES]
    revised = (
        draw_text(rng).replace('"', "").replace("\\", "").strip() if rng.random() < 0.5 else ""
    )
    return scores, rng.choice(JUDGMENTS), revised


class Rendered(NamedTuple):
    """What a verdict says, its text, and what is parsed from it between other words."""

    scores: list
    judgment: str
    revised_question: str
    text: str
    verdict: Verdict


@pytest.fixture(scope="module")
def rendered():
    cases = []
    for rng in seeds(200):
        fields = draw_verdict(rng)
        text = render_verdict(*fields)
        verdict = parse_verdict(f"{draw_text(rng).replace('{', '')} {text} thanks")
        cases.append(Rendered(*fields, text, verdict))
    return cases


@pytest.fixture(scope="module")
def parsed_directly(rendered):
    """The verdicts without the chain, parsed from their text."""
    texts = ["".join(verdict_parts(case.verdict, with_chain=False)) for case in rendered]
    return [parse_verdict(text, DIRECT) for text in texts]


def test_a_verdict_between_other_words_is_parsed(rendered):
    assert all(case.verdict.parsed for case in rendered)


def test_the_rendered_judgment_is_parsed(rendered):
    for case in rendered:
        assert case.verdict.judgment == case.judgment


def test_the_rendered_revised_question_is_parsed(rendered):
    for case in rendered:
        assert case.verdict.revised_question == case.revised_question


def test_the_rendered_scores_are_parsed(rendered):
    for case in rendered:
        assert [getattr(case.verdict, name) for name in SCORES] == case.scores


def test_the_parts_of_a_verdict_are_its_text(rendered):
    for case in rendered:
        assert "".join(verdict_parts(case.verdict)) == case.text


def test_the_revised_question_is_the_same_without_the_chain(rendered, parsed_directly):
    for case, direct in zip(rendered, parsed_directly):
        assert direct.revised_question == case.revised_question


def test_without_the_chain_a_revised_question_means_false(rendered, parsed_directly):
    for case, direct in zip(rendered, parsed_directly):
        assert direct.judgment == ("false" if case.revised_question else "true")


def test_an_unfinished_verdict_is_the_beginning_of_the_whole_one(rendered):
    for case in rendered:
        assert case.text.startswith("".join(verdict_parts(case.verdict, unfinished=True)))


def test_an_unfinished_verdict_ends_with_the_judgment(rendered):
    for case in rendered:
        unfinished = "".join(verdict_parts(case.verdict, unfinished=True))
        assert unfinished.endswith(f'"3": "{case.judgment}')


@pytest.fixture(scope="module")
def damaged():
    """What is parsed from verdicts with one letter changed."""
    verdicts = []
    for rng in seeds(300):
        text = list(render_verdict(*draw_verdict(rng)))
        text[rng.randrange(len(text))] = rng.choice('0123456789{}",: x')
        verdicts.append(parse_verdict("".join(text)))
    return verdicts


def test_a_damaged_verdict_that_is_parsed_has_scores_from_0_to_1(damaged):
    for verdict in damaged:
        if verdict.parsed:
            assert all(0 <= getattr(verdict, name) <= 1 for name in SCORES)


def test_a_damaged_verdict_that_is_parsed_has_a_judgment(damaged):
    for verdict in damaged:
        if verdict.parsed:
            assert verdict.judgment in JUDGMENTS


def test_a_damaged_verdict_that_is_not_parsed_has_no_score(damaged):
    for verdict in damaged:
        if not verdict.parsed:
            assert [getattr(verdict, name) for name in SCORES] == [None] * 6


def test_a_damaged_verdict_that_is_not_parsed_has_no_judgment(damaged):
    for verdict in damaged:
        if not verdict.parsed:
            assert verdict.judgment == ""


@pytest.fixture
def direct_false():
    """A verdict without the chain that revises the question."""
    return parse_verdict(f'{{ "4": " {BORN} " }}', DIRECT)


def test_a_direct_verdict_with_a_question_is_false(direct_false):
    assert direct_false.judgment == "false"


def test_the_spaces_around_a_revised_question_are_cut_off(direct_false):
    assert direct_false.revised_question == BORN


def test_a_direct_verdict_has_no_scores(direct_false):
    assert direct_false.correctness is None


def test_a_direct_verdict_without_a_question_is_true():
    assert parse_verdict('{ "4": "" }', DIRECT).judgment == "true"


def test_a_direct_verdict_without_the_fourth_key_is_not_parsed():
    assert not parse_verdict('{ "3": "" }', DIRECT).parsed


def test_quotes_and_backslashes_in_a_revised_question_do_not_break_the_verdict():
    text = render_verdict(LOW, "false", 'Who wrote "The \\ Lamp"?')
    assert parse_verdict(text).revised_question == "Who wrote 'The  Lamp'?"


@pytest.fixture
def in_lines():
    """A verdict that was written in several lines."""
    return parse_verdict(write_verdict(LOW, "unclear", BORN).replace(", ", ",\n"))


def test_a_verdict_in_several_lines_is_parsed(in_lines):
    assert in_lines.judgment == "unclear"


def test_the_parts_without_the_chain_are_those_that_the_model_fills(in_lines):
    assert verdict_parts(in_lines, with_chain=False) == ('{ "4":', ' "', BORN, '"', " }")


GOOD = render_verdict([0.5] * 6, "true", "")
DEFECTS = [
    ("0.50", "1.70"),
    ("0.50", '"high"'),
    ("0.50", "true"),
    ("true", "maybe"),
    ('"4"', '"5"'),
    ('"bias"', '"byas"'),
]
RUBBISH = ["", "no json", "{", GOOD[:-5], "[1, 2]", '{"1": 3}']
RUBBISH += [GOOD.replace(right, wrong, 1) for right, wrong in DEFECTS]


@pytest.mark.parametrize("text", RUBBISH)
def test_rubbish_is_counted_as_unparsed(text):
    assert not parse_verdict(text).parsed


@pytest.mark.parametrize("text", RUBBISH)
def test_the_text_of_rubbish_is_kept(text):
    assert parse_verdict(text).text == text


@pytest.mark.parametrize("text", RUBBISH)
def test_rubbish_revises_no_question(text):
    assert parse_verdict(text).revised_question == ""


@pytest.mark.parametrize("text", RUBBISH)
def test_rubbish_is_never_scored(text):
    verdict = parse_verdict(text)
    assert all(getattr(verdict, name) is None for name in SCORES)


# Balance.


def draw_examples(rng):
    """Examples of two sets and two wordings with random judgments."""
    verdict = Verdict(*[0.5] * 6, "true", "", True, "")
    examples = []
    for number in range(rng.randint(1, 80)):
        judgment = rng.choice(["true", "false", "false", "unclear"])
        revised = "x" if judgment != "true" and rng.random() < 0.4 else ""
        dataset = rng.choice("ab")
        wording = rng.choice(["", "two-hop", "a+misspelt"])
        question = Question(f"q{number}", dataset, "?", ("x",), kind=wording)
        kind = rng.choice(["retrieved", "broken wording"])
        annotation = replace(verdict, judgment=judgment, revised_question=revised)
        examples.append(Example(question, (), str(number), kind, annotation))
    return examples


def stratum(example):
    if example.kind == "broken wording" or "+" in example.question.kind:
        return example.question.dataset, "broken wording"
    return example.question.dataset, example.question.kind or "well put"


def count_judgments(examples):
    """How many examples are judged true, and how many not, in every set and wording."""
    return Counter((stratum(example), example.verdict.judgment == "true") for example in examples)


class Balanced(NamedTuple):
    """Examples, how many are wanted, and the chosen ones."""

    examples: list
    size: int
    chosen: list


@pytest.fixture(scope="module")
def balanced():
    cases = []
    for rng in seeds(60):
        examples = draw_examples(rng)
        size = rng.randint(1, 90)
        cases.append(Balanced(examples, size, balance(examples, size)))
    return cases


def test_balancing_exceeds_the_size_by_no_more_than_rounding(balanced):
    for case in balanced:
        assert len(case.chosen) <= case.size + 12


def test_balancing_chooses_no_example_twice(balanced):
    for case in balanced:
        assert len({example.answer for example in case.chosen}) == len(case.chosen)


def test_balancing_chooses_from_the_examples(balanced):
    for case in balanced:
        answers = {example.answer for example in case.examples}
        assert {example.answer for example in case.chosen} <= answers


def test_as_many_are_true_as_false_in_every_set_and_wording(balanced):
    for case in balanced:
        chosen = count_judgments(case.chosen)
        for place, _ in chosen:
            assert chosen[place, True] == chosen[place, False]


def test_every_set_and_wording_gets_its_share_as_far_as_it_has_examples(balanced):
    for case in balanced:
        chosen = count_judgments(case.chosen)
        available = count_judgments(case.examples)
        for place, _ in chosen:
            n_true = available[place, True]
            n_false = available[place, False]
            share = round(case.size * (n_true + n_false) / len(case.examples))
            assert chosen[place, True] == min(share // 2, n_true, n_false)


def test_balancing_gives_the_same_examples_each_time(balanced):
    for case in balanced:
        assert balance(case.examples, case.size) == case.chosen


@pytest.fixture(scope="module")
def false_of_twenty():
    """The false ones of twenty balanced examples, for every set and wording."""
    rng = random.Random(5)
    examples = []
    for _ in range(10):
        examples += draw_examples(rng)
    false = {}
    for place in {stratum(example) for example in examples}:
        chosen = balance([example for example in examples if stratum(example) == place], 20)
        false[place] = [example for example in chosen if example.verdict.judgment != "true"]
    return false


def test_half_of_the_balanced_examples_are_false(false_of_twenty):
    assert {place: len(false) for place, false in false_of_twenty.items()} == dict.fromkeys(
        false_of_twenty, 10
    )


def test_half_of_the_false_examples_have_a_revised_question(false_of_twenty):
    for false in false_of_twenty.values():
        assert sum(bool(example.verdict.revised_question) for example in false) == 5


# Splits.


def draw_questions(rng, n):
    return [Question(f"q{i}", "a", f"question {rng.randint(0, 3 * n)}?", ("x",)) for i in range(n)]


@pytest.fixture(scope="module")
def halved():
    """Questions with their two halves."""
    cases = []
    for n, rng in enumerate(seeds(40)):
        questions = draw_questions(rng, n)
        cases.append((questions, *halve(questions)))
    return cases


def test_the_halves_hold_every_question_once(halved):
    for questions, first, second in halved:
        assert sorted([*first, *second], key=lambda q: int(q.id[1:])) == questions


def test_the_second_half_has_at_most_one_question_more(halved):
    for _, first, second in halved:
        assert 0 <= len(second) - len(first) <= 1


def test_the_halves_are_the_same_each_time(halved):
    for questions, first, second in halved:
        assert halve(questions) == (first, second)


@pytest.fixture(scope="module")
def held_out():
    """Questions, some of them with the same text; those to learn from; and those held out."""
    cases = []
    for n, rng in enumerate(seeds(60), 2):
        questions = draw_questions(rng, n)
        cases.append((questions, hold_out(questions, "train"), hold_out(questions, "validation")))
    return cases


def texts_of(questions):
    return {question.question for question in questions}


def test_every_question_is_either_learnt_or_held_out(held_out):
    for questions, learnt, held in held_out:
        assert len(learnt) + len(held) == len(questions)


def test_a_question_that_is_held_out_is_not_learnt_under_another_id(held_out):
    for _, learnt, held in held_out:
        assert not texts_of(learnt) & texts_of(held)


def test_a_tenth_of_the_texts_is_held_out_but_at_least_one(held_out):
    for questions, _, held in held_out:
        n_texts = len(texts_of(questions))
        if n_texts > 1:
            assert len(texts_of(held)) == max(1, n_texts // 10)


# Redaction.

WORDS = "who wrote the copper lanterns of stonebridge in may and why did Edith Marrow leave".split()


def draw_question(rng, number):
    text = " ".join(rng.choices(WORDS, k=rng.randint(3, 10)))
    return Question(str(number), "a", text + rng.choice(["", "?", " ?"]), ("x",))


def disguise(rng, text):
    """The same words with other capitals, or with other characters between them."""
    text = rng.choice([str.upper, str.lower, str.title, str])(text)
    return text if rng.random() < 0.6 else rng.choice([", ", "  ", " – "]).join(text.split())


class Redacted(NamedTuple):
    """A text with a copy of one of a run's questions, and what is recorded of it."""

    questions: list  # of the run; the text was written for the first
    copied: str
    text: str
    recorded: str


@pytest.fixture(scope="module")
def redacted():
    cases = []
    for rng in seeds(250):
        questions = [draw_question(rng, number) for number in range(4)]
        copied = core(rng.choice(questions).question)
        before = rng.choice(["", "I ask: ", "“"])
        behind = rng.choice(["", "?", " | x"])
        text = before + disguise(rng, copied) + behind
        recorded = redact(text, core(questions[0].question), index_questions(questions))
        cases.append(Redacted(questions, copied, text, recorded))
    return cases


def test_no_question_stays_in_what_is_recorded(redacted):
    for case in redacted:
        before_mark = " ".join(case.recorded.partition("⟨")[0].lower().split())
        assert case.copied.lower() not in before_mark


def test_a_mark_replaces_every_question(redacted):
    for case in redacted:
        assert "⟨question" in case.recorded


def test_every_redacted_question_comes_back(redacted):
    for case in redacted:
        by_id = {question.id: question for question in case.questions}
        assert restore(case.recorded, core(case.questions[0].question), by_id) == case.text


def test_a_text_without_the_question_is_not_redacted():
    assert redact("Ada Voss", "who wrote the copper lanterns") == "Ada Voss"


def test_a_question_of_two_words_is_redacted():
    assert redact("COPPER LANTERNS", "copper lanterns").startswith("⟨")


THRICE = "who met the king, the queen and the fool"
AT_MOST_TWICE = "Who met the king, the queen and fool? Lear"


def test_a_question_with_no_word_more_than_twice_is_redacted():
    assert redact(AT_MOST_TWICE, THRICE) == "⟨question 1 ~⟩? Lear"


def test_a_question_with_no_word_more_than_twice_comes_back():
    assert restore("⟨question 1 ~⟩? Lear", THRICE) == AT_MOST_TWICE


def test_another_question_that_was_cut_off_in_a_word_is_redacted():
    others = index_questions([Question("q-1", "a", "who wrote lant", ("Ada",))])
    assert redact("Who wrote lanterns", "?", others) == "⟨question 1 q-1⟩erns"


LONG = "which novelist of stonebridge wrote the copper lanterns"


def test_a_copy_that_was_cut_off_becomes_a_mark():
    assert redact("Which novelist of Stonebridge wrote the copper lan", LONG).startswith("⟨")


def test_a_copy_that_was_cut_off_leaves_no_word():
    assert "novelist" not in redact("Which novelist of Stonebridge wrote the copper lan", LONG)


@pytest.mark.parametrize(
    "text", ["which novelist of Stonebridge wrote the copper kettles", "which novelist"]
)
def test_a_text_that_only_begins_like_the_question_is_not_redacted(text):
    assert redact(text, LONG) == text


# Statistics compared with other ways to compute the same number.


def test_wilson_of_200_in_400_is_the_textbook_interval():
    assert metrics.wilson(200, 400) == pytest.approx((0.4512, 0.5488), abs=1e-4)


def test_wilson_begins_at_0_where_nothing_is_right():
    assert metrics.wilson(0, 10)[0] == 0


def test_wilson_ends_above_0_where_nothing_is_right():
    assert metrics.wilson(0, 10)[1] == pytest.approx(0.2775, abs=1e-4)


def test_wilson_of_no_question_is_unknown():
    assert np.isnan(metrics.wilson(0, 0)).all()


@pytest.mark.parametrize("gains", [[1, 0, -1, 0, 1], [1 / 3, 0, -2 / 3, 1, 1 / 3]])
def test_the_bootstraps_interval_is_that_of_all_resamples_there_are(gains):
    means = sorted(np.mean(drawn) for drawn in itertools.product(gains, repeat=5))
    ends = [means[int(np.ceil(share * len(means))) - 1] for share in (0.025, 0.975)]
    assert metrics.mean_bootstrap(gains)[1:] == pytest.approx(tuple(ends))


def test_the_bootstraps_interval_of_equal_values_is_a_point():
    assert metrics.mean_bootstrap([2.0] * 7) == (2.0, 2.0, 2.0)


class Ends(NamedTuple):
    """The mean of values on a grid and the ends of its interval, computed in two ways."""

    n: int
    mean: float
    exact: tuple
    sampled: tuple


@pytest.fixture(scope="module")
def ends_on_a_grid():
    cases = []
    for rng in map(np.random.default_rng, range(12)):
        n = int(rng.integers(20, 200))
        values = rng.choice([-1, -0.5, 0, 0.5, 1] if n % 2 else [-1, 0, 1], n)
        values, counts = np.unique(values, return_counts=True)
        exact = metrics._exact_ends(values, counts)
        sampled = metrics._sampled_ends(values, counts)
        cases.append(Ends(n, values @ counts / n, exact, sampled))
    return cases


def test_the_exact_ends_are_those_of_many_draws(ends_on_a_grid):
    for case in ends_on_a_grid:
        assert case.exact == pytest.approx(case.sampled, abs=1.5 / case.n + 0.005)


def test_the_mean_is_between_the_exact_ends(ends_on_a_grid):
    for case in ends_on_a_grid:
        assert case.exact[0] <= case.mean <= case.exact[1]


@pytest.fixture(scope="module")
def off_grid():
    return np.random.default_rng(2).random(50)


def test_values_off_every_grid_have_no_exact_ends(off_grid):
    assert metrics._exact_ends(off_grid, np.ones(50)) is None


def test_the_sampled_interval_is_the_same_each_time(off_grid):
    assert metrics.mean_bootstrap(off_grid) == metrics.mean_bootstrap(off_grid)


def test_the_sampled_interval_is_as_wide_as_the_normal_one(off_grid):
    mean, low, _ = metrics.mean_bootstrap(off_grid)
    assert mean - low == pytest.approx(1.96 * off_grid.std() / 50**0.5, rel=0.1)


@pytest.fixture(scope="module")
def right_answers():
    return np.arange(80) < 50


@pytest.fixture(scope="module")
def score_draws(right_answers):
    """Scores of 80 answers: N(1, 1) of right ones, N(0, 1) of wrong ones, with some ties."""
    generators = map(np.random.default_rng, range(200))
    return [(rng.normal(size=80) + right_answers).round(2) for rng in generators]


def test_auroc_is_sklearns_and_a_tie_counts_half(score_draws, right_answers):
    for scores in score_draws:
        area = metrics.auroc(scores, right_answers)[0]
        assert area == pytest.approx(roc_auc_score(right_answers, scores))


def test_the_interval_of_auroc_covers_the_true_area_19_times_of_20(score_draws, right_answers):
    true_area = 0.760  # Φ(1/√2)
    n_covered = 0
    for scores in score_draws:
        _, low, high = metrics.auroc(scores, right_answers)
        n_covered += low <= true_area <= high
    assert 180 <= n_covered <= 199


# Corrupted answers and broken questions.


class Corrupted(NamedTuple):
    """An answer that cites [1], two corrupted copies of it, and a question with broken wording."""

    answer: str
    repeated: str
    moved: str
    broken: Question


CLEAR = Question("q", "a", "where was the author of the copper lanterns born?", ("x",))


@pytest.fixture(scope="module")
def corrupted():
    cases = []
    for rng in seeds(80):
        answer = f"{rng.choice(['Ada Voss', 'Stell', 'the old bridge'])}[1]"
        repeated = synthesis.repeat_words(answer, rng)
        moved = synthesis.move_citations(answer, [1], 5, rng)
        cases.append(Corrupted(answer, repeated, moved, synthesis.break_question(CLEAR, rng)))
    return cases


@pytest.fixture(scope="module")
def moved_numbers(corrupted):
    """What the answers with wrong citations cite."""
    return [[int(number) for number in synthesis.CITATION.findall(c.moved)] for c in corrupted]


def test_an_answer_corrupted_by_repetition_is_repetitive(corrupted):
    assert all(oracle.is_repetitive(case.repeated) for case in corrupted)


def test_an_answer_before_its_corruption_is_not_repetitive(corrupted):
    assert not any(oracle.is_repetitive(case.answer) for case in corrupted)


def test_a_repetition_keeps_the_citation(corrupted):
    assert all(case.repeated.endswith("[1]") for case in corrupted)


def test_a_wrong_citation_cites_something(moved_numbers):
    assert all(moved_numbers)


def test_a_wrong_citation_does_not_cite_the_right_passage(moved_numbers):
    for numbers in moved_numbers:
        assert 1 not in numbers


def test_wrong_citations_are_in_order(moved_numbers):
    for numbers in moved_numbers:
        assert numbers == sorted(numbers)


def test_a_wrong_citation_points_to_a_passage(moved_numbers):
    for numbers in moved_numbers:
        assert max(numbers) <= 5


def test_an_answer_with_wrong_citations_says_the_same(corrupted):
    for case in corrupted:
        assert case.moved.startswith(case.answer.partition("[")[0])


def test_a_question_with_broken_wording_keeps_the_clear_one(corrupted):
    for case in corrupted:
        assert case.broken.clean_question == CLEAR.question


def test_a_question_with_broken_wording_differs_from_the_clear_one(corrupted):
    for case in corrupted:
        assert case.broken.question != CLEAR.question


def test_a_question_with_broken_wording_keeps_its_id(corrupted):
    assert {case.broken.id for case in corrupted} == {"q"}


def test_an_answer_that_is_only_in_a_title_is_not_grounded():
    assert not oracle.is_grounded("Mere", [Passage("p", "Mere", "Stell")])


# Prompts.

LIGHT = "who keeps the light?"
TWO_PASSAGES = [Passage("a", "Stell", "on the hill"), Passage("b", "Brae", "by the sea")]
SHOWN = (LIGHT, "on the hill", "by the sea")
every_layout = pytest.mark.parametrize("layout", prompts.LAYOUTS)


def build_verify(layout):
    return prompts.build_verify(LIGHT, TWO_PASSAGES, "Ada Voss[2]", layout)


@every_layout
@pytest.mark.parametrize("part", SHOWN)
def test_the_reader_sees_the_question_and_every_passage_once(layout, part):
    assert prompts.build_answer(LIGHT, TWO_PASSAGES, layout).count(part) == 1


@every_layout
@pytest.mark.parametrize("part", SHOWN)
def test_the_verifier_sees_the_question_and_every_passage_once(layout, part):
    assert build_verify(layout).count(part) == 1


@every_layout
def test_the_verifier_sees_the_answer_once(layout):
    assert build_verify(layout).count("Ada Voss[2]") == 1


@every_layout
def test_the_reader_does_not_see_the_answer(layout):
    assert "Ada Voss" not in prompts.build_answer(LIGHT, TWO_PASSAGES, layout)
