from dataclasses import fields

import pytest

from covrag_lite.config import Config, from_notebook


def test_no_two_concerns_share_a_parameter_name():
    names = [f.name for concern in fields(Config) for f in fields(concern.type)]
    assert len(names) == len(set(names)) == len(Config().flat())


def test_parameters_reach_their_concern():
    config = from_notebook(
        {"n_questions": 4, "k": 3, "misspelt": 1, "datasets": ["nq"], "_mine": 5, "pd": object(), "In": [1]}
    )
    assert (config.data.n_questions, config.retrieval.k, config.world.misspelt, config.data.datasets) == (
        4,
        3,
        1.0,
        ("nq",),
    )
    assert from_notebook({"datasets": "nq, webq"}).data.datasets == ("nq", "webq")


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
    ],
)
def test_a_wrongly_typed_parameter_is_named_with_what_it_must_be(name, value, wanted):
    with pytest.raises(ValueError, match=f"'{name}' is .*{wanted}"):
        from_notebook({name: value})


def test_only_the_default_parameters_write_to_figures_embedded():
    assert Config().folder().name == "embedded"
    assert from_notebook({"n_questions": 4}).folder().name == "custom"
    assert from_notebook({"n_questions": 4, "name": "mine"}).folder().name == "mine"


def test_what_is_not_the_default_is_printed():
    assert str(from_notebook({"n_questions": 4})).startswith(
        "n_questions = 4   (default 6)\n"
    ) and "n_questions" not in str(Config())
