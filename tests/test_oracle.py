"""The oracle: which answers are right, its verdicts, and the revised questions that it finds."""

from dataclasses import replace

import pytest
from toy import BORN, PASSAGES, QUESTIONS

from covrag_lite import oracle
from covrag_lite.config import Config
from covrag_lite.oracle import CLEAN_FORM, Example, annotate_by_rules, judge
from covrag_lite.records import SCORES, Question
from covrag_lite.training.sources import load_searches

Q1, Q2, Q3, Q4, Q5 = QUESTIONS[:5]
A, B, C, D, E, F = PASSAGES.values()
RIGHT = Example(Q1, (C, A), "Ada Voss[2]", "retrieved")  # from a passage that states it
WRONG = Example(Q2, (C, D), "Mere[1]", "broken wording")  # nothing of use was found

# Verdicts.

MANY_WORDS = " ".join(f"word{i}" for i in range(30))
FOUND = (A, C)  # the first of these passages states the answer to Q1
MISSED = (C, D)
# question, passages, answer -> reference_correctness, correctness, citation_accuracy, truthfulness,
# bias, conciseness; judgment; the revised question that is kept.
CASES = {
    "right, rightly cited": (
        (Q1, FOUND, "Ada Voss[1]"),
        ((0.95, 0.95, 0.95, 0.95, 0.05, 0.95), "true", ""),
    ),
    "right by its second gold answer": (
        (Q1, FOUND, "A. Voss[1]"),
        ((0.95, 0.95, 0.95, 0.95, 0.05, 0.95), "true", ""),
    ),
    "right, wrongly cited": (
        (Q1, FOUND, "Ada Voss[2]"),
        ((0.95, 0.95, 0.05, 0.95, 0.05, 0.95), "true", ""),
    ),
    "right, one of two citations right": (
        (Q1, FOUND, "Ada Voss[1][2]"),
        ((0.95, 0.95, 0.5, 0.95, 0.05, 0.95), "true", ""),
    ),
    "right, not cited": (
        (Q1, FOUND, "Ada Voss"),
        ((0.95, 0.95, 0.05, 0.95, 0.05, 0.95), "true", ""),
    ),
    "right from memory": (
        (Q1, MISSED, "Ada Voss"),
        ((0.05, 0.95, 0.05, 0.95, 0.95, 0.95), "true", ""),
    ),
    "right, in many words": (
        (Q1, FOUND, f"Ada Voss[1] {MANY_WORDS}"),
        ((0.95, 0.95, 0.95, 0.95, 0.05, 0.5), "true", ""),
    ),
    "wrong, grounded, the right one was found": (
        (Q1, FOUND, "a town[2]"),
        ((0.95, 0.05, 0.05, 0.45, 0.55, 0.95), "false", ""),
    ),
    "wrong, grounded, the right one was missed": (
        (Q1, MISSED, "a town[1]"),
        ((0.05, 0.05, 0.05, 0.45, 0.55, 0.95), "false", BORN),
    ),
    "wrong, ungrounded": (
        (Q1, MISSED, "Mere[1]"),
        ((0.05, 0.05, 0.05, 0.15, 0.95, 0.95), "false", BORN),
    ),
    "wrong, rightly cited": (
        (Q1, FOUND, "Mere[1]"),
        ((0.95, 0.05, 0.95, 0.15, 0.95, 0.95), "false", ""),
    ),
    "repetitive": (
        (Q1, FOUND, "Ada Voss, Ada Voss, Ada Voss[1]"),
        ((0.95, 0.95, 0.95, 0.35, 0.05, 0.05), "false", ""),
    ),
    "repetitive and wrong": (
        (Q1, MISSED, "Mere Mere Mere[1]"),
        ((0.05, 0.05, 0.05, 0.35, 0.95, 0.05), "false", BORN),
    ),
    "right only within a number": (
        (Q5, (A, B), "1829[1]"),
        ((0.05, 0.05, 0.05, 0.45, 0.55, 0.95), "false", BORN),
    ),
    "empty": (
        (Q1, MISSED, ""),
        ((0.05, 0.05, 0.05, 0.15, 0.95, 0.95), "false", BORN),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_oracles_verdict(case):
    (question, passages, answer), (scores, judgment, revised_question) = CASES[case]
    verdict = judge(Example(question, passages, answer, "retrieved"), BORN)
    assert tuple(getattr(verdict, name) for name in SCORES) == scores
    assert verdict.judgment == judgment
    assert verdict.revised_question == revised_question


def test_every_example_gets_the_revised_question_of_its_own_question():
    annotated = annotate_by_rules([RIGHT, WRONG], {Q2.question: BORN})
    assert [example.revised_question for example in annotated] == ["", BORN]


def test_an_example_without_a_verdict_cannot_be_judged_true():
    with pytest.raises(ValueError, match="question 'q1' is not annotated"):
        RIGHT.is_true  # noqa: B018


# Right, grounded, repetitive.

LONG = "one two three four five six seven eight nine ten eleven twelve thirteen"


@pytest.mark.parametrize(
    "answer, right",
    [
        ("one two three four five", True),  # 2 · 5 / (13 + 5) is above 0.5
        ("one two three four", False),  # 2 · 4 / (13 + 4) is below
        ("fourteen", False),
        ("", False),
    ],
)
def test_a_long_gold_answer_needs_half_of_its_words(answer, right):
    assert oracle.is_right(answer, replace(Q1, answers=(LONG,))) == right


def test_a_gold_answer_of_twelve_words_must_be_contained():
    twelve = LONG.rpartition(" ")[0]
    assert not oracle.is_right("one two three four five six", replace(Q1, answers=(twelve,)))


def test_gold_passages_support_the_answer_whatever_their_words():
    assert oracle.supporting(Q2, (C, B, D)) == [2]


def test_without_gold_passages_those_that_contain_the_answer_support_it():
    unknown = replace(Q2, gold_passages=())
    assert oracle.supporting(unknown, (C, B, E, D)) == [1, 2, 4]


def test_an_answer_within_a_number_is_not_supported():
    two = replace(Q2, gold_passages=(), answers=("2",))
    assert oracle.supporting(two, (A,)) == []  # 1829 is no 2


# Revised questions.


def test_only_what_its_own_search_missed_is_a_failure():
    taken_away = replace(RIGHT, passages=MISSED, kind="deeper passages")
    assert oracle.find_failures([RIGHT, WRONG, taken_away]) == {Q2.question: WRONG}


def writer(guess="", terms="", options=""):
    """A model that writes the same text for every question."""
    texts = {"guess": guess, "terms": terms, "options": options}
    return lambda task, x: [texts[task] for _ in x]


def test_the_forms_of_a_revised_question():
    question = Q2.question
    example = replace(WRONG, passages=(C,))
    candidates = oracle.propose(example, "Ada was born there.\nMore", "birth", "Mere, Stell")
    assert candidates == {
        "the question well put": BORN,
        "guess and answer": f"{question}? Ada was born there. Mere",
        "guess": f"{question}? Ada was born there.",
        "answer": f"{question}? Mere",
        "guess and options": f"{question}? Ada was born there. Mere, Stell",
        "options": f"{question}? Mere, Stell",
        "key terms": f"{question}? birth",
        "title 1": f"{question}? Stell",
        "a guess alone": "Ada was born there.",
        "key terms alone": "birth",
    }


def test_the_question_itself_is_no_revised_question():
    question = replace(Q2, clean_question="")
    candidates = oracle.propose(Example(question, (), "", ""), question.question, "", "")
    assert candidates == {"guess": f"{question.question}? {question.question}"}


def test_only_the_first_three_titles_are_tried():
    example = replace(WRONG, passages=(A, B, C, D))
    titles = [form for form in oracle.propose(example, "", "", "") if form.startswith("title")]
    assert titles == ["title 1", "title 2", "title 3"]


@pytest.mark.parametrize(
    "text, tidied",
    [
        ('the "Copper\\Lanterns"\nagain', "the Copper Lanterns again"),
        ("one\x00two\x1bthree", "one two three"),
        ("England, England England - England", "England, England -"),
    ],
)
def test_a_candidate_is_one_line_that_a_verdict_can_hold(text, tidied):
    assert oracle.tidy(text) == tidied


def test_a_candidate_has_at_most_forty_words():
    assert len(oracle.tidy(" ".join(map(str, range(99)))).split()) == 40


def revisions_of(question, write):
    """The candidates that find the passage of a question whose search failed."""
    search, _ = load_searches(Config().change(k=2), list(PASSAGES.values()))
    failures = {question.question: Example(question, (E, F), "", "retrieved")}
    return oracle.find_revisions(failures, write, search)


def test_clear_wording_that_finds_the_passage_is_kept():
    question = replace(Q2, question="hoo?")
    assert revisions_of(question, writer()) == {"hoo?": {CLEAN_FORM: BORN}}


def test_only_candidates_that_find_the_passage_are_kept():
    question = replace(Q2, question="hoo?", clean_question="")
    revisions = revisions_of(question, writer("A fair is held.", "born Ada Voss"))
    assert set(revisions["hoo?"]) == {"key terms", "key terms alone"}


def test_a_question_without_a_useful_candidate_has_none():
    question = replace(Q2, question="hoo?", clean_question="how long is the bridge of metres?")
    assert revisions_of(question, writer("A bridge.", "metres")) == {}


def test_without_failures_there_are_no_revisions():
    search, _ = load_searches(Config().change(k=2), list(PASSAGES.values()))
    assert oracle.find_revisions({}, writer(), search) == {}


COUNTS = {"guess": 3, "options": 5, "a guess alone": 9, CLEAN_FORM: 1}


@pytest.mark.parametrize(
    "candidates, chosen",
    [
        ({"guess": "b", "options": "c"}, "c"),  # the form that works most often
        ({"a guess alone": "d", "guess": "b"}, "b"),  # forms without the question come last
        ({"options": "c", CLEAN_FORM: "clean"}, "clean"),  # clear wording comes first
    ],
)
def test_the_choice_of_a_revised_question(candidates, chosen):
    assert oracle.choose_revision(candidates, COUNTS) == chosen


# Clear wording may contain only what the model could know.

TWO_HOP = Question(
    "q",
    "mintaka",
    "Where was the author of The Copper Lanterns born?",
    ("",),
    (),
    "Where was Edith Marrow born?",
    "two-hop",
)


def test_the_second_step_is_asked_if_a_passage_names_its_subject(passages):
    assert oracle.clean_wording(TWO_HOP, passages[:1]) == "Where was Edith Marrow born?"


def test_the_second_step_is_not_asked_if_no_passage_names_its_subject(passages):
    assert oracle.clean_wording(TWO_HOP, passages[3:5]) == ""


@pytest.fixture
def stale():
    return Question(
        "q",
        "entity",
        "What is the population of Stonebridge today?",
        ("12,400",),
        ("p1",),
        "What is the population of Stonebridge in 1954?",
        "population/stale",
    )


OLD = "Some 9,000 people live in Stonebridge, says a guide of 1931."


def test_a_newer_year_is_not_asked_for_if_no_passage_names_it(stale, passages):
    old = replace(passages[0], text=OLD)
    assert oracle.clean_wording(stale, [old]) == ""


def test_a_newer_year_is_asked_for_if_a_passage_names_it(stale, passages):
    old = replace(passages[0], text=OLD)
    newer = replace(old, text=f"{OLD} All was described anew in 1954.")
    assert oracle.clean_wording(stale, [old, newer]) == stale.clean_question
