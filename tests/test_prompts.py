import json

import pytest

from covrag_lite import prompts
from covrag_lite.records import SCORES

GOOD = prompts.render_verdict([0.5] * 6, "true", "")


def test_the_answer_prompt_has_the_papers_shape(passages):
    text = prompts.build_answer("who?", passages[:5])
    assert text.startswith("#Question-Answering-in-Context-Task#Reference [1]: The Copper Lanterns")
    assert text.count("\\Reference [") == 4
    assert text.endswith("\\Question: who?\\Answer:")


def test_the_verify_prompt_names_criteria_triple_and_steps_in_the_papers_order(passages):
    text = prompts.build_verify("who?", passages[:5], "Edith [1]")
    parts = ["#verification-Task#", *(f"{name}:" for name in SCORES[1:])]
    parts += ['"question": who?', '"answer": Edith [1]', '"reference": Reference [1]']
    parts += ["1. ", "2. ", "3. ", "4. ", "Output format example:"]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


def test_a_rendered_verdict_is_json_with_the_papers_keys_and_parses_back():
    text = prompts.render_verdict((0.21, 0.5, 0.81, 0.91, 0.82, 1), "false", 'Who "is" it?')
    body = json.loads(text)
    assert list(body) == ["1", "2", "3", "4"]
    assert list(body["1"]) + list(body["2"]) == list(SCORES)
    verdict = prompts.parse_verdict(text)
    assert verdict.parsed
    assert (verdict.judgment, verdict.revised_question) == ("false", "Who 'is' it?")
    assert [getattr(verdict, name) for name in SCORES] == [0.21, 0.5, 0.81, 0.91, 0.82, 1.0]


def test_a_verdict_with_text_around_it_parses():
    assert prompts.parse_verdict(f"Sure!\n{GOOD}\nDone.").judgment == "true"


RUBBISH = ["", "no json", "{", GOOD[:-5], "[1, 2]", '{"1": 3}']
WRONG = {"0.50": ("1.70", '"high"', "true"), "true": ("maybe",), '"4"': ('"5"',), '"bias"': ('"byas"',)}


@pytest.mark.parametrize("text", RUBBISH + [GOOD.replace(right, wrong, 1) for right in WRONG for wrong in WRONG[right]])
def test_rubbish_is_counted_as_unparsed_and_never_scored(text):
    verdict = prompts.parse_verdict(text)
    assert not verdict.parsed
    assert (verdict.text, verdict.revised_question) == (text, "")
    assert all(getattr(verdict, name) is None for name in SCORES)


def test_in_the_shared_layout_both_tasks_begin_alike_up_to_the_question(passages):
    answer = prompts.build_answer("who?", passages, "shared")
    verify = prompts.build_verify("who?", passages, "Edith [1]", "shared")
    begin = verify.partition(prompts.VERIFY_MARKER)[0]
    assert answer == f"{begin}{prompts.ANSWER_MARKER}Answer:"
    assert begin.endswith("\\Question: who?\\")
    assert "Edith [1]" not in begin
    # What is the same for all questions stands first.
    assert begin.index("Output format example:") < begin.index("Reference [1]")
