"""Packed prompts give the same logits, cache and texts as padded ones."""

import itertools
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from bitsandbytes.nn import Linear4bit
from conftest import PROMPTS, add_adapter, build_network, load_tiny

from covrag_lite import config
from covrag_lite.engine import devices, load_engine
from covrag_lite.engine.fast import prefill, varlen_attention, varlen_prefill
from covrag_lite.engine.fast.network import lighten
from covrag_lite.prompts import SCHEMA
from covrag_lite.runs.manifest import build_manifest

IDS = [list(range(5, 29)), [7, 9, 11], list(range(40, 57)), [3]]
MORE = [[4, 6], [], list(range(60, 72)), [8, 1, 2]]  # a row that waits among others
FUNCTIONS = varlen_prefill.reading_functions(False)
SHARED = ["Here is a question, and what was found on it: " + prompt for prompt in PROMPTS]

# Passes over rows of tokens.


def prepared_network(family, with_adapter=False):
    network = build_network(family, initializer_range=0.1)
    if with_adapter:
        add_adapter(network)
    lighten(network, "cpu")
    return network


class Both:
    """The same passes with two caches: padded and packed."""

    def __init__(self, network, rows):
        assert varlen_prefill.install(network, False, Counter())
        self.network = network
        self.padded_cache = prefill.roomy_cache(network.config)
        self.cache = prefill.roomy_cache(network.config)
        self.mask = torch.zeros(rows, 0, dtype=torch.long)

    def read(self, ids, positions=(-1,)):
        """Make one pass in both ways and compare logits, mask and cache."""
        padded = (self.network, ids, self.mask, self.padded_cache, positions)
        expected, mask = prefill.read(*padded)
        packed = (self.network, ids, self.mask, self.cache, positions)
        logits, self.mask = varlen_prefill.read(*packed)
        torch.testing.assert_close(self.mask, mask)
        lengths = torch.tensor([len(row) for row in ids])[:, None]
        exists = lengths + torch.tensor(positions) >= 0  # only positions that a row has
        torch.testing.assert_close(logits[exists], expected[exists])
        for layer, padded_layer in zip(self.cache.layers, self.padded_cache.layers):
            self.compare(layer.keys, padded_layer.keys)
            self.compare(layer.values, padded_layer.values)

    def compare(self, cached, expected):
        """Compare what rows have read; padding may differ, but it is finite."""
        cached = cached.transpose(1, 2)
        expected = expected.transpose(1, 2)
        assert cached.shape == expected.shape
        assert cached.isfinite().all()
        torch.testing.assert_close(cached[self.mask.bool()], expected[self.mask.bool()])


@pytest.fixture(params=itertools.product(varlen_prefill.FAMILIES, [False, True]), ids=str)
def network(request, monkeypatch):
    monkeypatch.setattr(varlen_prefill, "MLP_TOKENS", 7)  # an MLP takes them in parts
    family, with_adapter = request.param
    return prepared_network(family, with_adapter)


def test_packed_rows_have_the_logits_and_the_cache_of_padded_ones(network):
    Both(network, len(IDS)).read(IDS)


def test_packed_rows_continue_like_padded_ones(network):
    both = Both(network, len(IDS))
    both.read(IDS)
    both.read(MORE, (-12, -3, -2, -1))


@pytest.fixture
def after_common_prefix(network):
    """Rows that begin with the same tokens, which were read once."""
    both = Both(network, 1)
    both.read([list(range(20))])
    for cache in (both.cache, both.padded_cache):
        cache.batch_repeat_interleave(len(IDS))
    both.mask = both.mask.repeat(len(IDS), 1)
    return both


def test_packed_rows_continue_a_common_prefix_like_padded_ones(after_common_prefix):
    after_common_prefix.read([[], *IDS[1:]], (-2, -1))  # one row has nothing else yet


def test_tokens_of_a_wrong_guess_are_hidden_from_packed_rows_too(after_common_prefix):
    both = after_common_prefix
    both.read([[], *IDS[1:]], (-2, -1))
    both.mask = both.mask.clone()
    both.mask[1, -2:] = 0
    both.mask[2, -1:] = 0
    both.read(MORE)


# Layers that fail or compute something else are not used.


def write_everything(model):
    """Answers and verdicts for prompts with and without a common prefix."""
    completions = model.complete(PROMPTS[:4], 6) + model.fill(SHARED[:4], SCHEMA, 6)
    return [completion.text for completion in completions]


def divide_by_zero(gate, up):
    return 1 / 0


def rotate_wrongly(query, key, cos, sin):
    return FUNCTIONS.both_rotated(query, key, cos.flip(0), sin)


def attend_to_first_tokens(query, key, value, ends, longest, scaling, *_):
    """A faulty kernel that takes a text's queries for the first of its tokens."""
    n = len(query)
    return varlen_attention.attend_packed(query, key[:n], value[:n], ends, longest, scaling)


DIFFER = "log-probabilities differ from those with padding"


@pytest.fixture(
    params=[
        ("gated", divide_by_zero, "division by zero"),
        ("both_rotated", rotate_wrongly, DIFFER),
        ("attend_packed", attend_to_first_tokens, DIFFER),
    ],
    ids=lambda param: param[0],
)
def faulty(request, tiny_folder, monkeypatch):
    """A model whose packed layers are wrong, and what the warning says."""
    name, wrong, message = request.param
    if name == "attend_packed":
        monkeypatch.setattr(varlen_prefill, name, wrong)
    functions = SimpleNamespace(**vars(FUNCTIONS) | {name: wrong})
    monkeypatch.setattr(varlen_prefill, "reading_functions", lambda compiled: functions)
    model = load_tiny(tiny_folder, quantize="none")
    model.prepared.execution = "graph"
    return model, message


@pytest.mark.filterwarnings("ignore:prompts are read with padding")
def test_wrong_layers_change_no_text(faulty, tiny_folder):
    model, _ = faulty
    plain = load_tiny(tiny_folder, quantize="none")
    assert write_everything(model) == write_everything(plain)


def test_wrong_layers_are_reported_once(faulty):
    model, message = faulty
    warning = f"prompts are read with padding, because {message}"
    with pytest.warns(UserWarning, match=warning) as warned:
        write_everything(model)
    assert len([warning for warning in warned if "padding" in str(warning.message)]) == 1


@pytest.mark.filterwarnings("ignore:prompts are read with padding")
def test_wrong_layers_are_counted_in_the_manifest(faulty):
    model, _ = faulty
    model.complete(PROMPTS[:4], 1)
    used = build_manifest(config.Config().change(systems=()), model, 1.0)["used"]
    assert used["fallback: prompts are read with padding"] == 1


def test_known_layers_with_unpacked_weights_can_be_read_packed():
    assert varlen_prefill.can_be_read_packed(prepared_network("Llama", True))


def test_layers_of_another_kind_are_read_with_padding():
    assert not varlen_prefill.can_be_read_packed(build_network("Gemma"))


def test_layers_with_four_bit_weights_are_read_with_padding():
    network = prepared_network("Llama", True)
    network.model.layers[1].mlp.up_proj = Linear4bit(64, 128, bias=False)
    assert not varlen_prefill.can_be_read_packed(network)


# The machine decides how passes run.


@pytest.mark.parametrize(
    "execution, device, has_bf16, triton, chosen",
    [
        ("auto", "cpu", True, "triton", "eager"),
        ("compiled", "cpu", True, "triton", "eager"),
        ("auto", "cuda", True, "triton", "compiled+graph"),
        ("auto", "cuda", True, None, "graph"),
        ("auto", "cuda", False, "triton", "eager"),
    ],
)
def test_the_machine_decides_on_the_execution(
    execution, device, has_bf16, triton, chosen, tiny_folder, monkeypatch
):
    monkeypatch.setattr(devices.importlib.util, "find_spec", lambda name: triton)
    monkeypatch.setattr(devices, "has_bf16", lambda: has_bf16)
    model = load_engine(config.Model(model=str(tiny_folder), device=device), execution)
    assert model.execution == chosen


@pytest.mark.parametrize(
    "device, has_bf16, expected",
    [
        ("cpu", True, torch.float32),
        ("cuda", True, torch.bfloat16),
        ("cuda", False, torch.float16),
    ],
)
def test_the_machine_decides_on_the_number_type(device, has_bf16, expected, monkeypatch):
    monkeypatch.setattr(devices, "has_bf16", lambda: has_bf16)
    assert devices.number_type(device) == expected
