"""Which recorded run is shown for a configuration, and what of two runs differs."""

from dataclasses import replace

import pytest
from toy_project import find

from covrag_lite.runs.compare import changed
from covrag_lite.runs.recorded import choose, describe_run


@pytest.fixture(scope="module")
def run(project):
    return find(project, "table2")


def with_parameters(manifest, **parameters):
    return manifest | {"parameters": manifest["parameters"] | parameters}


def test_a_manifest_has_the_size_of_its_data(run):
    sizes = {name: part["n"] for name, part in run.manifest["data"].items()}
    assert sizes == {"questions": 8, "passages": 1000}


def test_a_manifest_has_code_machine_and_cost(run):
    names = {"commit", "versions", "hardware", "wall_seconds", "peak_memory_gb"}
    assert names <= set(run.manifest)


def test_a_manifest_has_parameters_and_the_hash_of_the_weights(run):
    assert run.manifest["parameters"]["seed"] == 1
    assert run.manifest["model_sha256"] == "scripted"


def test_a_retriever_without_an_encoder_has_no_hash_of_one(run):
    assert "encoder_sha256" not in run.manifest


def with_adapters(run, **hashes):
    return run.manifest | {"adapters": hashes}


def test_an_adapter_is_compared_by_its_weights(run):
    new = with_adapters(run, cov="aa")
    assert changed(new, with_adapters(run, cov="bb", rag="cc")) == ["the adapter cov"]


def test_an_adapter_is_not_compared_by_its_folder(run):
    moved = with_parameters(with_adapters(run, cov="aa"), adapters="elsewhere")
    assert changed(moved, with_adapters(run, cov="aa", rag="cc")) == []


def test_a_run_without_adapters_differs_from_one_with_some(run):
    assert changed(with_adapters(run, cov="aa"), with_adapters(run)) == ["having adapters"]


def test_a_description_names_weights_and_layout(run):
    other = replace(run, manifest=with_parameters(run.manifest, quantize="int8", layout="paper"))
    assert "toy: smollm2-135m (int8, paper layout) on " in describe_run(other)


def test_the_run_of_the_same_configuration_is_chosen(project, run):
    assert choose(run.config, project).folder == project / "results" / "toy"


def test_a_run_is_chosen_for_some_of_its_questions_and_systems(project, run):
    part = run.config.change(n_questions=1, systems=("RAG",), device="cpu")
    assert choose(part, project) is not None


@pytest.mark.parametrize(
    "parameters",
    [{"model": "other"}, {"seed": 2}, {"k": 3}, {"quantize": "none"}, {"data": "elsewhere"}],
    ids=str,
)
def test_no_run_is_chosen_for_another_configuration(project, run, parameters):
    assert choose(run.config.change(**parameters), project) is None


def test_a_named_run_is_chosen_whatever_the_configuration(project, run):
    named = run.config.change(model="other", record="toy")
    assert choose(named, project).table == "table2"


def test_with_record_none_no_run_is_chosen(project, run):
    assert choose(run.config.change(record="none"), project) is None


def test_an_unknown_run_is_refused_with_the_known_ones(project, run):
    message = "record is 'toys', but must be 'auto', 'none' or one of toy"
    with pytest.raises(ValueError, match=message):
        choose(run.config.change(record="toys"), project)
