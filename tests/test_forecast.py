"""The forecast: downloads, memory and time are printed before a replication, errors with a cure."""

import errno
import json
import re
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import datasets
import huggingface_hub
import pytest
from huggingface_hub import errors

from covrag_lite import forecast, replication
from covrag_lite.config import ROOT, Model, Training
from covrag_lite.data import hub
from covrag_lite.engine import memory, weights
from covrag_lite.engine.interface import Shape, load_engine
from covrag_lite.plan import load_plans

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


def tell(capsys, *words):
    """What the command prints, and its error message if it fails."""
    try:
        replication.main(words)
        return capsys.readouterr().out, ""
    except SystemExit as error:
        return capsys.readouterr().out, str(error.code)


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_shape_of_a_known_backbone_has_as_many_weights_as_are_published(name):
    (plan, *_) = load_plans(name, {})
    network = forecast.sketch(plan, "cuda")
    assert sum(p.numel() for p in network.parameters()) == PARAMETERS[name]
    assert forecast.foresee_memory(plan, network, "cuda", 12e9).startswith("memory: training will need")


def test_a_backbone_is_found_by_its_name_or_its_id_and_any_other_id_takes_the_defaults():
    by_name, by_id = (load_plans(name, {})[0] for name in ("llama-2-7b-hf", "meta-llama/Llama-2-7b-hf"))
    assert by_name == by_id
    other = load_plans("Someone/Other-7B@v2", {})[0]
    assert other.backbone == "other-7b" and other.config.model.model == "Someone/Other-7B@v2" and not other.card
    assert other.config.data.data == "hub" and other.config.data.corpus in hub.load_corpora()
    assert load_plans("smollm2-135m", {"data": "folder"})[0].config.data.corpus == ""  # a folder has its own


def test_memory_foreseen_without_weights_is_within_a_tenth_of_what_was_measured():
    networks = {size: forecast.sketch(load_plans(f"llama-2-{size}-hf", {})[0], "cuda") for size in ("7b", "13b")}
    rows = json.loads((ROOT / "results/speed-h200/holding.json").read_text())["rows"]
    known = [row for row in rows if row["backbone"] in networks]
    assert len(known) == 4
    for row in known:
        for column, way, activations in (("row", "training", "recompute"), ("away_row", "away", "offload")):
            shape = Shape(row[column], 0, row[column] // forecast.TARGETS, 1024)
            foreseen = memory.estimate(networks[row["backbone"]], Training(activations=activations), shape) / 1e9
            assert foreseen == pytest.approx(row[f"{way}_peak_gb"], rel=0.1), row


def test_a_dry_run_tells_stages_hours_memory_downloads_and_gates_and_writes_nothing(capsys, tmp_path):
    words = ("meta-llama/Llama-2-7b-hf", "--dry-run", "--gpu-gb", "12", "-p", "runs", str(tmp_path / "runs"))
    out, failed = tell(capsys, *words)
    assert not failed and not (tmp_path / "runs").exists()
    assert out.count(" data to do ") == 1 and out.count(" cov to do ") == 3  # the data are the same for all seeds
    assert "hours: 7.1 at the rates measured on an NVIDIA H200" in out and "or 5 kWh at its 700 W" in out
    assert "in 12 GB its texts may take 5.8 times as long" in out
    assert "training will need about 6.2 GB, and the card has 12.0 GB" in out
    assert "gated: accept the licence on the hub, then run `hf auth login`" in out
    assert "meta-llama/Llama-2-7b-hf 13.5 GB" in out and "nq-wikipedia, 2,681,468 passages: CC BY-SA" in out
    done = tmp_path / "runs/llama-2-7b-hf/seed-1/train.rag.json"
    done.parent.mkdir(parents=True)
    done.write_text("")
    out, _ = tell(capsys, *words)
    assert "1        rag  done   0.00" in out


def test_a_dry_run_reads_the_size_of_a_gguf_file_from_its_header_and_fetches_no_model(capsys, tmp_path):
    file = weights.find_model("smollm2-135m")
    given = ("-p", "model", str(file), "-p", "runs", str(tmp_path / "runs"))
    out, failed = tell(capsys, "llama-2-7b-hf", "--dry-run", "--gpu-gb", "12", *given)
    assert not failed and not (tmp_path / "runs").exists()
    assert "memory: training will need about 0.8 GB, and the card has 12.0 GB" in out  # Llama 2 7B: 6.2
    assert "hours: 0.1 at the rates measured" in out and "licence of meta-llama" not in out
    assert "download: questions" in out and str(file) not in out.partition("download: ")[2]


def test_a_dry_run_says_which_gguf_file_is_missing_and_leaves_out_the_size_of_a_plain_model(capsys, tmp_path):
    place = ("--dry-run", "-p", "runs", str(tmp_path / "runs"))
    missing = tmp_path / "none.gguf"
    failed = tell(capsys, "smollm2-135m-world", "-p", "model", str(missing), *place)[1]
    assert f"there is no GGUF file {missing}" in failed
    out, failed = tell(capsys, "smollm2-135m-world", "-p", "model", "plain:smollm2-135m", *place)
    assert not failed and "download: nothing" in out


def test_what_cannot_fit_ends_with_the_setting_that_would_and_no_stage_begins(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(replication, "replicate", lambda *_: pytest.fail("a stage began"))
    monkeypatch.setattr(memory, "free_memory", lambda device: 64e9)  # of the CPU, for what is put aside
    words = ("qwen2.5-7b-instruct", "--seeds", "1", "-p", "runs", str(tmp_path), "-p", "activations", "keep")
    for more in (("--dry-run",), ()):
        said = tell(capsys, *words, "--gpu-gb", "24", *more)[1]
        assert "does not fit: training needs about 33.4 GB, but 24.0 GB are available; set ac" in said
    assert not tell(capsys, *words, "--gpu-gb", "40", "--dry-run")[1]
    monkeypatch.setattr(forecast.shutil, "disk_usage", lambda place: SimpleNamespace(free=20e9))
    said = tell(capsys, *words, "--dry-run", "--gpu-gb", "40")[1]
    assert "GB of disk needed, 20.0 GB free in " in said


def test_the_rates_of_texts_are_those_of_the_recorded_claim():
    manifest = json.loads((ROOT / "results/real/qwen2.5-coder-1.5b/seed-1/claim.manifest.json").read_text())
    rates = forecast.tomllib.loads(forecast.SETTINGS.read_text())["rates"]
    texts, n = manifest["used"]["requests"], manifest["data"]["questions"]["n"]
    later = 1 + 2 * 0.676 + 3  # a verdict, for two thirds an answer and its verdict; two guesses and an answer
    assert rates["texts"]["claim"] == pytest.approx(texts / n + later, abs=0.1)
    assert rates["measured"][1][2] == round(texts / manifest["wall_seconds"])
    reckoned = 200 * rates["texts"]["table2"] / rates["measured"][2][2]  # of a 7B, Table 2 on 200 questions
    rows = json.loads((ROOT / "results/cards-h200/cards.json").read_text())["rows"]
    held = {row["card_gb"]: row["seconds"] / reckoned for row in rows if row["stage"] == "table2"}
    assert dict(rates["held"]) == pytest.approx(held, abs=0.06)


def refuse(kind):
    """An error as the hub's client raises it."""
    if kind is OSError:
        return OSError(errno.ENOSPC, "No space left on device")
    return kind.__new__(kind) if issubclass(kind, errors.HfHubHTTPError) else kind("cut off")


ANSWERS = {
    errors.GatedRepoError: "it is gated: accept the licence on the hub, then run `hf auth login`",
    errors.RevisionNotFoundError: "it has no such revision: give one that its page lists, or none",
    errors.LocalEntryNotFoundError: "there is no network connection: try again (finished files are kept",
    ConnectionResetError: "there is no network connection: try again (finished files are kept",
    OSError: "the disk is full: free some space, or set HF_HOME to another disk; finished files are kept",
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_what_the_hub_refuses_of_a_model_or_a_corpus_is_one_sentence_with_its_cure(kind, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(huggingface_hub, "snapshot_download", Mock(side_effect=refuse(kind)))
    monkeypatch.setattr(forecast, "foresee", lambda *_: None)
    monkeypatch.setattr(replication, "replicate", lambda *_: pytest.fail("a stage began"))
    said = tell(capsys, "meta-llama/Llama-2-7b-hf@gone")[1]
    assert ANSWERS[kind] in said and "\n" not in said
    cause = re.split("[:,]", ANSWERS[kind])[0]
    with pytest.raises((ValueError, OSError), match=f"'BeIR/nq' cannot be (read|reached): {cause}"):
        hub.open_corpus.__wrapped__("nq-wikipedia")
    error = datasets.exceptions.DatasetGenerationError("An error occurred")  # while it is unpacked
    error.__cause__ = refuse(kind)
    monkeypatch.setattr(datasets, "load_dataset", Mock(side_effect=error))
    with pytest.raises((ValueError, OSError), match=cause):
        hub.fetch(hub.Entry(str(tmp_path)))


def test_a_revision_behind_the_id_is_asked_for_and_no_second_copy_of_the_weights(monkeypatch, tiny_folder):
    asked = {}
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *a, **k: asked.update(k) or str(tiny_folder))
    load_engine(Model("someone/Tiny@refs/pr/3"))
    assert asked["revision"] == "refs/pr/3" and "consolidated*" in asked["ignore_patterns"]
    assert replace(Model(), model="someone/Tiny@refs/pr/3").short == "Tiny"
    assert weights.find_shape(str(tiny_folder)) == tiny_folder
