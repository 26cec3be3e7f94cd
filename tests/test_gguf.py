"""A GGUF file as a model and as the backbone of a replication."""

import pytest
import toy_project
from conftest import PROMPTS, load_tiny
from test_forecast import run_command
from test_replication import SHORT, SMALL, WORLD, Knowing
from tiny_gguf import write_gguf

from covrag_lite import prompts
from covrag_lite.engine import weights
from covrag_lite.replication import forecast
from covrag_lite.replication.plan import load_plans
from covrag_lite.training import recipe

NUMBERS = "In 1893 it scored 0.95."


@pytest.fixture(scope="module")
def file(tiny_folder, tmp_path_factory):
    return write_gguf(tiny_folder, tmp_path_factory.mktemp("gguf") / "Tiny-Llama.gguf")


@pytest.fixture(autouse=True)
def converted(tmp_path, monkeypatch):
    """The folder of converted files, which is the test's own."""
    monkeypatch.setattr(weights, "CACHE", tmp_path / "converted")
    return tmp_path / "converted"


def test_a_gguf_file_is_tokenised_as_the_folder_it_was_made_from(file, tiny_folder):
    of_file, of_folder = (load_tiny(path, adapters="none") for path in (file, tiny_folder))
    assert of_file.prompt_ids(NUMBERS) == of_folder.prompt_ids(NUMBERS)


def test_a_gguf_file_answers_as_the_folder_it_was_made_from(file, tiny_folder):
    of_file, of_folder = (load_tiny(path, adapters="none") for path in (file, tiny_folder))
    assert of_file.complete(PROMPTS[:3], 6) == of_folder.complete(PROMPTS[:3], 6)


def test_a_gguf_file_verifies_as_the_folder_it_was_made_from(file, tiny_folder):
    of_file, of_folder = (load_tiny(path, adapters="none") for path in (file, tiny_folder))
    verdicts = [engine.fill(PROMPTS[:1], prompts.SCHEMA, 4) for engine in (of_file, of_folder)]
    assert verdicts[0] == verdicts[1]


@pytest.fixture
def words(tmp_path):
    """Words of the command for a small replication on the fictional world."""
    parameters = WORLD | SMALL | SHORT
    parameters |= {"data": "world", "device": "cpu", "runs": tmp_path / "runs"}
    parameters |= {"train_sets": "all", "test_sets": "search,entity"}
    parameters |= {"claim_sets": "search,entity", "claim": "RAG trained,CoV-RAG"}
    parameters["n_world"] = "8,20,8"
    words = []
    for name, value in parameters.items():
        words += ["-p", name, str(value)]
    return words


def test_a_dry_run_estimates_the_memory_of_a_gguf_file_on_the_world(capsys, file, words):
    out, failed = run_command(capsys, str(file), "--dry-run", *words)
    assert not failed
    assert "memory: training will need about 0.1 GB" in out


def test_a_gguf_file_is_a_backbone_from_the_data_to_the_table(
    capsys, file, words, tmp_path, monkeypatch
):
    load = recipe.load_trained

    def load_knowing(config, adapter):
        author = load(config, adapter)
        return Knowing(author.settings, author.model, author.journal)

    monkeypatch.setattr(recipe, "load_trained", load_knowing)
    toy_project.undraw(monkeypatch)
    stages = ("--stages", "data,rag,cov,claim", "--seeds", "1")
    _, failed = run_command(capsys, str(file), *stages, *words)
    assert not failed
    results = tmp_path / "runs" / "tiny-llama"
    assert (results / "seed-1" / "claim.md").exists()
    assert (results / "claim.md").exists()


def test_a_named_backbone_with_another_model_is_estimated_by_that_models_shape():
    (plan, *_) = load_plans("llama-2-7b-hf", {"model": "meta-llama/Llama-2-13b-hf"})
    network = forecast.sketch(plan, "cuda")
    assert sum(weight.numel() for weight in network.parameters()) == 13_015_864_320


def test_a_named_backbone_with_an_unknown_model_has_no_shape_or_licence_of_its_own():
    (plan, *_) = load_plans("llama-2-7b-hf", {"model": "someone/another"})
    assert plan.card == {}
