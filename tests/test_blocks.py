"""Deeper passages in blocks: which passages are read for which answer, and which answer is kept."""

from dataclasses import replace

import pytest
from test_method import BIRTHPLACE, FALSE, TRUE, WRITER, Script

from covrag_lite.config import Config
from covrag_lite.method import keep_combined
from covrag_lite.systems import blocks
from covrag_lite.systems.blocks import N_BLOCKS, read_blocks, search_all_blocks


@pytest.fixture
def script(passages):
    return Script(passages, {WRITER: TRUE, BIRTHPLACE: FALSE})


def tools_over(script, others, **settings):
    """Return scripted tools whose deeper search finds these passages."""
    defaults = {"search_deeper": lambda queries: [others] * len(queries)}
    return replace(script.tools(), **defaults, **settings)


def test_every_block_has_as_many_passages_as_the_first_search(questions, script):
    others = script.passages[:3]
    prediction = read_blocks(questions[:1], tools_over(script, others))[0]
    assert [turn.passages for turn in prediction.rounds[1:]] == [
        tuple(others[:2]),
        tuple(others[2:]),
    ]


def test_a_block_is_answered_from_its_own_passages(questions, script):
    others = script.passages[:2]
    prediction = read_blocks(questions[:1], tools_over(script, others))[0]
    assert prediction.rounds[1].answer == f"answer to {WRITER} from {others[0].id}"


def test_an_answer_is_verified_against_its_own_block(questions, script):
    others = script.passages[:2]
    read_blocks(questions[:1], tools_over(script, others))
    ids = [passage.id for passage in others]
    assert script.log[-1] == ("verify", [WRITER], [f"answer to {WRITER} from {ids[0]}"], [ids])


def test_questions_may_have_different_numbers_of_blocks(questions, script):
    others = {WRITER: [], BIRTHPLACE: script.passages[:2]}
    tools = script.tools(search_deeper=lambda queries: [others[query] for query in queries])
    predictions = read_blocks(questions[:2], tools)
    assert [len(prediction.rounds) for prediction in predictions] == [1, 2]


def test_the_answer_with_the_highest_combined_score_is_kept(questions, script):
    # By likelihood alone the second answer would be kept; its verdict outweighs that.
    verdicts = {
        script.passages[0].id: replace(FALSE, probabilities={"correctness": 0.1}),
        script.passages[len(WRITER) % 3].id: replace(TRUE, probabilities={"correctness": 0.9}),
    }
    tools = tools_over(
        script,
        script.passages[:2],
        keep=keep_combined,
        likelihoods=lambda x, k: [-0.1 if k[0][0] == script.passages[0] else -0.5],
        verify=lambda x, k, y: [verdicts[k[0][0].id]],
    )
    prediction = read_blocks(questions[:1], tools)[0]
    assert prediction.kept == 0


def test_the_deeper_search_returns_all_passages_after_the_first_k(script):
    numbers = list(range(100))

    def deeper(times):
        return lambda queries: [numbers[: times * 5]] * len(queries)

    tools = search_all_blocks(script.tools(), Config().change(k=5), deeper, None)
    assert tools.search_deeper(["who?"]) == [numbers[5 : 5 * N_BLOCKS]]


def test_without_passages_there_is_one_empty_block():
    assert blocks.split([], []) == [[]]
