"""What only a GPU can show: recorded steps, offloading, free memory and the choice of the device.

The tests run if there is a GPU and COVRAG_CUDA_TESTS is set (conftest.py).
"""

import threading
from collections import Counter

import pytest
import torch
from conftest import PROMPTS, build_network
from test_training import adapt

from covrag_lite import config
from covrag_lite.engine import batch, devices, load_engine
from covrag_lite.engine.fast import memory
from covrag_lite.engine.fast.cuda_graphs import record_graph
from covrag_lite.engine.fast.offload import Offload
from covrag_lite.engine.trainee import ACTIVATIONS
from covrag_lite.prompts import SCHEMA
from covrag_lite.runs import manifest

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

LIMIT = 12  # tokens, more than the steps from which recording pays
CAP = 0.05  # of the GPU's memory
# Random weights have near ties, which bf16 resolves either way; texts differ from there on. Without
# a common computation, no text of 12 tokens would be the same.
LEAST_SAME = 6  # of 12 texts; 7 and 8 were the same on an H200
MEGABYTE = 2**20


@pytest.fixture(scope="module")
def load(tiny_folder):
    """Load the tiny Llama on the GPU."""

    def load(way="", execution="auto"):
        settings = config.Model(model=f"{way}{tiny_folder}", max_revised_tokens=LIMIT)
        return load_engine(settings, execution)

    return load


@pytest.fixture(scope="module")
def recorded(load):
    """An engine that has written answers and verdicts."""
    engine = load()
    return engine, engine.complete(PROMPTS, LIMIT), engine.fill(PROMPTS, SCHEMA, LIMIT)


# Answers and verdicts.


def test_a_gpu_is_chosen_if_there_is_one(load):
    assert load().device == "cuda"


def test_answers_are_written_in_recorded_steps(recorded):
    engine, _, _ = recorded
    assert engine.execution == "compiled+graph"
    assert not [name for name in engine.used if "kernel by kernel" in name]
    steps = engine.prepared.steps
    assert any(step.replay is not None for step in steps.steps.values())


@pytest.mark.parametrize("way, execution", [("", "eager"), ("plain:", "auto")])
def test_recorded_steps_write_the_answers_of_single_kernels(load, recorded, way, execution):
    _, answers, _ = recorded
    expected = load(way, execution).complete(PROMPTS, LIMIT)
    same = [ours.text == theirs.text for ours, theirs in zip(answers, expected, strict=True)]
    assert sum(same) >= LEAST_SAME
    for ours, theirs, is_same in zip(answers, expected, same, strict=True):
        likelihoods = [c.probabilities["likelihood"] for c in (ours, theirs)]
        assert not is_same or likelihoods[0] == pytest.approx(likelihoods[1], abs=0.2)


def test_recorded_steps_write_the_verdicts_of_single_kernels(load, recorded):
    _, _, verdicts = recorded
    expected = load("", "eager").fill(PROMPTS, SCHEMA, LIMIT)
    same = [ours.text == theirs.text for ours, theirs in zip(verdicts, expected, strict=True)]
    assert sum(same) >= LEAST_SAME


def test_a_batch_that_does_not_fit_gives_its_memory_back_before_it_is_halved():
    reserved = []

    def write(prompts):
        reserved.append(torch.cuda.memory_reserved())
        if len(prompts) > 1:
            torch.empty(512 * MEGABYTE, dtype=torch.uint8, device="cuda")
            raise torch.OutOfMemoryError("CUDA out of memory")
        return list(prompts)

    torch.cuda.empty_cache()
    assert batch.write_in_halves(write, ["a", "b"], Counter()) == ["a", "b"]
    assert reserved[1] - reserved[0] < 256 * MEGABYTE


# Memory.


def test_free_memory_is_what_the_cap_leaves():
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(CAP)
    try:
        kept = torch.empty(256 * MEGABYTE, dtype=torch.uint8, device="cuda")
        returned = torch.empty(128 * MEGABYTE, dtype=torch.uint8, device="cuda")
        del returned  # PyTorch keeps it in reserve
        expected = CAP * total - torch.cuda.memory_allocated()
        assert devices.free_memory("cuda") == pytest.approx(expected, abs=MEGABYTE)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    del kept


def test_without_a_cap_the_driver_says_what_is_free():
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    assert 0 < devices.free_memory("cuda") < total
    assert devices.free_memory("cuda") != devices.free_memory("cpu")


def test_a_network_on_a_gpu_is_planned_in_16_bits(tiny_folder):
    assert memory.build_without_weights(tiny_folder, "none", "cuda").dtype == torch.bfloat16
    assert memory.build_without_weights(tiny_folder, "none", "cpu").dtype == torch.float32


def test_a_manifest_names_the_gpu_and_its_peak_memory(load):
    engine = load()
    engine.complete(PROMPTS[:1], 1)
    facts = manifest.describe_model(config.Config().change(systems=("RAG",)), engine)
    assert facts.gpu == torch.cuda.get_device_name()
    assert manifest.peak_memory() == torch.cuda.max_memory_allocated()


# Graphs.


def test_a_graph_computes_again_from_what_its_input_holds_now():
    number = torch.ones(1000, device="cuda")
    graph, result = record_graph(lambda: number * 2, warmups=1)
    number.fill_(21.0)
    graph.replay()
    assert torch.equal(result, torch.full_like(result, 42.0))


def test_recording_starts_after_the_work_before_it():
    number = torch.ones(4000, 4000, device="cuda")
    total = torch.zeros(1, device="cuda")
    for _ in range(50):
        number = number @ number / 4000  # keeps the GPU busy, and every number at 1
    record_graph(lambda: total.copy_(number.sum()), warmups=1)
    assert total.item() == pytest.approx(16e6, rel=1e-3)


def test_the_work_after_a_recording_waits_for_its_warm_up():
    number = torch.ones(4000, 4000, device="cuda")

    def compute():
        power = number
        for _ in range(50):
            power = power @ number / 4000
        return total.copy_(power.sum())

    total = torch.zeros(1, device="cuda")
    record_graph(compute, warmups=1)
    assert total.item() == pytest.approx(16e6, rel=1e-3)


def test_graphs_use_the_stream_and_the_memory_that_they_are_given():
    stream = torch.cuda.Stream()
    pool = torch.cuda.graph_pool_handle()
    used = []

    def compute():
        used.append(torch.cuda.current_stream())
        return torch.ones(1000, device="cuda") * 2

    graph, _ = record_graph(compute, 1, stream, pool)
    assert used == [stream, stream]
    assert graph.pool() == pool


def test_another_thread_may_free_memory_during_a_recording():
    number = torch.ones(1000, device="cuda")

    def free():
        torch.empty(64 * MEGABYTE, dtype=torch.uint8, device="cuda")
        torch.cuda.empty_cache()

    def compute():
        thread = threading.Thread(target=free)
        thread.start()
        thread.join()
        return number * 2

    graph, result = record_graph(compute, warmups=0)
    graph.replay()
    assert result[0].item() == 2.0


# Training.


@pytest.mark.parametrize("activations", ACTIVATIONS)
def test_master_weights_wait_in_pinned_memory_only_if_they_are_offloaded(activations):
    master = adapt(build_network("Llama").cuda(), activations=activations).master
    is_offloaded = activations == "offload"
    assert master.weights.is_pinned() == is_offloaded
    assert master.weights.is_cuda != is_offloaded


def make_layers():
    """What three layers keep, large enough for copies to take some time."""
    generator = torch.Generator("cuda").manual_seed(0)
    shape = (64, MEGABYTE)
    return [torch.rand(shape, generator=generator, device="cuda") for _ in range(3)]


def test_offloaded_tensors_return_unchanged_although_their_memory_is_used_again():
    tensors = make_layers()
    expected = [tensor.clone() for tensor in tensors]
    offload = Offload()
    for number, tensor in enumerate(tensors):
        offload.put(number, [tensor])
        if number:
            tensors[number - 1].zero_()  # it has left
    for number in (2, 1, 0):
        (returned,) = offload.take(number)
        assert torch.equal(returned, expected[number])


def test_offloaded_tensors_wait_in_pinned_memory_that_a_second_pass_reuses():
    offload = Offload()
    (first, second, _) = make_layers()
    offload.put(0, [first])
    (slot,) = offload.slots[0]
    assert slot.is_pinned()
    offload.put(0, [second])
    assert offload.slots[0][0] is slot
    assert torch.equal(offload.take(0)[0], second)


def test_the_layers_below_return_to_two_places_on_the_gpu():
    offload = Offload()
    for number, tensor in enumerate(make_layers()):
        offload.put(number, [tensor])
    for number in (2, 1, 0):
        offload.take(number)
    assert sorted(offload.places) == [0, 1]
    assert all(place.is_cuda for places in offload.places.values() for place in places)
