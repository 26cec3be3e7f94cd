"""Running systems: shared prompts, rules for σ and for the returned answer, new systems."""

import json

import pytest

from covrag_lite.config import Config
from covrag_lite.engine.task_model import TaskModel
from covrag_lite.method import by_thresholds
from covrag_lite.prompts import parse_verdict
from covrag_lite.records import Prediction, Round
from covrag_lite.systems import SYSTEMS, System, adapter_of, evaluate, find_system, palette
from covrag_lite.systems.names import COV_RAG, COV_RAG_S, COV_RAG_THRESHOLDS, RAG


@pytest.fixture
def config(tmp_path):
    return Config().change(k=2, runs=str(tmp_path))


@pytest.fixture
def resources(config, passages, scripted):
    return evaluate.load_resources(config, passages, scripted)


def test_systems_that_share_their_first_round_compute_it_once(
    config, resources, questions, scripted
):
    evaluate.run(config.change(systems=(RAG, COV_RAG_S, COV_RAG)), resources, questions)
    # Four first answers and four verdicts. The only second search finds the same passages, so its
    # prompt is in the journal.
    assert len(scripted.asked) == 8
    assert len(set(scripted.asked)) == 8


def test_the_next_passages_begin_where_the_search_ended(config, resources, passages, scripted):
    four = evaluate.load_resources(config.change(k=4), passages, scripted)
    query = ["Where was Edith Marrow born?"]
    tools = evaluate.bind(SYSTEMS[RAG], config, resources)
    assert [*tools.search(query)[0], *tools.search_deeper(query)[0]] == four.search(query)[0]


def test_batches_do_not_depend_on_what_is_journaled(resources, scripted):
    texts = [f"prompt {'x' * i}" for i in range(5)]
    author = TaskModel(scripted.settings, scripted, resources.journal)
    author.write("answer", texts[2:3], 9)
    scripted.asked.clear()
    author.write("answer", texts, 9)
    # The journaled one is computed again with its batch, and its first text is kept.
    assert scripted.asked == texts[::-1]


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("max_rounds", 0, "max_rounds is 0"),
        ("sigma", "luck", "sigma 'luck' is not known"),
        ("keep", "mine", "keep 'mine' is not known"),
    ],
)
def test_a_rule_that_does_not_exist_is_named(config, resources, questions, name, value, message):
    with pytest.raises(ValueError, match=message):
        evaluate.run(config.change(**{name: value}), resources, questions)


def test_a_run_without_questions_says_which_file_is_missing(config, resources):
    with pytest.raises(ValueError, match="there are no questions in 'world'; a folder needs"):
        evaluate.run(config, resources, [])


def test_an_unknown_system_stops_before_anything_runs(config, resources, questions, scripted):
    with pytest.raises(ValueError, match="system 'Cov-RAG' is not known; did you mean 'CoV-RAG'"):
        evaluate.run(config.change(systems=(RAG, "Cov-RAG")), resources, questions)
    assert scripted.asked == []


# Thresholds fitted for an adapter.

VERDICT = (
    '{ "1": { "reference_correctness": 0.1 }, "2": { "correctness": 0.1, '
    '"citation_accuracy": 0.5, "truthfulness": 0.5, "bias": 0.9, "conciseness": 0.5 }, '
    '"3": "false", "4": "who?" }'
)


@pytest.fixture
def fitted(scripted, tmp_path):
    """The file with the fitted thresholds of the verifier's adapter."""
    scripted.adapter = tmp_path / "cov"
    scripted.adapter.mkdir()
    return scripted.adapter / "sigma.json"


def test_fitted_thresholds_replace_the_papers(config, resources, fitted):
    last = Round("", (), "", parse_verdict(VERDICT))
    assert by_thresholds(last)
    fitted.write_text(json.dumps({"reference": 0.05, "correctness": 0.9, "likelihood": 0.01}))
    sigma = evaluate.bind(SYSTEMS[COV_RAG_THRESHOLDS], config, resources).sigma
    assert not sigma(last)  # its reference_correctness of 0.1 is not below 0.05


def test_damaged_thresholds_are_an_error_with_its_cure(config, resources, fitted):
    fitted.write_text('{"bias": 0.7}')
    with pytest.raises(ValueError, match="sigma.json is damaged .*; delete it .*, or fit"):
        evaluate.bind(SYSTEMS[COV_RAG_THRESHOLDS], config, resources)


# Entries.


def repeat(questions, tools):
    """A toy system that repeats the question as its answer and searches nothing."""
    return [
        Prediction(question, tools.name, (Round("", (), question.question),))
        for question in questions
    ]


def test_a_further_system_is_one_entry(config, resources, questions, monkeypatch):
    monkeypatch.setitem(SYSTEMS, "parrot", System("parrot", repeat, colour="#123456"))
    predictions = evaluate.run(config.change(systems=("parrot",)), resources, questions)
    assert [p.answer for p in predictions] == [q.question for q in questions]
    assert {p.backbone for p in predictions} == {"smollm2-135m"}
    assert palette()["parrot"] == "#123456"


def test_every_system_is_found_by_its_name():
    for name, system in SYSTEMS.items():
        assert find_system(name) is system
        assert system.name == name


def test_every_colour_is_used_once():
    colours = list(palette().values())
    assert len(colours) == len(set(colours))


def test_a_search_without_a_model_has_no_adapter():
    assert adapter_of("clean wording") == ""
