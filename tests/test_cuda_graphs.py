"""CUDA graphs: decoding steps of a fixed shape write the same texts and can be recorded."""

import itertools
import warnings
from types import SimpleNamespace

import pytest
import torch
from conftest import PROMPTS, load_tiny
from torch.utils._python_dispatch import TorchDispatchMode

from covrag_lite import config
from covrag_lite.engine.fast import cuda_graphs, decode_session, varlen_prefill
from covrag_lite.engine.fast.decoding import Writer
from covrag_lite.prompts import SCHEMA
from covrag_lite.runs.manifest import build_manifest

LIMIT = 24
FALLBACK = "decoding steps run kernel by kernel"


@pytest.fixture
def growing(tiny_folder, tiny_adapters):
    """A model whose steps are not of a fixed shape."""
    return load_tiny(tiny_folder, adapters=str(tiny_adapters), quantize="none")


@pytest.fixture
def fixed(tiny_folder, tiny_adapters, request, monkeypatch):
    """A model with steps of a fixed shape, by our or transformers' layers; not recorded."""
    if getattr(request, "param", "ours") == "theirs":
        monkeypatch.setattr(varlen_prefill, "install", lambda *_: False)
    model = load_tiny(tiny_folder, adapters=str(tiny_adapters), quantize="none")
    model.prepared.execution = "graph"
    return model


both_layers = pytest.mark.parametrize("fixed", ["ours", "theirs"], indirect=True)


def steps_of(model):
    """The decoding steps of the network with its current adapter."""
    model.prepared.prepare(model.adapter)
    return model.prepared.steps


def writer_of(model):
    return Writer(model.prepared, model.adapter, model.prepared.encode(PROMPTS, LIMIT))


def assert_same(completions, expected):
    """Check that texts are equal and probabilities differ by rounding at most."""
    for completion, other in zip(completions, expected, strict=True):
        assert completion.text == other.text
        assert completion.probabilities == pytest.approx(other.probabilities, abs=2e-4)


# Steps of a fixed shape.


def spread_ends(model):
    """Choose an end token that ends prompts at many different steps; return these steps."""
    written = writer_of(model).write_free((), LIMIT)
    continuations = [continuation.tokens for continuation in written.values()]

    def steps_until(token):
        return {tokens.index(token) for tokens in continuations if token in tokens}

    tokens = set(itertools.chain.from_iterable(continuations))
    end = max(tokens, key=lambda token: (len(steps_until(token)), token))
    model.backbone.vocabulary.end_id = end
    return steps_until(end)


@pytest.fixture
def ending(growing, fixed):
    """In both models prompts end at different steps."""
    assert len(spread_ends(growing)) > 2
    fixed.backbone.vocabulary.end_id = growing.end_id


def test_without_graphs_there_are_no_steps(growing):
    assert steps_of(growing) is None


def test_steps_write_what_growing_ones_do(growing, fixed, ending):
    assert_same(fixed.complete(PROMPTS, LIMIT), growing.complete(PROMPTS, LIMIT))


def test_a_step_serves_batches_of_similar_shapes(fixed, ending):
    fixed.complete(PROMPTS, LIMIT)
    steps = dict(steps_of(fixed).steps)
    assert steps
    fixed.complete(PROMPTS[:10], LIMIT)
    assert steps_of(fixed).steps == steps


def test_a_much_smaller_batch_gets_a_step_of_its_own(fixed, ending):
    fixed.complete(PROMPTS, LIMIT)
    n_steps = len(steps_of(fixed).steps)
    fixed.complete(PROMPTS[:2], LIMIT)
    assert len(steps_of(fixed).steps) == n_steps + 1


@pytest.fixture
def switched(growing, fixed, ending):
    """Pairs of answers and of verdicts by both models, after switching between adapters."""
    pairs = []
    for name in ("rag", "cov", "rag"):
        view = fixed.with_adapter(name)
        other = growing.with_adapter(name)
        pairs.append((view.complete(PROMPTS, LIMIT), other.complete(PROMPTS, LIMIT)))
        pairs.append((view.fill(PROMPTS, SCHEMA, 12), other.fill(PROMPTS, SCHEMA, 12)))
    return pairs


def test_steps_write_with_the_current_adapter(switched):
    for completions, expected in switched:
        assert_same(completions, expected)


def test_every_adapter_has_steps_of_its_own(switched, fixed):
    owners = {owner.name for owner, _ in steps_of(fixed.with_adapter("rag")).steps}
    assert owners == {"rag", "cov"}


@pytest.mark.parametrize("number, rounded", [(1, 64), (64, 64), (65, 128), (700, 768)])
def test_the_room_of_a_step_is_rounded_up(number, rounded):
    assert cuda_graphs.round_up(number, 64) == rounded


# What a graph needs: the same operations on the same memory, without waiting.


class Recorder(TorchDispatchMode):
    """Records every operation with the shapes of its tensors."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        shapes = [tuple(value.shape) for value in args if isinstance(value, torch.Tensor)]
        self.calls.append((function._schema.name, shapes))
        return function(*args, **(kwargs or {}))


@pytest.fixture
def step(fixed):
    """A step of a batch that has read its prompts."""
    writer = writer_of(fixed)
    writer.next_tokens(None, lambda rows, logits: logits.max(1))
    steps = steps_of(fixed)
    session = steps.start_session(None, writer.cache, writer.mask, [5] * 12, LIMIT, None)
    return session.step


def record_calls(step):
    with Recorder() as recorder:
        step.compute()
    return recorder.calls


@both_layers
def test_every_step_consists_of_the_same_operations(step):
    assert record_calls(step) == record_calls(step) == record_calls(step)


@both_layers
def test_nothing_in_a_step_waits_for_the_device(step):
    waiting = "_local_scalar_dense item nonzero is_nonzero equal".split()
    called = {name for name, _ in record_calls(step)}
    assert not called & {f"aten::{name}" for name in waiting}


@both_layers
def test_no_tensor_of_a_step_moves(step):
    tensors = [step.tokens, step.positions, step.mask, step.place, step.result]
    for layer in step.cache.layers:
        tensors += [layer.keys, layer.values]
    before = [tensor.data_ptr() for tensor in tensors]
    step.compute()
    step.compute()
    assert [tensor.data_ptr() for tensor in tensors] == before


# Recording.


@pytest.fixture
def pools(fixed, monkeypatch):
    """A fake CUDA that computes a recorded step at each replay, and the memory pools in use."""
    used = []

    def record_graph(compute, warmups, stream, pool):
        used.append(pool)
        for _ in range(warmups):
            compute()
        return SimpleNamespace(replay=compute), None

    monkeypatch.setattr(cuda_graphs, "record_graph", record_graph)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", itertools.count().__next__)
    steps_of(fixed).stream = "a fake stream"
    return used


SIZES = (1, 2, 12, 2)  # prompts per batch; each of the first three needs more memory


@both_layers
def test_recorded_steps_write_what_growing_ones_do(growing, fixed, pools):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in SIZES:
            prompts = PROMPTS[:n]
            assert_same(fixed.complete(prompts, LIMIT), growing.complete(prompts, LIMIT))
    assert_same(fixed.fill(PROMPTS, SCHEMA, 12), growing.fill(PROMPTS, SCHEMA, 12))


@both_layers
def test_graphs_have_a_new_pool_only_with_a_new_store(fixed, pools):
    for n in SIZES:
        fixed.complete(PROMPTS[:n], LIMIT)
    assert pools == [0, 1, 2, 2]


@both_layers
def test_all_recorded_steps_use_the_current_store(fixed, pools):
    for n in SIZES:
        fixed.complete(PROMPTS[:n], LIMIT)
    steps = steps_of(fixed)
    store = set()
    for keys, values in steps.store:
        store |= {keys.data_ptr(), values.data_ptr()}
    assert steps.steps
    for step in steps.steps.values():
        assert step.replay
        for layer in step.cache.layers:
            assert {layer.keys.data_ptr(), layer.values.data_ptr()} <= store


@pytest.fixture
def failing(fixed, pools, monkeypatch):
    def record(*_):
        raise RuntimeError("operation not permitted when stream is capturing\nCUDA kernel errors …")

    monkeypatch.setattr(decode_session, "record_step", record)
    return fixed


@pytest.mark.filterwarnings(f"ignore:{FALLBACK}")
def test_a_failed_recording_changes_no_text(failing, growing):
    assert_same(failing.complete(PROMPTS, LIMIT), growing.complete(PROMPTS, LIMIT))


def test_a_failed_recording_is_reported_with_the_first_line_of_its_error(failing):
    message = f"{FALLBACK}, because operation not permitted .* capturing; .* gives the same texts"
    with pytest.warns(UserWarning, match=message):
        failing.complete(PROMPTS, LIMIT)


@pytest.mark.filterwarnings(f"ignore:{FALLBACK}")
def test_a_failed_recording_is_not_tried_again(failing, growing):
    failing.complete(PROMPTS, LIMIT)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(failing.complete(PROMPTS, LIMIT), growing.complete(PROMPTS, LIMIT))


@pytest.mark.filterwarnings(f"ignore:{FALLBACK}")
def test_a_failed_recording_is_counted_in_the_manifest(failing):
    failing.complete(PROMPTS, LIMIT)
    used = build_manifest(config.Config().change(systems=()), failing, 1.0)["used"]
    assert used[f"fallback: {FALLBACK}"] == 1


@pytest.fixture
def full(fixed, monkeypatch):
    """A model without free memory for the store of its steps."""
    monkeypatch.setattr(decode_session, "free_memory", lambda device: 0)
    return fixed


def test_steps_without_memory_are_reported(full):
    message = f"{FALLBACK}, because there is not enough memory for the keys"
    with pytest.warns(UserWarning, match=message):
        full.complete(PROMPTS, LIMIT)


@pytest.mark.filterwarnings(f"ignore:{FALLBACK}")
def test_steps_without_memory_change_no_text(full, growing):
    assert_same(full.complete(PROMPTS, LIMIT), growing.complete(PROMPTS, LIMIT))


@pytest.mark.filterwarnings(f"ignore:{FALLBACK}")
def test_steps_without_memory_are_counted(full, growing):
    full.complete(PROMPTS, LIMIT)
    growing.complete(PROMPTS, LIMIT)
    assert full.used - growing.used == {f"fallback: {FALLBACK}": 1}


# A replay that computes something else.


@pytest.fixture(
    params=[(0, "12 of 12 rows another token"), (1, "0 of 12 rows .* differ by 1 ")],
    ids=["tokens", "log-probabilities"],
)
def wrong(request, fixed, pools, monkeypatch):
    """A model whose replays have other tokens or log-probabilities, and what the warning says."""
    part, message = request.param

    def record_graph(compute, *_):
        compute()

        def replay():
            compute()
            compute.__self__.result[part].add_(1)

        return SimpleNamespace(replay=replay), None

    monkeypatch.setattr(cuda_graphs, "record_graph", record_graph)
    return fixed, message


def test_a_wrong_replay_is_reported(wrong):
    model, message = wrong
    with pytest.warns(UserWarning, match=message):
        model.complete(PROMPTS, LIMIT)


@pytest.mark.filterwarnings(f"ignore:{FALLBACK}")
def test_a_wrong_replay_changes_no_text(wrong, growing):
    model, _ = wrong
    assert_same(model.complete(PROMPTS, LIMIT), growing.complete(PROMPTS, LIMIT))


@pytest.mark.filterwarnings(f"ignore:{FALLBACK}")
def test_after_a_wrong_replay_no_step_is_recorded(wrong):
    model, _ = wrong
    model.complete(PROMPTS, LIMIT)
    assert steps_of(model).is_given_up
