"""Training: the loss, packing without side effects, and a killed run that resumes identically."""

import dataclasses
from functools import partial
from types import SimpleNamespace
from unittest.mock import DEFAULT, Mock

import pandas as pd
import pytest
import torch
from conftest import build_network, load_tiny
from peft import PeftModel
from safetensors.torch import load_file

from covrag_lite import config, qlora
from covrag_lite.engine import devices, layers, lora, loss, memory, training
from covrag_lite.engine.interface import Shape, load_engine
from covrag_lite.engine.varlen_prefill import KNOWN, is_known
from covrag_lite.prompts import SCHEMA
from covrag_lite.qlora import Encoded, encode, lay_out, shape_of
from covrag_lite.records import Sample

RECORDED = [17.02075, 16.76861, 15.73309]  # of the first three steps, on CPU
SETTINGS = config.Training(epochs=2, step_tokens=512, pack_tokens=256, lora_rank=4, learning_rate=0.01)
WAYS = layers.ACTIVATIONS
VERDICT = {"score": "0.50", "judgment": "true", "text": ' ""'}  # what each kind of slot is filled with


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


def adapt(model, unpack=False, execution="eager", **changes):
    """A network in training whose adapters have an effect: their second matrix is not zero."""
    trainee = training.build(model.read_anew(), dataclasses.replace(SETTINGS, **changes), execution, unpack)
    trainee.master.weights.normal_(0, 0.1, generator=torch.Generator(trainee.master.weights.device).manual_seed(0))
    trainee.master.publish()
    return trainee


def one_pass(trainee, row):
    """The loss of each target token, and the gradient of the adapters."""
    losses = trainee.token_losses(row)
    (losses * row["weights"]).sum().backward()
    grad = trainee.master.copy_grad.clone()
    trainee.master.copy_grad.zero_()
    return losses.detach(), grad


def take_steps(trainee, chosen, n):
    """Make this number of updates from the same samples."""
    learn, rows = qlora.learner(trainee, 1.0, "cpu"), [lay_out(chosen, (1.0, 1.0), "cpu")]
    for _ in range(n):
        qlora.take_step(learn, rows, trainee, 0.01)


def losses_of(trainee, chosen, shape=None):
    """The losses of each sample when these samples share a row."""
    sizes = [len(one.ids) - one.start for one in chosen]
    losses, _ = one_pass(trainee, lay_out(chosen, (1.0, 1.0), "cpu", shape))
    return losses[: sum(sizes)].split(sizes)


def run(folder, out, n=10, **changes):
    model = load_tiny(folder)
    settings = config.Config(training=dataclasses.replace(SETTINGS, **changes), model=model.settings)
    return qlora.train(settings, model, toy_samples(n), out)


@pytest.mark.parametrize("changes", [{"activations": "offload"}, {"activations": "keep", "unpack": True}])
def test_a_packed_sample_has_the_loss_it_has_alone(tiny, encoded, changes):
    trainee = adapt(tiny, **changes)
    packed = losses_of(trainee, encoded)
    padded = losses_of(trainee, encoded, Shape(tokens=1024, sequences=12, targets=512, longest=128))
    alone = [losses_of(trainee, [one])[0] for one in encoded]
    for inside in (packed, padded):
        assert torch.allclose(torch.cat(inside), torch.cat(alone), atol=1e-4)
    assert max(abs(one.mean() - alone[0].mean()) for one in alone) > 0.01  # or this would show nothing


def test_a_step_moves_adapters_and_nothing_else_and_one_that_overflows_moves_nothing(tiny, encoded, monkeypatch):
    monkeypatch.setattr(devices, "number_type", lambda device: torch.float16)
    trainee = training.build(load_tiny(tiny.weights).read_anew(), SETTINGS, "eager", False)
    before = {name: value.clone() for name, value in trainee.adapted.state_dict().items()}
    master = trainee.master.weights.clone()
    trainee.scale.state[0] = 2.0**60
    take_steps(trainee, encoded[:1], 1)
    assert torch.equal(trainee.master.weights, master) and trainee.scale.state.tolist() == [2.0**59, 0, 1]
    trainee.scale.state[0] = 1.0
    take_steps(trainee, encoded, 2)  # the first leaves A unchanged, because B is zero
    moved = {name for name, value in trainee.adapted.state_dict().items() if not torch.equal(value, before[name])}
    assert moved == {name for name in before if "lora_" in name}
    assert len(moved) == 28  # A and B of seven linear layers in each of two layers


def test_the_adapter_loads_in_peft_and_lowers_the_loss(tiny_folder, tmp_path):
    frame = run(tiny_folder, tmp_path, epochs=4, step_tokens=256)
    assert frame.loss.iloc[-3:].mean() < 0.7 * frame.loss.iloc[:3].mean()
    plain = load_tiny(tiny_folder)
    one = encode(toy_samples(1), plain)[0]
    ids, labels = torch.tensor([one.ids]), torch.tensor([[-100] * one.start + list(one.ids[one.start :])])
    base = plain.network(input_ids=ids, labels=labels).loss
    trained = PeftModel.from_pretrained(plain.network, tmp_path)
    assert trained(input_ids=ids, labels=labels).loss < 0.8 * base


@pytest.mark.parametrize("family", [*KNOWN, "Starcoder2"])
def test_every_architecture_has_the_losses_of_the_plain_way(family_folder, tmp_path, family, recwarn):
    given = {"n": 4, "step_tokens": 256}  # four steps
    plain, fast = (run(f"{way}{family_folder}", tmp_path / f"to {way}", **given) for way in ("plain:", ""))
    assert fast.loss.tolist() == pytest.approx(plain.loss.tolist(), rel=1e-3)
    said = [str(one.message) for one in recwarn if "trained the plain way" in str(one.message)]
    assert len(said) == (family not in KNOWN)


@pytest.mark.parametrize("way", ["", "plain:"])
def test_in_fp16_the_losses_are_those_of_fp32_but_for_rounding(tiny_folder, tmp_path, way, monkeypatch):
    exact = run(f"{way}{tiny_folder}", tmp_path / "fp32", 1, epochs=2)
    monkeypatch.setattr(devices, "number_type", lambda device: torch.float16)
    half = run(f"{way}{tiny_folder}", tmp_path / "fp16", 1, epochs=2)
    assert half.loss.tolist() == pytest.approx(exact.loss.tolist(), rel=1e-2)
    assert half.loss.tolist() != exact.loss.tolist()
    kept = load_file(tmp_path / "fp16" / "checkpoint.safetensors")
    assert kept["scale"].tolist() == [2.0**12, len(half), 0]  # no step was left out


def test_a_scaled_loss_has_the_gradient_of_the_loss_and_what_overflows_is_left_out_at_half_the_scale(monkeypatch):
    weights = torch.tensor([1.0, 2.0], requires_grad=True)
    scale = loss.LossScale(torch.float16, "cpu")
    scale.enlarge(weights * 3.0).sum().backward()
    assert weights.grad.tolist() == [3.0 * 2**12] * 2
    assert scale.shrink(weights.grad) and weights.grad.tolist() == [3.0, 3.0]
    assert not scale.shrink(torch.tensor([1.0, torch.inf])) and scale.state.tolist() == [2.0**11, 0, 1]
    monkeypatch.setattr(loss, "PATIENCE", 2)
    assert scale.shrink(weights.grad) and scale.shrink(weights.grad) and scale.state.tolist() == [2.0**12, 0, 1]
    with pytest.raises(FloatingPointError, match="bf16"):
        for _ in range(13):
            scale.shrink(torch.tensor([torch.nan]))
    # As usual, if it is not needed.
    assert loss.LossScale(torch.bfloat16, "cpu").shrink(torch.tensor([torch.nan]))


@pytest.mark.parametrize("way, activations", [("", "offload"), ("plain:", "keep")])
def test_a_killed_run_ends_as_an_unbroken_one(tiny_folder, tmp_path, way, activations, monkeypatch):
    monkeypatch.setattr(qlora, "SAVE_EVERY", 2)
    given = {"folder": f"{way}{tiny_folder}", "n": 5, "step_tokens": 256, "activations": activations}
    unbroken = run(out=tmp_path / "unbroken", **given)
    dies_at_four = [DEFAULT] * 3 + [KeyboardInterrupt] + [DEFAULT] * 99
    steps = Mock(wraps=qlora.take_step, side_effect=dies_at_four)
    monkeypatch.setattr(qlora, "take_step", steps)
    with pytest.raises(KeyboardInterrupt):
        run(out=tmp_path / "killed", **given)
    resumed = run(out=tmp_path / "killed", **given)
    assert steps.call_count == 4 + len(unbroken) - 2  # it went on from the checkpoint of step 2, not from the start
    columns = ["step", "loss", "loss_answer", "loss_verify", "tokens", "lr"]
    pd.testing.assert_frame_equal(resumed[columns], unbroken[columns], check_exact=True)
    weights = [(tmp_path / name / "adapter_model.safetensors").read_bytes() for name in ("unbroken", "killed")]
    assert weights[0] == weights[1]


def test_what_cannot_fit_is_refused_with_the_setting_to_change(tiny, monkeypatch):
    def check(activations, on_the_gpu):
        monkeypatch.setattr(memory, "free_memory", {"cuda": on_the_gpu, "cpu": 1e12}.__getitem__)
        return memory.check(network, dataclasses.replace(SETTINGS, activations=activations), shape, "cuda")

    shape = Shape(tokens=4096, sequences=8, targets=512, longest=800)
    network, needed = tiny.read_anew(), {}
    monkeypatch.setattr(network.config, "num_hidden_layers", 16)  # of two layers too little can lie elsewhere
    for way in WAYS:
        needed[way] = memory.estimate(network, dataclasses.replace(SETTINGS, activations=way), shape)
    assert needed["keep"] > needed["recompute"] > needed["offload"]
    assert check("keep", 2 * needed["keep"])  # with room to unpack the weights
    for way, room, cure in (
        ("keep", 0.9 * needed["keep"], "set activations = 'recompute'"),
        ("recompute", 0.7 * needed["recompute"], "set activations = 'offload'"),
        ("offload", 0.5 * needed["offload"], "set pack_tokens = (1024|2048)$"),
        ("keep", 0.5 * needed["offload"], "set pack_tokens = .*, activations = 'offload'"),
        ("keep", 0.0, "smaller model"),
    ):
        with pytest.raises(MemoryError, match=cure):
            check(way, room)


@pytest.mark.parametrize("clip", [1e-3, 1e3])
def test_weights_are_updated_part_by_part_as_by_torchs_own_adamw(tiny, clip, monkeypatch):
    monkeypatch.setattr(lora, "PART", 1000)
    trainee = adapt(tiny, activations="offload")
    master, generator = trainee.master, torch.Generator().manual_seed(0)
    whole = torch.nn.Parameter(master.weights.clone())
    optimizer = torch.optim.AdamW([whole], weight_decay=0.0, fused=True)
    for step in range(1, 4):
        master.copy_grad.normal_(generator=generator)
        whole.grad = master.copy_grad.clone()
        assert torch.nn.utils.clip_grad_norm_([whole], clip) > 10
        optimizer.param_groups[0]["lr"] = 0.01 / step
        optimizer.step()
        trainee.collect()
        trainee.update(0.01 / step, clip)
    state = optimizer.state[whole]
    assert master.n_steps == state["step"] and torch.equal(master.copy, master.weights)
    expected = (whole.detach(), state["exp_avg"], state["exp_avg_sq"])
    assert all(map(torch.equal, master.tensors.values(), expected))


@pytest.mark.parametrize("family", KNOWN)
@pytest.mark.parametrize("way", WAYS)
def test_layers_by_hand_have_the_gradients_of_autograd(family, way, monkeypatch):
    monkeypatch.setattr(loss, "AT_ONCE", 7 * 500)  # the logits of seven targets at a time
    monkeypatch.setattr(layers, "PART", 10)  # tokens of an offloading layer's MLP at a time
    own = {"attention_bias": True, "mlp_bias": True} if family == "Llama" else {}
    network = build_network(family, head_dim=16, initializer_range=0.02, **own)
    trainee = adapt(SimpleNamespace(read_anew=lambda: network, device="cpu"), activations=way)
    samples = [Encoded(0, tuple(range(3, 20)), 9), Encoded(1, tuple(range(50, 90)), 20)]
    row = lay_out(samples, (0.5, 2.0), "cpu")
    assert is_known(network)
    ours, our_grad = one_pass(trainee, row)
    for layer in network.model.layers:
        vars(layer).pop("forward", None)
    trainee.losses = partial(training.losses_one_by_one, trainee.adapted)
    theirs, their_grad = one_pass(trainee, row)
    assert our_grad.abs().max() > 0.01
    assert torch.allclose(ours, theirs, atol=1e-5)
    assert torch.allclose(our_grad, their_grad, atol=1e-5, rtol=1e-3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the flash kernel and recorded graphs exist on CUDA alone")
@pytest.mark.parametrize("way", WAYS)
def test_on_cuda_packing_is_exact_too_and_a_graph_repeats_it(tiny_folder, way):
    model = load_engine(config.Model(model=str(tiny_folder), device="cuda"))
    trainee = adapt(model, execution="graph", activations=way)
    encoded = encode(toy_samples(3), model)
    shape = shape_of([list(range(len(encoded)))], encoded, 1024)
    row = lay_out(encoded, (1.0, 1.0), "cuda", shape)
    sizes = [len(one.ids) - one.start for one in encoded]
    eager, grad = one_pass(trainee, row)
    for one, inside in zip(encoded, eager[: sum(sizes)].split(sizes)):
        alone, _ = one_pass(trainee, lay_out([one], (1.0, 1.0), "cuda"))
        assert torch.allclose(inside, alone, atol=0.05)  # in bf16
    replay = trainee.record(qlora.learner(trainee, 1.0, "cuda"))
    assert torch.allclose(replay(row)[0].sum(), (eager * row["weights"]).sum(), rtol=0.01)
    assert torch.allclose(trainee.master.copy_grad, grad, atol=0.05 * grad.abs().max().item())


def test_the_first_losses_are_as_recorded(tiny_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(qlora, "WARMUP", 0.2)
    assert run(tiny_folder, tmp_path, epochs=1).loss.head(3).tolist() == pytest.approx(RECORDED, rel=1e-3)
