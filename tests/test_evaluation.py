"""Running systems: shared prompts, adapters, rules for σ and for the returned answer."""

import json

import pytest

from covrag_lite import evaluate, prompts
from covrag_lite.config import Config
from covrag_lite.method import by_thresholds
from covrag_lite.records import Prediction, Round
from covrag_lite.runs.outcomes import to_frame
from covrag_lite.systems import SYSTEMS, System
from covrag_lite.tables import accuracy as tables
from covrag_lite.task_model import TaskModel


@pytest.fixture
def config(tmp_path):
    return Config().change(k=2, runs=str(tmp_path))


@pytest.fixture
def resources(config, passages, scripted):
    return evaluate.load_resources(config, passages, scripted)


def test_systems_that_share_their_first_round_compute_it_once(config, resources, questions, scripted):
    evaluate.run(config.change(systems=("RAG", "CoV-RAG-S", "CoV-RAG")), resources, questions)
    # 4 first answers and 4 verdicts; the only second search finds the same passages, so its prompt
    # is in the journal
    assert len(scripted.asked) == len(set(scripted.asked)) == 8


def test_what_is_searched_on_begins_where_the_search_ended(config, resources, passages, scripted):
    four = evaluate.load_resources(config.change(k=4), passages, scripted)
    query = ["Where was Edith Marrow born?"]
    tools = evaluate.bind(SYSTEMS["RAG"], config, resources)
    both = [*tools.search(query)[0], *tools.search_on(query)[0]]
    assert both == four.search(query)[0] and len(both) == 4


def test_batches_do_not_depend_on_what_is_journaled(resources, scripted):
    texts = [f"prompt {'x' * i}" for i in range(5)]
    author = TaskModel(scripted.settings, scripted, resources.journal)
    author.write("answer", texts[2:3], 9)
    scripted.asked.clear()
    author.write("answer", texts, 9)
    assert scripted.asked == texts[::-1]  # the journaled one is computed again with its batch, and its first text kept


def test_unknown_names_are_named(config, resources, questions):
    for name, value in {"max_rounds": 0, "sigma": "luck", "keep": "mine"}.items():
        with pytest.raises(ValueError, match=f"{name} (is 0|'{value}' is not known)"):
            evaluate.run(config.change(**{name: value}), resources, questions)


def test_thresholds_that_were_fitted_for_an_adapter_are_taken_for_it(config, resources, scripted, tmp_path):
    verdict = scripted.fill(["wher was edit marow born"], (), 9)[0].text
    one = Round("", (), "", prompts.parse_verdict(verdict))
    assert by_thresholds(one)
    scripted.adapter = tmp_path / "cov"
    scripted.adapter.mkdir()
    own = {"reference": 0.05, "correctness": 0.9, "likelihood": 0.01}
    (scripted.adapter / "sigma.json").write_text(json.dumps(own))
    sigma = evaluate.bind(SYSTEMS["CoV-RAG thresholds"], config, resources).sigma
    (scripted.adapter / "sigma.json").write_text('{"bias": 0.7}')
    with pytest.raises(ValueError, match="sigma.json is damaged .*; delete it .*, or fit"):
        evaluate.bind(SYSTEMS["CoV-RAG thresholds"], config, resources)
    assert not sigma(one)  # its reference_correctness of 0.1 is not below 0.05


def repeat(questions, tools):
    """A toy system that repeats the question as its answer and searches nothing."""
    return [Prediction(one, tools.name, (Round("", (), one.question),)) for one in questions]


def test_a_further_system_is_one_entry(config, resources, questions, monkeypatch):
    monkeypatch.setitem(SYSTEMS, "parrot", System("parrot", repeat, colour="#123456"))
    predictions = evaluate.run(config.change(systems=("parrot", "RAG")), resources, questions)
    assert [p.answer for p in predictions[:4]] == [q.question for q in questions]
    assert {p.backbone for p in predictions} == {"smollm2-135m"}
    long = tables.accuracy_table(to_frame(predictions), "table2")
    assert list(long.system.unique()) == ["RAG", "parrot"]  # in the order of the entries
    assert long[long.system == "parrot"].paper.isna().all()
    assert long[(long.system == "parrot") & (long.dataset == "average")].n.tolist() == [4, 3, 3]
    assert list(tables.wide(long).index) == ["RAG", "parrot"]
