"""Served judges see answers in an order of the question; scores go back to who wrote the answer."""

from collections import Counter

import pytest
from conftest import ScriptedModel
from test_table3 import write_reply

from covrag_lite.engine.interface import Completion
from covrag_lite.engine.journal import Journal
from covrag_lite.judging.answers import Answers
from covrag_lite.judging.revisions import REVISION, judge_revisions_by_endpoint
from covrag_lite.judging.served import judge_by_endpoint, shuffled
from covrag_lite.prompts import parse_verdict, render_verdict
from covrag_lite.records import Passage, Prediction, Question, Round

N = 24
SCORES = {"good": 0.9, "fair": 0.6, "bad": 0.1}  # of the answers, by their texts
FIRST = Passage("p0", "first", "the passage of the first search")
SECOND = Passage("p1", "second", "the passage of the second search")


class Judge(ScriptedModel):
    """A judge that scores an answer by its text, wherever it is."""

    def complete(self, prompts, max_tokens, sample=None):
        self.asked += prompts
        return [Completion(write_reply(prompt, SCORES.get)) for prompt in prompts]


def predict(question, system, text):
    """Return a prediction whose answer was revised: the first answer has this text, as the last."""
    verdict = parse_verdict(render_verdict([0.1] * 6, "false", f"what is {text}?"))
    rounds = (
        Round(question.question, (FIRST,), text, verdict),
        Round(f"what is {text}?", (SECOND,), text),
    )
    return Prediction(question, system, rounds)


@pytest.fixture(scope="module")
def answers():
    """The answers of three systems to many questions."""
    questions = [Question(f"q{i}", "nq", f"number {i}?", ("good",)) for i in range(N)]
    groups = []
    for question in questions:
        texts = {"RAG": "fair", "RAG trained": "bad", "CoV-RAG": "good"}
        groups.append({system: predict(question, system, text) for system, text in texts.items()})
    return Answers(questions, groups, [FIRST, SECOND])


@pytest.mark.parametrize("judge", [judge_by_endpoint, judge_revisions_by_endpoint])
def test_a_score_belongs_to_the_system_that_wrote_the_answer(judge, answers, tmp_path):
    verdicts = judge(Judge(), answers, Journal(tmp_path / "journal.jsonl"))
    criterion = REVISION if judge is judge_revisions_by_endpoint else "correctness"
    scores = [verdict["scores"][criterion] for verdict in verdicts]
    assert scores == [{"RAG": 0.6, "RAG trained": 0.1, "CoV-RAG": 0.9}] * N


@pytest.mark.parametrize("judge", [judge_by_endpoint, judge_revisions_by_endpoint])
def test_no_system_is_always_first(judge, answers, tmp_path):
    model = Judge()
    judge(model, answers, Journal(tmp_path / "journal.jsonl"))
    first = Counter()
    for prompt in model.asked:
        first[next(line for line in prompt.splitlines() if line.startswith("answer1: "))] += 1
    assert len(first) == 3
    assert min(first.values()) >= N / 8


def test_the_order_of_a_question_is_the_same_in_every_run():
    texts = ["a", "b", "c", "d"]
    assert shuffled(texts, "q1") == shuffled(list(reversed(texts)), "q1")


def test_revisions_are_judged_by_what_the_first_search_found(answers, tmp_path):
    model = Judge()
    judge_revisions_by_endpoint(model, answers, Journal(tmp_path / "journal.jsonl"))
    assert all(FIRST.text in prompt for prompt in model.asked)
    assert not any(SECOND.text in prompt for prompt in model.asked)


def test_a_revised_question_is_next_to_the_answer_that_it_follows(answers, tmp_path):
    model = Judge()
    judge_revisions_by_endpoint(model, answers, Journal(tmp_path / "journal.jsonl"))
    for prompt in model.asked:
        lines = prompt.splitlines()
        for number in (1, 2, 3):
            (place,) = [i for i, line in enumerate(lines) if line.startswith(f"answer{number}: ")]
            text = lines[place].partition(": ")[2]
            assert lines[place + 1] == f"revised question after answer{number}: what is {text}?"


def test_a_judge_of_answers_sees_all_gold_answers(answers, tmp_path):
    model = Judge()
    question = Question("q", "nq", "which?", ("good", "very good"))
    group = {
        system: predict(question, system, text)
        for system, text in (("RAG", "bad"), ("CoV-RAG", "good"))
    }
    judge_by_endpoint(model, Answers([question], [group], []), Journal(tmp_path / "journal.jsonl"))
    assert "good | very good" in model.asked[0]


def test_citations_are_scored_only_if_the_references_agree_on_every_question(tmp_path):
    questions = [Question(f"q{i}", "nq", f"{i}?", ("good",)) for i in range(2)]
    groups = []
    for number, question in enumerate(questions):
        passages = (FIRST,) if number == 0 else (SECOND,)  # the second question differs
        groups.append(
            {
                "RAG": Prediction(question, "RAG", (Round("", (FIRST,), "bad"),)),
                "CoV-RAG": Prediction(question, "CoV-RAG", (Round("", passages, "good"),)),
            }
        )
    assert Answers(questions, groups, []).cited_together == ("RAG",)
