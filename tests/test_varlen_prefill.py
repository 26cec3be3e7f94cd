"""Prompts that are read packed leave the logits and the cache that padded ones do, and texts stay the same."""

import itertools
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from bitsandbytes.nn import Linear4bit
from conftest import PROMPTS, add_adapter, build_network, load_tiny

from covrag_lite import config
from covrag_lite.engine import devices, local, prefill, prepare
from covrag_lite.engine import varlen_attention as attending
from covrag_lite.engine import varlen_prefill as packed
from covrag_lite.engine.network import LoadedNetwork
from covrag_lite.prompts import SCHEMA
from covrag_lite.runs.manifest import build_manifest

IDS = [list(range(5, 29)), [7, 9, 11], list(range(40, 57)), [3]]
MORE = [[4, 6], [], list(range(60, 72)), [8, 1, 2]]  # a row that waits among others
PADDED = "fallback: prompts are read with padding"
SHARED = ["Here is a question, and what was found on it: " + prompt for prompt in PROMPTS]


def quick_network(family, with_adapter=False):
    network = build_network(family, initializer_range=0.1)
    if with_adapter:
        add_adapter(network)
    prepare.quicken(network, "cpu")
    return network


class Both:
    """The same passes over two caches: padded, and packed."""

    def __init__(self, network, rows):
        self.reader = packed.Reader(network, False, Counter())
        self.other = prefill.roomy_cache(network.config)
        self.cache = prefill.roomy_cache(network.config)
        self.mask = torch.zeros(rows, 0, dtype=torch.long)

    def read(self, ids, places=(-1,), beginning=()):
        """One pass in both ways, compared wherever a row has that place."""
        past = prefill.begin(self.reader.network, beginning, self.mask, self.other) if beginning else self.mask
        expected, mask = prefill.read(self.reader.network, ids, past, self.other, places)
        made, self.mask = self.reader.read(ids, self.mask, self.cache, places, beginning)
        torch.testing.assert_close(self.mask, mask)
        has_place = torch.tensor([[len(row) + place >= 0 for place in places] for row in ids])
        torch.testing.assert_close(made[has_place], expected[has_place])
        for layer, other in zip(self.cache.layers, self.other.layers):
            for part in ("keys", "values"):
                ours, theirs = (getattr(one, part).transpose(1, 2) for one in (layer, other))
                assert ours.shape == theirs.shape and ours.isfinite().all()
                torch.testing.assert_close(ours[mask.bool()], theirs[mask.bool()])

    def repeat(self, rows):
        """Give every row a copy of the first."""
        for cache in (self.cache, self.other):
            cache.batch_repeat_interleave(rows)
        self.mask = self.mask.repeat(rows, 1)


@pytest.mark.parametrize("with_adapter", [False, True])
@pytest.mark.parametrize("family", packed.KNOWN)
def test_packed_rows_leave_the_logits_and_the_cache_of_padded_ones(family, with_adapter, monkeypatch):
    monkeypatch.setattr(packed, "MLP_TOKENS", 7)  # an MLP takes them in parts
    both = Both(quick_network(family, with_adapter), len(IDS))
    both.read(IDS)
    both.read(MORE, (-12, -3, -2, -1))


@pytest.mark.parametrize("at_once", [False, True])
def test_packed_rows_go_on_from_a_common_beginning_and_from_what_is_masked_out(at_once):
    both = Both(quick_network("Qwen2", True), len(IDS) if at_once else 1)
    if at_once:
        both.read([[], *IDS[1:]], (-2, -1), beginning=list(range(20)))  # one row has nothing else yet
    else:
        both.read([list(range(20))])
        both.repeat(len(IDS))
        both.read(IDS)
    both.mask = both.mask.clone()
    both.mask[0, -4:] = 0  # guessed wrong, and read again otherwise
    both.mask[2, -1:] = 0
    both.read(MORE)
    both.read([[1], [2, 3], [4], [5]])


def test_a_text_attends_to_its_own_keys_and_to_none_that_come_later():
    torch.manual_seed(0)
    query, key, value = torch.randn(5, 4, 8), torch.randn(9, 2, 8), torch.randn(9, 2, 8)
    ends, key_ends = torch.tensor([0, 2, 5]), torch.tensor([0, 4, 9])
    made, *_ = attending.attend_packed(query, key, value, ends, 3, 0.3, key_ends, 5)
    for token, keys in enumerate([range(3), range(4), range(4, 7), range(4, 8), range(4, 9)]):
        for head in range(4):
            shares = (0.3 * key[list(keys), head // 2] @ query[token, head]).softmax(0)
            torch.testing.assert_close(made[token, head], shares @ value[list(keys), head // 2])


def test_a_kernel_that_aligns_texts_otherwise_is_refused(monkeypatch):
    attending.check_kernel(torch.device("cpu"), torch.float32)

    def first_tokens(query, key, value, ends, longest, scaling, key_ends, longest_key):
        return (attending.attend_each(query, key[:5], value[:5], ends, scaling, ends),)

    monkeypatch.setattr(attending, "attend_packed", first_tokens)
    with pytest.raises(RuntimeError, match="off by"):
        attending.check_kernel(torch.device("cpu"), torch.float32)


@pytest.fixture(scope="module")
def model(tiny_folder):
    return load_tiny(tiny_folder)


@pytest.fixture
def reader(model, monkeypatch):
    """Lets the model read packed, uncompiled, as it would on CUDA."""
    monkeypatch.setattr(model, "used", Counter())
    made = packed.Reader(model.loaded.prepare(None), False, model.used)
    monkeypatch.setattr(model.loaded, "reader", made)
    return made


def write_everything(model):
    """Answers and verdicts, of prompts that begin alike and of others."""
    return [one.text for one in model.complete(PROMPTS[:4], 6) + model.fill(SHARED[:4], SCHEMA, 6)]


def test_whatever_fails_is_said_once_and_read_with_padding(model, reader, monkeypatch):
    monkeypatch.setattr(model.loaded, "reader", None)
    expected = write_everything(model)
    monkeypatch.setattr(model.loaded, "reader", reader)
    reader.is_checked = True
    calls = itertools.count(1)

    def fail_in_the_second_layer(*given, attend=packed.attend_packed):
        if next(calls) > 3:
            raise RuntimeError("no kernel image\nis available")
        return attend(*given)

    monkeypatch.setattr(packed, "attend_packed", fail_in_the_second_layer)
    with pytest.warns(UserWarning, match="prompts are read with padding, because no kernel image;") as said:
        assert write_everything(model) == expected
    assert next(calls) == 5 and len([one for one in said if "padding" in str(one.message)]) == 1
    assert build_manifest(config.Config().change(systems=()), model, 1.0)["used"][PADDED] == 1


@pytest.mark.parametrize("wrong", ["gated", "both_rotated"])
def test_layers_that_compute_something_else_are_found_out_before_they_read(model, reader, wrong, monkeypatch):
    functions = reader.functions
    other = {
        "gated": lambda gate, up: gate + up,
        "both_rotated": lambda query, key, cos, sin: functions.both_rotated(query, key, cos.flip(0), sin),
    }
    reader.functions = SimpleNamespace(**vars(functions) | {wrong: other[wrong]})
    with pytest.warns(UserWarning, match="because tokens are more or less likely by .* than with padding"):
        made = write_everything(model)
    monkeypatch.setattr(model.loaded, "reader", None)
    assert made == write_everything(model)


def test_networks_of_other_kinds_and_packed_weights_are_read_with_padding():
    network = quick_network("Llama", True)
    assert packed.is_readable(network) and not packed.is_readable(build_network("Gemma"))
    network.model.layers[1].mlp.up_proj = Linear4bit(64, 128, bias=False)
    assert not packed.is_readable(network)


@pytest.mark.parametrize(
    ("asked", "device", "compiler", "chosen"),
    [
        ("auto", "cpu", "triton", "eager"),
        ("auto", "cuda", "triton", "compiled+graph"),
        ("auto", "cuda", None, "packed+graph"),
        ("graph", "cuda", None, "graph"),
    ],
)
def test_auto_reads_packed_on_cuda_and_all_else_as_it_is_called(
    asked, device, compiler, chosen, tiny_folder, monkeypatch
):
    monkeypatch.setattr(devices.importlib.util, "find_spec", lambda name: compiler)
    engine = local.LocalEngine(config.Model(model=str(tiny_folder), device=device), tiny_folder, asked)
    assert engine.execution == chosen
    loaded = LoadedNetwork(tiny_folder, engine.settings, "cpu", chosen, engine.used)
    assert (loaded.layers == "") == (chosen in ("graph", "eager"))


def test_a_card_without_bf16_computes_in_fp16_and_kernel_by_kernel(monkeypatch):
    assert (devices.number_type("cuda"), devices.number_type("cpu")) == (torch.bfloat16, torch.float32)
    monkeypatch.setattr(devices, "has_bf16", lambda: False)
    assert devices.choose_execution("auto", "cuda") == "eager" and devices.number_type("cuda") == torch.float16
    assert devices.number_type("cpu") == torch.float32
