from dataclasses import fields

import pytest

from covrag_lite.config import ROOT, Config, from_manifest, from_notebook
from covrag_lite.runs import recorded


def test_no_two_concerns_share_a_parameter_name():
    names = [f.name for concern in fields(Config) for f in fields(concern.type)]
    assert len(names) == len(set(names)) == len(Config().flat())


def test_parameters_reach_their_concern():
    given = {"n_questions": 4, "k": 3, "misspelt": 1, "datasets": ["nq"], "_mine": 5, "pd": object(), "In": [1]}
    config = from_notebook(given)
    assert (config.data.n_questions, config.retrieval.k) == (4, 3)
    assert (config.world.misspelt, config.data.datasets) == (1.0, ("nq",))
    assert from_notebook({"datasets": "nq, webq"}).data.datasets == ("nq", "webq")


def test_a_change_touches_what_it_names_alone():
    changed = Config().change(k=3, sigma="thresholds")
    assert (changed.retrieval.k, changed.chain.sigma) == (3, "thresholds")
    assert changed.change(k=5, sigma="revision") == Config()
    with pytest.raises(KeyError, match="n_question"):
        Config().change(n_question=4)


def test_a_misspelt_parameter_is_named_with_the_nearest_one():
    with pytest.raises(ValueError, match="'n_question' is not a parameter; did you mean 'n_questions'?"):
        from_notebook({"n_question": 4})


@pytest.mark.parametrize(
    "name, value, wanted",
    [
        ("n_questions", "four", "a whole number"),
        ("n_questions", 4.5, "a whole number"),
        ("n_questions", True, "a whole number"),
        ("model", 135, "text"),
        ("misspelt", "much", "a number"),
        ("datasets", [], "names"),
        ("datasets", [1], "names"),
        ("k", None, "whole"),
        ("n_world", "four,5,6", "a list of whole numbers"),
    ],
)
def test_a_wrongly_typed_parameter_is_named_with_what_it_must_be(name, value, wanted):
    with pytest.raises(ValueError, match=f"'{name}' is .*{wanted}"):
        from_notebook({name: value})


def test_only_the_default_parameters_write_to_figures_embedded():
    assert Config().folder().name == "embedded"
    assert from_notebook({"n_questions": 4}).folder().name == "custom"
    assert from_notebook({"n_questions": 4, "name": "mine"}).folder().name == "mine"


def test_a_runs_journal_lies_in_its_own_folder(tmp_path):
    assert Config().change(runs=str(tmp_path), name="mine").journal() == tmp_path / "mine" / "journal.jsonl"
    assert Config().journal() == ROOT / "runs" / "embedded" / "journal.jsonl"


def test_what_is_not_the_default_is_printed():
    assert str(from_notebook({"n_questions": 4})).startswith("n_questions = 4   (default 2)\n")
    assert "n_questions" not in str(Config())


def test_parameters_that_have_gone_since_are_left_out():
    assert from_manifest({"n_questions": 3, "gone_since": 1}) == Config().change(n_questions=3)


def test_sets_of_a_folder_keep_the_papers_names():
    manifest = {"data": "mine", "datasets": ["nq", "webq"], "retrieval_datasets": ["nq"]}
    read = from_manifest(manifest)
    assert read.data.datasets == ("nq", "webq")
    assert read.retrieval.retrieval_datasets == ("nq",)


def test_every_recorded_run_of_this_project_can_be_read():
    runs = recorded.find()
    assert runs
    for run in runs:
        parameters = run.manifest["parameters"]
        kept = {name: parameters[name] for name in ("k", "seed", "n_test", "n_questions", "model")}
        assert kept.items() <= run.config.flat().items()
