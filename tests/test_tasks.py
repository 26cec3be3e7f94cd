"""The neighbours' prompts: what they hold, and what is read from what a model writes."""

from types import SimpleNamespace

import pytest

from covrag_lite.config import Model
from covrag_lite.related import asking
from covrag_lite.related import prompts as tasks
from covrag_lite.runs.journal import Journal
from covrag_lite.task_model import TaskModel


def test_a_plan_is_its_numbered_lines():
    text = "Sure!\n[1] Who wrote it?\n2. When was it?\n- Who wrote it?\n[3] ...\n4) Where?\n5) Why?"
    assert tasks.parse_plan(text, 3) == ["Who wrote it?", "When was it?", "Where?"]
    assert tasks.parse_plan("I cannot say.", 3) == []


def test_a_demonstration_that_comes_back_is_no_plan():
    prompt = tasks.build_plan("who wrote it", 3)
    assert all(line in prompt for line in tasks.RIVERS)
    assert tasks.parse_plan("\n".join(f"[{i}] {line}" for i, line in enumerate(tasks.RIVERS, 1)), 3) == []
    assert tasks.TOLSTOY[0] in tasks.build_follow_up("who wrote it", [])
    assert tasks.parse_follow_up(tasks.TOLSTOY[0]) == ""


@pytest.mark.parametrize(
    "text, asked", [(" Who is she?\nOutput: x", "Who is she?"), ("[END]", ""), ("[end] of it", ""), ("…", ""), ("", "")]
)
def test_a_follow_up_is_one_line_or_the_end(text, asked):
    assert tasks.parse_follow_up(text) == asked


def test_a_follow_up_sees_what_was_answered_so_far():
    prompt = tasks.build_follow_up("who wrote it", [("what is it", "a novel")])
    assert prompt.endswith("Question: who wrote it\nSearch: what is it\nOutput: a novel\nSearch:")


@pytest.mark.parametrize("text, said", [("Yes", True), (" yes, it", True), ("No", False), ("Perhaps yes", False)])
def test_only_a_yes_is_a_yes(text, said):
    assert tasks.parse_relevant(text) is said


def test_feedback_is_asked_for_by_the_scores(passages):
    scores = {"support": 0.9, "citation recall": 0.0, "citation precision": 0.5}
    prompt = tasks.build_feedback("who wrote it", passages[:1], "Edith", scores)
    assert "support, score 90: say that it is satisfactory" in prompt
    assert "citation recall, score 0: advise to put the mark" in prompt
    assert "citation precision, score 50: say that it is satisfactory" in prompt
    assert passages[0].text in prompt
    refined = tasks.build_refine("who wrote it", passages[:1], "Edith", "cite it")
    assert all(part in refined for part in (passages[0].text, "Answer: Edith", "Feedback: cite it"))


@pytest.fixture
def author(scripted, tmp_path):
    return TaskModel(Model(), scripted, Journal(tmp_path / "journal.jsonl"))


def test_several_sessions_are_samples_and_one_is_the_likeliest(author, scripted):
    sessions = asking.plan(author, 3, ["who wrote it", "when"], 3)
    assert [len(many) for many in sessions] == [3, 3]
    assert [session[0][:8] for session in sessions[0]] == ["sample 0", "sample 1", "sample 2"]
    assert asking.plan(author, 3, ["when"], 1) == [[["when"]]]  # what the scripted model writes greedily is no plan
    asked = len(scripted.asked)
    assert asking.plan(author, 3, ["who wrote it", "when"], 3) == sessions
    assert len(scripted.asked) == asked  # samples are journaled too, each under its number


def test_each_task_goes_through_the_model_with_its_own_prompt(author, scripted, passages):
    k = [passages[:1]]
    assert asking.follow_up(author, ["x?"], [[]]) == [scripted.generate([tasks.build_follow_up("x?", [])], 9)[0]]
    assert asking.is_relevant(author, ["x?"], ["y?"]) == [False]
    scores = dict.fromkeys(tasks.ASPECTS, 0.0)
    (said,) = asking.give_feedback(author, ["x?"], k, ["z"], [scores])
    (better,) = asking.refine(author, ["x?"], k, ["z"], [said])
    assert tasks.build_refine("x?", passages[:1], "z", said) in scripted.asked
    assert better.startswith("Edith Marrow")


def test_an_endpoint_is_asked_for_another_sample_by_a_seed(monkeypatch):
    from covrag_lite.engine.endpoint import Endpoint

    monkeypatch.setenv("OPENAI_API_KEY", "any")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    served = Endpoint(Model(model="endpoint:toy"))
    asked = []

    def create(**options):
        asked.append(options)
        message = SimpleNamespace(content="text", refusal=None)
        return SimpleNamespace(choices=[SimpleNamespace(message=message)], usage=None)

    monkeypatch.setattr(served.client.chat.completions, "create", create)
    served.sample(["prompt"], 9, 3)
    served.generate(["prompt"], 9)
    assert [(one["temperature"], one.get("seed")) for one in asked] == [(1, 3), (0, None)]
