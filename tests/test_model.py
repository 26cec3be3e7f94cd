"""The model's own facts, on a tiny Llama made from nothing; the embedded SmolLM2 once."""

import json

import pytest
import torch

from covrag_lite import config, prompts, records
from covrag_lite.model.decoding import Writer
from covrag_lite.model.local import load_model

PROMPTS = ["who wrote it?", "where was the author of the copper lanterns born, and when?", "why"]


def tiny(folder, **settings):
    return load_model(config.Model(model=str(folder), max_revised_tokens=6, **settings))


@pytest.fixture(scope="module", params=["nf4", "none"])
def loaded(request, tiny_folder):
    return tiny(tiny_folder, quantize=request.param)


def masked_greedy(loaded, prompt):
    """The verdict by the book: every token by its own full forward pass, the schema only as a mask."""
    writer = Writer(loaded, [prompt], 0)  # for its tokenising and its mask alone
    ids = list(writer.pending[0])
    forwards = 0

    def best(allowed):
        nonlocal forwards
        forwards += 1
        with torch.inference_mode():
            logits = loaded.network(torch.tensor([ids])).logits[0, -1]
        token = max(allowed, key=lambda i: logits[i].item())
        ids.append(token)
        return token

    text = ""
    for part in prompts.SCHEMA:
        if isinstance(part, str):
            for token in writer.ids(part):
                best([token])
            text += part
        elif part[0] == "score":
            digits = [writer.ids(str(d))[0] for d in range(10)]
            number = "01"[digits.index(best(digits[:2]))] + "."
            best(writer.ids("."))
            for _ in range(2):
                number += str(digits.index(best(digits if number[0] == "0" else digits[:1])))
            text += number
        elif part[0] == "judgment":
            firsts = {writer.ids(word)[0]: word for word in prompts.JUDGMENTS}
            text += (word := firsts[best(list(firsts))])
            for token in writer.ids(word)[1:]:
                best([token])
        else:
            opening, empty, end = writer.ids(' "')[0], writer.ids(' ""')[0], writer.ids('"')[0]
            first, written = best([opening, empty]), []
            allowed = (~writer.forbidden(end)).nonzero().flatten().tolist()
            while (first == opening or opening == empty) and len(written) < 6 and (token := best(allowed)) != end:
                written.append(token)
            text += ' "' + loaded.tokenizer.decode(written) + '"'
    return text, forwards


def test_a_forced_verdict_is_what_masked_greedy_decoding_writes(loaded):
    texts = loaded.verify(PROMPTS)
    for prompt, text in zip(PROMPTS, texts):
        assert text == masked_greedy(loaded, prompt)[0]
        assert prompts.parse_verdict(text).parsed


def test_a_forced_verdict_keeps_the_probabilities_behind_it(loaded):
    (text, known), (_, other) = loaded.judge(PROMPTS[:2])
    assert (
        list(known) == [*records.SCORES, "true", "empty"][: len(known)]
        and known != other
        and all(0 <= value <= 1 for value in known.values())
    )
    writer = Writer(loaded, PROMPTS[:1], 0)
    ids = writer.pending[0] + writer.ids(prompts.SCHEMA[0])
    following = lambda choices: torch.softmax(
        loaded.network(torch.tensor([ids])).logits[0, -1, [writer.ids(one)[0] for one in choices]], 0
    )
    with torch.inference_mode():
        zero, one = following("01").tolist()
        written = json.loads(text)["1"]["reference_correctness"]
        expected = one
        ids += writer.ids("0") + writer.ids(".")
        for place, digit in enumerate(f"{written:.2f}"[2:] if written < 1 else "", 1):
            expected += zero * 10**-place * sum(i * chance for i, chance in enumerate(following("0123456789").tolist()))
            ids += writer.ids(digit)
    assert known["reference_correctness"] == pytest.approx(expected, abs=2e-4)


def test_a_forced_verdict_costs_few_forward_passes(loaded, monkeypatch):
    calls = []
    forward = loaded.network.forward
    monkeypatch.setattr(loaded.network, "forward", lambda *a, **k: (calls.append(1), forward(*a, **k))[1])
    loaded.verify(PROMPTS[:1])
    forced = len(calls)
    assert masked_greedy(loaded, PROMPTS[0])[1] > 2.5 * forced


def test_texts_do_not_depend_on_the_batch_they_are_in(loaded):
    assert loaded.generate(PROMPTS, 8) == [loaded.generate([prompt], 8)[0] for prompt in PROMPTS]
    assert loaded.verify(PROMPTS) == [loaded.verify([prompt])[0] for prompt in PROMPTS]


def test_nf4_is_really_four_bits(tiny_folder):
    import bitsandbytes

    layer = tiny(tiny_folder, quantize="nf4").network.model.layers[0].mlp.up_proj
    assert isinstance(layer, bitsandbytes.nn.Linear4bit) and layer.weight.dtype == torch.uint8
    assert layer.weight.quant_state.quant_type == "nf4" and layer.weight.quant_state.nested


def test_the_fingerprint_is_of_the_weights_not_of_their_place(tiny_folder, tmp_path):
    import shutil

    shutil.copytree(tiny_folder, tmp_path / "copy")
    assert tiny(tiny_folder).fingerprint == tiny(tmp_path / "copy").fingerprint
    with open(tmp_path / "copy" / "model.safetensors", "ab") as file:
        file.write(b"x")
    assert tiny(tiny_folder).fingerprint != tiny(tmp_path / "copy").fingerprint


def test_a_model_that_cannot_be_had_is_named(tmp_path, tiny_folder, monkeypatch):
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="has no weights"):
        tiny(tmp_path / "empty")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(FileNotFoundError, match="'no-such/model' is no alias .smollm2-135m., no local folder"):
        load_model(config.Model(model="no-such/model"))
    with pytest.raises(ValueError, match="quantize 'nf3' is not known"):
        tiny(tiny_folder, quantize="nf3")
    with pytest.raises(ValueError, match="batch_tokens is -1"):
        tiny(tiny_folder, batch_tokens=-1)
    with pytest.raises(ValueError, match="device 'tpu' is not known"):
        tiny(tiny_folder, device="tpu")
    with pytest.raises(ValueError, match="verdicts 'loud' is not known"):
        tiny(tiny_folder, verdicts="loud")
    with pytest.raises(ValueError, match="layout 'square' is not known"):
        tiny(tiny_folder, layout="square")


def test_a_prompt_too_long_for_the_model_is_refused(loaded):
    with pytest.raises(ValueError, match="has room for 4096; lower k"):
        loaded.generate(["word " * 5000], 8)


def test_free_verdicts_are_as_the_model_writes_them(tiny_folder):
    free = tiny(tiny_folder, verdicts="free")
    assert not prompts.parse_verdict(free.verify(PROMPTS[:1])[0]).parsed  # random weights write no JSON


def test_the_embedded_model_reads_an_answer_out_of_a_passage(passages):
    embedded = load_model(config.Model())
    answer = embedded.generate([prompts.build_answer("Who wrote the Copper Lanterns?", passages[:2])], 20)[0]
    assert "Edith Marrow" in answer
    assert prompts.parse_verdict(
        embedded.verify([prompts.build_verify("Who wrote it?", passages[:2], answer)])[0]
    ).parsed


def test_the_end_of_a_turn_is_read_off_the_chat_template(tiny_folder):
    chatty = tiny(tiny_folder)
    assert chatty.end_id == chatty.tokenizer.eos_token_id
    chatty = tiny(tiny_folder)
    chatty.tokenizer.chat_template = "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}[/]{% endfor %}"
    assert chatty.tokenizer.decode([chatty.end_id]) == "[" != chatty.tokenizer.eos_token


def test_a_wrong_guess_changes_no_verdict(loaded, monkeypatch):
    from covrag_lite.model import gaps

    written = loaded.judge(PROMPTS)
    right = [tuple(path) for path, _ in Writer(loaded, PROMPTS, 0).write_gaps(gaps.gaps_of(prompts.SCHEMA)[0]).values()]
    for typical in ((("9",) * 18 + ("unclear", ' "'),), right[:1], tuple(right)):
        monkeypatch.setattr(gaps, "TYPICAL", typical)
        again = loaded.judge(PROMPTS)
        assert [text for text, _ in again] == [text for text, _ in written]
        for (_, known), (_, before) in zip(again, written):
            assert known == pytest.approx(before, abs=1e-4)


def test_right_guesses_fill_all_gaps_in_one_pass(loaded, monkeypatch):
    from covrag_lite.model import gaps

    wanted = gaps.gaps_of(prompts.SCHEMA)[0]
    path = tuple(Writer(loaded, PROMPTS[:1], 0).write_gaps(wanted)[0][0])
    passes = []
    read = Writer.read
    monkeypatch.setattr(Writer, "read", lambda *given: (passes.append(1), read(*given))[1])
    monkeypatch.setattr(gaps, "TYPICAL", (path,))
    Writer(loaded, PROMPTS[:1], 0).write_gaps(wanted)
    assert len(passes) == 1


def test_in_the_shared_layout_answer_and_verdict_are_what_their_prompts_alone_give(loaded, questions, passages):
    pairs = [(question.question, passages[i : i + 2]) for i, question in enumerate(questions)]
    asked = [prompts.build_answer(*pair, "shared") for pair in pairs]
    thens = [lambda answer, pair=pair: prompts.build_verify(*pair, answer, "shared") for pair in pairs]
    answers, verdicts, chances = zip(*loaded.generate_and_judge(asked, thens, 5))
    assert list(answers) == loaded.generate(asked, 5)
    alone = loaded.judge([then(answer) for then, answer in zip(thens, answers)])
    assert list(verdicts) == [text for text, _ in alone] and all(
        prompts.parse_verdict(text).parsed for text in verdicts
    )
    assert all(one == pytest.approx(other, abs=1e-4) for one, (_, other) in zip(chances, alone))
