"""vLLM as a peer: what it is given is what our own network computes with. A stand-in takes its place here."""

import re
import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from benchmarks import vllm_peer
from covrag_lite import prompts
from covrag_lite.config import Config, Model, Retrieval
from covrag_lite.engine.local import load_model
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


class StandIn:
    """vLLM's engine, as far as it is used: transformers on the folder that it was given."""

    started: list["StandIn"] = []

    def __init__(self, folder, **settings):
        self.network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.settings = settings
        self.forgotten = 0
        self.is_shut = False
        self.llm_engine = SimpleNamespace(engine_core=SimpleNamespace(shutdown=self.shut))
        self.started.append(self)

    def shut(self):
        self.is_shut = True

    def reset_prefix_cache(self):
        self.forgotten += 1

    def generate(self, given, settings, use_tqdm, lora_request):
        if settings.structured_outputs:
            assert re.fullmatch(settings.structured_outputs.regex, VERDICT)
            return [SimpleNamespace(outputs=[SimpleNamespace(token_ids=self.verdict)])] * len(given)
        made = []
        for one in given:
            ids = torch.tensor([one["prompt_token_ids"]])
            out = self.network.generate(ids, max_new_tokens=settings.max_tokens, do_sample=False, eos_token_id=0)
            made.append(SimpleNamespace(outputs=[SimpleNamespace(token_ids=out[0, ids.shape[1] :].tolist())]))
        return made


@pytest.fixture
def vllm(monkeypatch, settings):
    """A module of that name."""
    names = {"vllm": ["LLM", "SamplingParams"], "vllm.lora.request": ["LoRARequest"]}
    names |= {"vllm.lora": [], "vllm.sampling_params": ["StructuredOutputsParams"]}
    for name, parts in names.items():
        module = ModuleType(name)
        for part in parts:
            setattr(module, part, lambda *_, **given: SimpleNamespace(**given))
        monkeypatch.setitem(sys.modules, name, module)
    sys.modules["vllm"].LLM = StandIn
    StandIn.verdict = load_model(settings.model).tokenizer(VERDICT).input_ids
    StandIn.started = []
    return StandIn


def test_the_schema_as_a_regular_expression_is_what_forced_verdicts_are(settings):
    expression = vllm_peer.regex_of(prompts.SCHEMA)
    for written in load_model(settings.model).with_adapter("cov").verify(["one", "a second prompt", "why?"]):
        assert re.fullmatch(expression, written)
    assert re.fullmatch(expression, VERDICT)
    assert not re.fullmatch(expression, VERDICT.replace("0.50", "1.50"))
    assert not re.fullmatch(expression, VERDICT.replace("false", "maybe"))


@pytest.mark.parametrize("question", ["", "who?", "where was the author of the copper lanterns born, and when?"])
@pytest.mark.parametrize("is_finished", [True, False])
def test_a_revised_question_ends_where_ours_must(settings, question, is_finished):
    model = load_model(settings.model)
    limit = model.config.max_revised_tokens
    ids = model.tokenizer(question, add_special_tokens=False).input_ids
    assert (len(ids) > limit) == (len(question) > 20)
    whole = prompts.render_verdict([0.5] * 6, "false", question)
    text = whole if is_finished else whole.removesuffix('" }')
    cut = vllm_peer.Vllm(model, is_merged=True).cut(text)
    if len(ids) > limit:
        assert cut == prompts.render_verdict([0.5] * 6, "false", model.tokenizer.decode(ids[:limit]))
    else:
        assert cut == text


@pytest.mark.parametrize("is_merged", [True, False])
def test_the_folder_holds_what_our_network_computes_with(settings, tmp_path, is_merged):
    model = load_model(settings.model).with_adapter("cov")
    vllm_peer.write_folder(model, tmp_path, is_merged)
    written = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    ids = torch.tensor(model.encode(["What is the folder for?"], 0))
    with torch.inference_mode():
        adapted = model.quick_network(ids).logits
        bare = model.with_adapter("").quick_network(ids).logits
        made = written(ids).logits
    expected, other = (adapted, bare) if is_merged else (bare, adapted)
    torch.testing.assert_close(made, expected, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(made, other, atol=1e-2)


def test_vllm_is_measured_on_the_same_prompts_and_forgets_them_before_each_stage(vllm, settings, questions, passages):
    search = load_retriever(Retrieval(k=2), passages)
    frame = vllm_peer.against(settings, load_model(settings.model), search, questions)
    assert "failure" not in frame
    assert frame.same["answers, vLLM merged"] == frame.n["answers, vLLM merged"] == len(questions)
    assert frame.parsed["verdicts, vLLM merged"] == len(set(questions))
    assert (frame.ours_faster["two rounds, vLLM"], frame.ours_faster["two rounds, vLLM merged"]) > (0, 0)
    merged, beside = vllm.started
    assert merged.forgotten == beside.forgotten == 3 and merged.is_shut and beside.is_shut
    assert "enable_lora" not in merged.settings and beside.settings["max_lora_rank"] == 8


def test_where_vllm_is_not_there_it_says_so(monkeypatch, settings, questions, passages):
    monkeypatch.setitem(sys.modules, "vllm", None)
    bare = replace(settings, model=replace(settings.model, adapters="none"))
    search = load_retriever(Retrieval(k=2), passages)
    frame = vllm_peer.against(bare, load_model(bare.model), search, questions)
    assert frame.failure["answers, vLLM"].startswith("ModuleNotFoundError")
    assert frame.per_second["answers, ours"] > 0
