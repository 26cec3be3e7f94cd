"""CUDA graphs: decoding steps of a fixed shape write the same texts and can be recorded."""

import itertools
import warnings
from types import SimpleNamespace

import pytest
import torch
from conftest import PROMPTS, load_tiny
from torch.utils._python_dispatch import TorchDispatchMode

from covrag_lite import config
from covrag_lite.engine import cuda_graphs, decode_session, varlen_prefill
from covrag_lite.engine.decoding import Writer
from covrag_lite.prompts import SCHEMA
from covrag_lite.runs.manifest import build_manifest

LIMIT = 24


@pytest.fixture
def growing(tiny_folder, tiny_adapters):
    return load_tiny(tiny_folder, adapters=str(tiny_adapters), quantize="none")


@pytest.fixture
def fixed(tiny_folder, tiny_adapters, request, monkeypatch):
    """A model with steps of a fixed shape, by our or transformers' layers; not recorded."""
    if getattr(request, "param", "ours") == "theirs":
        monkeypatch.setattr(varlen_prefill, "install", lambda *_: False)
    made = load_tiny(tiny_folder, adapters=str(tiny_adapters), quantize="none")
    made.execution = "graph"
    return made


both = pytest.mark.parametrize("fixed", ["ours", "theirs"], indirect=True)


def steps_of(model):
    """The decoding steps of the network with its current adapter."""
    model.loaded.prepare(model.adapter)
    return model.loaded.steps


def writer_of(model, room=LIMIT):
    return Writer(model.loaded, model.adapter, model.loaded.encode(PROMPTS, room))


def assert_same(made, expected):
    """Check that texts are equal and probabilities differ by rounding at most."""
    assert [one.text for one in made] == [one.text for one in expected]
    assert [one.probabilities for one in made] == [pytest.approx(one.probabilities, abs=2e-4) for one in expected]


def spread_ends(model):
    """Choose an end token that ends prompts at many different steps; return prompts and steps."""
    written = {row: one.tokens for row, one in writer_of(model).write_free((), LIMIT).items()}

    def ends(token):
        return {PROMPTS[row]: ids.index(token) for row, ids in written.items() if token in ids}

    tokens = {token for ids in written.values() for token in ids}
    model.loaded.end_id = max(tokens, key=lambda token: (len(set(ends(token).values())), token))
    return ends(model.loaded.end_id)


def test_a_step_serves_batches_of_like_shapes_and_of_one_adapter_and_writes_what_growing_ones_do(growing, fixed):
    assert len(set(spread_ends(growing).values())) > 2
    fixed.loaded.end_id = growing.loaded.end_id
    fixed.complete(PROMPTS, LIMIT)
    known = dict(steps_of(fixed).known)
    assert known and steps_of(growing) is None
    fixed.complete(PROMPTS[:10], LIMIT)
    assert steps_of(fixed).known == known
    fixed.complete(PROMPTS[:2], LIMIT)  # much too large for them
    assert len(steps_of(fixed).known) == len(known) + 1
    for name in ("rag", "cov", "rag"):
        view, plain = fixed.with_adapter(name), growing.with_adapter(name)
        assert_same(view.complete(PROMPTS, LIMIT), plain.complete(PROMPTS, LIMIT))
        assert_same(view.fill(PROMPTS, SCHEMA, 12), plain.fill(PROMPTS, SCHEMA, 12))
    known = steps_of(fixed.with_adapter("rag")).known  # all others were of weights that an adapter moved
    assert {owner.name for owner, _ in known} == {"rag", "cov"}


class Noted(TorchDispatchMode):
    """Records every operation with the shapes of its tensors."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        shapes = [tuple(one.shape) for one in args if isinstance(one, torch.Tensor)]
        self.calls.append((function._schema.name, shapes))
        return function(*args, **(kwargs or {}))


@both
def test_nothing_in_a_step_moves_grows_or_waits(fixed):
    writer = writer_of(fixed)
    writer.next_tokens(None, lambda rows, logits: logits.max(1))
    session = steps_of(fixed).begin(None, writer.cache, writer.mask, [5] * 12, LIMIT, None)
    step = session.step

    def places():
        buffers = [step.tokens, step.positions, step.mask, step.place, step.result]
        kept = [part for layer in step.cache.layers for part in (layer.keys, layer.values)]
        return [one.data_ptr() for one in buffers + kept]

    before = places()
    noted = []
    for _ in range(3):
        with Noted() as calls:
            step.compute()
        noted.append(calls.calls)
        assert places() == before
    assert noted[0] == noted[1] == noted[2]
    waiting = {"aten::_local_scalar_dense", "aten::item", "aten::nonzero", "aten::is_nonzero", "aten::equal"}
    assert not waiting & {name for name, _ in noted[0]}


def test_a_failed_recording_is_told_once_and_changes_no_text(growing, fixed, recorder, monkeypatch):
    def record(*_):
        raise RuntimeError("operation not permitted when stream is capturing\nCUDA kernel errors ...")

    monkeypatch.setattr(decode_session, "record_step", record)
    expected = growing.complete(PROMPTS, LIMIT)
    with pytest.warns(UserWarning, match="kernel by kernel, because operation not permitted .* gives the same texts"):
        assert_same(fixed.complete(PROMPTS, LIMIT), expected)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(fixed.complete(PROMPTS, LIMIT), expected)
    told = build_manifest(config.Config().change(systems=()), fixed, 1.0)["used"]
    assert told["fallback: decoding steps run kernel by kernel"] == 1


def test_steps_without_memory_are_told_and_change_no_text(growing, fixed, monkeypatch):
    monkeypatch.setattr(decode_session, "free_memory", lambda device: 0)
    with pytest.warns(UserWarning, match="kernel by kernel, because there is not enough memory for the keys"):
        assert_same(fixed.complete(PROMPTS, LIMIT), growing.complete(PROMPTS, LIMIT))
    assert fixed.used - growing.used == {"fallback: decoding steps run kernel by kernel": 1}


@pytest.fixture
def recorder(fixed, monkeypatch):
    """A fake CUDA that computes a recorded step at each replay, and the memory pools in use."""
    pools = []

    def record_graph(compute, warmups, stream, pool):
        pools.append(pool)
        for _ in range(warmups):
            compute()
        return SimpleNamespace(replay=compute), None

    monkeypatch.setattr(cuda_graphs, "record_graph", record_graph)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", itertools.count().__next__)
    steps_of(fixed).stream = "of toys"
    return pools


@both
def test_no_step_lies_over_memory_or_in_a_pool_that_is_gone_nor_moves_by_recording(growing, fixed, recorder):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Each needs more memory; no old step uses it.
        for prompts in (PROMPTS[:1], PROMPTS[:2], PROMPTS):
            assert_same(fixed.complete(prompts, LIMIT), growing.complete(prompts, LIMIT))
        assert_same(fixed.complete(PROMPTS[:2], LIMIT), growing.complete(PROMPTS[:2], LIMIT))
    assert recorder == [0, 1, 2, 2]  # as long as the store is there, so are the graphs of its pool
    assert_same(fixed.fill(PROMPTS, SCHEMA, 12), growing.fill(PROMPTS, SCHEMA, 12))
    store = {part.data_ptr() for layer in steps_of(fixed).store for part in layer}
    for step in steps_of(fixed).known.values():
        assert step.replay
        assert {part.data_ptr() for layer in step.cache.layers for part in (layer.keys, layer.values)} == store


@pytest.mark.parametrize("what, said", [(0, "12 of 12 rows another token"), (1, "0 of 12 rows .* differ by 1 ")])
def test_a_replay_that_writes_something_else_is_refused(growing, fixed, recorder, monkeypatch, what, said):
    def wrong(compute, *_):
        compute()
        return SimpleNamespace(replay=lambda: (compute(), compute.__self__.result[what].add_(1))), None

    monkeypatch.setattr(cuda_graphs, "record_graph", wrong)
    with pytest.warns(UserWarning, match=said):
        assert_same(fixed.complete(PROMPTS, LIMIT), growing.complete(PROMPTS, LIMIT))
    assert steps_of(fixed).is_given_up
