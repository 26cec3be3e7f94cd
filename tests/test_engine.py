"""Every engine writes the same texts with tiny networks; weights are identified by their hash."""

import gc
import json
import logging
import math
import random
import shutil
import sys
import weakref
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
import transformers
from conftest import WORDS
from conftest import load_tiny as tiny
from test_imports import closure

from covrag_lite import config, engine, prompts
from covrag_lite.engine import load_engine, network, slots, weights
from covrag_lite.engine.backbone import Backbone
from covrag_lite.engine.fast import forced, varlen_prefill
from covrag_lite.engine.fast.forced import VerdictWriter
from covrag_lite.engine.interface import Completion

PROMPTS = ["who wrote it?", "where was the author of the copper lanterns born, and when?", "why"]
LIKE_PROMPTS = [
    "Here is a question that begins as the others do: who?",
    "Here is a question that begins as the others do: why and where?",
]
SCHEMAS = pytest.mark.parametrize("schema", [prompts.SCHEMA, prompts.DIRECT])


def texts(completions):
    return [completion.text for completion in completions]


def fill(model, questions, schema=prompts.SCHEMA):
    return model.fill(questions, schema, 6)


# The fast engine and the plain one.


@pytest.fixture(scope="module", params=["nf4", "none"])
def fast(request, tiny_folder):
    return tiny(tiny_folder, quantize=request.param)


@pytest.fixture(scope="module")
def plain(tiny_folder, tiny_adapters):
    return tiny(f"plain:{tiny_folder}", adapters=str(tiny_adapters), quantize="none")


@pytest.fixture(scope="module", params=["", "rag", "cov"])
def pair(request, tiny_folder, tiny_adapters, plain):
    """The fast and the plain engine with the same adapter."""
    fast = tiny(tiny_folder, adapters=str(tiny_adapters), quantize="none")
    return fast.with_adapter(request.param), plain.with_adapter(request.param)


@SCHEMAS
def test_both_engines_write_the_same_verdicts(pair, schema):
    fast, plain = pair
    assert texts(fill(fast, LIKE_PROMPTS, schema)) == texts(fill(plain, LIKE_PROMPTS, schema))


@SCHEMAS
def test_both_engines_give_verdicts_the_same_probabilities(pair, schema):
    fast, plain = pair
    for ours, expected in zip(fill(fast, LIKE_PROMPTS, schema), fill(plain, LIKE_PROMPTS, schema)):
        assert ours.probabilities == pytest.approx(expected.probabilities, abs=1e-5)


def test_both_engines_write_the_same_answers(pair):
    fast, plain = pair
    assert texts(fast.complete(LIKE_PROMPTS, 9)) == texts(plain.complete(LIKE_PROMPTS, 9))


def test_both_engines_give_answers_the_same_likelihoods(pair):
    fast, plain = pair
    for ours, expected in zip(fast.complete(LIKE_PROMPTS, 9), plain.complete(LIKE_PROMPTS, 9)):
        assert ours.probabilities == pytest.approx(expected.probabilities, rel=1e-4)


def test_both_engines_draw_the_same_samples(pair):
    fast, plain = pair
    assert texts(fast.complete(LIKE_PROMPTS, 5, 3)) == texts(plain.complete(LIKE_PROMPTS, 5, 3))


def test_samples_have_no_likelihood(pair):
    fast, plain = pair
    for model in (fast, plain):
        assert model.complete(LIKE_PROMPTS[:1], 5, 3)[0].probabilities is None


def test_both_engines_count_the_same_tokens(pair):
    fast, plain = pair
    counts = fast.count_tokens(LIKE_PROMPTS, LIKE_PROMPTS)
    assert counts == plain.count_tokens(LIKE_PROMPTS, LIKE_PROMPTS)


@pytest.mark.parametrize("way", ["", "plain:"])
def test_counting_tokens_needs_no_network(way, tiny_folder, monkeypatch):
    engine = tiny(f"{way}{tiny_folder}", quantize="none")
    monkeypatch.setattr(Backbone, "network", property(lambda backbone: pytest.fail("loaded")))
    assert engine.count_tokens(["who wrote it?"], [""])[0][0] > 0


def test_both_engines_have_journal_keys_of_their_own(pair):
    fast, plain = pair
    assert plain.fingerprint == f"plain {fast.fingerprint}"


@pytest.mark.parametrize("way", ["", "plain:"])
def test_an_engine_counts_its_requests_and_tokens(way, tiny_folder):
    engine = tiny(f"{way}{tiny_folder}", quantize="none")
    completions = engine.complete(PROMPTS, 4)
    counts = engine.count_tokens(PROMPTS, texts(completions))
    assert engine.used == {
        "requests": 3,
        "prompt_tokens": sum(n_read for n_read, _ in counts),
        "completion_tokens": sum(n_written for _, n_written in counts),
    }


@pytest.fixture
def damaged(tiny_folder):
    """An engine, one of whose weights is not a number."""
    engine = tiny(tiny_folder, quantize="none")
    layer = engine.backbone.network.current.model.layers[0]
    with torch.no_grad():
        layer.self_attn.q_proj.weight[0, 0] = math.nan
    return engine


def test_answers_that_are_not_computed_with_numbers_are_an_error(damaged):
    with pytest.raises(ValueError, match="its weights are damaged"):
        damaged.complete(PROMPTS, 4)


def test_verdicts_that_are_not_computed_with_numbers_are_an_error(damaged):
    with pytest.raises(ValueError, match="its weights are damaged"):
        fill(damaged, PROMPTS)


# Other architectures: packed prompts and steps of a fixed shape, where they are possible.

FAMILIES = pytest.mark.parametrize("family", [*varlen_prefill.FAMILIES, "Starcoder2", "GPTNeoX"])
FALLBACKS = {
    "Starcoder2": ["prompts are read with padding", "decoding steps run kernel by kernel"],
    "GPTNeoX": ["prompts are read with padding"],
}


@pytest.fixture
def graph_engine(family_folder):
    """An engine with steps of a fixed shape, as on a GPU."""
    fast = tiny(family_folder, quantize="none")
    fast.prepared.execution = "graph"
    return fast


@FAMILIES
def test_every_architecture_writes_what_the_plain_engine_does(
    family_folder, graph_engine, family, recwarn
):
    plain = tiny(f"plain:{family_folder}", quantize="none")
    assert texts(graph_engine.complete(PROMPTS, 9)) == texts(plain.complete(PROMPTS, 9))
    questions = [f"Here is a question that begins as the others do: {prompt}" for prompt in PROMPTS]
    assert texts(fill(graph_engine, questions)) == texts(fill(plain, questions))


@FAMILIES
def test_verdicts_of_every_architecture_parse(graph_engine, family, recwarn):
    for text in texts(fill(graph_engine, PROMPTS)):
        assert prompts.parse_verdict(text).parsed


@FAMILIES
def test_prompts_of_known_architectures_are_read_packed(graph_engine, family, recwarn):
    graph_engine.complete(PROMPTS, 1)
    assert graph_engine.prepared.is_packed == (family in varlen_prefill.FAMILIES)


@FAMILIES
def test_every_fallback_is_counted_once(graph_engine, family, recwarn):
    graph_engine.complete(PROMPTS, 9)
    graph_engine.complete(PROMPTS, 9)
    counted = {way: n for way, n in graph_engine.used.items() if way.startswith("fallback: ")}
    assert counted == {f"fallback: {way}": 1 for way in FALLBACKS.get(family, [])}


@FAMILIES
def test_every_fallback_is_warned_of_once(graph_engine, family, recwarn):
    graph_engine.complete(PROMPTS, 9)
    graph_engine.complete(PROMPTS, 9)
    messages = [str(warning.message) for warning in recwarn]
    warned = [text.partition(",")[0] for text in messages if "gives the same texts" in text]
    assert warned == FALLBACKS.get(family, [])


# Verdicts.


def test_a_revised_question_may_end_with_the_last_letters_of_a_token(fast, monkeypatch):
    """Models often write `?"` as one token; if it were forbidden, a question could not end."""
    tokenizer = fast.backbone.vocabulary.tokenizer
    tokens = tokenizer("Who was it", add_special_tokens=False).input_ids
    tokens += tokenizer('?"', add_special_tokens=False).input_ids
    assert tokenizer.decode(tokens[-1:]) == '?"'
    coming = iter(tokens)

    filled = slots.Filled(list(slots.TYPICAL[1]), [])
    monkeypatch.setattr(VerdictWriter, "write_slots", lambda writer, _: {0: filled})
    monkeypatch.setattr(VerdictWriter, "next_tokens", lambda *_: ([next(coming)], [0.0]))
    (verdict,) = fill(fast, PROMPTS[:1])
    assert prompts.parse_verdict(verdict.text).revised_question == "Who was it?"
    assert not list(coming)


def test_a_token_with_a_quotation_mark_inside_is_forbidden(fast):
    quoted = fast.backbone.quoted
    tokenizer = fast.backbone.vocabulary.tokenizer
    allowed = [tokenizer.decode([token]) for token in (~quoted.forbidden).nonzero()[:, 0]]
    assert not [text for text in allowed if '"' in text[:-1]]


def test_no_special_token_is_written_into_a_revised_question(fast):
    special = set(fast.backbone.vocabulary.tokenizer.all_special_ids)
    allowed = set((~fast.backbone.quoted.forbidden).nonzero()[:, 0].tolist())
    assert special
    assert not special & allowed


def test_only_tokens_that_end_with_a_quotation_mark_end_a_question(fast):
    tokenizer = fast.backbone.vocabulary.tokenizer
    ends = [tokenizer.decode([token]) for token in fast.backbone.quoted.ends]
    assert ends
    assert all(text.endswith('"') for text in ends)


def write_slots(engine, questions, verdict_slots):
    """The choices that fill the verdict of each prompt."""
    writer = VerdictWriter(engine.prepared, None, engine.prepared.encode(questions, 0))
    return tuple(tuple(filled.path) for filled in writer.write_slots(verdict_slots).values())


@pytest.fixture
def empty_token(fast, monkeypatch):
    """An empty revision has a token of its own, as in most tokenizers."""
    monkeypatch.setitem(fast.backbone.vocabulary.pieces, prompts.EMPTY_QUOTES, [60])


def random_prompts():
    draw = random.Random(0)
    return [" ".join(draw.choices(WORDS, k=1 + i % 7)) for i in range(24)]


@SCHEMAS
@pytest.mark.parametrize("telling, guesses", [(1, "wrong"), (2, "of one verdict"), (20, "right")])
def test_no_verdict_depends_on_how_it_is_guessed(
    fast, empty_token, monkeypatch, schema, telling, guesses
):
    questions = random_prompts()
    expected = fill(fast, questions, schema)
    right = write_slots(fast, questions, slots.slots_of(schema)[0])
    wrong = (("9",) * 18 + ("unclear", ' "'),)
    typical = {"wrong": wrong, "of one verdict": right[:1], "right": right}[guesses]
    monkeypatch.setattr(forced, "TELLING", telling)
    monkeypatch.setattr(slots, "TYPICAL", typical)
    for verdict, before in zip(fill(fast, questions, schema), expected):
        assert verdict.text == before.text
        assert verdict.probabilities == pytest.approx(before.probabilities, abs=1e-4)


def test_some_revisions_are_empty_if_they_have_a_token(fast, empty_token):
    verdicts = fill(fast, random_prompts())
    n_empty = [json.loads(verdict.text)["4"] for verdict in verdicts].count("")
    assert 0 < n_empty < 24


def test_right_guesses_fill_all_slots_in_a_second_pass(fast, monkeypatch):
    verdict_slots, _ = slots.slots_of(prompts.SCHEMA)
    right = write_slots(fast, PROMPTS[:1], verdict_slots)
    monkeypatch.setattr(slots, "TYPICAL", right)
    read = Mock(side_effect=VerdictWriter.read)
    monkeypatch.setattr(VerdictWriter, "read", lambda *args: read(*args))
    write_slots(fast, PROMPTS[:1], verdict_slots)
    n_slots = [len(call.args[3]) for call in read.call_args_list]
    assert n_slots == [slots.TELLING, len(verdict_slots) - slots.TELLING]


def test_a_free_verdict_is_what_the_model_writes(fast):
    (verdict,) = fast.fill(PROMPTS[2:], None, -84)  # of 96 tokens and these
    assert verdict == Completion(fast.complete(PROMPTS[2:], 12)[0].text)


def test_a_free_verdict_need_not_parse(fast):
    (verdict,) = fast.fill(PROMPTS[2:], None, -84)
    assert not prompts.parse_verdict(verdict.text).parsed  # random weights write no JSON


# Memory.


def test_a_network_that_nobody_uses_is_gone_before_the_next_one_is_read(
    tiny_folder, tiny_adapters, monkeypatch
):
    monkeypatch.setattr(network, "LARGE", 0)
    gc.disable()  # a small card cannot wait until Python looks for cycles by itself
    try:
        first = tiny(tiny_folder, adapters=str(tiny_adapters))
        first.with_adapter("rag").complete([WORDS[0]], 2)
        layer = weakref.ref(first.backbone.network.current.model.layers[0].mlp.up_proj)
        del first
        assert layer() is not None
        assert tiny(tiny_folder).backbone.network.current is not None
        assert layer() is None
    finally:
        gc.enable()


# Fingerprints and adapters.


def test_every_adapter_has_its_own_fingerprint(plain):
    fingerprints = {plain.with_adapter(name).fingerprint for name in ("", "rag", "cov")}
    assert len(fingerprints) == 3


@pytest.mark.parametrize("name", ["", "rag"])
def test_a_fingerprint_begins_with_that_of_the_base(plain, name):
    assert plain.with_adapter(name).fingerprint.startswith(plain.fingerprint)


def test_a_fingerprint_does_not_depend_on_the_folder(tiny_folder, tmp_path):
    shutil.copytree(tiny_folder, tmp_path / "copy")
    assert tiny(tiny_folder).fingerprint == tiny(tmp_path / "copy").fingerprint


def test_other_weights_have_another_fingerprint(tiny_folder, tmp_path):
    shutil.copytree(tiny_folder, tmp_path / "copy")
    with open(tmp_path / "copy" / "model.safetensors", "ab") as file:
        file.write(b"x")
    assert tiny(tiny_folder).fingerprint != tiny(tmp_path / "copy").fingerprint


def test_a_missing_adapter_is_an_error_that_names_the_cure(plain):
    with pytest.raises(FileNotFoundError, match="no adapter 'cov-direct' in .*train.ipynb"):
        plain.with_adapter("cov-direct")


def test_an_adapter_by_default_is_optional(tiny_folder):
    assert tiny(tiny_folder).with_adapter("cov").adapter is None


@pytest.mark.parametrize("way", ["", "plain:"])
def test_the_embedded_model_has_its_shipped_adapters_in_either_engine(way):
    shipped = config.ROOT / "results" / "adapters" / "smollm2-135m" / "cov"
    engine = load_engine(config.Model(model=f"{way}smollm2-135m", device="cpu"))
    assert engine.with_adapter("cov").adapter == shipped


@pytest.fixture
def adapters_with_manifest(tiny_adapters, tmp_path):
    """Returns the folder of adapters, one of which has this manifest."""

    def write(manifest):
        folder = shutil.copytree(tiny_adapters, tmp_path / "adapters")
        (folder / "rag" / "manifest.json").write_text(json.dumps(manifest))
        return str(folder)

    return write


@pytest.mark.parametrize(
    "manifest, message",
    [
        ({"model_sha256": "another"}, "was trained on other weights"),
        ({"parameters": {"layout": "paper"}}, "layout 'paper', not 'shared'"),
    ],
)
def test_an_adapter_of_another_base_or_layout_is_refused(
    tiny_folder, adapters_with_manifest, manifest, message
):
    with pytest.raises(ValueError, match=message):
        tiny(tiny_folder, adapters=adapters_with_manifest(manifest)).with_adapter("rag")


def test_an_adapter_is_accepted_in_its_own_layout(tiny_folder, adapters_with_manifest):
    folder = adapters_with_manifest({"parameters": {"layout": "paper"}})
    assert tiny(tiny_folder, adapters=folder, layout="paper").with_adapter("rag").adapter


# Models by name.


def test_a_folder_without_weights_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="has no weights"):
        tiny(tmp_path)


def test_an_unknown_model_is_an_error_that_lists_the_aliases(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    message = "'no-such/model' is not an alias .smollm2-135m. or a local folder"
    with pytest.raises(FileNotFoundError, match=message):
        load_engine(config.Model(model="no-such/model"))


@pytest.mark.parametrize(
    "name, value",
    [
        ("quantize", "nf3"),
        ("quantize", "int8"),
        ("verdicts", "loud"),
        ("layout", "square"),
        ("device", "tpu"),
    ],
)
def test_an_unknown_value_is_an_error(tiny_folder, name, value):
    with pytest.raises(ValueError, match=f"{name} '{value}' is not known"):
        load_engine(config.Model(**{"model": str(tiny_folder), name: value}))


@pytest.mark.parametrize(
    "name, value",
    [
        ("quantize", "nf4"),
        ("quantize", "none"),
        ("verdicts", "forced"),
        ("verdicts", "free"),
        ("layout", "paper"),
        ("layout", "shared"),
    ],
)
def test_every_documented_value_is_accepted(tiny_folder, name, value):
    settings = config.Model(**{"model": str(tiny_folder), name: value})
    assert load_engine(settings).settings == settings


@pytest.mark.parametrize(
    "execution, message", [("graph", "'graph' needs CUDA"), ("fast", "'fast' is not known")]
)
def test_an_execution_that_is_not_possible_is_an_error(tiny_folder, execution, message):
    with pytest.raises(ValueError, match=f"execution {message}"):
        tiny(tiny_folder, execution)


def test_an_engine_is_one_module_and_one_entry(monkeypatch, scripted):
    module = SimpleNamespace(load=lambda settings, execution: scripted)
    monkeypatch.setitem(engine.ENGINES, "toy:", "toy_engine")
    monkeypatch.setitem(sys.modules, "toy_engine", module)
    assert load_engine(config.Model(model="toy:any")) is scripted


def test_the_embedded_model_finds_an_answer_in_a_passage(passages):
    embedded = load_engine(config.Model())
    prompt = prompts.build_answer("Who wrote the Copper Lanterns?", passages[:1])
    (answer,) = embedded.complete([prompt], 12)
    assert "Edith Marrow" in answer.text


def test_bitsandbytes_does_not_warn_of_a_kernel_that_is_not_needed():
    assert not logging.getLogger("bitsandbytes.backends.cpu.ops").isEnabledFor(logging.WARNING)


def test_the_plain_engine_imports_nothing_of_the_fast_one():
    assert [module for module in closure("engine.plain") if module.startswith("engine.fast")] == []


# The end of a turn.


def test_without_a_chat_template_a_text_ends_with_the_tokenizers_own_end(tiny_folder):
    model = tiny(tiny_folder)
    assert model.end_id == model.backbone.vocabulary.tokenizer.eos_token_id


def test_the_end_of_a_turn_is_taken_from_the_chat_template(tiny_folder):
    model = tiny(tiny_folder)
    tokenizer = model.backbone.vocabulary.tokenizer
    tokenizer.chat_template = (
        "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}/{% endfor %}"
    )
    assert tokenizer.decode([model.end_id]) == "/"


def test_the_number_of_tokens_of_a_text_is_without_special_ones(tiny_folder):
    vocabulary = tiny(tiny_folder).backbone.vocabulary
    vocabulary.tokenizer = Mock(return_value=SimpleNamespace(input_ids=[[5, 6], [7]]))
    assert vocabulary.count(["two tokens", "one"]) == [2, 1]
    vocabulary.tokenizer.assert_called_once_with(["two tokens", "one"], add_special_tokens=False)


# GGUF files become folders.


@pytest.fixture
def converted(tmp_path, monkeypatch):
    """The names of converted files; transformers writes only empty folders."""
    names = []

    def read(folder, gguf_file, **_):
        names.append(gguf_file)
        return SimpleNamespace(save_pretrained=lambda place: place.mkdir(exist_ok=True))

    monkeypatch.setattr(weights, "CACHE", tmp_path / "cache")
    (tmp_path / "cache").mkdir()
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", read)
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", Mock())
    return names


@pytest.fixture
def gguf(tmp_path):
    file = tmp_path / "q4.gguf"
    file.write_text("weights")
    return file


def convert(file):
    return weights.convert_gguf(file, weights.hash_weights(file))


def test_a_file_is_converted_once(gguf, converted):
    assert convert(gguf) == convert(gguf)
    assert converted == ["q4.gguf"]


def test_a_file_under_another_name_is_not_converted_again(gguf, converted, tmp_path):
    link = tmp_path / "Some-Model.gguf"
    link.symlink_to(gguf)
    assert convert(gguf) == convert(link)
    assert converted == ["q4.gguf"]


def test_a_file_with_other_weights_is_converted_again(gguf, converted):
    before = convert(gguf)
    gguf.write_text("other weights")
    assert convert(gguf) != before


def test_a_folder_that_another_process_still_writes_is_not_used(gguf, converted, tmp_path):
    (tmp_path / "cache" / "q4-0123.77").mkdir()
    assert weights.convert_gguf(gguf, "0123") == tmp_path / "cache" / "q4-0123"
    assert converted == ["q4.gguf"]
