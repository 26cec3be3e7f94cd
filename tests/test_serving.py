"""Answering is quick, and no answer changes by it."""

import random

import pytest
import torch
from bitsandbytes.nn import Linear4bit
from peft import LoraConfig, get_peft_model
from transformers import DynamicCache, LlamaConfig

from covrag_lite import config
from covrag_lite.engine import prepare as serving
from covrag_lite.engine.decoding import Writer
from covrag_lite.engine.local import load_model
from covrag_lite.engine.trainee import own_network

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
    layers_of = {"rag": "all-linear", "cov": ["q_proj", "up_proj"]}
    for seed, (name, layers) in enumerate(layers_of.items()):
        network = tiny(tiny_folder, quantize="none")._network
        torch.manual_seed(seed)
        lora = LoraConfig(r=4, target_modules=layers, init_lora_weights=False, task_type="CAUSAL_LM")
        get_peft_model(network, lora).save_pretrained(folder / name)
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
    loaded = tiny(tiny_folder, adapters=adapters)
    before = loaded.with_adapter("rag").generate(PROMPTS, 6)
    assert packed(own_network(loaded))
    assert not hasattr(loaded.network.model.layers[0].mlp.up_proj, "lora_A")
    # Afterwards it answers with the adapter in the new network.
    assert loaded.with_adapter("rag").generate(PROMPTS, 6) == before


@pytest.mark.parametrize("quantize", ["nf4", "none"])
def test_lean_adapters_compute_what_pefts_do(tiny_folder, adapters, quantize):
    peft, lean = (tiny(tiny_folder, adapters=adapters, quantize=quantize) for _ in range(2))
    for name in ("rag", "cov", "", "rag"):
        plain_view = peft.with_adapter(name)
        lean_view = lean.with_adapter(name)
        expected = logits(plain_view.network, plain_view)
        torch.testing.assert_close(logits(lean_view.quick_network, lean_view), expected)
    rag = logits(lean.with_adapter("rag").quick_network, lean)
    cov = logits(lean.with_adapter("cov").quick_network, lean)
    assert not torch.allclose(rag, cov)


def test_attention_in_blocks_is_attention(tiny_folder):
    plain, quick = (tiny(tiny_folder, quantize="none") for _ in range(2))
    ids = torch.randint(3, 400, (3, 2 * serving.BLOCK + 7), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[0, :70] = mask[1, :3] = 0
    with torch.inference_mode():
        expected = plain.network(input_ids=ids, attention_mask=mask).logits[mask.bool()]
        made = quick.quick_network(input_ids=ids, attention_mask=mask).logits[mask.bool()]
    assert quick.network.config._attn_implementation == serving.GROUPED
    torch.testing.assert_close(made, expected)


def test_texts_are_the_same_whatever_the_budget_and_the_order(tiny_folder, adapters):
    def write(prompts, batch_tokens):
        """Each prompt's answer and verdict, and the sizes of the batches they were written in."""
        cov = tiny(tiny_folder, adapters=adapters, batch_tokens=batch_tokens).with_adapter("cov")
        texts, sizes = {}, []
        for batch in cov.batches(prompts, 12):
            sizes.append(len(batch))
            texts |= zip(batch, zip(cov.generate(batch, 12), cov.verify(batch)))
        return texts, sizes

    longest = max(map(len, tiny(tiny_folder).encode(PROMPTS, 0))) + 12
    alone, sizes = write(PROMPTS, 1)
    assert sizes == [1] * 6
    by_three, sizes = write(PROMPTS, 3 * longest)
    assert by_three == alone and sizes[0] == 3
    together, sizes = write(PROMPTS, 0)
    assert together == alone and sizes == [6]
    for batch_tokens in (0, 3 * longest):
        backwards, _ = write(PROMPTS[::-1], batch_tokens)
        assert backwards == alone


def test_a_batch_is_planned_longest_first_and_within_its_tokens():
    draw = random.Random(1)
    lengths = {f"{i}": draw.randint(1, 900) for i in range(200)}
    batches = serving.plan(lengths, 40, 4096)
    flat = [prompt for batch in batches for prompt in batch]
    assert sorted(flat) == sorted(lengths)
    assert [lengths[one] for one in flat] == sorted(lengths.values(), reverse=True)
    assert all(len(batch) * (lengths[batch[0]] + 40) <= 4096 for batch in batches)
    assert serving.plan({"long": 9000}, 40, 4096) == [["long"]]
    assert serving.plan({}, 40, 4096) == []


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

    def never_fits(prompts):
        raise error

    def is_wrong(prompts):
        raise RuntimeError("shapes do not match")

    assert serving.fit(write, list("abcde")) == list("ABCDE")
    assert tried == [5, 2, 3, 1, 2]
    with pytest.raises(MemoryError, match="one prompt of 3 letters does not fit into memory"):
        serving.fit(never_fits, ["abc"])
    with pytest.raises(RuntimeError, match="shapes"):  # any other failure is not a matter of size
        serving.fit(is_wrong, list("ab"))


def test_a_gpus_free_memory_decides_how_many_tokens_fit(tiny_folder, monkeypatch):
    network = tiny(tiny_folder).network
    assert serving.fitting_tokens(network, "cpu") == serving.CPU_TOKENS
    kept = 2 * 2 * 2 * 16  # keys and values of two layers with two heads of 16
    passing = 3 * 128 + 8 * 64  # one layer's tensors
    per_token = (kept + passing) * 4
    monkeypatch.setattr(serving, "free_memory", lambda device: 2 * 1500 * per_token)
    assert serving.fitting_tokens(network, "cuda") == 1024
    monkeypatch.setattr(serving, "free_memory", lambda device: 10**15)
    assert serving.fitting_tokens(network, "cuda") == serving.CUDA_TOKENS


@pytest.fixture
def watched(tiny_folder, monkeypatch):
    """A model, and the (rows, tokens) of everything that is fed to it."""
    loaded = tiny(tiny_folder, quantize="none")
    forward = loaded.quick_network.forward
    fed = []

    def noted(**given):
        fed.append(tuple(given["input_ids"].shape))
        return forward(**given)

    monkeypatch.setattr(loaded.network, "forward", noted)
    return loaded, fed


def test_what_all_prompts_begin_with_is_read_once(watched):
    loaded, fed = watched
    beginning = "the same words for all of them " * 4
    prompts = [beginning + end for end in ("who", "where and when", "why")]
    together = loaded.generate(prompts, 1)
    (rows, shared), (_, rest) = fed
    assert rows == 1 and rest < 12
    assert shared + rest == max(map(len, loaded.encode(prompts, 0)))
    assert together == [loaded.generate([prompt], 1)[0] for prompt in prompts]
    assert fed[2][1] > shared  # alone, a prompt is read whole


def test_rows_that_are_done_leave_the_batch(watched):
    loaded, fed = watched
    first = Writer(loaded, PROMPTS, 1).logits().argmax(1).tolist()
    loaded.end_id = first[0]  # so that the first prompt is answered at once
    going = sum(token != first[0] for token in first)
    fed.clear()
    texts = loaded.generate(PROMPTS, 4)
    assert texts[0] == "" and 0 < going < 6
    assert [rows for rows, _ in fed][:2] == [6, going]
    assert texts == [loaded.generate([prompt], 4)[0] for prompt in PROMPTS]


def test_a_step_copies_nothing_of_the_cache_that_is_there():
    shape = LlamaConfig(num_hidden_layers=1)
    rng = torch.Generator().manual_seed(0)
    ours = serving.roomy_cache(shape)
    plain = DynamicCache(config=shape)

    def step(width, rows=3):
        new = [torch.randn(rows, 2, width, 4, generator=rng) for _ in range(2)]
        return [cache.update(*new, 0) for cache in (ours, plain)]

    step(7)
    place = ours.layers[0].keys.data_ptr()
    for _ in range(5):
        (keys, values), (same_keys, same_values) = step(1)
        assert torch.equal(keys, same_keys) and torch.equal(values, same_values)
        assert keys.data_ptr() == place
    for cache in (ours, plain):
        cache.batch_select_indices(torch.tensor([0, 2]))
    for width in (1, serving.ROOM + 1):  # rows have left; then more than there is room for
        assert all(torch.equal(*pair) for pair in zip(*step(width, 2)))


def test_rows_that_leave_the_batch_leave_the_others_their_room():
    layer = serving.Roomy()
    keys, values = torch.randn(2, 4, 2, 5, 3).unbind(0)  # each (rows, heads, tokens, size)
    layer.update(keys, values)
    before = layer.room
    layer.batch_select_indices(torch.tensor([0, 2]))
    assert torch.equal(layer.keys, keys[[0, 2]]) and torch.equal(layer.values, values[[0, 2]])
    room = layer.room[0]
    layer.update(keys[[0, 2], :, :1], values[[0, 2], :, :1])
    assert layer.room[0] is room and room.shape[-2] == 5 + serving.ROOM  # nothing is moved for the next token
    assert torch.equal(layer.keys, torch.cat([keys[[0, 2]], keys[[0, 2], :, :1]], -2))
    assert torch.equal(before[0][..., :5, :], keys)  # a snapshot from before stays good
    layer.room = ()
    layer.batch_select_indices(torch.tensor([1]))  # without room, as transformers does it
    assert len(layer.keys) == 1


@pytest.mark.parametrize("kind", ["none", "hidden", "added"])
def test_one_tokens_attention_shares_keys_among_the_heads_of_a_group(kind):
    rng = torch.Generator().manual_seed(0)
    query = torch.randn(3, 6, 1, 8, generator=rng)
    key, value = torch.randn(2, 3, 2, 9, 8, generator=rng)
    mask = torch.rand(3, 1, 1, 9, generator=rng) > 0.3
    mask[..., -1] = True
    masks = {"none": None, "hidden": mask, "added": torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))}
    keys, values = (part.repeat_interleave(3, 1) for part in (key, value))  # by the book: each head has its own
    attention = torch.nn.functional.scaled_dot_product_attention
    expected = attention(query, keys, values, masks[kind], scale=0.4).transpose(1, 2)
    made, _ = serving.attend(None, query, key, value, masks[kind], 0.4)
    torch.testing.assert_close(made, expected)


def test_planned_prompts_are_tokenised_once_and_give_lists_of_their_own(tiny_folder, monkeypatch):
    loaded = tiny(tiny_folder)
    expected = loaded.encode(PROMPTS, 1)
    batches = loaded.batches(PROMPTS, 4)
    asked = []
    monkeypatch.setattr(type(loaded), "_tokenise", lambda self, prompts: asked.append(prompts))
    first, second = loaded.with_adapter("").encode([PROMPTS[1], PROMPTS[1]], 1)
    assert first == second == expected[1]
    first.append(0)
    assert second == loaded.encode(PROMPTS, 1)[1] == expected[1]
    assert not asked
    monkeypatch.undo()
    texts = [loaded.generate(batch, 4) for batch in batches]
    loaded.batches(["another"], 4)
    assert list(loaded.planned) == ["another"]  # of the last plan alone
    assert [loaded.generate(batch, 4) for batch in batches] == texts
    first, second = loaded.encode(["never planned"] * 2, 1)
    assert first == second and first is not second
