"""Which recorded run is shown for a configuration, and a new table beside it, cell by cell."""

from dataclasses import replace

import pandas as pd
import pytest
from toy_project import find

from covrag_lite.runs import recorded
from covrag_lite.runs.choice import choose
from covrag_lite.runs.outcomes import to_frame
from covrag_lite.tables import accuracy
from covrag_lite.tables.reproduction import changed, reproduction


@pytest.fixture
def run(project):
    return find(project, "table2")


@pytest.fixture
def long(run):
    return accuracy.accuracy_table(to_frame(recorded.load(run)), "table2")


def with_parameters(manifest, **parameters):
    return manifest | {"parameters": manifest["parameters"] | parameters}


def test_a_new_table_is_held_against_the_recorded_one_of_its_configuration(project, run, long):
    assert set(reproduction(long, run.manifest, project).verdict) == {"OK"}
    near = long.assign(value=long.value + 0.1)
    assert set(reproduction(near, run.manifest, project).verdict) == {"within noise"}
    far = long.assign(value=long.value + 90, low=long.low + 90, high=long.high + 90)
    assert "DIFFERS" in set(reproduction(far, run.manifest, project).verdict)


def test_of_another_configuration_the_nearest_record_is_named(project, run, long, capsys):
    assert reproduction(long, with_parameters(run.manifest, k=3), project) is None
    assert "nearest, results/toy/table2.csv, differs in k (3, recorded 5)" in capsys.readouterr().out


@pytest.mark.parametrize(
    "table, cells, value, values_a_row",
    [
        ("table3", {"judge": "endpoint:toy"}, "value", 1),
        ("table6", {"retriever": "bm25", "measure": "answer"}, "last", 3),
    ],
)
def test_tables_of_other_columns_are_held_against_the_recorded_ones_too(project, table, cells, value, values_a_row):
    run = find(project, table)
    long = pd.read_csv(run.file("csv"))
    made = reproduction(long, run.manifest, project)
    assert set(made.verdict) == {"OK"}
    assert len(made) == values_a_row * long.n.notna().sum()
    chosen = (long[list(cells)] == list(cells.values())).all(axis=1) & long.n.notna()
    moved = [name for name in long if name in (value, "low", "high", f"{value}_low", f"{value}_high")]
    long.loc[chosen, moved] += 99
    made = reproduction(long, run.manifest, project)
    differing = made[made.verdict == "DIFFERS"]
    assert len(differing) == chosen.sum() > 0
    assert all(set(differing[name]) == {wanted} for name, wanted in cells.items())


def test_an_adapter_is_told_by_its_weights_and_not_by_its_folder(run):
    here = run.manifest | {"adapters": {"cov": "aa"}}
    assert changed(here, run.manifest | {"adapters": {"cov": "bb", "rag": "cc"}}) == ["the adapter cov"]
    moved = with_parameters(here, adapters="elsewhere")
    assert changed(moved, run.manifest | {"adapters": {"cov": "aa", "rag": "cc"}}) == []
    unknown = {name: value for name, value in run.manifest.items() if name != "adapters"}
    assert changed(here, unknown) == []  # not known: said in words
    assert changed(here, run.manifest | {"adapters": {}}) == ["having adapters"]


def test_a_backbone_is_told_by_its_weights_and_its_layout(run):
    names = {}
    for parameters in ({}, {"quantize": "int8"}, {"quantize": "none"}, {"layout": "shared"}):
        other = replace(run, manifest=with_parameters(run.manifest, **parameters))
        names[recorded.backbone(other)] = parameters
    assert list(names) == [
        "smollm2-135m",
        "smollm2-135m, int8",
        "smollm2-135m, unquantised",
        "smollm2-135m, shared layout",
    ]


@pytest.fixture
def asked(project):
    return find(project, "table2").config


def test_the_run_of_the_same_model_and_data_is_found_however_many_questions_are_asked(project, asked):
    assert choose(asked, project).folder == project / "results" / "toy"
    assert choose(asked.change(n_questions=1, systems=("RAG",), device="cpu"), project) is not None
    for other in ({"model": "other"}, {"seed": 2}, {"k": 3}, {"quantize": "none"}, {"data": "elsewhere"}):
        assert choose(asked.change(**other), project) is None


def test_a_run_can_be_named_and_none_can_be_wanted(project, asked):
    assert choose(asked.change(model="other", record="toy"), project).table == "table2"
    assert choose(asked.change(record="none"), project) is None
    with pytest.raises(ValueError, match="record is 'toys', but must be 'auto', 'none' or one of toy"):
        choose(asked.change(record="toys"), project)
