"""Every engine writes the same texts with tiny networks; weights are identified by their hash."""

import gc
import json
import random
import shutil
import sys
import weakref
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import transformers
from conftest import WORDS
from conftest import load_tiny as tiny

from covrag_lite import config, prompts
from covrag_lite.engine import forced, interface, network, slots, varlen_prefill, weights
from covrag_lite.engine.forced import VerdictWriter
from covrag_lite.engine.interface import Completion, load_engine

PROMPTS = ["who wrote it?", "where was the author of the copper lanterns born, and when?", "why"]


def texts(made):
    return [one.text for one in made]


@pytest.fixture(scope="module", params=["nf4", "none"])
def fast(request, tiny_folder):
    return tiny(tiny_folder, quantize=request.param)


@pytest.fixture(scope="module")
def plain(tiny_folder, tiny_adapters):
    return tiny(f"plain:{tiny_folder}", adapters=str(tiny_adapters), quantize="none")


def fill(engine, asked, schema=prompts.SCHEMA):
    return engine.fill(asked, schema, 6)


@pytest.mark.parametrize("name", ["", "rag", "cov"])
def test_the_fast_engine_writes_what_the_plain_one_does(tiny_folder, tiny_adapters, plain, name):
    fast = tiny(tiny_folder, adapters=str(tiny_adapters), quantize="none").with_adapter(name)
    slow = plain.with_adapter(name)
    asked = [f"Here is a question that begins as the others do: {word}?" for word in ("who", "why and where")]
    for schema in (prompts.SCHEMA, prompts.DIRECT):
        for made, expected in zip(fill(fast, asked, schema), fill(slow, asked, schema)):
            assert made.text == expected.text
            assert made.probabilities == pytest.approx(expected.probabilities, abs=1e-5)
    for made, expected in zip(fast.complete(asked, 9), slow.complete(asked, 9)):
        assert made.text == expected.text
        assert made.probabilities == pytest.approx(expected.probabilities, rel=1e-4)
    assert texts(fast.complete(asked, 5, 3)) == texts(slow.complete(asked, 5, 3))
    assert fast.fingerprint != slow.fingerprint
    assert fast.count_tokens(asked, asked) == slow.count_tokens(asked, asked)


@pytest.mark.parametrize("family", [*varlen_prefill.KNOWN, "Starcoder2", "GPTNeoX"])
def test_packed_prompts_and_fixed_steps_write_what_the_plain_engine_does(family_folder, family, recwarn):
    fast, plain = (tiny(f"{way}{family_folder}", quantize="none") for way in ("", "plain:"))
    fast.execution = "graph"
    assert texts(fast.complete(PROMPTS, 9)) == texts(plain.complete(PROMPTS, 9))
    asked = [f"Here is a question that begins as the others do: {prompt}" for prompt in PROMPTS]
    made = texts(fill(fast, asked))
    assert made == texts(fill(plain, asked)) and all(prompts.parse_verdict(text).parsed for text in made)
    assert fast.loaded.packed == (family in varlen_prefill.KNOWN)
    told = {"Starcoder2": ["read with padding", "kernel by kernel"], "GPTNeoX": ["read with padding"]}.get(family, [])
    fallbacks = {name: n for name, n in fast.used.items() if name.startswith("fallback: ")}
    said = [str(one.message) for one in recwarn if "longer and gives the same texts" in str(one.message)]
    assert list(fallbacks.values()) == [1] * len(told) and len(said) == len(told)
    assert all(part in name and part in one for part, name, one in zip(told, fallbacks, said))


def test_a_revised_question_may_end_with_the_last_letters_of_a_token(fast, monkeypatch):
    """Models often write `?"` as one token; if it were forbidden, a question could not end."""
    tokenizer = fast.loaded.tokenizer
    wanted = tokenizer("Who was it", add_special_tokens=False).input_ids
    wanted += tokenizer('?"', add_special_tokens=False).input_ids
    assert tokenizer.decode(wanted[-1:]) == '?"'
    coming = iter(wanted)

    filled = slots.Filled(list(slots.TYPICAL[1]), [])
    monkeypatch.setattr(VerdictWriter, "write_slots", lambda writer, _: {0: filled})
    monkeypatch.setattr(VerdictWriter, "next_tokens", lambda *_: ([next(coming)], [0.0]))
    (made,) = fill(fast, PROMPTS[:1])
    assert prompts.parse_verdict(made.text).revised_question == "Who was it?"
    assert not list(coming)


def write_slots(engine, asked, places):
    """The choices that fill the verdict of each prompt."""
    filled = VerdictWriter(engine.loaded, None, engine.loaded.encode(asked, 0)).write_slots(places)
    return tuple(tuple(one.path) for one in filled.values())


@pytest.mark.parametrize("schema", [prompts.SCHEMA, prompts.DIRECT])
def test_no_verdict_depends_on_how_far_or_how_well_it_is_guessed(fast, monkeypatch, schema):
    # An empty revision has a token of its own, as in most tokenizers.
    monkeypatch.setitem(fast.loaded.pieces, slots.QUOTES[1], [60])
    draw = random.Random(0)
    asked = [" ".join(draw.choices(WORDS, k=1 + i % 7)) for i in range(24)]
    written = fill(fast, asked, schema)
    assert 0 < [json.loads(one.text)["4"] for one in written].count("") < 24
    right = write_slots(fast, asked, slots.slots_of(schema)[0])
    wrong = ("9",) * 18 + ("unclear", ' "')
    for telling, typical in ((1, (wrong,)), (2, right[:1]), (20, right)):
        monkeypatch.setattr(forced, "TELLING", telling)
        monkeypatch.setattr(slots, "TYPICAL", typical)
        for again, before in zip(fill(fast, asked, schema), written):
            assert again.text == before.text
            assert again.probabilities == pytest.approx(before.probabilities, abs=1e-4)


def test_right_guesses_fill_all_slots_in_a_pass(fast, monkeypatch):
    places, _ = slots.slots_of(prompts.SCHEMA)
    right = write_slots(fast, PROMPTS[:1], places)
    monkeypatch.setattr(slots, "TYPICAL", right)
    read = Mock(side_effect=VerdictWriter.read)
    monkeypatch.setattr(VerdictWriter, "read", lambda *given: read(*given))
    assert write_slots(fast, PROMPTS[:1], places) == right
    assert [len(call.args[3]) for call in read.call_args_list] == [slots.TELLING, len(places) - slots.TELLING]


def test_a_network_that_nobody_uses_is_gone_before_the_next_one_is_read(tiny_folder, tiny_adapters, monkeypatch):
    monkeypatch.setattr(network, "LARGE", 0)
    gc.disable()  # a small card cannot wait until Python looks for circles by itself
    try:
        first = tiny(tiny_folder, adapters=str(tiny_adapters))
        first.with_adapter("rag").complete([WORDS[0]], 2)
        left = weakref.ref(first.loaded.network)
        del first
        assert left() is not None
        assert tiny(tiny_folder).loaded.network is not None
        assert left() is None
    finally:
        gc.enable()


def test_the_fingerprint_is_of_the_weights_not_of_their_place_and_names_the_adapter(plain, tiny_folder, tmp_path):
    prints = [plain.with_adapter(name).fingerprint for name in ("", "rag", "cov")]
    assert len(set(prints)) == 3 and all(one.startswith(plain.fingerprint) for one in prints)
    shutil.copytree(tiny_folder, tmp_path / "copy")
    assert tiny(tiny_folder).fingerprint == tiny(tmp_path / "copy").fingerprint
    with open(tmp_path / "copy" / "model.safetensors", "ab") as file:
        file.write(b"x")
    assert tiny(tiny_folder).fingerprint != tiny(tmp_path / "copy").fingerprint


def test_what_cannot_be_had_is_named_but_an_adapter_by_default_is_optional(plain, tiny_folder, tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="no adapter 'cov-direct' in .*train.ipynb"):
        plain.with_adapter("cov-direct")
    assert tiny(tiny_folder).with_adapter("cov").adapter is None
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="has no weights"):
        tiny(tmp_path / "empty")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(FileNotFoundError, match="'no-such/model' is not an alias .smollm2-135m. or a local folder"):
        load_engine(config.Model(model="no-such/model"))
    for name, value in {"quantize": "nf3", "verdicts": "loud", "layout": "square", "device": "tpu"}.items():
        with pytest.raises(ValueError, match=f"{name} '{value}' is not known"):
            load_engine(config.Model(**{"model": str(tiny_folder), name: value}))
    for execution, said in (("graph", "'graph' needs CUDA"), ("fast", "'fast' is not known")):
        with pytest.raises(ValueError, match=f"execution {said}"):
            tiny(tiny_folder, execution)


def test_an_engine_is_one_module_and_one_entry(monkeypatch, scripted):
    monkeypatch.setitem(interface.ENGINES, "toy:", "toy_engine")
    monkeypatch.setitem(sys.modules, "toy_engine", SimpleNamespace(load=lambda settings, execution: scripted))
    assert load_engine(config.Model(model="toy:any")).complete(["why"], 9) == scripted.complete(["why"], 9)


def test_free_verdicts_are_as_the_model_writes_them(fast):
    (made,) = fast.fill(PROMPTS[2:], None, -84)  # of 96 tokens and these
    assert made == Completion(fast.complete(PROMPTS[2:], 12)[0].text)
    assert not prompts.parse_verdict(made.text).parsed  # random weights write no JSON


def test_the_embedded_model_reads_an_answer_out_of_a_passage(passages):
    embedded = load_engine(config.Model())
    (answer,) = embedded.complete([prompts.build_answer("Who wrote the Copper Lanterns?", passages[:1])], 12)
    assert "Edith Marrow" in answer.text


def test_the_end_of_a_turn_is_read_off_the_chat_template(tiny_folder):
    assert tiny(tiny_folder).loaded.end_id == tiny(tiny_folder).loaded.tokenizer.eos_token_id
    chatty = tiny(tiny_folder).loaded
    chatty.tokenizer.chat_template = "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}[/]{% endfor %}"
    assert chatty.tokenizer.decode([chatty.end_id]) == "[" != chatty.tokenizer.eos_token


def test_a_file_is_converted_once_under_any_name_and_no_folder_is_taken_that_is_still_written(tmp_path, monkeypatch):
    converted = []  # by a transformers that writes only folders

    def read(folder, gguf_file, **_):
        converted.append(gguf_file)
        return SimpleNamespace(save_pretrained=lambda place: place.mkdir(exist_ok=True))

    monkeypatch.setattr(weights, "CACHE", tmp_path)
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", read)
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", Mock())
    file, link = tmp_path / "q4.gguf", tmp_path / "Some-Model.gguf"
    file.write_text("weights")
    link.symlink_to(file)
    assert weights.hash_weights(file) == weights.hash_weights(link)
    made = [weights.convert_gguf(one, weights.hash_weights(one)) for one in (link, file, link)]
    assert converted == ["Some-Model.gguf"] and len(set(made)) == 1
    file.write_text("other weights")
    assert weights.convert_gguf(file, weights.hash_weights(file)) not in made
    (tmp_path / "q4-0123.77").mkdir()  # of another process
    assert weights.convert_gguf(file, "0123") == tmp_path / "q4-0123" and converted[1:] == ["q4.gguf"] * 2


@pytest.mark.parametrize(
    "told, said",
    [({"model_sha256": "another"}, "was trained on other weights"),
     ({"parameters": {"layout": "paper"}}, "layout 'paper', not 'shared'")],
)  # fmt: skip
def test_an_adapter_of_another_base_or_layout_is_refused(tiny_folder, tiny_adapters, tmp_path, told, said):
    shutil.copytree(tiny_adapters, tmp_path / "adapters")
    (tmp_path / "adapters" / "rag" / "manifest.json").write_text(json.dumps(told))
    with pytest.raises(ValueError, match=said):
        tiny(tiny_folder, adapters=str(tmp_path / "adapters")).with_adapter("rag")
    other = tiny(tiny_folder, adapters=str(tmp_path / "adapters"), layout="paper")
    assert "layout" not in said or other.with_adapter("rag").adapter
