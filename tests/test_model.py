"""The model's own facts, on a tiny Llama made from nothing; the embedded SmolLM2 once."""

import json
import shutil
from functools import partial

import bitsandbytes
import pytest
import torch

from covrag_lite import config, prompts, records
from covrag_lite.engine import decoding
from covrag_lite.engine import slots as gaps
from covrag_lite.engine.decoding import Writer
from covrag_lite.engine.local import load_model

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

    def write_score():
        digits = [writer.ids(str(digit))[0] for digit in range(10)]
        number = "01"[digits.index(best(digits[:2]))] + "."
        best(writer.ids("."))
        for _ in range(2):
            allowed = digits if number[0] == "0" else digits[:1]  # at most 1.00
            number += str(digits.index(best(allowed)))
        return number

    def write_judgment():
        words = {writer.ids(word)[0]: word for word in prompts.JUDGMENTS}
        word = words[best(list(words))]
        for token in writer.ids(word)[1:]:
            best([token])
        return word

    def write_question():
        opening, empty = writer.ids(' "')[0], writer.ids(' ""')[0]
        first = best([opening, empty])
        allowed = (~writer.quoted.forbidden).nonzero().flatten().tolist()
        written = []
        while (first == opening or opening == empty) and len(written) < 6:
            written.append(best(allowed))
            if loaded.tokenizer.decode(written[-1:]).endswith('"'):
                break
        return ' "' + loaded.tokenizer.decode(written).removesuffix('"') + '"'

    writes = {"score": write_score, "judgment": write_judgment, "text": write_question}
    text = ""
    for part in prompts.SCHEMA:
        if isinstance(part, str):
            for token in writer.ids(part):
                best([token])
            text += part
        else:
            text += writes[part[0]]()
    return text, forwards


def test_a_forced_verdict_is_what_masked_greedy_decoding_writes(loaded):
    texts = loaded.verify(PROMPTS)
    for prompt, text in zip(PROMPTS, texts):
        assert text == masked_greedy(loaded, prompt)[0]
        assert prompts.parse_verdict(text).parsed


def test_a_revised_question_may_end_with_the_last_letters_of_a_token(loaded, monkeypatch):
    """Left to itself a model writes `?"` as one token: where that is forbidden, it has no end that it knows."""
    doubted = gaps.TYPICAL[1]
    wanted = loaded.tokenizer("Who was it", add_special_tokens=False).input_ids
    wanted += loaded.tokenizer('?"', add_special_tokens=False).input_ids
    assert loaded.tokenizer.decode(wanted[-1:]) == '?"'
    coming = iter(wanted)

    def logits(writer):
        return torch.nn.functional.one_hot(torch.tensor([next(coming)]), len(loaded.tokenizer)).float()

    monkeypatch.setattr(Writer, "write_gaps", lambda writer, _: {0: gaps.Filled(list(doubted), [])})
    monkeypatch.setattr(Writer, "logits", logits)
    (text,) = loaded.verify(PROMPTS[:1])
    assert prompts.parse_verdict(text).revised_question == "Who was it?"
    assert not list(coming)


@pytest.mark.parametrize(
    "text, ends", {'"': True, '?"': True, ' "': True, '""': False, '\\"': False, "?": False}.items()
)
def test_which_tokens_end_a_string(text, ends):
    assert decoding.ends_string(text) == ends


def test_a_forced_verdict_keeps_the_probabilities_behind_it(loaded):
    (text, known), (_, other) = loaded.judge(PROMPTS[:2])
    names = [*records.SCORES, "true", "empty"]
    assert list(known) == names[: len(known)] and known != other
    assert all(0 <= value <= 1 for value in known.values())
    writer = Writer(loaded, PROMPTS[:1], 0)
    ids = writer.pending[0] + writer.ids(prompts.SCHEMA[0])

    def chances(choices):
        """The probabilities of these choices after what was written so far."""
        first_tokens = [writer.ids(choice)[0] for choice in choices]
        with torch.inference_mode():
            logits = loaded.network(torch.tensor([ids])).logits[0, -1, first_tokens]
        return torch.softmax(logits, 0).tolist()

    zero, one = chances("01")
    written = json.loads(text)["1"]["reference_correctness"]
    decimals = f"{written:.2f}"[2:] if written < 1 else ""
    expected = one
    ids += writer.ids("0") + writer.ids(".")
    for place, decimal in enumerate(decimals, 1):
        mean = sum(digit * chance for digit, chance in enumerate(chances("0123456789")))
        expected += zero * 10**-place * mean
        ids += writer.ids(decimal)
    assert known["reference_correctness"] == pytest.approx(expected, abs=2e-4)


def test_a_forced_verdict_costs_few_forward_passes(loaded, monkeypatch):
    forward = loaded.network.forward
    calls = []

    def counted(*given, **named):
        calls.append(1)
        return forward(*given, **named)

    monkeypatch.setattr(loaded.network, "forward", counted)
    loaded.verify(PROMPTS[:1])
    forced = len(calls)
    assert masked_greedy(loaded, PROMPTS[0])[1] > 2.5 * forced


def test_texts_do_not_depend_on_the_batch_they_are_in(loaded):
    assert loaded.generate(PROMPTS, 8) == [loaded.generate([prompt], 8)[0] for prompt in PROMPTS]
    assert loaded.verify(PROMPTS) == [loaded.verify([prompt])[0] for prompt in PROMPTS]


def test_nf4_is_really_four_bits(tiny_folder):
    layer = tiny(tiny_folder, quantize="nf4").network.model.layers[0].mlp.up_proj
    assert isinstance(layer, bitsandbytes.nn.Linear4bit)
    assert layer.weight.dtype == torch.uint8
    assert layer.weight.quant_state.quant_type == "nf4" and layer.weight.quant_state.nested


def test_the_fingerprint_is_of_the_weights_not_of_their_place(tiny_folder, tmp_path):
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
    asked = prompts.build_answer("Who wrote the Copper Lanterns?", passages[:2])
    (answer,) = embedded.generate([asked], 20)
    assert "Edith Marrow" in answer
    (verdict,) = embedded.verify([prompts.build_verify("Who wrote it?", passages[:2], answer)])
    assert prompts.parse_verdict(verdict).parsed


def test_the_end_of_a_turn_is_read_off_the_chat_template(tiny_folder):
    chatty = tiny(tiny_folder)
    assert chatty.end_id == chatty.tokenizer.eos_token_id
    chatty = tiny(tiny_folder)
    chatty.tokenizer.chat_template = "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}[/]{% endfor %}"
    assert chatty.tokenizer.decode([chatty.end_id]) == "[" != chatty.tokenizer.eos_token


def test_a_wrong_guess_changes_no_verdict(loaded, monkeypatch):
    written = loaded.judge(PROMPTS)
    all_gaps, _ = gaps.gaps_of(prompts.SCHEMA)
    filled = Writer(loaded, PROMPTS, 0).write_gaps(all_gaps)
    right = tuple(tuple(path) for path, _ in filled.values())
    wrong = ("9",) * 18 + ("unclear", ' "')
    for typical in ((wrong,), right[:1], right):
        monkeypatch.setattr(gaps, "TYPICAL", typical)
        again = loaded.judge(PROMPTS)
        assert [text for text, _ in again] == [text for text, _ in written]
        for (_, known), (_, before) in zip(again, written):
            assert known == pytest.approx(before, abs=1e-4)


def test_right_guesses_fill_all_gaps_in_a_pass_after_the_telling_ones(loaded, monkeypatch):
    all_gaps, _ = gaps.gaps_of(prompts.SCHEMA)
    filled = Writer(loaded, PROMPTS[:1], 0).write_gaps(all_gaps)
    read = Writer.read
    passes = []

    def counted(writer, ids, mask, places):
        passes.append(len(places))
        return read(writer, ids, mask, places)

    monkeypatch.setattr(Writer, "read", counted)
    monkeypatch.setattr(gaps, "TYPICAL", (tuple(filled[0].path),))
    Writer(loaded, PROMPTS[:1], 0).write_gaps(all_gaps)
    assert passes == [gaps.TELLING, len(all_gaps) - gaps.TELLING]


def test_in_the_shared_layout_answer_and_verdict_are_what_their_prompts_alone_give(loaded, questions, passages):
    pairs = [(question.question, passages[i : i + 2]) for i, question in enumerate(questions)]
    asked = [prompts.build_answer(*pair, "shared") for pair in pairs]
    thens = [partial(prompts.build_verify, *pair, layout="shared") for pair in pairs]
    answers, likelihoods, verdicts, chances = zip(*loaded.generate_and_judge(asked, thens, 5))
    assert list(answers) == loaded.generate(asked, 5)
    for one, (_, other) in zip(likelihoods, loaded.answer(asked, 5)):
        assert one == pytest.approx(other, abs=1e-3)
    alone = loaded.judge([then(answer) for then, answer in zip(thens, answers)])
    assert list(verdicts) == [text for text, _ in alone]
    assert all(prompts.parse_verdict(text).parsed for text in verdicts)
    for one, (_, other) in zip(chances, alone):
        assert one == pytest.approx(other, abs=1e-4)


def test_a_verification_prompt_that_begins_otherwise_gets_the_verdict_of_its_own(loaded, monkeypatch):
    asked = [f"{prompt} It is said so, and here is more." for prompt in PROMPTS * 2]
    asked = [f"{number} {prompt}" for number, prompt in enumerate(asked)]
    examples = []

    def make(number, prompt):
        def then(answer):
            examples.extend([number] * (answer == ""))
            begun = prompt if number < decoding.EXAMPLES else prompt.upper()
            return f"{begun} Right? {answer}"

        return then

    thens = [make(number, prompt) for number, prompt in enumerate(asked)]
    made = loaded.generate_and_judge(asked, thens, 5)
    alone = loaded.verify([then(answer) for then, (answer, *_) in zip(thens, made)])
    assert [verdict for _, _, verdict, _ in made] == alone
    assert [answer for answer, *_ in made] == loaded.generate(asked, 5)
    assert set(examples) <= set(range(decoding.EXAMPLES))
