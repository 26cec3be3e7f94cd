"""The forecast: downloads, memory and time are printed before a replication, errors with a cure."""

import errno
import json
import re
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import datasets
import huggingface_hub
import pandas as pd
import pytest
from huggingface_hub import errors

from covrag_lite.config import ROOT, Model, Training
from covrag_lite.data import hub
from covrag_lite.engine import load_engine, weights
from covrag_lite.engine.fast import memory
from covrag_lite.engine.interface import RowShape
from covrag_lite.replication import __main__ as command
from covrag_lite.replication import forecast, stages
from covrag_lite.replication.plan import load_plans

# As published, from memory; the hub's pages could not be checked.
PARAMETERS = {
    "llama-2-7b-hf": 6_738_415_616,
    "llama-2-13b-hf": 13_015_864_320,
    "vicuna-7b-v1.5": 6_738_415_616,
    "vicuna-13b-v1.5": 13_015_864_320,
    "qwen2.5-7b-instruct": 7_615_616_512,
    "llama-3.1-8b-instruct": 8_030_261_248,
    "mistral-7b-instruct-v0.3": 7_248_023_552,
}


def run_command(capsys, *words):
    """What the command prints, and its error message if it fails."""
    try:
        command.main(words)
        return capsys.readouterr().out, ""
    except SystemExit as error:
        return capsys.readouterr().out, str(error.code)


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_shape_of_a_known_backbone_has_as_many_weights_as_are_published(name):
    (plan, *_) = load_plans(name, {})
    network = forecast.sketch(plan, "cuda")
    assert sum(p.numel() for p in network.parameters()) == PARAMETERS[name]
    assert forecast.foresee_memory(plan, network, "cuda", 12e9).startswith(
        "memory: training will need"
    )


def test_a_backbone_has_the_same_plan_by_its_name_and_by_its_id():
    by_name = load_plans("llama-2-7b-hf", {})[0]
    assert load_plans("meta-llama/Llama-2-7b-hf", {})[0] == by_name


def test_any_other_id_takes_the_defaults():
    plan = load_plans("Someone/Other-7B@v2", {})[0]
    assert plan.backbone == "other-7b"
    assert plan.config.model.model == "Someone/Other-7B@v2"
    assert not plan.card
    assert plan.config.data.data == "hub"
    assert plan.config.data.corpus in hub.load_corpora()


def test_a_folder_keeps_its_own_corpus():
    assert load_plans("smollm2-135m", {"data": "folder"})[0].config.data.corpus == ""


@pytest.fixture(scope="module")
def networks():
    """The networks of Llama 2 without weights, by size."""
    plans = {size: load_plans(f"llama-2-{size}-hf", {})[0] for size in ("7b", "13b")}
    return {size: forecast.sketch(plan, "cuda") for size, plan in plans.items()}


@pytest.fixture(scope="module")
def measured(networks):
    """Recorded trainings of these networks."""
    rows = json.loads((ROOT / "results/speed-h200/holding.json").read_text())["rows"]
    return [row for row in rows if row["backbone"] in networks]


@pytest.mark.parametrize(
    "column, way, activations, n_measured",
    [("row", "training", "recompute", 5), ("away_row", "away", "offload", 4)],
)
def test_memory_foreseen_without_weights_is_within_a_tenth_of_what_was_measured(
    networks, measured, column, way, activations, n_measured
):
    training = Training(activations=activations)
    rows = [row for row in measured if row[column] != "not measured"]
    assert len(rows) == n_measured
    for row in rows:
        shape = RowShape(row[column], 0, row[column] // forecast.TARGETS, 1024)
        foreseen = memory.training_bytes(networks[row["backbone"]], training, shape)
        assert foreseen / 1e9 == pytest.approx(row[f"{way}_peak_gb"], rel=0.1), row


def test_each_adapter_weight_is_offloaded_with_two_moments(networks):
    network = networks["7b"]
    shape = RowShape(2048, 0, 100, 1024)
    offload = Training(activations="offload")
    layers = network.config.num_hidden_layers * memory.layer_bytes(network, 2048, "offload")
    of_optimizer = memory.offloaded_bytes(network, offload, shape) - layers
    assert of_optimizer == 3 * 4 * memory.count_adapter_weights(network, offload)


@pytest.fixture
def dry_run(capsys, tmp_path):
    """What a dry run of Llama 2 7B on a card of 12 GB prints."""
    runs = tmp_path / "runs"
    words = ["meta-llama/Llama-2-7b-hf", "--dry-run", "--gpu-gb", "12", "-p", "runs", str(runs)]
    out, failure = run_command(capsys, *words)
    assert not failure
    return out


def test_a_dry_run_writes_nothing(dry_run, tmp_path):
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_lists_the_shared_data_once_and_the_training_of_each_seed(dry_run):
    assert dry_run.count(" data to do ") == 1
    assert dry_run.count(" cov to do ") == 3


@pytest.mark.parametrize(
    "sentence",
    [
        "hours: 7.1 at the rates measured on an NVIDIA H200",
        "or 5 kWh at its 700 W",
        "in 12 GB its texts may take 5.8 times as long",
        "training will need about 6.2 GB, and the card has 12.0 GB",
        "gated: accept the licence on the hub, then run `hf auth login`",
        "meta-llama/Llama-2-7b-hf 13.5 GB",
        "nq-wikipedia, 2,681,468 passages: CC BY-SA",
    ],
)
def test_a_dry_run_states_hours_memory_licences_and_downloads(dry_run, sentence):
    assert sentence in dry_run


def test_a_dry_run_lists_finished_stages_as_done(capsys, tmp_path):
    result = tmp_path / "runs/llama-2-7b-hf/seed-1/train.rag.json"
    result.parent.mkdir(parents=True)
    result.write_text("")
    place = ("-p", "runs", str(tmp_path / "runs"))
    words = ("meta-llama/Llama-2-7b-hf", "--dry-run", "--gpu-gb", "12", *place)
    assert "1        rag  done   0.00" in run_command(capsys, *words)[0]


@pytest.fixture
def gguf(capsys, tmp_path):
    """A dry run with a small GGUF file in place of Llama 2 7B: the file, and what is printed."""
    file = weights.find_model("smollm2-135m")
    changes = ("-p", "model", str(file), "-p", "runs", str(tmp_path / "runs"))
    words = ("llama-2-7b-hf", "--dry-run", "--gpu-gb", "12", *changes)
    out, failure = run_command(capsys, *words)
    assert not failure
    return file, out


def test_a_dry_run_reads_the_size_of_a_gguf_file(gguf):
    _, out = gguf
    assert "memory: training will need about 0.8 GB" in out  # Llama 2 7B: 6.2
    assert "hours: 0.1 at the rates measured" in out


def test_a_gguf_file_is_not_downloaded(gguf):
    file, out = gguf
    assert "licence of meta-llama" not in out
    assert "download: questions" in out
    assert str(file) not in out.partition("download: ")[2]


def test_a_dry_run_names_a_missing_gguf_file(capsys, tmp_path):
    missing = tmp_path / "none.gguf"
    words = ("smollm2-135m-world", "-p", "model", str(missing), "--dry-run")
    _, failure = run_command(capsys, *words, "-p", "runs", str(tmp_path / "runs"))
    assert f"there is no GGUF file {missing}" in failure


def test_a_dry_run_of_a_plain_model_leaves_out_its_size(capsys, tmp_path):
    words = ("smollm2-135m-world", "-p", "model", "plain:smollm2-135m", "--dry-run")
    out, failure = run_command(capsys, *words, "-p", "runs", str(tmp_path / "runs"))
    assert not failure
    assert "download: nothing" in out
    assert "memory:" not in out


@pytest.fixture
def large(monkeypatch, tmp_path):
    """The words of a command for a 7B that keeps its activations."""
    monkeypatch.setattr(stages, "replicate", lambda *_: pytest.fail("a stage began"))
    monkeypatch.setattr(memory, "free_memory", lambda device: 64e9)  # of the CPU
    place = ("-p", "runs", str(tmp_path), "-p", "activations", "keep")
    return ("qwen2.5-7b-instruct", "--seeds", "1", *place)


@pytest.mark.parametrize("more", [("--dry-run",), ()])
def test_what_does_not_fit_a_card_ends_before_any_stage_with_the_setting_that_fits(
    capsys, large, more
):
    _, failure = run_command(capsys, *large, "--gpu-gb", "24", *more)
    needs = "does not fit: training needs about 33.4 GB, but 24.0 GB are available; set ac"
    assert needs in failure


def test_a_larger_card_is_accepted(capsys, large):
    assert not run_command(capsys, *large, "--gpu-gb", "40", "--dry-run")[1]


def test_a_small_disk_is_refused(capsys, large, monkeypatch):
    monkeypatch.setattr(forecast.shutil, "disk_usage", lambda place: SimpleNamespace(free=20e9))
    _, failure = run_command(capsys, *large, "--dry-run", "--gpu-gb", "40")
    assert "GB of disk needed, 20.0 GB free in " in failure


def test_a_forecast_keeps_refusals_apart_from_sentences(large):
    plan = load_plans(large[0], {"activations": "keep"}, (1,))[0]
    expected = forecast.foresee(plan, [forecast.State(1, "rag", False)], 24)
    (refusal,) = expected.refusals
    assert refusal.startswith("training needs about 33.4 GB")
    assert refusal not in str(expected)


@pytest.fixture(scope="module")
def rates():
    return forecast.tomllib.loads(forecast.SETTINGS.read_text())["rates"]


@pytest.fixture(scope="module")
def claim():
    """The manifest of a recorded comparison of systems."""
    path = ROOT / "results/real/qwen2.5-coder-1.5b/seed-1/claim.manifest.json"
    return json.loads(path.read_text())


def test_the_texts_per_question_are_those_of_the_recorded_claim(rates, claim):
    # Since then: a verdict; for two thirds an answer and its verdict; two guesses and an answer.
    since_then = 1 + 2 * 0.676 + 3
    per_question = claim["used"]["requests"] / claim["data"]["questions"]["n"]
    assert rates["texts"]["claim"] == pytest.approx(per_question + since_then, abs=0.1)


def test_the_texts_per_second_are_those_of_the_recorded_claim(rates, claim):
    per_second = claim["used"]["requests"] / claim["wall_seconds"]
    assert rates["measured"][1][2] == round(per_second)


def test_the_slowdown_of_smaller_cards_is_that_of_the_recorded_cards(rates):
    # Of a 7B, Table 2 on 200 questions.
    seconds = 200 * rates["texts"]["table2"] / rates["measured"][2][2]
    rows = json.loads((ROOT / "results/cards-h200/cards.json").read_text())["rows"]
    held = {row["card_gb"]: row["seconds"] / seconds for row in rows if row["stage"] == "table2"}
    assert dict(rates["held"]) == pytest.approx(held, abs=0.06)


def refuse(kind):
    """An error as the hub's client raises it."""
    if kind is OSError:
        return OSError(errno.ENOSPC, "No space left on device")
    return kind.__new__(kind) if issubclass(kind, errors.HfHubHTTPError) else kind("cut off")


OFFLINE = "there is no network connection: try again (finished files are kept"
FULL = "the disk is full: free some space, or set HF_HOME to another disk; finished files are kept"
ANSWERS = {
    errors.GatedRepoError: "it is gated: accept the licence on the hub, then run `hf auth login`",
    errors.RevisionNotFoundError: "it has no such revision: give one that its page lists, or none",
    errors.LocalEntryNotFoundError: OFFLINE,
    ConnectionResetError: OFFLINE,
    OSError: FULL,
}


every_refusal = pytest.mark.parametrize("kind", ANSWERS)


@pytest.fixture
def refused_model(kind, capsys, monkeypatch):
    """How the command ends if the hub refuses the model."""
    monkeypatch.setattr(huggingface_hub, "snapshot_download", Mock(side_effect=refuse(kind)))
    nothing = forecast.Forecast(pd.DataFrame(), [], [])
    monkeypatch.setattr(forecast, "foresee", lambda *_: nothing)
    monkeypatch.setattr(stages, "replicate", lambda *_: pytest.fail("a stage began"))
    return run_command(capsys, "meta-llama/Llama-2-7b-hf@gone")[1]


def cause_of(kind):
    """The first words about a refusal."""
    return re.split("[:,]", ANSWERS[kind])[0]


@every_refusal
def test_a_model_that_the_hub_refuses_is_an_error_with_its_cure(kind, refused_model):
    assert ANSWERS[kind] in refused_model


@every_refusal
def test_a_model_that_the_hub_refuses_is_an_error_of_one_line(kind, refused_model):
    assert "\n" not in refused_model


@every_refusal
def test_a_corpus_that_the_hub_refuses_is_an_error_with_its_cause(kind, monkeypatch):
    monkeypatch.setattr(huggingface_hub, "snapshot_download", Mock(side_effect=refuse(kind)))
    sentence = f"'BeIR/nq' cannot be (read|reached): {cause_of(kind)}"
    with pytest.raises((ValueError, OSError), match=sentence):
        hub.open_corpus.__wrapped__("nq-wikipedia")


@every_refusal
def test_a_set_that_cannot_be_unpacked_is_an_error_with_its_cause(kind, monkeypatch, tmp_path):
    error = datasets.exceptions.DatasetGenerationError("An error occurred")
    error.__cause__ = refuse(kind)
    monkeypatch.setattr(datasets, "load_dataset", Mock(side_effect=error))
    with pytest.raises((ValueError, OSError), match=cause_of(kind)):
        hub.fetch(hub.Entry(str(tmp_path)))


@pytest.fixture
def download(monkeypatch, tiny_folder):
    """How the files of a model with a revision are downloaded."""
    options = {}

    def snapshot_download(*words, **named):
        options.update(named)
        return str(tiny_folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    load_engine(Model("someone/Tiny@refs/pr/3"))
    return options


def test_the_revision_behind_an_id_is_downloaded(download):
    assert download["revision"] == "refs/pr/3"


def test_no_second_copy_of_the_weights_is_downloaded(download):
    assert "consolidated*" in download["ignore_patterns"]


def test_the_short_name_of_a_model_is_without_its_revision():
    assert replace(Model(), model="someone/Tiny@refs/pr/3").short == "Tiny"


def test_the_shape_of_a_local_folder_is_read_there(tiny_folder):
    assert weights.find_shape(str(tiny_folder)) == tiny_folder
