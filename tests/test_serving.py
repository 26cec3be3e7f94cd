"""Answering is quick, and no answer changes by it."""

import random

import pytest
import torch
from bitsandbytes.nn import Linear4bit
from peft import LoraConfig, get_peft_model

from covrag_lite import config
from covrag_lite.model import serving
from covrag_lite.model.decoding import Writer
from covrag_lite.model.local import load_model

PROMPTS = [
    "who wrote it?",
    "where was the author of the copper lanterns born, and when?",
    "why",
    "who was it and when",
    "is it " * 30,
    "what",
]


def tiny(folder, **settings):
    return load_model(config.Model(model=str(folder), max_revised_tokens=6, **settings))


@pytest.fixture(scope="module")
def adapters(tiny_folder, tmp_path_factory):
    """Two random adapters, one of them on some of the layers alone."""
    folder = tmp_path_factory.mktemp("adapters")
    for seed, (name, layers) in enumerate({"rag": "all-linear", "cov": ["q_proj", "up_proj"]}.items()):
        network = tiny(tiny_folder, quantize="none")._network
        torch.manual_seed(seed)
        get_peft_model(
            network, LoraConfig(r=4, target_modules=layers, init_lora_weights=False, task_type="CAUSAL_LM")
        ).save_pretrained(folder / name)
    return str(folder)


def packed(network):
    return [layer for layer in network.modules() if isinstance(layer, Linear4bit)]


def logits(network, view):
    with torch.inference_mode():
        return network(torch.tensor(view.encode(PROMPTS[:1], 1))).logits[0, -1]


def test_answering_unpacks_small_weights_once_and_computes_the_same(tiny_folder):
    loaded = tiny(tiny_folder)
    before = logits(loaded.network, loaded)
    assert packed(loaded.network) and not packed(loaded.quick_network)
    assert torch.equal(logits(loaded.quick_network, loaded), before)


def test_weights_that_would_take_much_of_the_memory_stay_packed(tiny_folder, monkeypatch):
    loaded = tiny(tiny_folder)
    monkeypatch.setattr(serving, "free_memory", lambda device: 9 * serving.unpacked_bytes(loaded.network))
    assert packed(loaded.quick_network)


def test_training_gets_the_packed_network_after_answers(tiny_folder, adapters):
    from covrag_lite.training.loop import own_network

    loaded = tiny(tiny_folder, adapters=adapters)
    before = loaded.with_adapter("rag").generate(PROMPTS, 6)
    assert packed(own_network(loaded)) and not hasattr(loaded.network.model.layers[0].mlp.up_proj, "lora_A")
    assert (
        loaded.with_adapter("rag").generate(PROMPTS, 6) == before
    )  # and answers afterwards with the adapter in the new network


@pytest.mark.parametrize("quantize", ["nf4", "none"])
def test_lean_adapters_compute_what_pefts_do(tiny_folder, adapters, quantize):
    peft, lean = (tiny(tiny_folder, adapters=adapters, quantize=quantize) for _ in range(2))
    for name in ("rag", "cov", "", "rag"):
        a, b = peft.with_adapter(name), lean.with_adapter(name)
        torch.testing.assert_close(logits(b.quick_network, b), logits(a.network, a))
    assert not torch.allclose(
        logits(lean.with_adapter("rag").quick_network, lean), logits(lean.with_adapter("cov").quick_network, lean)
    )


def test_attention_in_blocks_is_attention(tiny_folder):
    plain, quick = (tiny(tiny_folder, quantize="none") for _ in range(2))
    ids = torch.randint(3, 400, (3, 2 * serving.BLOCK + 7), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[0, :70] = mask[1, :3] = 0
    with torch.inference_mode():
        made = [
            network(input_ids=ids, attention_mask=mask).logits[mask.bool()]
            for network in (plain.network, quick.quick_network)
        ]
    assert quick.network.config._attn_implementation == serving.GROUPED
    torch.testing.assert_close(*made)


def test_texts_are_the_same_whatever_the_budget_and_the_order(tiny_folder, adapters):
    def texts(prompts, batch_tokens):
        cov = tiny(tiny_folder, adapters=adapters, batch_tokens=batch_tokens).with_adapter("cov")
        written = {}
        for batch in cov.batches(prompts, 12):
            sizes.append(len(batch))
            written |= zip(batch, zip(cov.generate(batch, 12), cov.verify(batch)))
        return written

    sizes = []
    longest = max(map(len, tiny(tiny_folder).encode(PROMPTS, 0))) + 12
    alone = texts(PROMPTS, 1)
    assert sizes == [1] * 6 and alone == texts(PROMPTS, 3 * longest) and sizes[6] == 3
    assert alone == texts(PROMPTS, 0) and sizes[-1] == 6
    assert alone == texts(PROMPTS[::-1], 0) == texts(PROMPTS[::-1], 3 * longest)


def test_a_batch_is_planned_longest_first_and_within_its_tokens():
    draw = random.Random(1)
    lengths = {f"{i}": draw.randint(1, 900) for i in range(200)}
    batches = serving.plan(lengths, 40, 4096)
    flat = [prompt for batch in batches for prompt in batch]
    assert sorted(flat) == sorted(lengths) and [lengths[one] for one in flat] == sorted(lengths.values(), reverse=True)
    assert all(len(batch) * (lengths[batch[0]] + 40) <= 4096 for batch in batches)
    assert serving.plan({"long": 9000}, 40, 4096) == [["long"]] and serving.plan({}, 40, 4096) == []


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_a_batch_that_does_not_fit_is_halved_and_the_run_goes_on(error):
    tried = []

    def write(prompts):
        tried.append(len(prompts))
        if len(prompts) > 2:
            raise error
        return [prompt.upper() for prompt in prompts]

    assert serving.fit(write, list("abcde")) == list("ABCDE") and tried == [5, 2, 3, 1, 2]
    with pytest.raises(MemoryError, match="one prompt of 3 letters does not fit into memory"):
        serving.fit(lambda prompts: (_ for _ in ()).throw(error), ["abc"])
    with pytest.raises(RuntimeError, match="shapes"):  # any other failure is not a matter of size
        serving.fit(lambda prompts: (_ for _ in ()).throw(RuntimeError("shapes do not match")), list("ab"))


def test_a_gpus_free_memory_decides_how_many_tokens_fit(tiny_folder, monkeypatch):
    network = tiny(tiny_folder).network
    assert serving.fitting_tokens(network, "cpu") == serving.CPU_TOKENS
    per_token = (
        2 * 2 * 2 * 16 + 3 * 128 + 8 * 64
    ) * 4  # two layers with two key and value heads of 16; one layer's tensors
    monkeypatch.setattr(serving, "free_memory", lambda device: 2 * 1500 * per_token)
    assert serving.fitting_tokens(network, "cuda") == 1024
    monkeypatch.setattr(serving, "free_memory", lambda device: 10**15)
    assert serving.fitting_tokens(network, "cuda") == serving.CUDA_TOKENS


@pytest.fixture
def watched(tiny_folder, monkeypatch):
    """A model, and the (rows, tokens) of everything that is fed to it."""
    loaded, fed = tiny(tiny_folder, quantize="none"), []
    forward = loaded.quick_network.forward
    monkeypatch.setattr(
        loaded.network, "forward", lambda **words: (fed.append(tuple(words["input_ids"].shape)), forward(**words))[1]
    )
    return loaded, fed


def test_what_all_prompts_begin_with_is_read_once(watched):
    loaded, fed = watched
    prompts = [f"{'the same words for all of them ' * 4}{end}" for end in ("who", "where and when", "why")]
    together = loaded.generate(prompts, 1)
    (rows, shared), (_, rest) = fed
    assert rows == 1 and shared + rest == max(map(len, loaded.encode(prompts, 0))) and rest < 12
    assert together == [loaded.generate([prompt], 1)[0] for prompt in prompts] and fed[2][1] > shared


def test_rows_that_are_done_leave_the_batch(watched):
    loaded, fed = watched
    first = Writer(loaded, PROMPTS, 1).logits().argmax(1).tolist()
    loaded.end_id = first[0]  # so that the first prompt is answered at once
    going = sum(token != first[0] for token in first)
    fed.clear()
    texts = loaded.generate(PROMPTS, 4)
    assert texts[0] == "" and 0 < going < 6 and [rows for rows, _ in fed][:2] == [6, going]
    assert texts == [loaded.generate([prompt], 4)[0] for prompt in PROMPTS]


def test_a_step_copies_nothing_of_the_cache_that_is_there():
    from transformers import DynamicCache, LlamaConfig

    shape, rng = LlamaConfig(num_hidden_layers=1), torch.Generator().manual_seed(0)
    ours, plain = serving.roomy_cache(shape), DynamicCache(config=shape)

    def step(width, rows=3):
        new = [torch.randn(rows, 2, width, 4, generator=rng) for _ in range(2)]
        return [cache.update(*new, 0) for cache in (ours, plain)]

    step(7)
    place = ours.layers[0].keys.data_ptr()
    for _ in range(5):
        (keys, values), (same_keys, same_values) = step(1)
        assert torch.equal(keys, same_keys) and torch.equal(values, same_values) and keys.data_ptr() == place
    for cache in (ours, plain):
        cache.batch_select_indices(torch.tensor([0, 2]))
    for width in (1, serving.ROOM + 1):  # rows have left; then more than there is room for
        assert all(torch.equal(*pair) for pair in zip(*step(width, 2)))
