"""Adapters in the layout of the hub: plain peft loads them, and the card states recorded facts."""

import json
import re
import shutil

import pytest
from conftest import load_tiny

from covrag_lite.commands import export, model_card
from covrag_lite.config import ROOT

SHIPPED = ROOT / "results" / "adapters" / "smollm2-135m"
PROMPT = "who wrote the copper lanterns"


@pytest.fixture(scope="module")
def exported(tiny_folder, tiny_adapters, tmp_path_factory):
    """The folder of the exported adapters of the tiny Llama."""
    out = tmp_path_factory.mktemp("export") / "tiny"
    for adapter in export.find_adapters(str(tiny_adapters)):
        export.export(adapter, out / adapter.name, base=str(tiny_folder))
    return out


def test_every_adapter_of_a_folder_is_exported(exported):
    assert sorted(path.name for path in exported.iterdir()) == ["cov", "rag"]


def test_a_folder_has_the_files_that_the_hub_and_peft_expect(exported):
    expected = {"README.md", "adapter_config.json", "adapter_model.safetensors", "tokenizer.json"}
    assert expected <= {path.name for path in (exported / "rag").iterdir()}


@pytest.mark.parametrize("name", ["rag", "cov"])
def test_plain_peft_gives_the_logits_of_our_engine(name, exported, tiny_folder, tiny_adapters):
    """The likelihood of our engine's greedy answer is computed again from peft's logits."""
    import torch
    from peft import AutoPeftModelForCausalLM
    from transformers import AutoTokenizer

    ours = load_tiny(tiny_folder, adapters=str(tiny_adapters), quantize="none").with_adapter(name)
    [completion] = ours.complete([PROMPT], 8)
    tokenizer = AutoTokenizer.from_pretrained(exported / name)
    model = AutoPeftModelForCausalLM.from_pretrained(exported / name, dtype=torch.float32)
    inputs = tokenizer(PROMPT, return_tensors="pt")
    written = model.generate(**inputs, max_new_tokens=8, do_sample=False)
    n_prompt = inputs["input_ids"].shape[1]
    assert tokenizer.decode(written[0, n_prompt:], skip_special_tokens=True) == completion.text
    with torch.no_grad():
        chances = torch.log_softmax(model(written).logits, dim=-1)
    likelihoods = chances[0, n_prompt - 1 : -1].gather(1, written[0, n_prompt:, None])
    assert likelihoods.mean().item() == pytest.approx(
        completion.probabilities["likelihood"], abs=1e-4
    )


def test_the_code_of_the_card_runs(exported, capsys):
    card = (exported / "rag" / "README.md").read_text()
    [code] = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    code = code.replace('folder = "rag"', f"folder = {str(exported / 'rag')!r}")
    exec(compile(code.replace("max_new_tokens=40", "max_new_tokens=2"), "card", "exec"), {})
    assert capsys.readouterr().out


@pytest.fixture(scope="module")
def shipped_card():
    return model_card.build_card(SHIPPED / "cov", "smollm2-135m")


def test_a_shipped_adapter_names_its_base_by_the_id_on_the_hub(shipped_card):
    assert "base_model: HuggingFaceTB/SmolLM2-135M-Instruct\n" in shipped_card


def test_a_shipped_adapter_states_the_licences_of_base_and_data(shipped_card):
    assert "| base model | Apache-2.0 |" in shipped_card
    assert "| training data | Apache-2.0 |" in shipped_card


def test_the_accuracy_is_that_of_the_recorded_table(shipped_card):
    facts = json.loads((ROOT / "results/table2-smollm2-135m-h200/table2.facts.json").read_text())
    [row] = re.findall(r"\| CoV-RAG \| 600 \| ([\d.]+) \[", shipped_card)
    assert row == str(facts["CoV-RAG average"])
    assert "`results/table2-smollm2-135m-h200`" in shipped_card


def test_every_blank_of_the_card_is_filled(shipped_card):
    assert not re.findall(r"\$\w", shipped_card)


def test_weights_that_no_recorded_run_used_are_not_credited_with_its_numbers(
    tmp_path, tiny_adapters
):
    adapter = shutil.copytree(SHIPPED / "cov", tmp_path / "adapters" / "cov")
    other = tiny_adapters / "cov" / "adapter_model.safetensors"
    shutil.copy(other, adapter / "adapter_model.safetensors")
    assert model_card.describe_accuracy(adapter) == "No recorded run has used these weights."


def with_manifest(tmp_path, **parameters):
    """A copy of a shipped adapter whose training run had other parameters."""
    adapter = shutil.copytree(SHIPPED / "rag", tmp_path / "rag")
    manifest = json.loads((adapter / "manifest.json").read_text())
    manifest["parameters"] |= parameters
    (adapter / "manifest.json").write_text(json.dumps(manifest))
    return adapter


def test_the_licences_of_public_sets_are_those_of_the_data_module(tmp_path):
    adapter = with_manifest(tmp_path, data="hub", datasets=["nq", "mintaka"])
    card = model_card.build_card(adapter, "smollm2-135m")
    assert "| training data | nq: CC BY-SA 3.0; mintaka: CC BY 4.0 |" in card
    assert "license: other" in card


def test_a_card_has_no_path_of_a_data_folder(tmp_path):
    adapter = with_manifest(tmp_path, data="/home/someone/secret", datasets=["mine"])
    card = model_card.build_card(adapter, "smollm2-135m")
    assert "someone" not in card
    assert "a folder with question sets: mine" in card


def test_the_licence_of_a_folder_is_the_one_that_is_given_or_a_blank_to_fill_in(tmp_path):
    adapter = with_manifest(tmp_path, data="/home/someone/secret")
    assert model_card.NOT_RECORDED in model_card.build_card(adapter, "smollm2-135m")
    card = model_card.build_card(adapter, "smollm2-135m", data_licence="CC0-1.0")
    assert "| training data | CC0-1.0 |" in card


@pytest.mark.parametrize(
    ("licence", "name_on_the_hub"),
    [("Apache-2.0", "apache-2.0"), ("Llama 2", "llama2"), ("Llama 3.1", "llama3.1")],
)
def test_a_licence_has_its_name_on_the_hub(licence, name_on_the_hub):
    assert model_card.LICENCE_IDS[licence] == name_on_the_hub


def test_the_licence_of_an_unknown_base_model_is_on_its_page():
    assert model_card.find_base("someone/other-7b").licence == "see its page on the hub"


def test_a_base_model_that_is_a_local_file_needs_its_id_on_the_hub():
    with pytest.raises(ValueError, match="give the id that it has on the hub, as in --base"):
        model_card.find_base("/models/tiny.gguf")


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda folder: str(folder / "none"), "has no adapters"),
        (lambda folder: str(SHIPPED / "rag"), "already exists; remove it, or choose another"),
    ],
)
def test_a_mistake_ends_the_command_with_a_sentence(make, message, tmp_path, capsys):
    (tmp_path / "out" / "rag").mkdir(parents=True)
    with pytest.raises(SystemExit):
        export.main([make(tmp_path), "--out", str(tmp_path / "out")])
    assert message in capsys.readouterr().err
