"""One base serves several adapters, each as if it were alone."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from covrag_lite import config
from covrag_lite.engine.interface import load_engine

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
