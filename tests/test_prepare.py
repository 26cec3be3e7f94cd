"""Fast decoding changes no answer: light adapters, unpacked weights, planned batches."""

import itertools
import random
from collections import Counter
from types import SimpleNamespace
from unittest.mock import Mock

import bitsandbytes.nn
import pytest
import torch
from bitsandbytes.nn import Linear4bit
from conftest import add_adapter, build_network
from conftest import load_tiny as tiny
from transformers import GPT2Config

from covrag_lite.engine.batch import write_in_halves
from covrag_lite.engine.fast import batch_plan, memory, prefill
from covrag_lite.engine.fast.batch_plan import count_fitting_tokens, plan_batches
from covrag_lite.engine.fast.light_adapters import lighten_adapters
from covrag_lite.prompts import SCHEMA

PROMPTS = [
    "who wrote it?",
    "where was the author of the copper lanterns born?",
    "why",
    "when",
    "is it " * 30,
    "what",
]


@pytest.fixture(autouse=True)
def exact_products(monkeypatch):
    """CPUs with AVX-512 BF16 would multiply 4-bit weights in bf16, which is too inexact here."""
    monkeypatch.setattr(bitsandbytes.nn.modules, "has_avx512bf16", lambda: False)


# A prepared network computes what the network of transformers and peft computes.


def packed_layers(network):
    return [layer for layer in network.modules() if isinstance(layer, Linear4bit)]


def logits_of(network, view):
    with torch.inference_mode():
        return network(torch.tensor(view.backbone.encode(PROMPTS[:1], 1))).logits[0, -1]


@pytest.fixture(scope="module", params=["nf4", "none"])
def quantize(request):
    return request.param


@pytest.fixture(scope="module")
def unprepared(tiny_folder, tiny_adapters, quantize):
    return tiny(tiny_folder, adapters=str(tiny_adapters), quantize=quantize)


@pytest.fixture
def model(tiny_folder, tiny_adapters, quantize):
    return tiny(tiny_folder, adapters=str(tiny_adapters), quantize=quantize)


def expected_logits(unprepared, name):
    view = unprepared.with_adapter(name)
    return logits_of(view.network, view)


def test_every_adapter_changes_the_logits(unprepared):
    logits = [expected_logits(unprepared, name) for name in ("", "rag", "cov")]
    for first, second in itertools.combinations(logits, 2):
        assert not torch.allclose(first, second)


def test_adapters_of_a_prepared_network_do_not_affect_each_other(unprepared, model):
    for name in ("rag", "cov", "", "rag", "", "cov"):
        view = model.with_adapter(name)
        prepared = view.prepared.prepare(view.adapter)
        torch.testing.assert_close(logits_of(prepared, view), expected_logits(unprepared, name))


def test_adapters_of_an_unprepared_network_do_not_affect_each_other(unprepared):
    first = {name: expected_logits(unprepared, name) for name in ("", "rag", "cov")}
    for name in ("rag", "", "cov"):
        torch.testing.assert_close(expected_logits(unprepared, name), first[name])


def test_small_weights_are_unpacked(model):
    assert not packed_layers(model.prepared.prepare(None))


def test_training_gets_the_network_as_it_is_loaded(model, quantize):
    model.with_adapter("rag").complete(PROMPTS, 2)
    network = model.read_for_training()
    assert bool(packed_layers(network)) == (quantize == "nf4")
    assert not hasattr(network.model.layers[0].mlp.up_proj, "lora_A")


def test_four_bit_weights_are_nested_nf4(tiny_folder):
    for layer in packed_layers(tiny(tiny_folder).network):
        assert layer.weight.dtype == torch.uint8
        assert layer.weight.quant_state.quant_type == "nf4"
        assert layer.weight.quant_state.nested


def test_after_training_the_same_network_answers_with_its_adapters(model):
    view = model.with_adapter("rag")
    before = view.complete(PROMPTS, 6)
    model.read_for_training()
    assert view.complete(PROMPTS, 6) == before


@pytest.fixture(scope="module")
def long_rows():
    """Tokens of three rows that are longer than two blocks, and their mask."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, 400, (3, 2 * prefill.BLOCK + 7), generator=generator)
    mask = torch.ones_like(ids)
    mask[0, :70] = 0
    mask[1, :3] = 0
    return ids, mask


def test_attention_in_blocks_is_attention(tiny_folder, long_rows):
    ids, mask = long_rows
    plain, quick = (tiny(tiny_folder, quantize="none") for _ in range(2))
    prepared = quick.prepared.prepare(None)
    assert prepared.config._attn_implementation == prefill.GROUPED
    with torch.inference_mode():
        expected = plain.network(input_ids=ids, attention_mask=mask).logits[mask.bool()]
        logits = prepared(input_ids=ids, attention_mask=mask).logits[mask.bool()]
    torch.testing.assert_close(logits, expected)


# Light adapters.

IDS = torch.arange(12).view(2, 6)


@pytest.fixture(
    params=[
        {},
        {"target_modules": ["k_proj", "up_proj", "down_proj"]},
        {"rank_pattern": {"k_proj": 2, "up_proj": 3}},  # with the same alpha, so with other scales
        {"use_dora": True},
        {"lora_bias": True},
    ]
)
def adapted(request):
    """A network with an adapter; queries, keys and values have biases."""
    return add_adapter(build_network("Qwen2"), **request.param)


def test_light_adapters_compute_what_pefts_do(adapted):
    with torch.inference_mode():
        expected = adapted(IDS).logits
        lighten_adapters(adapted.base_model.model)
        torch.testing.assert_close(adapted(IDS).logits, expected)


def test_light_adapters_can_be_disabled(adapted):
    lighten_adapters(adapted.base_model.model)
    with torch.inference_mode(), adapted.disable_adapter():
        torch.testing.assert_close(adapted(IDS).logits, build_network("Qwen2")(IDS).logits)


# Batches.


@pytest.fixture
def write_all(tiny_folder, tiny_adapters, monkeypatch):
    """Returns each prompt's answer and verdict, and the sizes of the batches."""

    def write(questions, tokens):
        monkeypatch.setattr(batch_plan, "CPU_TOKENS", tokens)
        model = tiny(tiny_folder, adapters=str(tiny_adapters), quantize="none")
        cov = model.with_adapter("cov")
        written = {}
        batches = cov.batches(questions, 12)
        for batch in batches:
            answers = cov.complete(batch, 6)
            verdicts = cov.fill(batch, SCHEMA, 3)
            for prompt, answer, verdict in zip(batch, answers, verdicts):
                written[prompt] = (answer.text, verdict.text)
        return written, [len(batch) for batch in batches]

    return write


@pytest.mark.parametrize(
    "questions, n_longest, sizes", [(PROMPTS[::-1], 3, [3, 3]), (PROMPTS, 100, [6])]
)
def test_texts_depend_neither_on_the_batches_nor_on_the_order(
    tiny_folder, write_all, questions, n_longest, sizes
):
    longest = max(map(len, tiny(tiny_folder).backbone.encode(PROMPTS, 0))) + 12
    alone, sizes_alone = write_all(PROMPTS, 1)
    together, sizes_together = write_all(questions, n_longest * longest)
    assert together == alone
    assert sizes_alone == [1] * 6
    assert sizes_together[0] == sizes[0]


@pytest.fixture(scope="module")
def lengths():
    draw = random.Random(1)
    return {f"{i}": draw.randint(1, 900) for i in range(200)}


def test_batches_contain_every_prompt_once(lengths):
    planned = list(itertools.chain.from_iterable(plan_batches(lengths, 40, 4096)))
    assert sorted(planned) == sorted(lengths)


def test_batches_are_planned_longest_first(lengths):
    planned = itertools.chain.from_iterable(plan_batches(lengths, 40, 4096))
    assert [lengths[prompt] for prompt in planned] == sorted(lengths.values(), reverse=True)


def test_no_batch_is_larger_than_its_tokens(lengths):
    for batch in plan_batches(lengths, 40, 4096):
        assert len(batch) * (lengths[batch[0]] + 40) <= 4096


def test_a_prompt_longer_than_a_batch_has_one_of_its_own():
    assert plan_batches({"long": 9000}, 40, 4096) == [["long"]]


def test_no_prompts_make_no_batches():
    assert plan_batches({}, 40, 4096) == []


def upper_or_fail(error, most):
    """Returns a function that writes at most so many prompts at once, and its batch sizes."""
    sizes = []

    def write(questions):
        sizes.append(len(questions))
        if len(questions) > most:
            raise error
        return [prompt.upper() for prompt in questions]

    return write, sizes


OUT_OF_MEMORY = pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to"),
        RuntimeError("Allocator: can't allocate memory"),
    ],
)


@OUT_OF_MEMORY
def test_a_batch_that_does_not_fit_is_halved(error):
    write, sizes = upper_or_fail(error, most=2)
    with pytest.warns(UserWarning, match="batches are halved, because they do not fit into memory"):
        assert write_in_halves(write, list("abcde"), Counter()) == list("ABCDE")
    assert sizes == [5, 2, 3, 1, 2]


@pytest.mark.filterwarnings("ignore:batches are halved")
@OUT_OF_MEMORY
def test_every_halving_is_counted(error):
    write, _ = upper_or_fail(error, most=2)
    used = Counter()
    write_in_halves(write, list("abcde"), used)
    assert used == Counter({"fallback: batches are halved": 2})


@pytest.mark.filterwarnings("ignore:batches are halved")
@OUT_OF_MEMORY
def test_a_halved_batch_counts_every_prompt_once(error):
    write, _ = upper_or_fail(error, most=2)
    used = Counter(prompt_tokens=7)

    def encode_and_write(prompts):
        used["prompt_tokens"] += len(prompts)
        return write(prompts)

    write_in_halves(encode_and_write, list("abcde"), used)
    assert used["prompt_tokens"] == 7 + 5


@OUT_OF_MEMORY
def test_a_single_prompt_that_does_not_fit_is_an_error(error):
    write, _ = upper_or_fail(error, most=0)
    with pytest.raises(MemoryError, match="one prompt of 3 characters does not fit into memory"):
        write_in_halves(write, ["abc"], Counter())


def test_a_failure_of_another_kind_is_not_a_matter_of_size():
    write, _ = upper_or_fail(RuntimeError("shapes do not match"), most=2)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        write_in_halves(write, list("abc"), Counter())


# How many tokens fit.


@pytest.fixture(scope="module")
def network(tiny_folder):
    return tiny(tiny_folder).network


@pytest.fixture(scope="module")
def seven_billion():
    shape = ("llama", 4096, 11008, 32, 32, 32, 32000, 4096)
    return memory.build_without_weights(shape, "nf4", "cuda")


def fitting(network, free, monkeypatch):
    monkeypatch.setattr(batch_plan, "free_memory", lambda device: free)
    return count_fitting_tokens(network, "cuda")


def test_a_batch_gets_half_of_the_gpus_memory(network, monkeypatch):
    # Two layers' keys and values, and one layer's tensors, in fp32.
    per_token = (2 * 2 * 2 * 16 + 3 * 128 + 8 * 64) * 4
    assert fitting(network, 3000 * per_token, monkeypatch) == 1024


def test_other_architectures_name_their_sizes_otherwise(monkeypatch):
    config = GPT2Config(n_embd=64, n_layer=2, n_head=4)
    other = SimpleNamespace(config=config, dtype=torch.float32)
    per_token = (2 * 2 * 64 + 3 * 4 * 64 + 8 * 64) * 4
    assert fitting(other, 3000 * per_token, monkeypatch) == 1024


def test_a_batch_on_a_gpu_has_a_largest_size(network, monkeypatch):
    assert fitting(network, 1e15, monkeypatch) == batch_plan.CUDA_TOKENS


@pytest.mark.parametrize("free, fits", [(11e9, 4096), (20e9, 8192)])  # GPUs of 16 and 24 GB
def test_a_large_networks_batch_leaves_room_for_the_store_of_decoding_steps(
    seven_billion, monkeypatch, free, fits
):
    assert fitting(seven_billion, free, monkeypatch) == fits
    keys_and_values = fits * 32 * 2 * 4096 * 2  # bytes
    assert keys_and_values * (1 + batch_plan.SPARE) < 0.9 * free


def test_on_a_cpu_batches_do_not_depend_on_memory(network, monkeypatch):
    monkeypatch.setattr(batch_plan, "free_memory", lambda device: 1)
    assert count_fitting_tokens(network, "cpu") == batch_plan.CPU_TOKENS


def test_on_a_cpu_a_killed_run_loses_at_most_eight_long_prompts():
    lengths = {str(number): 1000 for number in range(50)}  # five passages of a hundred words
    batches = batch_plan.plan_batches(lengths, 40, batch_plan.CPU_TOKENS)
    assert max(map(len, batches)) <= 8


# The common prefix.

PREFIX = "the same words for all of them " * 4
SHARING = [PREFIX + ending for ending in ("who", "where and when", "why")]


@pytest.fixture(scope="module")
def passes(tiny_folder):
    """The texts of prompts with a common prefix, together and alone, and the shapes of passes."""
    model = tiny(tiny_folder, quantize="none")
    network = model.prepared.prepare(None)
    forward = Mock(side_effect=network.forward)
    network.forward = forward
    together = model.complete(SHARING, 1)
    shapes = [tuple(call.kwargs["input_ids"].shape) for call in forward.call_args_list]
    alone = [model.complete([prompt], 1)[0] for prompt in SHARING]
    longest = max(map(len, model.backbone.encode(SHARING, 0)))
    first_alone = forward.call_args_list[len(shapes)].kwargs["input_ids"].shape
    return together, alone, shapes, longest, first_alone


def test_texts_of_prompts_with_a_common_prefix_are_as_alone(passes):
    together, alone, *_ = passes
    assert [answer.text for answer in together] == [answer.text for answer in alone]


def test_a_common_prefix_is_read_once(passes):
    _, _, shapes, longest, _ = passes
    (rows, n_shared), (_, n_left) = shapes
    assert rows == 1
    assert n_shared + n_left == longest


def test_the_rest_of_each_prompt_is_short(passes):
    _, _, shapes, _, _ = passes
    assert shapes[1][1] < 12


def test_a_single_prompt_is_read_as_a_whole(passes):
    _, _, shapes, _, first_alone = passes
    assert first_alone[1] > shapes[0][1]
