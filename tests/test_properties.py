"""Properties of parsers, splits, balance, redaction and numbers, tested on random inputs."""

import itertools
import random
import string
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from toy import BORN, LOW, write_verdict

from covrag_lite import metrics, oracle, prompts, synthesis
from covrag_lite.data.folder import hold_out
from covrag_lite.oracle import Example
from covrag_lite.prompts import parse_verdict, render_verdict
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


def test_normalising_keeps_words_alone_and_changes_nothing_the_second_time():
    for rng in seeds(300):
        text = draw_text(rng)
        once = metrics.normalise(text)
        assert metrics.normalise(once) == once
        assert not set(once) & set(SIGNS) and "  " not in once and once == once.strip()
        assert metrics.normalise(f"{text}[{rng.randint(1, 9)}]") == metrics.normalise(f"{text} ")
    for sign in SIGNS:
        assert metrics.normalise(f"A{sign}B") == "a b", sign
    assert metrics.normalise("Ada[12]Voss") == "ada voss"


def test_an_answer_is_right_by_any_of_its_gold_answers_and_whole_is_the_strictest():
    for rng in seeds(200):
        answers = [draw_text(rng, 2) for _ in range(3)]
        one = rng.choice([gold for gold in answers if metrics.normalise(gold)] or ["x"])
        answers = [*answers, one]
        said = f"{draw_text(rng)} {one} {draw_text(rng)}"
        assert all(metrics.score(said, answers, metric) for metric in metrics.METRICS)
        other = draw_text(rng)
        assert metrics.score(other, answers, "whole") <= metrics.score(other, answers, "normalised")
    with pytest.raises(ValueError, match="'exact' is not known"):
        metrics.score("a", ["a"], "exact")


def draw_verdict(rng):
    scores = [rng.randint(0, 100) / 100 for _ in SCORES]
    revised = (
        draw_text(rng).replace('"', "").replace("\\", "").strip() if rng.random() < 0.5 else ""
    )
    return scores, rng.choice(prompts.JUDGMENTS), revised


def test_what_is_rendered_is_parsed_and_its_parts_are_its_text():
    for rng in seeds(200):
        scores, judgment, revised = draw_verdict(rng)
        text = render_verdict(scores, judgment, revised)
        verdict = parse_verdict(f"{draw_text(rng).replace('{', '')} {text} thanks")
        assert (
            verdict.parsed and verdict.judgment == judgment and verdict.revised_question == revised
        )
        assert [getattr(verdict, name) for name in SCORES] == scores
        assert "".join(prompts.verdict_parts(verdict)) == text
        direct = "".join(prompts.verdict_parts(verdict, with_chain=False))
        read = parse_verdict(direct, prompts.DIRECT)
        assert read.revised_question == revised and read.judgment == (
            "false" if revised else "true"
        )
        begun = "".join(prompts.verdict_parts(verdict, unfinished=True))
        assert text.startswith(begun) and begun.endswith(f'"3": "{judgment}')


def test_a_verdict_with_one_letter_changed_is_never_scored_out_of_range():
    for rng in seeds(300):
        text = list(render_verdict(*draw_verdict(rng)))
        text[rng.randrange(len(text))] = rng.choice('0123456789{}",: x')
        verdict = parse_verdict("".join(text))
        scores = [getattr(verdict, name) for name in SCORES]
        assert all(0 <= score <= 1 for score in scores) if verdict.parsed else scores == [None] * 6
        assert verdict.judgment in (prompts.JUDGMENTS if verdict.parsed else ("",))


def test_free_and_direct_verdicts_are_read():
    false = parse_verdict(f'{{ "4": " {BORN} " }}', prompts.DIRECT)
    assert (false.judgment, false.revised_question, false.correctness) == ("false", BORN, None)
    assert parse_verdict('{ "4": "" }', prompts.DIRECT).judgment == "true"
    assert not parse_verdict('{ "3": "" }', prompts.DIRECT).parsed
    quoted = render_verdict(LOW, "false", 'Who wrote "The \\ Lamp"?')
    assert parse_verdict(quoted).revised_question == "Who wrote 'The  Lamp'?"
    lines = write_verdict(LOW, "unclear", BORN).replace(", ", ",\n")
    unclear = parse_verdict(lines)
    assert unclear.judgment == "unclear"
    assert prompts.verdict_parts(unclear, with_chain=False) == ('{ "4":', ' "', BORN, '"', " }")


GOOD = render_verdict([0.5] * 6, "true", "")
RUBBISH = ["", "no json", "{", GOOD[:-5], "[1, 2]", '{"1": 3}']
WRONG = {
    "0.50": ("1.70", '"high"', "true"),
    "true": ("maybe",),
    '"4"': ('"5"',),
    '"bias"': ('"byas"',),
}


@pytest.mark.parametrize(
    "text", RUBBISH + [GOOD.replace(right, wrong, 1) for right in WRONG for wrong in WRONG[right]]
)
def test_rubbish_is_counted_as_unparsed_and_never_scored(text):
    verdict = parse_verdict(text)
    assert not verdict.parsed
    assert (verdict.text, verdict.revised_question) == (text, "")
    assert all(getattr(verdict, name) is None for name in SCORES)


def draw_examples(rng):
    """Examples of two sets and two wordings with random judgments."""
    verdict = Verdict(*[0.5] * 6, "true", "", True, "")
    made = []
    for number in range(rng.randint(1, 80)):
        judgment = rng.choice(["true", "false", "false", "unclear"])
        revised = "x" if judgment != "true" and rng.random() < 0.4 else ""
        question = Question(
            f"q{number}",
            rng.choice("ab"),
            "?",
            ("x",),
            kind=rng.choice(["", "two-hop", "a+misspelt"]),
        )
        own = replace(verdict, judgment=judgment, revised_question=revised)
        made.append(
            Example(question, (), str(number), rng.choice(["retrieved", "broken wording"]), own)
        )
    return made


def stratum(one):
    if one.kind == "broken wording" or "+" in one.question.kind:
        return one.question.dataset, "broken wording"
    return one.question.dataset, one.question.kind or "well put"


def test_as_many_true_as_false_in_every_set_and_wording():
    for rng in seeds(60):
        examples, size = draw_examples(rng), rng.randint(1, 90)
        chosen = balance(examples, size)
        assert len(chosen) <= size + 12 and len({one.answer for one in chosen}) == len(
            chosen
        )  # none twice
        assert {one.answer for one in chosen} <= {one.answer for one in examples}
        counts, there = Counter(), Counter()
        for one in chosen:
            counts[stratum(one), one.verdict.judgment == "true"] += 1
        for one in examples:
            there[stratum(one), one.verdict.judgment == "true"] += 1
        for place, _ in counts:
            assert counts[place, True] == counts[place, False]
            share = round(size * (there[place, True] + there[place, False]) / len(examples)) // 2
            assert counts[place, True] == min(share, there[place, True], there[place, False])
        assert balance(examples, size) == chosen


def test_of_the_false_half_have_a_revision_where_there_are_enough():
    rng = random.Random(5)
    examples = [one for _ in range(10) for one in draw_examples(rng)]
    for place in {stratum(one) for one in examples}:
        own = [one for one in examples if stratum(one) == place]
        false = [one for one in balance(own, 20) if one.verdict.judgment != "true"]
        assert len(false) == 10 and sum(bool(one.verdict.revised_question) for one in false) == 5


def draw_questions(rng, n):
    return [Question(f"q{i}", "a", f"question {rng.randint(0, 3 * n)}?", ("x",)) for i in range(n)]


def test_halves_hold_every_question_once_and_differ_by_one_at_most():
    for n, rng in enumerate(seeds(40)):
        questions = draw_questions(rng, n)
        one, two = halve(questions)
        assert sorted([*one, *two], key=lambda q: int(q.id[1:])) == questions
        assert 0 <= len(two) - len(one) <= 1
        assert halve(questions) == (one, two)


def test_what_is_held_out_is_never_learnt_whatever_stands_twice():
    for n, rng in enumerate(seeds(60), 2):
        questions = draw_questions(rng, n)
        kept, held = hold_out(questions, "train"), hold_out(questions, "validation")
        texts = {one.question for one in questions}
        assert len(kept) + len(held) == n
        assert not {one.question for one in kept} & {one.question for one in held}
        if len(texts) > 1:
            assert len({one.question for one in held}) == max(1, len(texts) // 10)


WORDS = "who wrote the copper lanterns of stonebridge in may and why did Edith Marrow leave".split()


def draw_question(rng, number):
    text = " ".join(rng.choices(WORDS, k=rng.randint(3, 10)))
    return Question(str(number), "a", text + rng.choice(["", "?", " ?"]), ("x",))


def disguise(rng, text):
    """The same words with other capitals, or with other characters between them."""
    text = rng.choice([str.upper, str.lower, str.title, str])(text)
    return text if rng.random() < 0.6 else rng.choice([", ", "  ", " – "]).join(text.split())


def test_no_question_stays_in_what_is_recorded_and_every_one_comes_back():
    for rng in seeds(250):
        questions = [draw_question(rng, number) for number in range(4)]
        others, asked = index_questions(questions), core(questions[0].question)
        one = rng.choice(questions)
        before, behind = rng.choice(["", "I ask: ", "“"]), rng.choice(["", "?", " | x"])
        written = before + disguise(rng, core(one.question)) + behind
        hidden = redact(written, asked, others)
        spoken = " ".join(hidden.partition("⟨")[0].lower().split())
        assert core(one.question).lower() not in spoken and "⟨question" in hidden
        assert restore(hidden, asked, {q.id: q for q in questions}) == written


def test_two_words_and_a_copy_that_was_cut_off_are_redacted_and_other_texts_are_not():
    assert redact("Ada Voss", "who wrote the copper lanterns") == "Ada Voss"
    assert redact("COPPER LANTERNS", "copper lanterns").startswith("⟨")
    thrice, once_less = (
        "who met the king, the queen and the fool",
        "Who met the king, the queen and fool? Lear",
    )
    assert (
        redact(once_less, thrice) == "⟨question 1 ~⟩? Lear"
        and restore("⟨question 1 ~⟩? Lear", thrice) == once_less
    )
    others = index_questions(
        [Question("q-1", "a", "who wrote lant", ("Ada",))]
    )  # another one, cut off in a word
    assert redact("Who wrote lanterns", "?", others) == "⟨question 1 q-1⟩erns"
    long = "which novelist of stonebridge wrote the copper lanterns"
    hidden = redact("Which novelist of Stonebridge wrote the copper lan", long)
    assert hidden.startswith("⟨") and "novelist" not in hidden
    for own in (
        "which novelist of Stonebridge wrote the copper kettles",
        "which novelist",
    ):  # it only begins alike
        assert redact(own, long) == own


# Statistics compared with other ways to compute the same number.


def test_wilson_knows_the_textbook_values():
    assert metrics.wilson(200, 400) == pytest.approx(
        (0.4512, 0.5488), abs=1e-4
    )  # the ±4.9 points of n = 400
    low, high = metrics.wilson(0, 10)
    assert low == 0 and high == pytest.approx(0.2775, abs=1e-4)
    assert np.isnan(metrics.wilson(0, 0)).all()


def test_the_bootstraps_interval_is_that_of_all_resamples_there_are():
    for gains in ([1, 0, -1, 0, 1], [1 / 3, 0, -2 / 3, 1, 1 / 3]):
        every = sorted(np.mean(drawn) for drawn in itertools.product(gains, repeat=5))
        ends = [every[int(np.ceil(share * len(every))) - 1] for share in (0.025, 0.975)]
        assert metrics.mean_bootstrap(gains)[1:] == pytest.approx(tuple(ends))
    assert metrics.mean_bootstrap([2.0] * 7) == (2.0, 2.0, 2.0)


def test_the_exact_ends_are_those_of_many_draws():
    for rng in map(np.random.default_rng, range(12)):
        n = int(rng.integers(20, 200))
        values = rng.choice([-1, -0.5, 0, 0.5, 1] if n % 2 else [-1, 0, 1], n)
        values, counts = np.unique(values, return_counts=True)
        exact, drawn = metrics._exact_ends(values, counts), metrics._sampled_ends(values, counts)
        assert exact == pytest.approx(drawn, abs=1.5 / n + 0.005)
        assert exact[0] <= values @ counts / n <= exact[1]
    values = np.random.default_rng(2).random(50)  # on no grid: they are drawn, and alike each time
    mean, low, high = metrics.mean_bootstrap(values)
    assert metrics._exact_ends(values, np.ones(50)) is None and metrics.mean_bootstrap(values) == (
        mean,
        low,
        high,
    )
    assert mean - low == pytest.approx(1.96 * values.std() / 50**0.5, rel=0.1)


def test_auroc_is_sklearns_and_its_interval_covers():
    truth, covered = 0.760, 0  # of N(1, 1) over N(0, 1): Φ(1/√2)
    for rng in map(np.random.default_rng, range(200)):
        right = np.arange(80) < 50
        scores = (rng.normal(size=80) + right).round(2)  # of ties each counts half
        area, low, high = metrics.auroc(scores, right)
        assert area == pytest.approx(roc_auc_score(right, scores))
        covered += low <= truth <= high
    assert 180 <= covered <= 199


def test_corrupted_answers_say_the_same_and_are_noticed():
    for rng in seeds(80):
        answer = f"{rng.choice(['Ada Voss', 'Stell', 'the old bridge'])}[1]"
        repeated = synthesis.repeat_words(answer, rng)
        assert (
            oracle.is_repetitive(repeated)
            and repeated.endswith("[1]")
            and not oracle.is_repetitive(answer)
        )
        moved = synthesis.move_citations(answer, [1], 5, rng)
        marks = [int(mark) for mark in synthesis.CITATION.findall(moved)]
        assert marks and 1 not in marks and marks == sorted(marks) and max(marks) <= 5
        assert moved.startswith(answer.partition("[")[0])
        asked = Question("q", "a", "where was the author of the copper lanterns born?", ("x",))
        broken = synthesis.break_question(asked, rng)
        assert broken.clean_question == asked.question != broken.question and broken.id == "q"
        assert not oracle.is_grounded("Mere", [Passage("p", "Mere", "Stell")])


@pytest.mark.parametrize("layout", prompts.LAYOUTS)
def test_reader_and_verifier_see_the_question_and_every_passage_and_the_verifier_the_answer(layout):
    passages = [Passage("a", "Stell", "on the hill"), Passage("b", "Brae", "by the sea")]
    read = prompts.build_answer("who keeps the light?", passages, layout)
    verified = prompts.build_verify("who keeps the light?", passages, "Ada Voss[2]", layout)
    for prompt in (read, verified):
        for part in ("who keeps the light?", "on the hill", "by the sea"):
            assert prompt.count(part) == 1
    assert verified.count("Ada Voss[2]") == 1 and "Ada Voss" not in read
