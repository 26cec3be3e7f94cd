"""Weights are told by what they are: a file under two names, adapters beside each other, those of another base."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers

from covrag_lite import config
from covrag_lite.engine import weights
from covrag_lite.engine.interface import load_engine


@pytest.fixture
def converted(tmp_path, monkeypatch):
    """The names of the files that were converted, by a transformers that writes folders alone."""
    names = []

    def read(folder, gguf_file, **_):
        names.append(gguf_file)
        return SimpleNamespace(save_pretrained=lambda place: place.mkdir(exist_ok=True))

    monkeypatch.setattr(weights, "CACHE", tmp_path / "cache")
    (tmp_path / "cache").mkdir()
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", read)
    tokenizer = SimpleNamespace(save_pretrained=lambda place: None)
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", lambda *_, **__: tokenizer)
    return names


def test_the_same_file_under_another_name_is_not_converted_again(tmp_path, converted):
    file, link = tmp_path / "q4.gguf", tmp_path / "Some-Model.gguf"
    file.write_text("weights")
    link.symlink_to(file)
    assert weights.hash_weights(file) == weights.hash_weights(link)
    made = [weights.convert_gguf(one, weights.hash_weights(one)) for one in (link, file, link)]
    assert converted == ["Some-Model.gguf"] and len(set(made)) == 1
    file.write_text("other weights")
    assert weights.convert_gguf(file, weights.hash_weights(file)) not in made


def test_a_folder_that_another_process_is_still_writing_is_not_taken(tmp_path, converted):
    (weights.CACHE / "q4-0123.77").mkdir()
    made = weights.convert_gguf(tmp_path / "q4.gguf", "0123")
    assert converted == ["q4.gguf"] and made == weights.CACHE / "q4-0123"


PROMPT = ["who wrote it?"]


@pytest.fixture
def settings(tiny_folder, tiny_adapters):
    return config.Model(model=str(tiny_folder), adapters=str(tiny_adapters), max_revised_tokens=4)


@pytest.fixture
def copied(settings, tmp_path):
    """The settings with a copy of the adapters, for a test to change."""
    shutil.copytree(settings.adapters, tmp_path / "adapters")
    return replace(settings, adapters=str(tmp_path / "adapters"))


def logits(view):
    with torch.inference_mode():
        return view.network(torch.tensor(view.loaded.encode(PROMPT, 1))).logits[0, -1]


def test_adapters_do_not_touch_each_other_or_the_base(settings):
    bare = logits(load_engine(settings))
    alone = {name: logits(load_engine(settings).with_adapter(name)) for name in ("rag", "cov")}
    shared = load_engine(settings)
    for name in ("rag", "cov", "", "rag", "", "cov"):
        expected = alone[name] if name else bare
        torch.testing.assert_close(logits(shared.with_adapter(name)), expected)
    assert not torch.allclose(alone["rag"], alone["cov"])
    assert not torch.allclose(alone["rag"], bare)


def test_the_fingerprint_names_the_adapter(settings):
    shared = load_engine(settings)
    prints = [shared.with_adapter(name).fingerprint for name in ("", "rag", "cov")]
    assert len(set(prints)) == 3
    assert all(one.startswith(shared.fingerprint) for one in prints)


def test_a_missing_adapter_is_named_unless_auto(settings, tiny_folder):
    with pytest.raises(FileNotFoundError, match="no adapter 'cov-direct' in .*train.ipynb"):
        load_engine(settings).with_adapter("cov-direct")
    assert load_engine(config.Model(model=str(tiny_folder))).with_adapter("cov").adapter is None


def test_an_adapter_of_another_base_is_refused(copied):
    manifest = Path(copied.adapters) / "rag" / "manifest.json"
    manifest.write_text(json.dumps({"model_sha256": "another"}))
    with pytest.raises(ValueError, match="was trained on other weights"):
        load_engine(copied).with_adapter("rag")


def test_an_adapter_of_another_layout_is_refused(copied):
    manifest = Path(copied.adapters) / "rag" / "manifest.json"
    manifest.write_text(json.dumps({"parameters": {"layout": "shared"}}))
    with pytest.raises(ValueError, match="layout 'shared', not 'paper'"):
        load_engine(copied).with_adapter("rag")
    assert load_engine(replace(copied, layout="shared")).with_adapter("rag").adapter
