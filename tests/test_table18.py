"""Table 18: revised questions judged by a rule and by a served judge."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from test_endpoint import connect, server  # noqa: F401  a server that replies from a script

from covrag_lite import prompts
from covrag_lite.config import Config, Retrieval
from covrag_lite.engine.journal import Journal
from covrag_lite.judging.answers import Answers
from covrag_lite.judging.revisions import (
    SYSTEMS,
    find_references,
    judge_revisions_by_endpoint,
    judge_revisions_by_rule,
    revised_groups,
)
from covrag_lite.records import Prediction, Round
from covrag_lite.runs.frame import outcome_of
from covrag_lite.runs.manifest import ModelFacts
from covrag_lite.tables import table18

NO_CHAIN, COV_RAG = SYSTEMS
REVISED = "Who is the author of the Copper Lanterns?"
NAME = "endpoint:toy"


def revise(question, system, answer, first, second):
    """A prediction that searched again with a revised question."""
    verdict = prompts.parse_verdict(prompts.render_verdict([0.1] * 6, "false", REVISED))
    rounds = (
        Round(question.question, tuple(first), answer, verdict),
        Round(REVISED, tuple(second), answer),
    )
    return Prediction(question, system, rounds)


@pytest.fixture
def answers(questions, passages):
    """Two questions; the first one is revised by both systems, the second one by one."""
    who, where = questions[:2]  # their gold passages are the first and the second
    gold, other = passages[:1], passages[2:3]
    kept = Prediction(where, COV_RAG, (Round(where.question, tuple(other), "Harrow"),))
    groups = [
        {
            NO_CHAIN: revise(who, NO_CHAIN, "Harrow", other, gold),  # needed, and found
            COV_RAG: revise(who, COV_RAG, "Edith Marrow", other, gold),  # not needed
        },
        {NO_CHAIN: revise(where, NO_CHAIN, "Harrow", other, other), COV_RAG: kept},  # found none
    ]
    return Answers([who, where], groups, passages)


def scores_of(verdicts):
    return [verdict["scores"]["revision"] for verdict in verdicts]


def test_only_revised_questions_are_judged(answers):
    assert [list(group) for _, group in revised_groups(answers)] == [list(SYSTEMS), [NO_CHAIN]]


def test_by_the_rule_a_revision_must_be_needed_and_find_a_gold_passage(answers):
    expected = [{NO_CHAIN: 1.0, COV_RAG: 0.0}, {NO_CHAIN: 0.0}]
    assert scores_of(judge_revisions_by_rule(answers)) == expected


def test_a_revision_is_not_needed_if_a_gold_passage_was_found(answers, passages):
    question = answers.questions[0]
    group = {NO_CHAIN: revise(question, NO_CHAIN, "Harrow", passages[:1], passages[:1])}
    assert scores_of(judge_revisions_by_rule(Answers([question], [group], []))) == [{NO_CHAIN: 0.0}]


def test_without_a_comparable_gold_answer_the_rule_has_no_score(questions, passages):
    question = questions[3]
    group = {NO_CHAIN: revise(question, NO_CHAIN, "Harrow", passages[:1], passages[:1])}
    answers = Answers([question], [group], [])
    assert scores_of(judge_revisions_by_rule(answers)) == [{NO_CHAIN: None}]


# A served judge.


def by_answer(prompt):
    """A reply that scores a revision 0.9 where the answer before it is "Harrow", else 0.2."""
    form = json.loads(prompt.splitlines()[-1])
    for name in form["revision"]:
        form["revision"][name] = 0.9 if f"\n{name}: Harrow\n" in prompt else 0.2
    return json.dumps(form)


@pytest.fixture
def served(server, answers, tmp_path):  # noqa: F811
    server.write = by_answer
    return judge_revisions_by_endpoint(connect(), answers, Journal(tmp_path / "journal.jsonl"))


def test_a_served_judges_scores_belong_to_the_systems_that_revised(served):
    assert scores_of(served) == [{NO_CHAIN: 0.9, COV_RAG: 0.2}, {NO_CHAIN: 0.9}]


def test_a_request_shows_what_the_paper_shows(served, server):  # noqa: F811
    prompts_sent = [body["messages"][0]["content"] for _, body in server.asked]
    (prompt,) = [prompt for prompt in prompts_sent if "copper lanterns" in prompt]
    for shown in ("Reference [1]", "Gold answer: Edith Marrow", f"answer1: {REVISED}"):
        assert shown in prompt


def test_references_that_a_record_omits_are_searched_again(answers):
    groups = []
    for group in answers.groups:
        bare = {}
        for system, prediction in group.items():
            rounds = [replace(round_, passages=()) for round_ in prediction.rounds]
            bare[system] = replace(prediction, rounds=tuple(rounds))
        groups.append(bare)
    retrieval = Retrieval(k=1)
    who, _ = find_references(replace(answers, groups=groups, retrieval=retrieval))
    assert [passage.title for passage in who] == ["Copper Lanterns"]


def test_recorded_references_are_shown(answers):
    who, where = find_references(replace(answers, retrieval=Retrieval(k=1)))
    assert [passage.title for passage in (*who, *where)] == ["Aldermere", "Aldermere"]


def test_a_verdict_contains_no_text(served):
    assert "Copper" not in json.dumps(served) and "Harrow" not in json.dumps(served)


def test_a_reply_that_does_not_parse_gives_no_score(server, answers, tmp_path):  # noqa: F811
    server.write = lambda prompt: "Hm."
    verdicts = judge_revisions_by_endpoint(connect(), answers, Journal(tmp_path / "j.jsonl"))
    assert scores_of(verdicts) == [{NO_CHAIN: None, COV_RAG: None}, {NO_CHAIN: None}]


# The table.


@pytest.fixture
def table(answers, served):
    config = Config().change(judges=("rubric", NAME))
    return table18.build((answers, served), SimpleNamespace(config=config))


def test_a_row_has_the_systems_revised_questions_and_their_scores(table):
    rows = table.rows.set_index(["judge", "system"])
    assert rows.loc[("rubric (proxy)", NO_CHAIN), ["n", "mean score", "good"]].tolist() == [
        2,
        0.5,
        50,
    ]
    assert rows.loc[(NAME, NO_CHAIN), ["n", "mean score", "good"]].tolist() == [2, 0.9, 100]


def test_a_served_judge_is_compared_with_the_rule(table):
    agreement = table.part("compared with the rule")
    assert agreement.judge.tolist() == [NAME]
    assert agreement.n.tolist() == [3]
    assert agreement["agreement, %"].iloc[0].startswith("66.7")


def test_without_a_recorded_table_5_nothing_is_judged(project, tmp_path):
    config = Config().change(predictions="toy")
    assert table18.judge_and_save(config, tmp_path, project) is None
    assert list(tmp_path.iterdir()) == []


def test_judged_revisions_are_saved_like_a_run(answers, tmp_path, monkeypatch):
    model = ModelFacts("a1", None, {})
    monkeypatch.setattr(table18, "load_revised", lambda *_: replace(answers, model=model))
    table18.judge_and_save(Config(), tmp_path)
    ends = ("csv", "facts.json", "manifest.json", "md", "verdicts.jsonl")
    assert {file.name for file in tmp_path.iterdir()} == {f"table18.{end}" for end in ends}


def test_the_rule_is_not_compared_with_itself(answers):
    table = table18.build((answers, []), SimpleNamespace(config=Config()))
    assert [heading for heading in table.parts if "rule" in heading] == []


def test_without_the_data_the_table_is_the_same(answers, served, table):
    groups = []
    for group in answers.groups:
        known = {}
        for system, prediction in group.items():
            rounds = []
            for number, round_ in enumerate(prediction.rounds):
                outcome = outcome_of(prediction, number)
                rounds.append(replace(round_, passages=(), outcome=outcome))
            question = replace(prediction.question, question="", answers=())
            known[system] = replace(prediction, question=question, rounds=tuple(rounds))
        groups.append(known)
    questions = [replace(question, question="", answers=()) for question in answers.questions]
    config = Config().change(judges=("rubric", NAME))
    rule = judge_revisions_by_rule(answers)
    bare = Answers(questions, groups, [])
    again = table18.build((bare, rule + served), SimpleNamespace(config=config))
    assert again.text == table.text


def test_what_a_judge_says_of_a_system_is_a_fact(table):
    assert table.facts[f"rubric (proxy) {NO_CHAIN} mean"] == "0.50"
    assert table.facts[f"rubric (proxy) {NO_CHAIN} good"] == "50.0"
    assert table.facts[f"rubric (proxy) {NO_CHAIN} good interval"] == "[9.5, 90.5]"
    assert table.facts[f"{NAME} {COV_RAG} n"] == "1"


def test_rates_are_shown_with_their_interval(table):
    rows = table.part("Revised questions by judge").set_index(["judge", "system"])
    row = rows.loc[("rubric (proxy)", "CoV-RAG, no scores")]
    assert row.tolist() == [2, "0.50", "50.0 [9.5, 90.5]"]


def test_missing_scores_of_revisions_are_counted_by_judge(answers, served):
    served[1]["scores"]["revision"][NO_CHAIN] = None
    config = Config().change(judges=("rubric", NAME))
    table = table18.build((answers, served), SimpleNamespace(config=config))
    assert [note.partition(" (")[0] for note in table.notes[1:]] == [
        "rubric",
        "endpoint:toy: 1 of 3 scores are missing",
    ]
    assert "0 of 3 scores are missing" in table.notes[1]
    assert table.part("compared with the rule").n.tolist() == [2]


def test_a_judge_that_scored_nothing_has_a_dash(answers, served):
    for verdict in served:
        verdict["scores"]["revision"] = dict.fromkeys(verdict["scores"]["revision"])
    config = Config().change(judges=(NAME,))
    table = table18.build((answers, served), SimpleNamespace(config=config))
    shown = table.part("Revised questions by judge")
    assert shown[["n", "mean score", "above 0.5, %"]].values.tolist() == [[0, "–", "–"]] * 2


def test_the_manifest_has_the_seconds_of_judging(answers, tmp_path, monkeypatch):
    model = ModelFacts("a1", None, {})
    monkeypatch.setattr(table18, "load_revised", lambda *_: replace(answers, model=model))
    seconds = iter([100.0, 103.5])
    monkeypatch.setattr(table18, "time", SimpleNamespace(perf_counter=lambda: next(seconds)))
    table18.judge_and_save(Config(), tmp_path)
    manifest = json.loads((tmp_path / "table18.manifest.json").read_text())
    assert manifest["wall_seconds"] == 3.5
    assert manifest["data"]["questions"]["n"] == 2
    assert manifest["data"]["passages"]["n"] == len(answers.passages)


def test_recorded_revisions_are_loaded_with_their_data_and_verdicts(answers, monkeypatch):
    checked = {}
    monkeypatch.setattr(table18, "load_revised", lambda config, root: answers)
    monkeypatch.setattr(table18, "check_data", lambda run, **data: checked.update(data))
    monkeypatch.setattr(table18.table3, "read_verdicts", lambda run: ["a verdict"])
    run = SimpleNamespace(config=Config(), root=None)
    assert table18.load_judged(run) == (answers, ["a verdict"])
    assert checked == {"questions": answers.questions, "passages": answers.passages}
