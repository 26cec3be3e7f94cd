"""CRAG line by line: its judgment, refinement, second search and what the reader sees."""

import pytest
from toy_related import BORN, LONG, WRITER, Script, ids

from covrag_lite.plugins.related.crag import (
    AMBIGUOUS,
    CORRECT,
    INCORRECT,
    choose_action,
    crag,
    refine,
    split,
)
from covrag_lite.records import Passage

X = [WRITER, BORN, LONG]
# Scores of the evaluator; the thresholds are 0.2 and 0.8.
RELEVANCE = {
    (WRITER, "p0"): 0.9,
    (WRITER, "p1"): 0.3,
    (BORN, "p1"): 0.4,
    (BORN, "p5"): 0.7,
    (LONG, "p5"): 0.8,
}
STELL = Passage(
    "p", "Stell", "The Stell is a river. It is 71 km long. Sheep like it. They do! A fair is held."
)
STRIPS = ("The Stell is a river. It is 71 km long.", "Sheep like it. They do!", "A fair is held.")


@pytest.fixture
def script(passages):
    def write_terms(question, _):
        return "" if question == LONG else f"terms of {question}"

    return Script(passages, RELEVANCE, texts={"terms": write_terms})


@pytest.fixture
def predictions(script, questions):
    return crag(questions[:3], script.tools())


def test_the_evaluator_scores_every_passage_of_the_first_search(script, passages, predictions):
    assert script.log[:2] == [("search", X), ("score", X, [passages[:3]] * 3)]


def test_every_question_has_one_prediction_of_the_system(questions, script):
    tools = script.tools()
    predicted = [(p.question, p.system) for p in crag(questions[:3], tools)]
    assert predicted == [(question, tools.name) for question in questions[:3]]


def test_the_judgment_follows_the_best_score(predictions):
    actions = [prediction.rounds[0].note.split(":")[0] for prediction in predictions]
    assert actions == [CORRECT, AMBIGUOUS, INCORRECT]


@pytest.mark.parametrize(
    "scores, action",
    [
        ([0.1, 0.8], CORRECT),
        ([0.1, 0.2], AMBIGUOUS),
        ([0.1, 0.19], INCORRECT),
        ([], INCORRECT),  # a web search may find nothing
    ],
)
def test_a_score_that_equals_a_threshold_reaches_it(scores, action):
    assert choose_action(scores, lower=0.2, upper=0.8) == action


def test_passages_are_refined_unless_they_are_incorrect(script, passages, predictions):
    assert script.log[2] == ("score", [WRITER, BORN], [passages[:3]] * 2)


def test_keywords_are_written_unless_the_passages_are_correct(script, predictions):
    assert script.log[3] == ("terms", [BORN, LONG])


def test_without_keywords_the_question_is_the_query(script, predictions):
    assert script.log[4] == ("wider", [f"terms of {BORN}", LONG])


def test_external_passages_are_refined_too(script, passages, predictions):
    external = [passages[1], passages[5]]
    assert script.log[5] == ("score", [BORN, LONG], [external] * 2)


def test_the_reader_gets_internal_then_external_knowledge_each_passage_once(script, predictions):
    (x, k), *_ = script.calls("answer")
    assert [ids(knowledge) for knowledge in k] == [["p0", "p1"], ["p1", "p5"], ["p5"]]


def test_nothing_else_is_called(script, predictions):
    assert script.names == ["search", "score", "score", "terms", "wider", "score", "answer"]


def test_the_round_shows_the_query_of_the_second_search(predictions):
    queries = [prediction.rounds[0].query for prediction in predictions]
    assert queries == [WRITER, f"terms of {BORN}", LONG]


def test_a_passage_is_decomposed_into_strips_of_two_sentences():
    assert split(STELL) == [Passage("p", "Stell", text) for text in STRIPS]


def score_strips(x, k):
    """Score strips about the length and about the fair."""
    return [
        [0.7 * ("71" in strip.text) + 0.9 * ("fair" in strip.text) for strip in strips]
        for strips in k
    ]


def test_strips_that_pass_are_joined_in_their_order():
    ((joined,),) = refine([LONG], [[STELL]], score_strips, threshold=0.5)
    assert joined.text == f"{STRIPS[0]} {STRIPS[2]}"


def test_if_no_strip_passes_the_best_one_is_kept():
    ((kept,),) = refine([LONG], [[STELL]], lambda x, k: [[0.1, 0.3, 0.2]], threshold=0.5)
    assert kept.text == STRIPS[1]


def test_nothing_is_refined_to_nothing():
    assert refine([LONG], [[]], lambda x, k: [[]], threshold=0.5) == [[]]


@pytest.fixture
def fair(passages, questions):
    """A script and a prediction where only the strip about the fair passes."""
    script = Script([STELL, *passages[1:]], texts={"terms": lambda question, _: ""})
    script.score = lambda x, k: [[0.9 * ("fair" in p.text) for p in strips] for strips in k]
    (prediction,) = crag(questions[:1], script.tools())
    return script, prediction


def test_the_reader_sees_strips(fair):
    script, _ = fair
    assert script.log[-1] == ("answer", [WRITER], [[Passage("p", "Stell", STRIPS[2])]])


def test_the_record_shows_whole_passages(fair):
    _, prediction = fair
    assert prediction.rounds[0].passages == (STELL,)
