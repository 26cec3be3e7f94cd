"""Parameters: names, types, defaults, notebooks that run twice, and recorded configurations."""

import json
import re
from dataclasses import fields

import pytest

from covrag_lite.config import ROOT, Config, ParameterError, World, from_manifest, from_notebook
from covrag_lite.data import load_passages, load_questions
from covrag_lite.runs import recorded


def test_parameters_have_different_names():
    names = []
    for group in fields(Config):
        names += [parameter.name for parameter in fields(getattr(Config(), group.name))]
    assert len(names) == len(set(names))
    assert set(names) == set(Config().flat())


def test_there_are_at_most_sixty_parameters():
    assert len(Config().flat()) <= 60


def test_every_parameter_is_used():
    files = [*(ROOT / "covrag_lite").rglob("*.py"), *(ROOT / "notebooks").glob("*.ipynb")]
    texts = {path: path.read_text() for path in files}
    own_file = ROOT / "covrag_lite" / "config.py"
    texts[own_file] = texts[own_file].partition("class World:")[2]  # without the example
    attributes = set()
    for text in texts.values():
        attributes.update(re.findall(r"\.(\w+)", text))
    assert Config().flat().keys() <= attributes


@pytest.mark.parametrize(
    "names, changes",
    [
        ({"n_questions": 4, "k": 3}, {"n_questions": 4, "k": 3}),
        ({"n_questions": "4"}, {"n_questions": 4}),
        ({"learning_rate": 1}, {"learning_rate": 1.0}),
        ({"learning_rate": "1e-3"}, {"learning_rate": 0.001}),
        ({"datasets": ["nq"]}, {"datasets": ("nq",)}),
        ({"datasets": "nq, webq"}, {"datasets": ("nq", "webq")}),
        ({"systems": "RAG; a, b"}, {"systems": ("RAG", "a, b")}),  # names that contain a comma
        ({"n_world": "4, 40,8"}, {"n_world": (4, 40, 8)}),
        ({"_mine": 5, "pd": object(), "In": [""]}, {}),  # no parameters
    ],
)
def test_parameters_are_read_from_a_notebook(names, changes):
    assert from_notebook(names) == Config().change(**changes)


def test_a_change_reaches_the_group_of_each_parameter():
    changed = Config().change(k=3, sigma="thresholds")
    assert changed.retrieval.k == 3
    assert changed.chain.sigma == "thresholds"


def test_a_change_leaves_other_parameters_as_they_are():
    changed = Config().change(k=3, sigma="thresholds")
    assert changed.change(k=5, sigma="revision") == Config()


@pytest.mark.parametrize(
    "changes, folder",
    [
        ({}, "runs/embedded"),  # the recorded figures stay as they are
        ({"k": 3}, "figures/custom"),
        ({"k": 3, "name": "mine"}, "figures/mine"),
        ({"name": "mine"}, "figures/mine"),
    ],
)
def test_the_folder_of_a_run_depends_on_its_name_and_parameters(changes, folder):
    assert Config().change(**changes).folder() == ROOT / folder


def test_a_trap_that_is_not_named_keeps_its_share():
    config = from_notebook({"traps": "stale 0, vague 0.3"})
    assert config.world.shares == World().shares | {"stale": 0.0, "vague": 0.3}


def test_traps_with_their_default_shares_are_the_default():
    assert Config().change(traps=("vague 0.07",)) == Config()


def test_a_manifest_lists_every_trap():
    assert "stale 0.1" in World(traps=("vague 0.3",)).traps


READ = "config = from_notebook(globals())\npredictions = load(config)"
CELLS = ["k: int = 5", READ, "text = picture.save()", "%who", "k: int = 3", READ]
NAMES = {"k": 3, "predictions": [object()], "text": "saved"}


def test_a_notebook_whose_cells_are_run_again_is_read_again():
    assert from_notebook(NAMES | {"In": CELLS}) == Config().change(k=3)


@pytest.mark.parametrize(
    "cell", ["n_question = 5", "import os\nk = int(3)\nn_question = len(os.sep)"]
)
def test_a_misspelt_parameter_is_found_when_cells_are_run_again(cell):
    names = NAMES | {"n_question": 5, "In": [*CELLS[:-1], cell, READ]}
    with pytest.raises(ParameterError, match="'n_question' is not a parameter"):
        from_notebook(names)


def test_every_plain_value_must_be_a_parameter_when_cells_are_run_first():
    with pytest.raises(ParameterError, match="'text' is not a parameter"):
        from_notebook({"text": "saved", "In": ["text = picture.save()", READ]})


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
def test_a_wrong_value_is_named_with_what_is_allowed(name, value, sentence):
    with pytest.raises(ValueError, match=sentence):
        from_notebook({name: value})


def test_parameters_that_no_longer_exist_are_ignored():
    assert from_manifest({"n_questions": 3, "no_longer": 1}) == Config().change(n_questions=3)


def test_a_configuration_comes_back_from_its_manifest():
    config = Config().change(n_questions=3, traps=("misspelt 0.2",))
    assert from_manifest(json.loads(json.dumps(config.flat()))) == config


@pytest.fixture(scope="module")
def runs():
    """The recorded runs of this project."""
    runs = recorded.find()
    assert len(runs) >= 29
    return runs


def test_every_recorded_run_of_this_project_can_be_read(runs):
    for run in runs:
        parameters = run.config.flat()
        for name in ("k", "seed", "n_passages", "n_questions", "model"):
            assert parameters[name] == run.manifest["parameters"][name]


@pytest.mark.parametrize("changed", ["load_questions", "load_passages"])
def test_a_run_is_not_scored_with_other_data_than_its_own(runs, monkeypatch, changed):
    small = next(run for run in runs if run.folder.name == "embedded" and run.table == "table2")
    load = getattr(recorded, changed)
    monkeypatch.setattr(recorded, changed, lambda settings: load(settings)[1:])
    with pytest.raises(recorded.DataChanged, match=changed.removeprefix("load_")):
        recorded.load(small)


def test_every_recorded_world_is_built_again_with_the_same_words(runs):
    worlds = {}  # by their hashes
    for run in runs:
        if run.config.data.data == "world" and run.table in ("sigma", "table2"):
            worlds[json.dumps(run.manifest["data"])] = run
    assert len(worlds) >= 4
    for run in worlds.values():
        questions = load_questions(run.config)
        passages = load_passages(run.config)
        recorded.check_data(run, questions=questions, passages=passages)


def test_the_defaults_are_those_of_a_recorded_run_that_changed_few_of_them():
    changed = {"data", "n_questions", "systems", "name", "record"}
    file = ROOT / "results" / "own-nq-smollm2-135m-cpu" / "table2.manifest.json"
    used = json.loads(file.read_text())["parameters"]
    defaults = json.loads(json.dumps(Config().flat()))
    assert {name for name in defaults if used[name] != defaults[name]} == changed


def test_no_recorded_run_names_a_folder_of_its_machine():
    for run in recorded.find():
        for value in run.manifest["parameters"].values():
            assert not str(value).startswith(("/", "~")), run.folder
