"""Training: the loss, packing without side effects, and a killed run that resumes identically."""

import dataclasses
import errno
import itertools
import json
from functools import partial
from types import SimpleNamespace
from unittest.mock import DEFAULT, Mock

import pandas as pd
import pytest
import torch
from conftest import build_network, load_tiny
from peft import PeftModel
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel

from covrag_lite import config, qlora
from covrag_lite.engine import devices, load_engine, lora, loss_scale
from covrag_lite.engine.fast import layers, loss, memory, training
from covrag_lite.engine.fast.training import build_trainee
from covrag_lite.engine.fast.varlen_prefill import FAMILIES, has_known_layers
from covrag_lite.engine.interface import RowShape
from covrag_lite.engine.loss_scale import LossScale
from covrag_lite.engine.plain_training import losses_one_by_one
from covrag_lite.engine.trainee import ACTIVATIONS
from covrag_lite.prompts import SCHEMA
from covrag_lite.qlora import Encoded, common_shape, encode, lay_out
from covrag_lite.records import Sample

RECORDED = [17.02075, 16.76861, 15.73309]  # of the first three steps, on CPU
SETTINGS = config.Training(
    epochs=2, step_tokens=512, pack_tokens=256, lora_rank=4, learning_rate=0.01
)
EQUAL_WEIGHTS = (1.0, 1.0)  # of the tokens of both tasks
# What each kind of slot is filled with.
VERDICT = {"score": "0.50", "judgment": "true", "text": ' ""'}


def toy_samples(n: int = 10) -> list[Sample]:
    """Random answers and verdicts of various lengths."""
    verdict = tuple(part if isinstance(part, str) else VERDICT[part[0]] for part in SCHEMA)
    samples = []
    for i in range(n):
        question = f"Question: who was number {i}? " + "scores " * (i % 4)
        samples.append(Sample(f"a{i}", "answer", question, (f"Number {i}[1]",)))
        examine = f"Examine answer {i}. " + "criteria " * (i % 3)
        samples.append(Sample(f"v{i}", "verify", examine, verdict))
    return samples


@pytest.fixture(scope="module")
def tiny(tiny_folder):
    """The tiny Llama, used for its tokens; a test that trains loads the network again."""
    return load_tiny(tiny_folder)


@pytest.fixture(scope="module")
def encoded(tiny):
    return encode(toy_samples(3), tiny)


def adapt(network, unpack=False, execution="eager", **changes):
    """A network in training whose adapters have an effect: their second matrix is not zero."""
    settings = dataclasses.replace(SETTINGS, **changes)
    trainee = build_trainee(network, settings, execution, unpack)
    weights = trainee.master.weights
    weights.normal_(0, 0.1, generator=torch.Generator(weights.device).manual_seed(0))
    trainee.master.publish()
    return trainee


def losses_and_grad(trainee, row):
    """The loss of each target token, and the gradient of the adapters."""
    losses = trainee.token_losses(row)
    (losses * row["weights"]).sum().backward()
    grad = trainee.master.copy_grad.clone()
    trainee.master.copy_grad.zero_()
    return losses.detach(), grad


def take_steps(trainee, samples, n):
    """Make this number of updates from the same samples."""
    learn = qlora.learner(trainee, 1.0, "cpu")
    rows = [lay_out(samples, EQUAL_WEIGHTS, "cpu")]
    for _ in range(n):
        qlora.take_step(learn, rows, trainee, 0.01)


def losses_of(trainee, samples, shape=None):
    """The losses of all targets when these samples share a row."""
    losses, _ = losses_and_grad(trainee, lay_out(samples, EQUAL_WEIGHTS, "cpu", shape))
    return losses[: sum(sample.n_targets for sample in samples)]


def run(folder, out, n=10, **changes):
    settings = dataclasses.replace(SETTINGS, **changes)
    return qlora.train(load_tiny(folder), toy_samples(n), out, settings)


# Losses.


@pytest.fixture(
    scope="module", params=[{"activations": "offload"}, {"activations": "keep", "unpack": True}]
)
def trainee(request, tiny):
    return adapt(tiny.read_for_training(), **request.param)


@pytest.fixture(scope="module")
def alone(trainee, encoded):
    """The losses of each sample in a row of its own."""
    return [losses_of(trainee, [sample]) for sample in encoded]


def test_a_packed_sample_has_the_losses_it_has_alone(trainee, encoded, alone):
    assert torch.allclose(losses_of(trainee, encoded), torch.cat(alone), atol=1e-4)


def test_a_padded_sample_has_the_losses_it_has_alone(trainee, encoded, alone):
    shape = RowShape(tokens=1024, sequences=12, targets=512, longest=128)
    assert torch.allclose(losses_of(trainee, encoded, shape), torch.cat(alone), atol=1e-4)


def test_samples_have_different_losses(alone):
    """Otherwise the tests of packing would show nothing."""
    means = [losses.mean().item() for losses in alone]
    assert max(means) - min(means) > 0.01


def test_the_first_losses_are_as_recorded(tiny_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(qlora, "WARMUP", 0.2)
    losses = run(tiny_folder, tmp_path, epochs=1).loss
    assert losses.head(3).tolist() == pytest.approx(RECORDED, rel=1e-3)


# Other architectures.


@pytest.fixture
def plain_and_fast(family_folder, tmp_path, recwarn):
    """The losses of four steps by either engine."""
    settings = {"n": 4, "step_tokens": 256}
    plain = run(f"plain:{family_folder}", tmp_path / "plain", **settings)
    fast = run(family_folder, tmp_path / "fast", **settings)
    return plain.loss.tolist(), fast.loss.tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_known_architecture_has_the_losses_of_plain_training(plain_and_fast, family, recwarn):
    plain, fast = plain_and_fast
    assert fast == pytest.approx(plain, rel=1e-3)
    assert not [warning for warning in recwarn if "the plain way" in str(warning.message)]


@pytest.mark.parametrize("family", ["Starcoder2"])
def test_an_unknown_architecture_is_trained_the_plain_way(plain_and_fast, family, recwarn):
    plain, fast = plain_and_fast
    assert fast == plain
    warned = [str(warning.message) for warning in recwarn]
    assert len([text for text in warned if "the network is trained the plain way" in text]) == 1


@pytest.mark.parametrize("way", ["", "plain:"])
def test_unknown_activations_are_an_error(tiny_folder, tmp_path, way):
    with pytest.raises(ValueError, match="activations 'lose' is not known; use one of keep, "):
        run(f"{way}{tiny_folder}", tmp_path, 1, activations="lose")


# fp16.


@pytest.fixture(params=["", "plain:"])
def exact_and_half(request, tiny_folder, tmp_path, monkeypatch):
    """The losses of a run in fp32 and in fp16, and the final scale of the loss in fp16."""
    folder = f"{request.param}{tiny_folder}"
    exact = run(folder, tmp_path / "fp32", 1)
    monkeypatch.setattr(devices, "number_type", lambda device: torch.float16)
    half = run(folder, tmp_path / "fp16", 1)
    checkpoint = load_file(tmp_path / "fp16" / "checkpoint.safetensors")
    return exact.loss.tolist(), half.loss.tolist(), checkpoint["scale"].tolist()


def test_in_fp16_losses_differ_from_those_of_fp32_by_rounding_only(exact_and_half):
    exact, half, _ = exact_and_half
    assert half == pytest.approx(exact, rel=1e-2)
    assert half != exact


def test_in_fp16_no_step_is_skipped(exact_and_half):
    _, half, scale = exact_and_half
    assert scale == [2.0**12, len(half), 0]


@pytest.fixture
def half_trainee(tiny, monkeypatch):
    monkeypatch.setattr(devices, "number_type", lambda device: torch.float16)
    return build_trainee(load_tiny(tiny.weights).read_for_training(), SETTINGS, "eager", False)


def test_a_step_whose_gradient_overflows_changes_nothing(half_trainee, encoded):
    before = half_trainee.master.weights.clone()
    half_trainee.scale.state[0] = 2.0**60
    take_steps(half_trainee, encoded[:1], 1)
    assert torch.equal(half_trainee.master.weights, before)
    assert half_trainee.scale.state.tolist() == [2.0**59, 0, 1]


def test_a_step_changes_adapters_only(half_trainee, encoded):
    state = half_trainee.adapted.state_dict
    before = {name: value.clone() for name, value in state().items()}
    half_trainee.scale.state[0] = 1.0
    take_steps(half_trainee, encoded, 2)  # the first leaves A unchanged, because B is zero
    changed = {name for name, value in state().items() if not torch.equal(value, before[name])}
    assert changed == {name for name in before if "lora_" in name}
    assert len(changed) == 28  # A and B of seven linear layers in each of two layers


@pytest.fixture
def half_scale():
    return LossScale(torch.float16, "cpu")


def test_a_scaled_loss_has_a_scaled_gradient(half_scale):
    weights = torch.tensor([1.0, 2.0], requires_grad=True)
    half_scale.enlarge(weights * 3.0).sum().backward()
    assert weights.grad.tolist() == [3.0 * 2**12] * 2


def test_a_finite_gradient_is_scaled_back(half_scale):
    grad = torch.tensor([3.0 * 2**12])
    assert half_scale.shrink(grad)
    assert grad.tolist() == [3.0]


def test_after_an_overflow_the_scale_is_halved(half_scale):
    assert not half_scale.shrink(torch.tensor([1.0, torch.inf]))
    assert half_scale.state.tolist() == [2.0**11, 0, 1]


def test_after_enough_finite_steps_the_scale_is_doubled(half_scale, monkeypatch):
    monkeypatch.setattr(loss_scale, "FINITE_STEPS", 2)
    for _ in range(2):
        half_scale.shrink(torch.tensor([1.0]))
    assert half_scale.state.tolist() == [2.0**13, 0, 0]


def test_an_overflow_at_any_scale_is_an_error(half_scale):
    with pytest.raises(FloatingPointError, match="bf16"):
        for _ in range(13):
            half_scale.shrink(torch.tensor([torch.nan]))


def test_other_types_are_not_scaled():
    assert LossScale(torch.bfloat16, "cpu").shrink(torch.tensor([torch.nan]))


# The adapter.


@pytest.fixture(scope="module")
def trained(tiny_folder, tmp_path_factory):
    """The losses of a run, and the folder of its adapter."""
    out = tmp_path_factory.mktemp("trained")
    return run(tiny_folder, out, epochs=4, step_tokens=256), out


def test_training_lowers_the_loss(trained):
    frame, _ = trained
    assert frame.loss.iloc[-3:].mean() < 0.7 * frame.loss.iloc[:3].mean()


def test_a_trained_adapter_loads_in_peft(trained, tiny_folder):
    _, out = trained
    plain = load_tiny(tiny_folder)
    sample = encode(toy_samples(1), plain)[0]
    ids = torch.tensor([sample.ids])
    labels = torch.tensor([[-100] * sample.start + list(sample.ids[sample.start :])])
    before = plain.network(input_ids=ids, labels=labels).loss
    adapted = PeftModel.from_pretrained(plain.network, out)
    assert adapted(input_ids=ids, labels=labels).loss < 0.8 * before


# A killed run.

COLUMNS = ["step", "loss", "loss_answer", "loss_verify", "tokens", "lr"]


@pytest.fixture(scope="module", params=[("", "offload"), ("plain:", "keep")])
def killed(request, tiny_folder, tmp_path_factory):
    """An uninterrupted run, and one killed at its fourth step, with their steps and folders."""
    way, activations = request.param
    settings = {
        "folder": f"{way}{tiny_folder}",
        "n": 5,
        "step_tokens": 256,
        "activations": activations,
    }
    out = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(qlora, "SAVE_EVERY", 2)
        uninterrupted = run(out=out / "uninterrupted", **settings)
        dies_at_four = itertools.chain(
            [DEFAULT] * 3, [KeyboardInterrupt], itertools.repeat(DEFAULT)
        )
        take_step = Mock(wraps=qlora.take_step, side_effect=dies_at_four)
        monkeypatch.setattr(qlora, "take_step", take_step)
        with pytest.raises(KeyboardInterrupt):
            run(out=out / "killed", **settings)
        resumed = run(out=out / "killed", **settings)
    return SimpleNamespace(
        uninterrupted=uninterrupted, resumed=resumed, n_calls=take_step.call_count, out=out
    )


def test_a_killed_run_resumes_from_its_checkpoint(killed):
    n_after_checkpoint = len(killed.uninterrupted) - 2
    assert killed.n_calls == 4 + n_after_checkpoint


def test_the_steps_of_a_run_are_counted_from_one(killed):
    assert list(killed.resumed["step"]) == list(range(1, len(killed.resumed) + 1))


def test_a_killed_run_has_the_losses_of_an_uninterrupted_one(killed):
    pd.testing.assert_frame_equal(
        killed.resumed[COLUMNS], killed.uninterrupted[COLUMNS], check_exact=True
    )


def test_a_killed_run_has_the_weights_of_an_uninterrupted_one(killed):
    first, second = (
        (killed.out / name / "adapter_model.safetensors").read_bytes()
        for name in ("uninterrupted", "killed")
    )
    assert first == second


# Memory.

SHAPE = RowShape(tokens=4096, sequences=8, targets=512, longest=800)


@pytest.fixture
def deep(tiny, monkeypatch):
    """The tiny network, as if it had 16 layers: of two layers, too little can be offloaded."""
    network = tiny.read_for_training()
    monkeypatch.setattr(network.config, "num_hidden_layers", 16)
    return network


def needed(network, activations):
    settings = dataclasses.replace(SETTINGS, activations=activations)
    return memory.training_bytes(network, settings, SHAPE)


def check_memory(network, activations, gpu_bytes, monkeypatch):
    free = {"cuda": gpu_bytes, "cpu": 1e12}
    monkeypatch.setattr(memory, "free_memory", free.__getitem__)
    settings = dataclasses.replace(SETTINGS, activations=activations)
    return memory.report_training_memory(network, settings, SHAPE, "cuda")


def test_keeping_less_takes_less_memory(deep):
    assert needed(deep, "keep") > needed(deep, "recompute") > needed(deep, "offload")


def test_with_enough_memory_weights_are_unpacked(deep, monkeypatch):
    assert check_memory(deep, "keep", 2 * needed(deep, "keep"), monkeypatch)


def test_the_memory_that_training_needs_is_printed(deep, monkeypatch, capsys):
    check_memory(deep, "keep", 1e9, monkeypatch)
    assert capsys.readouterr().out.startswith("training will need about 0.")


@pytest.mark.parametrize(
    "activations, share, of, cure",
    [
        ("keep", 0.9, "keep", "set activations = 'recompute'"),
        ("recompute", 0.7, "recompute", "set activations = 'offload'"),
        ("offload", 0.5, "offload", "set pack_tokens = (1024|2048)$"),
        ("keep", 0.5, "offload", "set pack_tokens = .*, activations = 'offload'"),
        ("keep", 0.0, "keep", "smaller model"),
    ],
)
def test_what_cannot_fit_is_refused_with_the_setting_to_change(
    deep, activations, share, of, cure, monkeypatch
):
    with pytest.raises(MemoryError, match=cure):
        check_memory(deep, activations, share * needed(deep, of), monkeypatch)


# The optimizer.


@pytest.fixture(params=[1e-3, 1e3], ids=["clipped", "not clipped"])
def updated(request, tiny, monkeypatch):
    """Weights after three updates, ours part by part and those of torch's own AdamW."""
    monkeypatch.setattr(lora, "WEIGHTS_AT_ONCE", 1000)
    clip = request.param
    trainee = adapt(tiny.read_for_training(), activations="offload")
    master = trainee.master
    generator = torch.Generator().manual_seed(0)
    weights = torch.nn.Parameter(master.weights.clone())
    optimizer = torch.optim.AdamW([weights], weight_decay=0.0, fused=True)
    for step in range(1, 4):
        master.copy_grad.normal_(generator=generator)
        weights.grad = master.copy_grad.clone()
        assert torch.nn.utils.clip_grad_norm_([weights], clip) > 10
        optimizer.param_groups[0]["lr"] = 0.01 / step
        optimizer.step()
        trainee.accumulate()
        trainee.update(0.01 / step, clip)
    return master, weights.detach(), optimizer.state[weights]


def test_weights_are_updated_part_by_part_as_by_torchs_own_adamw(updated):
    master, weights, _ = updated
    assert torch.equal(master.weights, weights)


def test_moments_are_updated_as_by_torchs_own_adamw(updated):
    master, _, state = updated
    assert torch.equal(master.tensors["exp_avg"], state["exp_avg"])
    assert torch.equal(master.tensors["exp_avg_sq"], state["exp_avg_sq"])


def test_updates_are_counted_as_by_torchs_own_adamw(updated):
    master, _, state = updated
    assert master.n_steps == state["step"]


def test_after_an_update_passes_read_the_new_weights(updated):
    master, *_ = updated
    assert torch.equal(master.copy, master.weights)


# The backward pass.


@pytest.fixture(params=FAMILIES)
def ours_and_theirs(request, monkeypatch):
    """Losses and gradients by our layers, for every setting, and by autograd and peft."""
    monkeypatch.setattr(loss, "LOGITS_AT_ONCE", 7 * 500)  # the logits of seven targets at a time
    monkeypatch.setattr(layers, "MLP_PART", 10)  # tokens of an offloading layer's MLP at a time
    biases = {"attention_bias": True, "mlp_bias": True} if request.param == "Llama" else {}
    samples = [Encoded(0, tuple(range(3, 20)), 9), Encoded(1, tuple(range(50, 90)), 20)]
    row = lay_out(samples, (0.5, 2.0), "cpu")
    ours = {}
    for activations in ACTIVATIONS:
        network = build_network(request.param, head_dim=16, initializer_range=0.02, **biases)
        assert has_known_layers(network)
        trainee = adapt(network, activations=activations)
        ours[activations] = losses_and_grad(trainee, row)
    for layer in network.model.layers:
        vars(layer).pop("forward", None)
    trainee.losses = partial(losses_one_by_one, trainee.adapted)
    return ours, losses_and_grad(trainee, row)


@pytest.mark.parametrize(
    "family, changes",
    [
        ("Llama", {"hidden_act": "gelu"}),
        ("Mistral", {"sliding_window": 8}),
        ("Qwen2", {"sliding_window": 8, "use_sliding_window": True}),
    ],
)
def test_other_activations_and_sliding_windows_are_no_layers_of_ours(family, changes):
    network = build_network(family)
    assert has_known_layers(network)
    for name, value in changes.items():
        setattr(network.config, name, value)
    assert not has_known_layers(network)


def test_a_network_without_a_list_of_layers_is_of_no_known_kind():
    network = GPT2LMHeadModel(GPT2Config(n_embd=64, n_layer=1, n_head=4, vocab_size=32))
    assert not has_known_layers(network)


def test_our_layers_have_the_losses_of_autograd(ours_and_theirs):
    ours, (expected, _) = ours_and_theirs
    for losses, _ in ours.values():
        assert torch.allclose(losses, expected, atol=1e-5)


def test_our_layers_have_the_gradients_of_autograd(ours_and_theirs):
    ours, (_, expected) = ours_and_theirs
    assert expected.abs().max() > 0.01
    for _, grad in ours.values():
        assert torch.allclose(grad, expected, atol=1e-5, rtol=1e-3)


# Recorded passes, with a fake CUDA that computes at each replay.


@pytest.fixture
def recorded_and_not(tiny, encoded, monkeypatch):
    """What is learned from two rows by a recorded function and by the function itself."""

    def record_graph(compute, warmups):
        for _ in range(warmups):
            compute()
        result = compute()
        return SimpleNamespace(replay=lambda: result.copy_(compute())), result

    monkeypatch.setattr(training, "record_graph", record_graph)
    shape = common_shape([[0, 1, 2], [3, 4, 5]], encoded, 1024)
    rows = [
        lay_out(encoded[:3], EQUAL_WEIGHTS, "cpu", shape),
        lay_out(encoded[3:], EQUAL_WEIGHTS, "cpu", shape),
    ]
    learned = []
    for execution in ("graph", "eager"):
        trainee = adapt(tiny.read_for_training(), execution=execution)
        learn = trainee.capture(qlora.learner(trainee, 1.0, "cpu"))
        for row in rows:
            sums = learn(row)
            learned.append((sums, trainee.master.copy_grad.clone()))
            trainee.master.copy_grad.zero_()
    return learned[:2], learned[2:]


def test_a_recorded_pass_has_the_losses_of_an_unrecorded_one(recorded_and_not):
    recorded, unrecorded = recorded_and_not
    for (sums, _), (expected, _) in zip(recorded, unrecorded, strict=True):
        assert torch.equal(sums, expected)


def test_a_recorded_pass_has_the_gradients_of_an_unrecorded_one(recorded_and_not):
    recorded, unrecorded = recorded_and_not
    (_, first), (_, second) = recorded
    assert not torch.equal(first, second)
    for (_, grad), (_, expected) in zip(recorded, unrecorded, strict=True):
        assert torch.equal(grad, expected)


@pytest.mark.parametrize("execution, one_shape", [("eager", False), ("compiled", True)])
def test_recorded_or_compiled_passes_need_rows_of_one_shape(tiny, execution, one_shape):
    assert adapt(tiny.read_for_training(), execution=execution).one_shape == one_shape


# On CUDA.


@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="the flash kernel and recorded graphs exist on CUDA alone"
)
@pytest.mark.parametrize("activations", ACTIVATIONS)
def test_on_cuda_packing_is_exact_too_and_a_graph_repeats_it(tiny_folder, activations):
    model = load_engine(config.Model(model=str(tiny_folder), device="cuda"))
    trainee = adapt(model.read_for_training(), execution="graph", activations=activations)
    encoded = encode(toy_samples(3), model)
    shape = common_shape([list(range(len(encoded)))], encoded, 1024)
    row = lay_out(encoded, EQUAL_WEIGHTS, "cuda", shape)
    sizes = [sample.n_targets for sample in encoded]
    eager, grad = losses_and_grad(trainee, row)
    for sample, packed in zip(encoded, eager[: sum(sizes)].split(sizes)):
        alone, _ = losses_and_grad(trainee, lay_out([sample], EQUAL_WEIGHTS, "cuda"))
        assert torch.allclose(packed, alone, atol=0.05)  # in bf16
    replay = trainee.capture(qlora.learner(trainee, 1.0, "cuda"))
    assert torch.allclose(replay(row)[0].sum(), (eager * row["weights"]).sum(), rtol=0.01)
    assert torch.allclose(trainee.master.copy_grad, grad, atol=0.05 * grad.abs().max().item())


# The adapter that is saved.


def test_a_saved_adapter_names_its_base_and_no_local_folder(tmp_path):
    trainee = adapt(build_network("Llama"))
    trainee.save_adapter(tmp_path, "org/base")
    settings = json.loads((tmp_path / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == "org/base"


def test_an_adapter_whose_weights_were_not_written_is_no_adapter(tmp_path, monkeypatch):
    def fail(*words, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("covrag_lite.engine.trainee.save_file", fail)
    with pytest.raises(OSError, match="was not written"):
        adapt(build_network("Llama")).save_adapter(tmp_path, "org/base")
    assert not list(tmp_path.iterdir())
