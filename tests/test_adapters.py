"""One base serves several adapters, each as if it were alone."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model

from covrag_lite import config
from covrag_lite.engine.local import load_model

PROMPT = ["who wrote it?"]


@pytest.fixture(scope="module")
def settings(tiny_folder, tmp_path_factory):
    """Two random adapters beside each other."""
    folder = tmp_path_factory.mktemp("adapters.d")
    for seed, name in enumerate(("rag", "cov"), 1):
        network = load_model(config.Model(model=str(tiny_folder), quantize="none"))._network
        torch.manual_seed(seed)
        lora = LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM")
        get_peft_model(network, lora).save_pretrained(folder / name)
    return config.Model(model=str(tiny_folder), adapters=str(folder), max_revised_tokens=4)


@pytest.fixture
def copied(settings, tmp_path):
    """The settings with a copy of the adapters, for a test to change."""
    shutil.copytree(settings.adapters, tmp_path / "adapters")
    return replace(settings, adapters=str(tmp_path / "adapters"))


def logits(view):
    with torch.inference_mode():
        return view.network(torch.tensor(view.encode(PROMPT, 1))).logits[0, -1]


def test_adapters_do_not_touch_each_other_or_the_base(settings):
    bare = logits(load_model(settings))
    alone = {name: logits(load_model(settings).with_adapter(name)) for name in ("rag", "cov")}
    shared = load_model(settings)
    for name in ("rag", "cov", "", "rag", "", "cov"):
        expected = alone[name] if name else bare
        torch.testing.assert_close(logits(shared.with_adapter(name)), expected)
    assert not torch.allclose(alone["rag"], alone["cov"])
    assert not torch.allclose(alone["rag"], bare)


def test_the_fingerprint_names_the_adapter(settings):
    shared = load_model(settings)
    prints = [shared.with_adapter(name).fingerprint for name in ("", "rag", "cov")]
    assert len(set(prints)) == 3
    assert all(one.startswith(shared.fingerprint) for one in prints)


def test_without_the_chain_a_verdict_is_the_revised_question_alone(copied):
    folder = Path(copied.adapters)
    shutil.copytree(folder / "cov", folder / "cov-direct")
    direct = load_model(copied).with_adapter("cov-direct")
    (verdict,) = direct.verify(PROMPT)
    assert list(json.loads(verdict)) == ["4"]


def test_a_missing_adapter_is_named_unless_auto(settings, tiny_folder):
    with pytest.raises(FileNotFoundError, match="no adapter 'cov-direct' in .*train.ipynb"):
        load_model(settings).with_adapter("cov-direct")
    assert load_model(config.Model(model=str(tiny_folder))).with_adapter("cov").adapter is None


def test_an_adapter_of_another_base_is_refused(copied):
    manifest = Path(copied.adapters) / "rag" / "manifest.json"
    manifest.write_text(json.dumps({"model_sha256": "another"}))
    with pytest.raises(ValueError, match="was trained on other weights"):
        load_model(copied).with_adapter("rag")


def test_an_adapter_of_another_layout_is_refused(copied):
    manifest = Path(copied.adapters) / "rag" / "manifest.json"
    manifest.write_text(json.dumps({"parameters": {"layout": "shared"}}))
    with pytest.raises(ValueError, match="layout 'shared', not 'paper'"):
        load_model(copied).with_adapter("rag")
    assert load_model(replace(copied, layout="shared")).with_adapter("rag").adapter
