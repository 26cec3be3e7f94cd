"""Parameters: names, types, defaults, notebooks that run twice, and recorded configurations."""

import json
import re
from dataclasses import fields

import pytest

from covrag_lite.config import ROOT, Config, ParameterError, World, from_manifest, from_notebook
from covrag_lite.data import load_passages, load_questions
from covrag_lite.runs import recorded


def test_there_are_at_most_sixty_parameters_of_different_names_and_every_one_is_used():
    names = [f.name for concern in fields(Config) for f in fields(concern.type)]
    assert len(names) == len(set(names)) == len(Config().flat()) <= 60
    files = [*(ROOT / "covrag_lite").rglob("*.py"), *(ROOT / "notebooks").glob("*.ipynb")]
    texts = {path: path.read_text() for path in files}
    own = ROOT / "covrag_lite" / "config.py"
    texts[own] = texts[own].partition("class Config:")[2]  # `folder` uses some of them, their definitions none
    assert Config().flat().keys() <= {word for text in texts.values() for word in re.findall(r"\.(\w+)", text)}


def test_parameters_reach_their_concern_and_a_change_touches_what_it_names_alone():
    given = {"n_questions": 4, "k": 3, "learning_rate": 1, "datasets": ["nq"], "_mine": 5, "pd": object(), "In": [""]}
    assert from_notebook(given) == Config().change(n_questions=4, k=3, learning_rate=1.0, datasets=("nq",))
    assert from_notebook({"datasets": "nq, webq"}).data.datasets == ("nq", "webq")
    # For names that contain a comma.
    assert from_notebook({"systems": "RAG; a, b"}).chain.systems == ("RAG", "a, b")
    assert from_notebook({"n_world": "4, 40,8"}).world.n_world == (4, 40, 8)
    changed = Config().change(k=3, sigma="thresholds")
    assert (changed.retrieval.k, changed.chain.sigma) == (3, "thresholds")
    assert changed.change(k=5, sigma="revision") == Config()
    # Only the default parameters write to figures/embedded.
    assert Config().folder().name == "embedded" and changed.folder().name == "custom"
    assert changed.change(name="mine").folder().name == "mine"
    config = from_notebook({"traps": "stale 0, vague 0.3"})  # a share that is not named keeps its default
    assert config.world.shares == World().shares | {"stale": 0.0, "vague": 0.3}
    assert config.change(traps=("vague 0.07",)) == Config()
    assert "stale 0.1" in World(traps=("vague 0.3",)).traps  # every share is in the manifest


def test_a_notebook_whose_cells_are_run_again_is_read_again_and_a_slip_still_found():
    read = "config = from_notebook(globals())\npredictions = load(config)"
    cells = ["k: int = 5", read, "text = picture.save()", "%who", "k: int = 3", read]
    names = {"k": 3, "predictions": [object()], "text": "saved"}
    assert from_notebook(names | {"In": cells}) == Config().change(k=3)
    for slip in ("n_question = 5", "import os\nk = int(3)\nn_question = len(os.sep)"):
        with pytest.raises(ParameterError, match="'n_question' is not a parameter"):
            from_notebook(names | {"n_question": 5, "In": [*cells[:-1], slip, read]})
    with pytest.raises(ParameterError, match="'text' is not a parameter"):  # when they are first read all is checked
        from_notebook({"text": "saved", "In": ["text = picture.save()", read]})


@pytest.mark.parametrize(
    "name, value, sentence",
    [
        ("n_question", 4, r"'n_question' is not a parameter; did you mean 'n_questions', '\w+' or"),
        ("n_questions", "four", "'n_questions' is .*a whole number"),
        ("n_questions", True, "'n_questions' is .*a whole number"),
        ("model", 135, "'model' is .*text"),
        ("learning_rate", "high", "'learning_rate' is .*a number"),
        ("datasets", [1], "'datasets' is .*names"),
        ("n_world", [True, 5, 6], "'n_world' is .*a list of whole numbers"),
        ("traps", "mispelt 0.3", "'mispelt 0.3' in parameter 'traps' .* one of misspelt, cut_off"),
        ("traps", ["stale much"], "'stale much' in parameter 'traps' .* its share from 0 to 1"),
    ],
)
def test_a_parameter_that_cannot_be_is_named_with_what_it_must_be(name, value, sentence):
    with pytest.raises(ValueError, match=sentence):
        from_notebook({name: value})


def test_parameters_and_traps_that_have_gone_since_are_passed_over():
    recorded = {"n_questions": 3, "gone_since": 1, "traps": ["misspelt 0.2", "unanswerable 0.0"]}
    now = Config().change(n_questions=3, traps=("misspelt 0.2",))
    assert from_manifest(recorded) == from_manifest(json.loads(json.dumps(now.flat()))) == now


def test_every_recorded_run_of_this_project_can_be_read_and_a_world_is_made_anew_with_the_same_words():
    runs = recorded.find()
    assert len(runs) >= 29
    for run in runs:
        parameters = run.manifest["parameters"]
        kept = {name: parameters[name] for name in ("k", "seed", "n_passages", "n_questions", "model")}
        assert kept.items() <= run.config.flat().items()

    worlds = [run for run in runs if run.config.data.data == "world" and run.table in ("sigma", "table2")]
    once = {json.dumps(run.manifest["data"]): run for run in worlds}
    assert len(once) >= 4
    for run in once.values():
        recorded.check_data(run, questions=load_questions(run.config), passages=load_passages(run.config))
