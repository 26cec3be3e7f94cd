"""Which recorded run is shown for a configuration."""

import pytest
from toy_project import find

from covrag_lite.runs.choice import choose, tell


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


def test_what_is_shown_is_told_with_its_size_and_machine(project, asked):
    assert tell(choose(asked, project), project).startswith("results/toy: smollm2-135m on 8 questions of the embedded")
    assert "no recorded run" in tell(None)
