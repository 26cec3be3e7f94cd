"""Training: what is learnt, that packing changes nothing, and that a killed run ends as an unbroken one."""

import dataclasses
import pathlib
import random
import subprocess
import sys

import pandas as pd
import pytest
import torch
import transformers

from benchmarks import training as speed
from covrag_lite import config
from covrag_lite import qlora as loop
from covrag_lite.engine import layers, lora, loss, memory, optimizer
from covrag_lite.engine.decoding import continue_ids
from covrag_lite.engine.local import load_model
from covrag_lite.engine.offload import Shelf
from covrag_lite.engine.varlen_prefill import is_known
from covrag_lite.packing import Encoded, Shape, encode, lay_out, pack, shape_of
from covrag_lite.prompts import SCHEMA
from covrag_lite.records import Sample

RECORDED = [17.02075, 16.76861, 15.73309]  # of the first three steps, on CPU
SETTINGS = config.Training(
    epochs=2, step_tokens=512, pack_tokens=256, lora_rank=4, lora_alpha=8, learning_rate=0.01, save_every=2, warmup=0.2
)


VERDICT = {"score": "0.50", "judgment": "true", "text": ' ""'}  # what each kind of gap is filled with


def toy_samples(n: int = 10) -> list[Sample]:
    """Answers and verdicts about nothing, of various lengths."""
    verdict = tuple(part if isinstance(part, str) else VERDICT[part[0]] for part in SCHEMA)
    samples = []
    for i in range(n):
        question = f"Question: who was number {i}? " + "scores " * (i % 4)
        samples.append(Sample(f"a{i}", "answer", question, (f"Number {i}[1]",)))
        examine = f"Examine answer {i}. " + "criteria " * (i % 3)
        samples.append(Sample(f"v{i}", "verify", examine, verdict))
    return samples


@pytest.fixture
def model(tiny_folder):
    return load_model(config.Model(model=str(tiny_folder), device="cpu"))


def adapt(model, **changes):
    """The network with adapters whose second half is not zero, so that they take part."""
    settings = dataclasses.replace(SETTINGS, **changes)
    adapted = lora.attach(model.network, settings, unpack=settings.unpack == "yes")
    master = lora.Master(adapted, model.dtype)
    master.weights.data.normal_(0, 0.1, generator=torch.Generator(model.device).manual_seed(0))
    master.publish()
    return adapted, master


def losses_of(network, chosen, weights=(1.0, 1.0), shape=None):
    """Each sample's losses when these samples share a row."""
    row = lay_out(chosen, weights, "cpu", shape)
    sizes = [len(one.ids) - one.start for one in chosen]
    return loop.one_pass(network, row)[: sum(sizes)].split(sizes)


def run(model, out, **changes):
    training = dataclasses.replace(SETTINGS, **changes)
    return loop.train(config.Config(training=training, model=model.config), model, toy_samples(), out)


@pytest.fixture(scope="module")
def one_epoch(tiny_folder, tmp_path_factory):
    """The frame of a run over one epoch, and the folder it left."""
    model = load_model(config.Model(model=str(tiny_folder), device="cpu"))
    out = tmp_path_factory.mktemp("one-epoch")
    return run(model, out, epochs=1), out


def test_target_tokens_carry_the_loss_and_prompt_tokens_none(model):
    sample = toy_samples()[1]
    one = encode([sample], model)[0]
    row = lay_out([one], (1.0, 1.0), "cpu")
    text = "".join(sample.target) + model.tokenizer.eos_token
    assert model.tokenizer.decode(row["labels"]) == text
    following = row["input_ids"][0, row["where"] + 1]  # each is predicted from the token before it
    assert row["labels"].tolist() == following.tolist()
    assert model.tokenizer.decode(one.ids[: one.start]) == model.render(sample.prompt)
    network = adapt(model)[0].get_base_model()
    logits = network(
        input_ids=row["input_ids"],
        position_ids=row["position_ids"],
        cu_seq_lens_q=row["ends"],
        max_length_q=row["longest"],
    ).logits
    labels = torch.tensor([[-100] * one.start + list(one.ids[one.start :])])
    plain = torch.nn.functional.cross_entropy(logits[0, :-1], labels[0, 1:])
    assert torch.isclose(loop.one_pass(network, row).mean(), plain, atol=1e-5)


def test_what_the_schema_fixes_counts_little_in_the_loss(model):
    sample = toy_samples()[1]
    one = encode([sample], model)[0]
    free = sum(len(continue_ids(model.tokenizer, part)) for part in sample.target if part not in SCHEMA)
    free += 1  # for end-of-text
    fixed = len(one.ids) - one.start - free
    assert one.shares.count(1.0) == free and one.shares.count(0.1) == fixed >= free
    assert lay_out([one], (1.0, 5.0), "cpu")["weights"].tolist() == pytest.approx([5 * share for share in one.shares])


def test_a_target_is_tokenised_by_its_parts_as_decoding_appends_them(model):
    def target_ids(*parts):
        (one,) = encode([Sample("", "verify", "x", parts)], model)
        return list(one.ids[one.start : -1])

    in_parts = target_ids("true", "ness")
    assert in_parts == target_ids("true") + target_ids("ness")
    assert model.tokenizer.decode(in_parts) == model.tokenizer.decode(target_ids("trueness"))


@pytest.mark.parametrize(
    "changes", [{}, *({"checkpointing": share} for share in (0.0, 2.0, 2.5, 3.0)), {"unpack": "yes"}]
)
def test_a_packed_sample_has_the_loss_it_has_alone(model, changes):
    network = adapt(model, **changes)[0].get_base_model()
    encoded = encode(toy_samples(3), model)
    packed = losses_of(network, encoded)
    positions = [place for one in encoded for place in range(len(one.ids))]
    assert lay_out(encoded, (1.0, 1.0), "cpu")["position_ids"][0].tolist() == positions
    shape = Shape(tokens=1024, sequences=12, targets=512, longest=128)
    padded = losses_of(network, encoded, shape=shape)
    for one, inside, static in zip(encoded, packed, padded):
        (alone,) = losses_of(network, [one])
        assert torch.allclose(inside, alone, atol=1e-4)
        assert torch.allclose(static, alone, atol=1e-4)
    # Or all samples would be alike, and this would show nothing.
    assert max(abs(loss.mean() - packed[0].mean()) for loss in packed) > 0.01


def test_changing_a_sample_changes_no_other_ones_loss(model):
    network = adapt(model)[0].get_base_model()
    first, second, *rest = encode(toy_samples(2), model)
    before = losses_of(network, [first, second, *rest])
    prompt = second.ids[: second.start]
    target = second.ids[second.start :]
    other = dataclasses.replace(second, ids=(*reversed(prompt), *target))
    after = losses_of(network, [first, other, *rest])
    same = [torch.equal(a, b) for a, b in zip(before, after)]
    assert same == [True, False, True, True]


def test_our_layers_compute_what_pefts_own_compute(model):
    adapted, master = adapt(model)
    row = lay_out(encode(toy_samples(2), model), (0.5, 2.0), "cpu")
    ours = loop.one_pass(adapted.get_base_model(), row)
    our_grad = master.copy_grad.clone()
    master.copy_grad.zero_()
    for layer in adapted.modules():
        vars(layer).pop("forward", None)
    theirs = loop.one_pass(adapted.get_base_model(), row)
    assert torch.allclose(ours, theirs, atol=1e-4)
    assert torch.allclose(our_grad, master.copy_grad, atol=1e-4, rtol=1e-3)
    assert our_grad.abs().max() > 0.01


def test_unpacking_keeps_the_values_of_the_4_bit_weights(model, tiny_folder):
    row = lay_out(encode(toy_samples(1), model), (1.0, 1.0), "cpu")
    packed = loop.one_pass(adapt(model)[0].get_base_model(), row)
    other = load_model(config.Model(model=str(tiny_folder), device="cpu"))
    unpacked = loop.one_pass(adapt(other, unpack="yes")[0].get_base_model(), row)
    assert torch.allclose(packed, unpacked, atol=1e-5)


def test_a_step_moves_adapters_and_nothing_else(model):
    adapted = lora.attach(model.network, SETTINGS, unpack=False)
    before = {name: value.clone() for name, value in adapted.state_dict().items()}
    master = lora.Master(adapted, model.dtype)
    optimizer = torch.optim.AdamW([master.weights])
    rows = [lay_out(encode(toy_samples(2), model), (1.0, 1.0), "cpu")]
    run_row = loop.runner(model.network, "eager")
    for _ in range(2):  # the first one leaves A where it is, as B is zero
        loop.take_step(run_row, rows, master, optimizer, 0.01, 1.0, loop.PartialState())
    moved = {name for name, value in adapted.state_dict().items() if not torch.equal(value, before[name])}
    assert moved == {name for name in before if "lora_" in name}
    assert len(moved) == 28  # A and B of seven linear layers in each of two layers


def test_the_adapter_loads_in_peft_and_lowers_the_loss(model, tmp_path, tiny_folder):
    from peft import PeftModel

    frame = run(model, tmp_path, epochs=4, step_tokens=256)
    assert frame.loss.iloc[-3:].mean() < 0.7 * frame.loss.iloc[:3].mean()
    plain = load_model(config.Model(model=str(tiny_folder), device="cpu"))
    encoded = encode(toy_samples(), plain)[0]
    ids = torch.tensor([encoded.ids])
    labels = torch.tensor([[-100] * encoded.start + list(encoded.ids[encoded.start :])])
    base = plain.network(input_ids=ids, labels=labels).loss
    trained = PeftModel.from_pretrained(plain.network, tmp_path)
    assert trained(input_ids=ids, labels=labels).loss < 0.8 * base


def test_the_first_losses_are_as_recorded(one_epoch):
    frame, _ = one_epoch
    assert frame.loss.head(3).tolist() == pytest.approx(RECORDED, rel=1e-3)


def test_the_losses_of_a_run_average_to_the_weighted_sum_of_both_tasks_means(model):
    encoded = encode(toy_samples(6), model)
    steps = loop.plan(encoded, SETTINGS)
    weights = loop.task_weights(encoded, len(steps), SETTINGS)
    network = adapt(model, unpack="yes")[0].get_base_model()
    losses = []  # of each sample, its target tokens' by their shares
    for one in encoded:
        (alone,) = losses_of(network, [one])
        losses.append((alone * torch.tensor(one.shares)).sum())
    means = []  # L_RAG and L_CoV
    for task in (0, 1):
        mine = [i for i, one in enumerate(encoded) if one.task == task]
        means.append(sum(losses[i] for i in mine) / sum(sum(encoded[i].shares) for i in mine))
    seen = [i for step in steps for chosen in step for i in chosen]
    objective = sum(losses[i] * weights[encoded[i].task] for i in seen)
    assert len(steps) > 1
    assert torch.isclose(objective / len(steps), means[0] + SETTINGS.verify_weight * means[1], rtol=1e-4)


@pytest.mark.parametrize("share", [1.0, 3.0])
def test_a_killed_run_ends_as_an_unbroken_one(model, tmp_path, tiny_folder, share, monkeypatch):
    unbroken = run(model, tmp_path / "unbroken", checkpointing=share)
    real = loop.take_step
    calls = []

    def dies(*arguments):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(loop, "take_step", dies)
    with pytest.raises(KeyboardInterrupt):
        run(load_model(model.config), tmp_path / "killed", checkpointing=share)
    resumed = run(load_model(model.config), tmp_path / "killed", checkpointing=share)
    assert len(calls) == 4 + len(unbroken) - 2  # it went on from the checkpoint of step 2, not from the start
    columns = ["step", "loss", "loss_answer", "loss_verify", "tokens", "lr"]
    pd.testing.assert_frame_equal(resumed[columns], unbroken[columns], check_exact=True)
    weights, resumed_weights = (
        (tmp_path / name / "adapter_model.safetensors").read_bytes() for name in ("unbroken", "killed")
    )
    assert resumed_weights == weights


def test_another_runs_checkpoint_is_not_continued(model, one_epoch):
    _, folder = one_epoch
    with pytest.raises(ValueError, match="other settings, samples or weights"):
        run(model, folder, epochs=1, learning_rate=0.02)


def test_packs_are_full_hold_every_sample_once_and_mix_the_tasks():
    generator = random.Random(0)
    lengths = []
    for _ in range(600):
        low, high = generator.choice(((450, 550), (700, 800)))  # of an answer, of a verdict
        lengths.append(generator.randint(low, high))
    for pack_tokens in (2048, 4096, 8192):
        packs = pack(lengths, pack_tokens)
        assert sorted(i for chosen in packs for i in chosen) == list(range(600))
        assert max(sum(lengths[i] for i in chosen) for chosen in packs) <= pack_tokens
        assert sum(lengths) / (len(packs) * pack_tokens) >= 0.97
        assert packs == pack(lengths, pack_tokens)
    assert all({lengths[i] > 600 for i in chosen} == {True, False} for chosen in packs[:-1])
    with pytest.raises(ValueError, match="raise pack_tokens"):
        pack(lengths, 700)


def test_what_cannot_fit_is_refused_with_the_setting_to_change(model, monkeypatch):
    shape = Shape(tokens=4096, sequences=8, targets=512, longest=800)
    all_kept = dataclasses.replace(SETTINGS, checkpointing=0.0)
    monkeypatch.setattr(model.network.config, "num_hidden_layers", 16)  # of two layers too little can lie elsewhere
    needed = memory.estimate(model.network, SETTINGS, shape, False)
    needed_by_all_kept = memory.estimate(model.network, all_kept, shape, False)

    def check(settings, gigabytes):
        monkeypatch.setattr(memory, "free_memory", lambda device: gigabytes * 1e9)
        memory.check(model.network, settings, shape, "cpu")

    check(SETTINGS, 2 * needed)
    with pytest.raises(MemoryError, match="set checkpointing = 3.0"):
        check(SETTINGS, 0.7 * needed)
    with pytest.raises(MemoryError, match="set pack_tokens = 1024|set pack_tokens = 2048"):
        check(dataclasses.replace(SETTINGS, checkpointing=3.0, unpack="no"), 0.2 * needed)
    with pytest.raises(MemoryError, match="set checkpointing = 1.0"):
        check(all_kept, 0.9 * needed_by_all_kept)
    with pytest.raises(MemoryError, match="smaller model"):
        check(SETTINGS, 0.0)


def test_what_the_cpu_has_no_room_for_stays_on_the_gpu(model, monkeypatch):
    shape = Shape(tokens=4096, sequences=8, targets=512, longest=800)
    monkeypatch.setattr(model.network.config, "num_hidden_layers", 16)
    away = dataclasses.replace(SETTINGS, checkpointing=3.0, unpack="no")
    aside = memory.away_bytes(model.network, away, shape)
    weights = 12 * memory.adapter_weights(model.network, away)  # with two moments, in fp32
    assert aside == 16 * memory.layer_bytes(model.network, 4096, layers.SOME) + weights
    assert memory.away_bytes(model.network, SETTINGS, shape) == 0

    def check(settings, on_the_gpu, on_the_cpu):
        free = {"cuda": on_the_gpu, "cpu": on_the_cpu}
        monkeypatch.setattr(memory, "free_memory", free.__getitem__)
        memory.check(model.network, settings, shape, "cuda")

    check(away, 1e9, 1.1 * aside)
    with pytest.raises(MemoryError, match=r"puts about .* GB into the CPU's memory, .* set checkpointing = 2.0"):
        check(away, 1e9, 0.9 * aside)
    needed = memory.estimate(model.network, SETTINGS, shape, False) * 1e9
    for room, advice in ((1.1, "set checkpointing = 3.0"), (0.9, "set checkpointing = 2.0")):
        with pytest.raises(MemoryError, match=advice):
            check(dataclasses.replace(SETTINGS, unpack="no"), 0.7 * needed, room * aside)


@pytest.mark.parametrize("share, keep", [(0.0, layers.ALL), (1.0, layers.SOME), (2.0, layers.INPUT)])
def test_the_estimate_counts_what_a_layer_keeps(model, share, keep):
    network = adapt(model, checkpointing=share)[0].get_base_model()
    hidden = torch.randn(1, 512, network.config.hidden_size, requires_grad=True)
    places = network.model.rotary_emb(hidden, torch.arange(512)[None])  # the same for all layers
    ends = torch.tensor([0, 512])
    kept = {}

    def save(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    def give_back(tensor):
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, give_back):
        network.model.layers[0](hidden, position_embeddings=places, cu_seq_lens_q=ends, max_length_q=512)
    counted = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    counted -= sum(tensor.untyped_storage().nbytes() for tensor in places)
    assert counted == pytest.approx(memory.layer_bytes(network, 512, keep), rel=0.01)


def test_what_layers_put_away_comes_back_whatever_happened_to_it_meanwhile():
    shelf = Shelf()

    def kept_by(number, n_tokens):
        return [torch.full((n_tokens, width), float(number)) for width in (3, 4)]

    for n_tokens in (5, 5, 7):  # the third pass has another shape
        layers = [kept_by(number, n_tokens) for number in range(6)]
        for number, tensors in enumerate(layers):
            shelf.put(number, tensors)
            if number > 0:
                torch._foreach_zero_(layers[number - 1])  # its memory is used for something else
        for number in reversed(range(6)):
            back = shelf.take(number)
            assert all(map(torch.equal, back, kept_by(number, n_tokens))) and len(back) == 2
    assert len(shelf.places) == 2  # that many layers' come back to the GPU at once
    shelf.put(0, layers[0])
    shelf.put(1, layers[1])
    shelf.put(0, layers[2])  # a pass that was broken off is forgotten
    with pytest.raises(RuntimeError, match="layer 1 keeps is not what was put away last"):
        shelf.take(1)


@pytest.mark.parametrize("clip", [1e-3, 1e3])
def test_weights_that_are_streamed_from_the_cpu_are_updated_as_if_they_lay_on_the_gpu(model, clip, monkeypatch):
    monkeypatch.setattr(optimizer, "PART", 1000)
    monkeypatch.setattr(lora, "PART", 1000)
    made = []
    for is_away in (False, True):
        torch.manual_seed(0)
        adapted, _ = adapt(model)
        master = lora.Master(adapted, torch.float32, is_away)
        learner = optimizer.optimizer_of(master, lr=0.01, weight_decay=0.1)
        lengths = []
        for step in range(1, 4):
            master.copy_grad.normal_()
            master.collect()
            master.clip(clip)
            lengths.append(master.grad.norm().item())
            learner.param_groups[0]["lr"] = 0.01 / step
            learner.step()
            master.grad.zero_()
            master.publish()
        state = learner.state[master.weights]
        made.append([master.weights.detach(), master.copy, state["exp_avg"], state["exp_avg_sq"], state["step"]])
        assert lengths == pytest.approx([clip] * 3, rel=1e-3) if clip < 1 else min(lengths) > 10
    assert type(learner) is optimizer.Streamed and made[0][0].abs().max() > 0
    assert all(map(torch.equal, *made))


def test_a_layer_whose_input_is_away_keeps_none_of_it_and_evaluation_puts_nothing_away(model):
    network = adapt(model, checkpointing=3.0)[0].get_base_model()
    encoded = encode(toy_samples(2), model)
    row = lay_out(encoded, (1.0, 1.0), "cpu")
    loop.one_pass(network, row)
    shelf = network.model.layers[0].shelf
    assert sorted(shelf.slots) == list(range(len(network.model.layers))) and not shelf.order
    shelf.slots.clear()
    with torch.no_grad():
        network.model(row["input_ids"], position_ids=row["position_ids"], **places_of(row))
    assert not shelf.slots and not shelf.order


def places_of(row):
    return {"cu_seq_lens_q": row["ends"], "max_length_q": row["longest"], "use_cache": False}


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"execution": "fast"}, "execution 'fast' is not known"),
        ({"execution": "graph"}, "needs CUDA"),
        ({"unpack": "maybe"}, "unpack 'maybe' is not known"),
        ({"checkpointing": 3.5}, "checkpointing is 3.5"),
    ],
)
def test_a_wrong_setting_is_named(model, tmp_path, changes, words):
    with pytest.raises(ValueError, match=words):
        run(model, tmp_path, **changes)


def test_the_rate_rises_and_then_falls_to_a_tenth():
    rates = [loop.schedule(step, 100, 0.1) for step in range(100)]
    assert rates[0] == 0.1
    assert rates[9] == rates[10] == 1.0
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[-1] == pytest.approx(0.1, abs=0.01)


def pass_by_transformers(network, row):
    """One pass with all logits at once, as transformers makes them."""
    places = {"position_ids": row["position_ids"], "cu_seq_lens_q": row["ends"], "max_length_q": row["longest"]}
    logits = network(row["input_ids"], use_cache=False, logits_to_keep=row["where"], **places).logits[0]
    losses = torch.nn.functional.cross_entropy(logits.float(), row["labels"], reduction="none")
    (losses * row["weights"]).sum().backward()
    return losses.detach()


@pytest.mark.parametrize("family, known", [("Llama", True), ("Qwen2", True), ("Qwen3", False)])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0])
def test_layers_by_hand_have_the_gradients_of_autograd_and_unknown_ones_are_left_to_it(
    family, known, share, monkeypatch
):
    monkeypatch.setattr(loss, "AT_ONCE", 7 * 300)  # the logits of seven targets at a time
    monkeypatch.setattr(layers, "PART", 10)  # tokens of a lean layer's MLP at a time
    torch.manual_seed(0)
    sizes = dict(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        vocab_size=300,
    )
    own = {"attention_bias": True, "mlp_bias": True} if family == "Llama" else {}
    shape = getattr(transformers, f"{family}Config")(**sizes, **own)
    network = getattr(transformers, f"{family}ForCausalLM")(shape)
    adapted = lora.attach(network, dataclasses.replace(SETTINGS, checkpointing=share), unpack=False)
    master = lora.Master(adapted, torch.float32)
    master.weights.data.normal_(0, 0.1)
    master.publish()
    samples = [Encoded(0, tuple(range(3, 20)), 9), Encoded(1, tuple(range(50, 90)), 20)]
    row = lay_out(samples, (0.5, 2.0), "cpu")
    assert [is_known(layer, network.config) for layer in network.model.layers] == [known, known]
    ours = loop.one_pass(network, row)
    our_grad = master.copy_grad.clone()
    master.copy_grad.zero_()
    for layer in network.model.layers:
        vars(layer).pop("forward", None)
    assert loss.is_plain(network) == known
    theirs = pass_by_transformers(network, row)
    assert our_grad.abs().max() > 0.01
    assert torch.allclose(ours, theirs, atol=1e-5)
    assert torch.allclose(our_grad, master.copy_grad, atol=1e-5, rtol=1e-3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the flash kernel and recorded graphs exist on CUDA alone")
@pytest.mark.parametrize("share", [1.0, 2.0, 3.0])
def test_on_cuda_packing_is_exact_too_and_a_graph_repeats_it(tiny_folder, share):
    model = load_model(config.Model(model=str(tiny_folder), device="cuda"))
    adapted, master = adapt(model, checkpointing=share)
    network = adapted.get_base_model()
    encoded = encode(toy_samples(3), model)
    shape = shape_of([list(range(len(encoded)))], encoded, 1024)
    row = lay_out(encoded, (1.0, 1.0), "cuda", shape)
    sizes = [len(one.ids) - one.start for one in encoded]
    eager = loop.one_pass(network, row)
    grad = master.copy_grad.clone()
    for one, inside in zip(encoded, eager[: sum(sizes)].split(sizes)):
        alone = loop.one_pass(network, lay_out([one], (1.0, 1.0), "cuda"))
        assert torch.allclose(inside, alone, atol=0.05)  # in bf16
    master.copy_grad.zero_()
    replay = loop.runner(network, "graph")
    assert torch.allclose(replay(row), eager, atol=0.02)
    assert torch.allclose(master.copy_grad, grad, atol=0.05 * grad.abs().max().item())


def test_the_benchmark_compares_each_way_with_the_plain_one(monkeypatch):
    monkeypatch.setattr(speed, "WARM_UP", 1)
    frame = speed.benchmark(["tiny"], "cpu", step_tokens=2048, n_steps=1)
    assert frame.failure.isna().all()
    assert frame.speed_ratio[0] == 1 and (frame.tokens_per_second > 0).all()
    assert frame.useful[0] == frame.useful[1] < 0.97 <= frame.useful[2:].min()


def test_two_processes_give_the_losses_of_one(one_epoch, tmp_path, tiny_folder):
    alone, _ = one_epoch
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys, pathlib; sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})\n"
        "import test_training as tests\n"
        f"model = tests.load_model(tests.config.Model(model={str(tiny_folder)!r}, device='cpu'))\n"
        f"tests.run(model, pathlib.Path({str(tmp_path / 'both')!r}), epochs=1)\n"
        "assert tests.loop.PartialState().num_processes == 2\n"
    )
    # "--cpu" would start one process only, unless mpirun is there; without a GPU "--multi_gpu" starts them on the CPU.
    options = "--multi_gpu --num_processes 2 --num_machines 1 --main_process_port 0"
    options += " --mixed_precision no --dynamo_backend no"
    launch = [sys.executable, "-m", "accelerate.commands.launch", *options.split(), str(script)]
    subprocess.run(launch, check=True, capture_output=True)
    both = pd.read_csv(tmp_path / "both" / "losses.csv")
    assert both.loss.tolist() == pytest.approx(alone.loss.tolist(), rel=1e-4)
