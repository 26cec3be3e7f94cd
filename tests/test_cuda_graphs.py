"""Decoding steps of fixed shapes write what growing ones do, and can be recorded: nothing in them moves or waits."""

import itertools
import warnings
import weakref
from types import SimpleNamespace

import pytest
import torch
from conftest import PROMPTS, load_tiny
from torch.utils._python_dispatch import TorchDispatchMode

from covrag_lite import config
from covrag_lite.engine import cuda_graphs, decode_session
from covrag_lite.engine.decoding import Writer
from covrag_lite.prompts import SCHEMA
from covrag_lite.runs.manifest import build_manifest

LIMIT = 24


@pytest.fixture
def growing(tiny_folder, tiny_adapters):
    return load_tiny(tiny_folder, adapters=str(tiny_adapters), quantize="none")


@pytest.fixture
def fixed(tiny_folder, tiny_adapters, request):
    """A model that takes fixed steps, unrecorded where there is no CUDA, by our own layers or by transformers'."""
    made = load_tiny(tiny_folder, adapters=str(tiny_adapters), quantize="none")
    made.execution = getattr(request, "param", "packed+graph")
    return made


both = pytest.mark.parametrize("fixed", ["graph", "packed+graph"], indirect=True)


def steps_of(model):
    """The steps of the network as it is switched."""
    model.loaded.prepare(model.adapter)
    return model.loaded.steps


def writer_of(model, room=LIMIT):
    return Writer(model.loaded, model.adapter, model.loaded.encode(PROMPTS, room))


def assert_same(made, expected):
    """The same texts, and chances that differ by a rounding at most."""
    assert [one.text for one in made] == [one.text for one in expected]
    assert [one.probabilities for one in made] == [pytest.approx(one.probabilities, abs=2e-4) for one in expected]


def spread_ends(model):
    """Let the model's turn end with a token that many rows write; returns prompts that end, and when."""
    written = {row: one.tokens for row, one in writer_of(model).write_free((), LIMIT).items()}

    def ends(token):
        return {PROMPTS[row]: ids.index(token) for row, ids in written.items() if token in ids}

    tokens = {token for ids in written.values() for token in ids}
    model.loaded.end_id = max(tokens, key=lambda token: (len(set(ends(token).values())), token))
    return ends(model.loaded.end_id)


@pytest.fixture
def thinning(growing, fixed, monkeypatch):
    """Prompts most of which are answered early, so that the last ones move to smaller shapes."""
    monkeypatch.setattr(decode_session, "WORTH", 1)
    monkeypatch.setattr(decode_session, "FEWER", 2)
    ends = spread_ends(growing)
    fixed.loaded.end_id = growing.loaded.end_id
    return [*sorted(ends, key=ends.get) * 3, *(prompt for prompt in PROMPTS if prompt not in ends)][:14]


@both
@pytest.mark.parametrize("name", ["", "rag", "cov"])
def test_fixed_steps_write_the_answers_and_verdicts_of_growing_ones(growing, fixed, name):
    plain, view = growing.with_adapter(name), fixed.with_adapter(name)
    ends = spread_ends(plain)
    assert len(set(ends.values())) > 2
    view.loaded.end_id = plain.loaded.end_id
    assert_same(view.complete(PROMPTS, LIMIT), plain.complete(PROMPTS, LIMIT))
    assert steps_of(view).known and steps_of(growing) is None
    alone = view.complete(PROMPTS[:1], LIMIT)  # one row, in a shape of its own
    assert_same(alone, plain.complete(PROMPTS[:1], LIMIT))
    assert_same(view.fill(PROMPTS, SCHEMA, 12), plain.fill(PROMPTS, SCHEMA, 12))


def test_a_step_serves_batches_of_like_shapes_and_of_one_adapter(growing, fixed):
    fixed.complete(PROMPTS, LIMIT)
    known = dict(steps_of(fixed).known)
    fixed.complete(PROMPTS[:10], LIMIT)
    assert steps_of(fixed).known == known
    fixed.complete(PROMPTS[:2], LIMIT)  # much too large for them
    assert len(steps_of(fixed).known) == len(known) + 1
    for name in ("rag", "cov", "rag"):
        made = fixed.with_adapter(name).complete(PROMPTS, LIMIT)
        assert_same(made, growing.with_adapter(name).complete(PROMPTS, LIMIT))
    known = steps_of(fixed.with_adapter("rag")).known  # all others were of weights that an adapter moved
    assert {owner.name for owner, _ in known} == {"rag", "cov"}


class Noted(TorchDispatchMode):
    """What is computed, on which memory."""

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


@pytest.mark.parametrize("wrong", ["refused", "computed otherwise"])
def test_layers_of_our_own_that_fail_give_way_to_those_of_transformers(growing, fixed, recorder, wrong):
    def record(step, rows):
        if step.functions is not None and wrong == "refused":
            raise RuntimeError("no compiler here")
        return recorder.record(step, rows)

    functions = vars(steps_of(fixed).functions)
    if wrong == "computed otherwise":
        steps_of(fixed).functions = SimpleNamespace(**functions | {"gated": lambda gate, up: gate + up})
    steps_of(fixed).recorder = SimpleNamespace(record=record)
    with pytest.warns(UserWarning, match="transformers' own layers, because (no compiler here|a replayed step gave)"):
        assert_same(fixed.complete(PROMPTS, LIMIT), growing.complete(PROMPTS, LIMIT))
    assert fixed.used["fallback: decoding steps run by transformers' own layers"] == 1
    assert steps_of(fixed).functions is None and not steps_of(fixed).is_given_up
    assert all(step.replay for step in steps_of(fixed).known.values())


@pytest.mark.parametrize("recorded", [0, 1])
def test_a_step_that_cannot_be_recorded_is_told_once_and_changes_no_text(growing, fixed, thinning, recorded):
    attempts = itertools.count(1)

    def record(step, rows):
        if next(attempts) > recorded:
            raise RuntimeError("operation not permitted when stream is capturing\nCUDA kernel errors ...")
        return step.compute

    steps_of(fixed).recorder = SimpleNamespace(record=record)
    expected = growing.complete(thinning, LIMIT)
    with pytest.warns(UserWarning, match="kernel by kernel, because operation not permitted .* gives the same texts"):
        assert_same(fixed.complete(thinning, LIMIT), expected)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(fixed.complete(thinning, LIMIT), expected)
    told = build_manifest(config.Config().change(systems=()), fixed, 1.0)["used"]
    assert told["fallback: decoding steps run kernel by kernel"] == 1


def test_steps_without_memory_are_told_and_change_no_text(growing, fixed, monkeypatch):
    monkeypatch.setattr(decode_session, "free_memory", lambda device: 0)
    with pytest.warns(UserWarning, match="kernel by kernel, because memory is too short for the keys and values"):
        assert_same(fixed.complete(PROMPTS, LIMIT), growing.complete(PROMPTS, LIMIT))
    assert fixed.used - growing.used == {"fallback: decoding steps run kernel by kernel": 1}


class Graph:
    """A CUDA graph on a CPU: what is captured is not done, and is done at each replay."""

    step = None  # the one that was computed last, without holding on to it
    pools = {}  # the graphs of each pool, by its handle; the last graph takes its pool with it

    def capture_begin(self, pool, **_):
        graphs = self.pools.setdefault(pool, [])
        if graphs and not any(graph() for graph in graphs):
            raise RuntimeError("it->second->use_count > 0 INTERNAL ASSERT FAILED")
        graphs.append(weakref.ref(self))
        self.step = Graph.step
        buffers = [*vars(self.step()).values()]
        self.before = [(one, one.clone()) for one in buffers if isinstance(one, torch.Tensor)]

    def capture_end(self):
        for one, kept in self.before:
            one.copy_(kept)

    def replay(self):
        self.step().compute()


@pytest.fixture
def recorder(monkeypatch):
    """The real recorder, over a CUDA of toys."""
    cuda = {
        "Stream": lambda: SimpleNamespace(wait_stream=lambda other: None),
        "current_stream": lambda: SimpleNamespace(wait_stream=lambda other: None),
        "stream": lambda stream: warnings.catch_warnings(),
        "graph_pool_handle": itertools.count().__next__,
        "CUDAGraph": Graph,
    }
    monkeypatch.setattr(Graph, "pools", {})
    for name, toy in cuda.items():
        monkeypatch.setattr(torch.cuda, name, toy)
    compute = cuda_graphs.Step.compute

    def noted(self, plain=False):
        Graph.step = weakref.ref(self)
        compute(self, plain)

    monkeypatch.setattr(cuda_graphs.Step, "compute", noted)
    return cuda_graphs.Recorder()


@both
def test_no_step_lies_over_memory_or_in_a_pool_that_is_gone_and_recording_leaves_it_where_it_was(
    growing, fixed, recorder
):
    steps_of(fixed).recorder = recorder
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for prompts in (PROMPTS[:1], PROMPTS[:2], PROMPTS):  # each wants a larger store, over which no old step lies
            assert_same(fixed.complete(prompts, LIMIT), growing.complete(prompts, LIMIT))
        assert len(Graph.pools) == 3
        assert_same(fixed.complete(PROMPTS[:2], LIMIT), growing.complete(PROMPTS[:2], LIMIT))
    assert len(Graph.pools) == 3  # as long as one graph is there, the next one joins it
    assert_same(fixed.fill(PROMPTS, SCHEMA, 12), growing.fill(PROMPTS, SCHEMA, 12))
    stretches = {stretch.data_ptr() for stretch in steps_of(fixed).store.stretches}
    for step in steps_of(fixed).known.values():
        assert step.replay
        assert {part.data_ptr() for layer in step.cache.layers for part in (layer.keys, layer.values)} == stretches


@pytest.mark.parametrize("what, said", [(0, "12 of 12 rows another token"), (1, "0 of 12 rows .* off by 1 ")])
def test_a_replay_that_writes_something_else_is_refused(growing, fixed, recorder, monkeypatch, what, said):
    def wrong(self):
        self.step().compute()
        self.step().result[what] += 1

    monkeypatch.setattr(Graph, "replay", wrong)
    steps_of(fixed).recorder = recorder
    with pytest.warns(UserWarning, match=said):
        assert_same(fixed.complete(PROMPTS, LIMIT), growing.complete(PROMPTS, LIMIT))
    assert steps_of(fixed).is_given_up
