"""Other engines get our prompts and weights, and a run that is killed leaves the rows that it has measured."""

import re
import sys

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from benchmarks import continuous, inference, vllm_peer
from benchmarks.rows import Rows
from covrag_lite import prompts
from covrag_lite.config import Config, Model, Retrieval
from covrag_lite.engine.interface import load_engine
from covrag_lite.retrieval import load_retriever

VERDICT = prompts.render_verdict([0.5] * 6, "false", "Who wrote it?")


@pytest.fixture(scope="module")
def settings(tiny_folder, tmp_path_factory):
    """A tiny model with an adapter that changes what it says."""
    folder = tmp_path_factory.mktemp("adapters")
    torch.manual_seed(3)
    lora = LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM")
    get_peft_model(AutoModelForCausalLM.from_pretrained(tiny_folder), lora).save_pretrained(folder / "cov")
    return Config(
        model=Model(model=str(tiny_folder), adapters=str(folder), max_answer_tokens=5, max_revised_tokens=6),
    )


@pytest.fixture(scope="module")
def model(settings):
    return load_engine(settings.model).with_adapter("cov")


@pytest.mark.parametrize("part, way", [("plain", "generate"), ("continuous", "generate_batch"), ("vllm", "vLLM")])
def test_other_engines_write_our_answers_or_say_why_not(part, way, settings, model, questions, passages, monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    monkeypatch.setattr(continuous, "FREE_VERDICT_TOKENS", 4)
    monkeypatch.setattr(continuous.Continuous, "stages", ("answers",))
    rows, questions = Rows(100), questions[:2]
    search = load_retriever(Retrieval(k=2), passages)
    inference.time_peer(rows, settings, model, *inference.load_peer(part, model), search, questions)
    frame = inference.table(rows.made)
    assert frame.ours_faster["answers, ours"] == 1 and frame.same["answers, ours"] == len(questions)
    if part == "vllm":
        assert frame.failure["answers, vLLM"].startswith("ModuleNotFoundError")
        assert frame.failure["two rounds, vLLM"] == "LookupError: it needs 'verdicts, vLLM', which was not measured"
        return
    assert "failure" not in frame, frame.failure
    assert frame.same[f"answers, {way}"] == len(questions) and (frame.ours_faster > 0).all()


def test_the_schema_as_a_regular_expression_is_what_forced_verdicts_are(model):
    expression = vllm_peer.regex_of(prompts.SCHEMA, 6)
    forced = [one.text for one in model.fill(["one", "why?"], prompts.SCHEMA, 6)]
    for written in [*forced, VERDICT]:
        assert re.fullmatch(expression, written)
    for wrong in (VERDICT.replace("0.50", "1.50"), VERDICT.replace("false", "maybe")):
        assert not re.fullmatch(expression, wrong)
    assert not re.fullmatch(expression, VERDICT.replace("Who wrote it?", "Who " * 40))  # as short as ours must be


def test_the_folder_for_others_holds_what_our_network_computes_with(model, tmp_path):
    continuous.write_merged(model, tmp_path)
    written = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    ids = torch.tensor(model.loaded.encode(["What is the folder for?"], 0))
    with torch.inference_mode():
        expected = model.network(ids).logits
        torch.testing.assert_close(written(ids).logits, expected, atol=1e-4, rtol=1e-4)
