"""Fast decoding changes no answer: fused layers, unpacked weights, planned batches."""

import itertools
import random
from collections import Counter
from functools import partial
from unittest.mock import Mock

import pytest
import torch
from bitsandbytes.nn import Linear4bit
from conftest import add_adapter, build_network
from conftest import load_tiny as tiny

from covrag_lite.engine import memory, prefill, prepare
from covrag_lite.prompts import SCHEMA

PROMPTS = ["who wrote it?", "where was the author of the copper lanterns born?", "why", "when", "is it " * 30, "what"]


def packed(network):
    return [layer for layer in network.modules() if isinstance(layer, Linear4bit)]


def logits(network, view):
    with torch.inference_mode():
        return network(torch.tensor(view.loaded.encode(PROMPTS[:1], 1))).logits[0, -1]


@pytest.mark.parametrize("quantize", ["nf4", "none"])
def test_adapters_do_not_touch_each_other_and_lean_ones_compute_what_pefts_do(tiny_folder, tiny_adapters, quantize):
    peft, lean = (tiny(tiny_folder, adapters=str(tiny_adapters), quantize=quantize) for _ in range(2))
    expected = {name: logits((view := peft.with_adapter(name)).network, view) for name in ("", "rag", "cov")}
    for one, other in itertools.combinations(expected.values(), 2):
        assert not torch.allclose(one, other)
    for name in ("rag", "cov", "", "rag", "", "cov"):
        view, other = lean.with_adapter(name), peft.with_adapter(name)
        torch.testing.assert_close(logits(view.loaded.prepare(view.adapter), view), expected[name])
        assert not packed(view.network)  # small weights are unpacked, once
        torch.testing.assert_close(logits(other.network, other), expected[name])
    # Training gets the network as loaded; afterwards the same network answers with the adapter.
    view, before = lean.with_adapter("rag"), lean.with_adapter("rag").complete(PROMPTS, 6)
    four_bits = packed(lean.read_anew())
    assert bool(four_bits) == (quantize == "nf4")
    for layer in four_bits:
        assert layer.weight.dtype == torch.uint8
        assert layer.weight.quant_state.quant_type == "nf4" and layer.weight.quant_state.nested
    assert not hasattr(lean.network.model.layers[0].mlp.up_proj, "lora_A")
    assert view.complete(PROMPTS, 6) == before


def test_attention_in_blocks_is_attention(tiny_folder):
    plain, quick = (tiny(tiny_folder, quantize="none") for _ in range(2))
    ids = torch.randint(3, 400, (3, 2 * prefill.BLOCK + 7), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[0, :70] = mask[1, :3] = 0
    with torch.inference_mode():
        expected = plain.network(input_ids=ids, attention_mask=mask).logits[mask.bool()]
        made = quick.loaded.prepare(None)(input_ids=ids, attention_mask=mask).logits[mask.bool()]
    assert quick.network.config._attn_implementation == prefill.GROUPED
    torch.testing.assert_close(made, expected)


def test_texts_are_the_same_whatever_the_budget_and_the_order(tiny_folder, tiny_adapters, monkeypatch):
    def write(prompts, tokens):
        """The answer and verdict of each prompt, and the sizes of the batches."""
        monkeypatch.setattr(prepare, "CPU_TOKENS", tokens)
        cov = tiny(tiny_folder, adapters=str(tiny_adapters), quantize="none").with_adapter("cov")
        texts, sizes = {}, []
        for batch in cov.batches(prompts, 12):
            sizes.append(len(batch))
            made = zip(cov.complete(batch, 6), cov.fill(batch, SCHEMA, 3))
            texts |= zip(batch, [(answer.text, verdict.text) for answer, verdict in made])
        return texts, sizes

    longest = max(map(len, tiny(tiny_folder).loaded.encode(PROMPTS, 0))) + 12
    alone, sizes = write(PROMPTS, 1)
    assert sizes == [1] * 6
    by_three, sizes = write(PROMPTS[::-1], 3 * longest)
    assert by_three == alone and sizes[0] == 3
    together, sizes = write(PROMPTS, 16384)
    assert together == alone and sizes == [6]


def test_a_batch_is_planned_longest_first_and_within_its_tokens():
    draw = random.Random(1)
    lengths = {f"{i}": draw.randint(1, 900) for i in range(200)}
    batches = prepare.plan(lengths, 40, 4096)
    flat = [prompt for batch in batches for prompt in batch]
    assert sorted(flat) == sorted(lengths)
    assert [lengths[one] for one in flat] == sorted(lengths.values(), reverse=True)
    assert all(len(batch) * (lengths[batch[0]] + 40) <= 4096 for batch in batches)
    assert prepare.plan({"long": 9000}, 40, 4096) == [["long"]]
    assert prepare.plan({}, 40, 4096) == []


@pytest.mark.parametrize(
    "kind, said",
    [(torch.OutOfMemoryError, "CUDA out of memory. Tried to"), (RuntimeError, "Allocator: can't allocate memory")],
)
def test_a_batch_that_does_not_fit_is_halved_and_the_run_goes_on(kind, said):
    tried, used = [], Counter()

    def write(prompts, most=2):
        tried.append(len(prompts))
        if len(prompts) > most:
            raise kind(said)
        return [prompt.upper() for prompt in prompts]

    with pytest.warns(UserWarning, match="batches are halved, because they do not fit into memory"):
        assert prepare.fit(write, list("abcde"), used) == list("ABCDE")
    assert tried == [5, 2, 3, 1, 2] and used == {"fallback: batches are halved": 2}
    with pytest.raises(MemoryError, match="one prompt of 3 characters does not fit into memory"):
        prepare.fit(partial(write, most=0), ["abc"], used)
    said = "shapes do not match"  # any other failure is not a matter of size
    with pytest.raises(RuntimeError, match=said):
        prepare.fit(write, list("abc"), used)


def test_a_gpus_free_memory_decides_how_many_tokens_fit_beside_the_decoding_steps_own(tiny_folder, monkeypatch):
    network = tiny(tiny_folder).network
    seven = memory.sketch(("llama", 4096, 11008, 32, 32, 32, 32000, 4096), "nf4", "cuda")
    per_token = (2 * 2 * 2 * 16 + 3 * 128 + 8 * 64) * 4  # two layers' keys and values, and one layer's tensors
    cases = [(network, 3000 * per_token, 1024), (network, 1e15, prepare.CUDA_TOKENS)]
    cases += [(seven, 11e9, 4096), (seven, 20e9, 8192)]  # GPUs of 16 and 24 GB, with 4-bit weights
    for one, free, fits in cases:
        monkeypatch.setattr(prepare, "free_memory", lambda device, free=free: free)
        assert prepare.fitting_tokens(one, "cuda") == fits
        assert prepare.fitting_tokens(one, "cpu") == prepare.CPU_TOKENS
    keys_and_values = 8192 * 32 * 2 * 4096 * 2  # bytes
    assert keys_and_values * (1 + prepare.SPARE) < 0.9 * 20e9


def test_what_all_prompts_begin_with_is_read_once(tiny_folder, monkeypatch):
    engine = tiny(tiny_folder, quantize="none")
    network = engine.loaded.prepare(None)
    forward = Mock(side_effect=network.forward)
    monkeypatch.setattr(network, "forward", forward)
    prompts = ["the same words for all of them " * 4 + end for end in ("who", "where and when", "why")]
    together = engine.complete(prompts, 1)
    alone = [engine.complete([prompt], 1)[0] for prompt in prompts]
    assert [one.text for one in together] == [one.text for one in alone]
    (rows, shared), (_, rest), (_, whole), *_ = (call.kwargs["input_ids"].shape for call in forward.call_args_list)
    assert rows == 1 and rest < 12 and whole > shared  # a single prompt is read whole
    assert shared + rest == max(map(len, engine.loaded.encode(prompts, 0)))


IDS = torch.arange(12).view(2, 6)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"target_modules": ["k_proj", "up_proj", "down_proj"]},
        {"rank_pattern": {"k_proj": 2, "up_proj": 3}},  # with the same alpha, so with other scales
        {"use_dora": True},
        {"lora_bias": True},
    ],
)
def test_lean_adapters_compute_what_pefts_do(settings):
    made = add_adapter(build_network("Qwen2"), **settings)  # queries, keys and values have biases
    with torch.inference_mode():
        expected = made(IDS).logits
        prepare.lighten_adapters(made.base_model.model)
        torch.testing.assert_close(made(IDS).logits, expected)
        with made.disable_adapter():
            torch.testing.assert_close(made(IDS).logits, build_network("Qwen2")(IDS).logits)
