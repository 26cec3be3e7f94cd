"""Every round of the toy's systems: seven questions and a scripted model (toy.py)."""

import pytest
import toy
from toy import BORN, DAY, KEEPER, QUESTIONS, TEXTS

from covrag_lite.runs.frame import to_frame
from covrag_lite.systems import evaluate
from covrag_lite.tables.chain import chain_table, frame_of, limit_rounds

# What is read and verified: a question and its passages.
FIRST = {(name, toy.FOUND[text]) for name, text in TEXTS.items()}
SECOND = {
    "CoV-RAG": {("q2", "ba"), ("q4", "cd"), ("q7", "fa")},
    "CoV-RAG w/o chain": {("q2", "ba")},
}
ADAPTERS = {
    "RAG": "",
    "RAG trained": "rag",
    "CoV-RAG-S": "cov",
    "CoV-RAG": "cov",
    "CoV-RAG w/o chain": "cov-direct",
}
# Which adapter is asked for which task.
TASKS = {
    "Start-Revise trained": {("rewrite", "rewrite"), ("cov", "answer")},
    "closed-book": {("", "recall")},
    "CoV-RAG, two adapters": {("rag", "answer"), ("cov", "verify")},
    "CoV-RAG free": {("cov", "answer"), ("cov", "verify")},
}
# Query, answer and likelihood of every round of CoV-RAG.
ROUNDS = {
    "q1": [(TEXTS["q1"], "Ada Voss[1]", -0.1)],
    "q2": [(TEXTS["q2"], "Mere[1]", -0.9), (BORN, "Stell[1]", -0.4)],
    "q3": [(TEXTS["q3"], "It is 71 metres long.[1]", -0.2)],
    "q4": [(TEXTS["q4"], "St John’s Eve[1]", -0.3), (DAY, "May[2]", -0.7)],
    "q5": [(TEXTS["q5"], "1829[1]", -0.5)],
    "q6": [(TEXTS["q6"], "a town", -0.6)],
    "q7": [(TEXTS["q7"], "Ada Voss[1]", -0.8), (KEEPER, "MIRA TOLL[1]", -0.35)],
}


def run(system, folder, **changes):
    """The predictions of one system, and the log of what its model was asked."""
    config, resources = toy.stage(folder, **changes)
    predictions = evaluate.run_system(system, config, resources, QUESTIONS)
    return predictions, resources.model.log


def entries_of(log, task):
    return {entry[2:] for entry in log if entry[1] == task}


def of_system(predictions, system):
    return {p.question.id: p for p in predictions if p.system == system}


@pytest.mark.parametrize("system", ADAPTERS)
def test_a_system_asks_only_its_own_adapter(system, tmp_path):
    _, log = run(system, tmp_path)
    assert {entry[0] for entry in log} == {ADAPTERS[system]}


@pytest.mark.parametrize("system", ADAPTERS)
def test_a_system_answers_first_and_revised_questions(system, tmp_path):
    _, log = run(system, tmp_path)
    assert entries_of(log, "answer") == FIRST | SECOND.get(system, set())


@pytest.mark.parametrize("system", ADAPTERS)
def test_only_first_answers_are_verified(system, tmp_path):
    _, log = run(system, tmp_path)
    assert entries_of(log, "verify") == (FIRST if system in SECOND else set())


@pytest.mark.parametrize("system", ADAPTERS)
def test_a_prediction_names_its_model_and_adapter(system, tmp_path):
    predictions, _ = run(system, tmp_path)
    adapter = ADAPTERS[system]
    backbone = f"smollm2-135m+{adapter}" if adapter else "smollm2-135m"
    assert {p.backbone for p in predictions} == {backbone}


@pytest.mark.parametrize("system", TASKS)
def test_each_task_has_its_adapter(system, tmp_path):
    _, log = run(system, tmp_path)
    assert {entry[:2] for entry in log} == TASKS[system]


def test_two_adapters_are_named_after_the_one_that_answers(tmp_path):
    predictions, _ = run("CoV-RAG, two adapters", tmp_path)
    assert {p.backbone for p in predictions} == {"smollm2-135m+rag"}


def test_an_empty_rewrite_leaves_the_question_as_it_is(predictions):
    queries = {
        name: p.rounds[0].query
        for name, p in of_system(predictions, "Start-Revise trained").items()
    }
    assert queries == TEXTS | {"q2": BORN}


def test_every_round_of_cov_rag(cov):
    rounds = {}
    for prediction in cov:
        texts = [(turn.query, turn.answer, turn.likelihood) for turn in prediction.rounds]
        rounds[prediction.question.id] = texts
    assert rounds == ROUNDS


def test_predictions_contain_their_questions(cov):
    assert [p.question for p in cov] == QUESTIONS


def test_the_shared_layout_gives_the_same_rounds(cov, tmp_path):
    shared, _ = run("CoV-RAG", tmp_path, layout="shared")  # which has prompts of its own
    assert [p.rounds for p in shared] == [p.rounds for p in cov]


def test_the_papers_thresholds_let_one_question_pass(predictions):
    revised = {
        name for name, p in of_system(predictions, "CoV-RAG thresholds").items() if p.revised
    }
    assert revised == {"q2"}


def test_a_first_answer_with_the_higher_likelihood_is_kept(predictions):
    kept = of_system(predictions, "CoV-RAG, likelier answer")
    answers = {name: kept[name].answer for name in ("q2", "q4", "q7")}
    assert answers == {"q2": "Stell[1]", "q4": "St John’s Eve[1]", "q7": "MIRA TOLL[1]"}


def test_the_kept_answer_has_the_query_of_its_own_round(predictions):
    kept = of_system(predictions, "CoV-RAG, likelier answer")["q4"]
    assert kept.final.query == TEXTS["q4"]


# Three rounds.


def test_a_third_round_needs_a_verdict_on_the_second_answer(tmp_path):
    predictions, log = run("CoV-RAG", tmp_path, max_rounds=3)
    assert entries_of(log, "verify") == FIRST | SECOND["CoV-RAG"]
    judgments = {}
    for prediction in predictions:
        if prediction.revised:
            judged = [turn.verdict.judgment for turn in prediction.rounds]
            judgments[prediction.question.id] = judged
    assert judgments == dict.fromkeys(("q2", "q4", "q7"), ["false", "true"])


def test_a_run_of_three_rounds_contains_one_of_two(tmp_path, cov):
    predictions, _ = run("CoV-RAG", tmp_path, max_rounds=3)
    assert [limit_rounds(p, 2) for p in predictions] == cov


def test_a_run_of_three_rounds_contains_one_of_a_single_round(tmp_path, predictions):
    deep, _ = run("CoV-RAG", tmp_path, max_rounds=3)
    single = [p.rounds for p in predictions if p.system == "CoV-RAG-S"]
    assert [limit_rounds(p, 1).rounds for p in deep] == single


# Verdicts that are decoded freely: one of seven parses.


@pytest.fixture
def free(tmp_path):
    return run("CoV-RAG free", tmp_path)[0]


def test_free_verdicts_that_do_not_parse_are_counted(free):
    frame = to_frame(free)
    assert (frame.verdicts.sum(), frame.unparsed.sum()) == (7, 6)


def test_free_verdicts_that_do_not_parse_have_no_judgment(free):
    assert to_frame(free).judgment.tolist() == ["true", *[""] * 6]


def test_free_verdicts_revise_nothing(free):
    assert to_frame(free).revised.sum() == 0


def test_the_format_rate_is_the_share_of_free_verdicts_that_parse(free, predictions):
    rows = chain_table(frame_of([*predictions, *free]))
    row = rows[(rows.system == "CoV-RAG") & (rows.metric == "format")]
    assert row[["n", "value"]].iloc[0].tolist() == pytest.approx([7, 100 / 7])
