"""Packed prompts give the same logits, cache and texts as padded ones."""

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
from covrag_lite.prompts import SCHEMA
from covrag_lite.runs.manifest import build_manifest

IDS = [list(range(5, 29)), [7, 9, 11], list(range(40, 57)), [3]]
MORE = [[4, 6], [], list(range(60, 72)), [8, 1, 2]]  # a row that waits among others
FUNCTIONS = packed.reading_functions(False)
SHARED = ["Here is a question, and what was found on it: " + prompt for prompt in PROMPTS]


def quick_network(family, with_adapter=False):
    network = build_network(family, initializer_range=0.1)
    if with_adapter:
        add_adapter(network)
    prepare.quicken(network, "cpu")
    return network


class Both:
    """The same passes with two caches: padded and packed."""

    def __init__(self, network, rows):
        assert packed.install(network, False, Counter())
        self.network = network
        self.other = prefill.roomy_cache(network.config)
        self.cache = prefill.roomy_cache(network.config)
        self.mask = torch.zeros(rows, 0, dtype=torch.long)

    def read(self, ids, places=(-1,)):
        """Make one pass in both ways and compare all positions that a row has."""
        expected, mask = prefill.read(self.network, ids, self.mask, self.other, places)
        made, self.mask = packed.read(self.network, ids, self.mask, self.cache, places)
        torch.testing.assert_close(self.mask, mask)
        has_place = torch.tensor([[len(row) + place >= 0 for place in places] for row in ids])
        torch.testing.assert_close(made[has_place], expected[has_place])
        for layer, other in zip(self.cache.layers, self.other.layers):
            for part in ("keys", "values"):
                ours, theirs = (getattr(one, part).transpose(1, 2) for one in (layer, other))
                assert ours.shape == theirs.shape and ours.isfinite().all()
                torch.testing.assert_close(ours[mask.bool()], theirs[mask.bool()])


@pytest.mark.parametrize("with_adapter", [False, True])
@pytest.mark.parametrize("family", packed.KNOWN)
def test_packed_rows_leave_the_logits_and_the_cache_of_padded_ones(family, with_adapter, monkeypatch):
    monkeypatch.setattr(packed, "MLP_TOKENS", 7)  # an MLP takes them in parts
    network = quick_network(family, with_adapter)
    both = Both(network, len(IDS))
    both.read(IDS)
    both.read(MORE, (-12, -3, -2, -1))
    both = Both(network, 1)
    both.read([list(range(20))])  # what all rows begin with
    for cache in (both.cache, both.other):
        cache.batch_repeat_interleave(len(IDS))
    both.mask = both.mask.repeat(len(IDS), 1)
    both.read([[], *IDS[1:]], (-2, -1))  # one row has nothing else yet
    both.mask = both.mask.clone()
    both.mask[1, -2:] = 0  # guessed wrong, and read again otherwise
    both.mask[2, -1:] = 0
    both.read(MORE)


def write_everything(model):
    """Answers and verdicts for prompts with and without a common beginning."""
    return [one.text for one in model.complete(PROMPTS[:4], 6) + model.fill(SHARED[:4], SCHEMA, 6)]


def other_rotation(query, key, cos, sin):
    return FUNCTIONS.both_rotated(query, key, cos.flip(0), sin)


def first_tokens(query, key, value, ends, longest, scaling, *_):
    """A faulty kernel that takes a text's queries for the first of its tokens."""
    return attending.attend_packed(query, key[: len(query)], value[: len(query)], ends, longest, scaling)


@pytest.mark.parametrize(
    "name, wrong, said",
    [
        ("gated", lambda gate, up: 1 / 0, "division by zero"),
        ("both_rotated", other_rotation, "log-probabilities differ from those with padding"),
        ("attend_packed", first_tokens, "log-probabilities differ from those with padding"),
    ],
)
def test_layers_that_fail_or_compute_wrongly_are_told_once_and_not_taken(tiny_folder, name, wrong, said, monkeypatch):
    if name == "attend_packed":
        monkeypatch.setattr(packed, name, wrong)
    functions = SimpleNamespace(**vars(FUNCTIONS) | {name: wrong})
    monkeypatch.setattr(packed, "reading_functions", lambda compiled: functions)
    plain, model = (load_tiny(tiny_folder, quantize="none") for _ in range(2))
    model.execution = "graph"
    with pytest.warns(UserWarning, match=f"prompts are read with padding, because {said}") as told:
        assert write_everything(model) == write_everything(plain)
    assert len([one for one in told if "padding" in str(one.message)]) == 1
    used = build_manifest(config.Config().change(systems=()), model, 1.0)["used"]
    assert used["fallback: prompts are read with padding"] == 1


def test_networks_of_other_kinds_and_packed_weights_are_read_with_padding():
    network = quick_network("Llama", True)
    assert packed.is_readable(network) and not packed.is_readable(build_network("Gemma"))
    network.model.layers[1].mlp.up_proj = Linear4bit(64, 128, bias=False)
    assert not packed.is_readable(network)


@pytest.mark.parametrize(
    "asked, device, has_bf16, triton, chosen, numbers",
    [
        ("auto", "cpu", True, "triton", "eager", torch.float32),
        ("compiled", "cpu", True, "triton", "eager", torch.float32),
        ("auto", "cuda", True, "triton", "compiled+graph", torch.bfloat16),
        ("auto", "cuda", True, None, "graph", torch.bfloat16),
        ("auto", "cuda", False, "triton", "eager", torch.float16),
    ],
)
def test_a_machine_decides_how_it_runs(asked, device, has_bf16, triton, chosen, numbers, tiny_folder, monkeypatch):
    monkeypatch.setattr(devices.importlib.util, "find_spec", lambda name: triton)
    monkeypatch.setattr(devices, "has_bf16", lambda: has_bf16)
    engine = local.LocalEngine(config.Model(model=str(tiny_folder), device=device), tiny_folder, asked)
    assert engine.execution == chosen and devices.number_type(device) == numbers
