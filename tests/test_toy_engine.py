"""Decoding and training on toys: likelihoods, probabilities of a verdict, the loss, packing."""

import itertools
import math
import random
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from conftest import build_network, load_tiny
from toy import answer_prompt, verify_prompt

from covrag_lite import prompts, qlora
from covrag_lite.config import Config
from covrag_lite.engine import lora, slots
from covrag_lite.engine.decoding import Dice
from covrag_lite.engine.training import Trainee
from covrag_lite.qlora import Encoded, lay_out, learner, pack, plan, schedule, token_weights
from covrag_lite.records import SCORES, Sample

# Likelihoods.


@pytest.fixture(scope="module")
def engines(tiny_folder):
    return [load_tiny(f"{way}{tiny_folder}", quantize="none", adapters="none") for way in ("", "plain:")]


def log_probabilities(engine, ids):
    with torch.inference_mode():
        return engine.network(input_ids=torch.tensor([ids])).logits[0].double().log_softmax(-1)


def test_a_likelihood_is_the_mean_over_an_answers_tokens_and_its_end(engines, monkeypatch):
    asked = [answer_prompt(text, ids) for text, ids in (("who wrote it", "ac"), ("when is the fair", "de"))]
    for engine in engines:
        loaded, tokens, logs = engine.loaded, {}, {}
        for prompt in asked:
            start = loaded.tokenise([prompt])[0]
            tokens[prompt], logs[prompt] = [], []
            for _ in range(6):
                log, token = log_probabilities(engine, [*start, *tokens[prompt]])[-1].max(0)
                tokens[prompt].append(int(token))
                logs[prompt].append(float(log))
        end = tokens[asked[0]][3]
        assert end not in tokens[asked[0]][:3] + tokens[asked[1]]  # the first answer ends, the second is cut off
        monkeypatch.setattr(loaded, "end_id", end)
        for prompt, made, n, n_logs in zip(asked, engine.complete(asked, 6), (3, 6), (4, 6)):
            assert made.probabilities["likelihood"] == pytest.approx(sum(logs[prompt][:n_logs]) / n_logs, rel=1e-3)
            assert made.text == loaded.tokenizer.decode(tokens[prompt][:n], skip_special_tokens=True).strip()


def test_a_verdicts_chances_are_a_softmax_over_the_choices(engines):
    asked = [verify_prompt("who wrote it", "ac", "Ada Voss[1]"), verify_prompt("when is the fair", "de", "May[2]")]
    loaded, places = engines[1].loaded, slots.slots_of(prompts.SCHEMA)[0][:-1]
    for prompt, *verdicts in zip(asked, *(engine.fill(asked, prompts.SCHEMA, 6) for engine in engines)):
        ids, path, chances = list(loaded.tokenise([prompt])[0]), [], []
        for place in places:
            ids += loaded.continue_ids(place.before) if place.before else []
            firsts = [loaded.continue_ids(choice)[0] for choice in place.choices]
            shares = log_probabilities(engines[1], ids)[-1][firsts].softmax(0).tolist()
            if place.digit and path[-place.digit] == "1":  # after a leading 1 there is no choice
                shares = []
            path.append(place.choices[shares.index(max(shares)) if shares else 0])
            chances.append(shares)
            ids += loaded.continue_ids(path[-1])
        expected = slots.probabilities_of(places, chances)
        assert set(expected) == {*SCORES, "true"}  # this tokenizer has no token for an empty revision
        for made in verdicts:
            assert made.probabilities == pytest.approx(expected, rel=1e-3, abs=1e-6)


def test_expectations_weigh_the_decimals_by_the_first_digit():
    places, closing = slots.slots_of(prompts.SCHEMA)
    digits = tuple("0123456789")
    assert closing == " }" and [one.choices for one in places[:3]] == [("0", "1"), digits, digits]
    five, nine = [0.0] * 5 + [1.0] + [0.0] * 4, [0.0] * 9 + [1.0]
    chances = [[0.8, 0.2], five, nine]  # 0.2 · 1 + 0.8 · 0.59
    chances += [[0.1, 0.9], [], []]  # written as 1.00: only P(1)
    chances += [[1.0, 0.0], [0.5] + [0.0] * 8 + [0.5], nine] * 4  # 0.45 + 0.09
    chances += [[0.7, 0.1, 0.2], [0.35, 0.65]]
    expected = {"reference_correctness": 0.672, "correctness": 0.9, "true": 0.7, "empty": 0.65}
    expected |= dict.fromkeys(SCORES[2:], 0.54)
    assert slots.probabilities_of(places, chances) == pytest.approx(expected)
    places, _ = slots.slots_of(prompts.DIRECT)
    assert slots.probabilities_of(places, [[0.35, 0.65]]) == {"empty": 0.65}


def test_a_verdict_is_filled_by_the_likeliest_choice_and_never_exceeds_one():
    places, _ = slots.slots_of(prompts.SCHEMA)
    ids = {}
    choices = slots.Choices(places, lambda text: [ids.setdefault(text, len(ids))], "toy")
    assert choices.choose(places[0], [], [0.4, 0.6]) == ("1", [0.4, 0.6])
    for place, before in ((1, ["1"]), (2, ["1", "0"])):
        assert choices.choose(places[place], before, [0.1] * 10) == ("0", [])
    assert choices.choose(places[1], ["0"], [0.0, 1.0, *[0.0] * 8])[0] == "1"
    assert choices.choose(places[18], ["0"] * 18, [0.2, 0.5, 0.3]) == ("false", [0.2, 0.5, 0.3])
    assert choices.choose(places[19], ["0"] * 19, [0.2, 0.8])[0] == ' ""'
    guessed = slots.Guesses(places).guess(("0",))
    assert guessed == (*"095095095095005095", "true", ' ""')


def test_a_draw_depends_on_its_prompt_and_number_alone():
    logits = torch.tensor([[0.0, 1.0, 2.0, -9.0]] * 2)
    drawn = [int(Dice(["x"], number)([0], logits[:1])[1]) for number in range(600)]
    shares = torch.softmax(logits[0], 0)
    assert [drawn.count(token) / 600 for token in range(4)] == pytest.approx(shares.tolist(), abs=0.06)
    values, tokens = Dice(["y", "x"], 5)([0, 1], logits)
    assert int(tokens[1]) == drawn[5] and values.tolist() == [logits[0, token] for token in tokens]


# Training.

SAMPLES = [
    Sample("a", "answer", "p", ("xy",)),
    Sample("b", "verify", "pp", ('{ "4":', ' "', "q", '"', " }")),
    Sample("c", "verify", "p", ('{ "4":', ' "'), unfinished=True),
]
LETTERS = SimpleNamespace(continue_ids=lambda text: [2] * len(text), end_id=9)  # a token a letter
LETTERS.tokenise = lambda texts: [[1] * len(text) for text in texts]
FAKE = SimpleNamespace(loaded=LETTERS)


def test_a_target_ends_unless_it_is_unfinished_and_fixed_parts_weigh_a_tenth():
    answer, closed, open_ = qlora.encode(SAMPLES, FAKE)
    assert (answer.task, answer.ids, answer.start, answer.shares) == (0, (1, 2, 2, 9), 1, (1.0, 1.0, 1.0))
    assert closed.ids == (1, 1, *[2] * 12, 9) and closed.start == 2 and closed.task == 1
    assert closed.shares == pytest.approx([0.1] * 6 + [1.0] * 4 + [0.1] * 2 + [1.0])
    assert open_.ids == (1, *[2] * 8) and open_.shares == pytest.approx([0.1] * 6 + [1.0] * 2)
    with pytest.raises(ValueError, match="not in tuple"):
        qlora.encode([replace(SAMPLES[0], task="sing")], FAKE)


def test_each_task_weighs_as_many_tokens_as_it_has():
    one, two = Encoded(0, (1, 2, 3, 4), 1), Encoded(1, (1, 2, 3), 1, (0.5, 1.0))
    # Weights over a run sum to its steps: 2 epochs · 6 tokens · w = 8 steps, 2 · 1.5 · w = 8.
    assert token_weights([one, one, two], 8, 2) == pytest.approx([8 / 12, 8 / 3])
    assert token_weights([one], 8, 2) == pytest.approx([8 / 6, 0.0])


def test_the_objective_is_l_rag_and_w_times_l_cov():
    losses = torch.tensor([1.0, 2.0, 4.0, 8.0], requires_grad=True)
    trainee = SimpleNamespace(token_losses=lambda row: losses * 1.0)
    row = {"weights": torch.tensor([0.5, 0.5, 0.25, 9.0]), "tasks": torch.tensor([0, 0, 1, -1])}
    made = learner(trainee, 4.0, "cpu")(row)
    assert made.tolist() == [[1.5, 1.0], [1.0, 0.25]]  # L_RAG, L_CoV; their weights
    assert losses.grad.tolist() == [0.5, 0.5, 1.0, 0.0]
    told = qlora.describe(3, made, 100, 0.0, 0.1)
    assert (told["loss_answer"], told["loss_verify"], told["loss"]) == (1.5, 4.0, 5.5)
    with pytest.raises(FloatingPointError):
        qlora.describe(3, made * math.nan, 100, 0.0, 0.1)


def test_a_row_predicts_each_target_from_the_token_before_it():
    one, two = Encoded(0, (5, 6, 7), 1), Encoded(1, (8, 9, 10, 11), 2, (0.1, 1.0))
    row = lay_out([one, two], [2.0, 3.0], "cpu")
    told = {name: value.tolist() if isinstance(value, torch.Tensor) else value for name, value in row.items()}
    assert told == {
        "input_ids": [[5, 6, 7, 8, 9, 10, 11]],
        "position_ids": [[0, 1, 2, 0, 1, 2, 3]],
        "ends": [0, 3, 7],
        "longest": 4,
        "where": [0, 1, 4, 5],
        "labels": [6, 7, 10, 11],
        "tasks": [0, 0, 1, 1],
        "weights": pytest.approx([2.0, 2.0, 0.3, 3.0]),
    }
    shape = qlora.shape_of([[0, 1]], [one, two], 300)
    padded = lay_out([one, two], [2.0, 3.0], "cpu", shape)
    assert padded["input_ids"].shape == (1, 300) and padded["weights"].sum() == row["weights"].sum()
    assert padded["tasks"].tolist()[4:] == [-1] * 60 and padded["ends"][-1] == 300


def test_the_rate_rises_and_falls_to_a_tenth():
    rates = [schedule(step, 100) for step in range(100)]
    assert rates[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0]) and rates[5] == 1.0
    assert rates[52] == pytest.approx(0.55, abs=0.01) and rates[99] == pytest.approx(0.1, abs=0.01)
    assert rates[5:] == sorted(rates[5:], reverse=True) and schedule(0, 1) == 1.0


def test_every_epoch_holds_every_sample_once_in_an_order_of_its_own():
    encoded = [Encoded(0, (1,) * (i % 7 + 1), 1) for i in range(30)]
    settings = Config().change(epochs=2, pack_tokens=10, step_tokens=20).training
    steps = plan(encoded, settings)
    order = [i for step in steps for packed in step for i in packed]
    assert sorted(order[:30]) == sorted(order[30:]) == list(range(30)) and order[:30] != order[30:]
    assert all(len(step) <= 2 for step in steps) and plan(encoded, settings) == steps
    assert plan(encoded, replace(settings, training_seed=2)) != steps


def test_packs_hold_every_sample_once_and_no_more_than_they_may():
    for rng in map(random.Random, range(60)):
        room = rng.randint(8, 60)
        lengths = [rng.randint(1, room) for _ in range(rng.randint(1, 50))]
        packs = pack(lengths, room)
        assert sorted(i for one in packs for i in one) == list(range(len(lengths)))
        assert all(sum(lengths[i] for i in one) <= room for one in packs)
        some = lengths[:9]
        chosen = qlora.fullest_subset(some, room)
        every = (c for n in range(len(some)) for c in itertools.combinations(range(1, len(some)), n))
        best = max(t for t in (some[0] + sum(some[i] for i in one) for one in every) if t <= room)
        assert chosen[0] == 0 and sum(some[i] for i in chosen) == best
    with pytest.raises(ValueError, match="raise pack_tokens"):
        pack([9], 8)


def test_a_checkpoint_of_other_data_settings_or_weights_is_refused(tmp_path):
    network, settings = torch.nn.Linear(2, 1, bias=False), Config().training
    network.get_base_model = lambda: SimpleNamespace(dtype=torch.float32)
    trainee = Trainee(network, None, settings, torch.float32)
    assert trainee.restore(tmp_path, SAMPLES, "base") == []
    trainee.master.weights.fill_(1)
    trainee.save(tmp_path, [{"step": 1}])
    trainee.master.weights.zero_()
    trainee.settings = replace(settings, adapters_out="elsewhere")
    assert trainee.restore(tmp_path, SAMPLES, "base") == [{"step": 1}] and network.weight.tolist() == [[1, 1]]
    for others in (
        (settings, SAMPLES[:2], "base"),
        (settings, [replace(SAMPLES[0], target=("z",)), *SAMPLES[1:]], "base"),
        (settings, SAMPLES, "another base"),
        (replace(settings, verify_weight=1.0), SAMPLES, "base"),
        (replace(settings, training_seed=2), SAMPLES, "base"),
        (replace(settings, learning_rate=1e-3), SAMPLES, "base"),
    ):
        trainee.settings = others[0]
        with pytest.raises(ValueError, match="other settings, samples or weights"):
            trainee.restore(tmp_path, *others[1:])


def test_the_loop_follows_the_schedule_and_goes_on_only_from_its_own_checkpoint(tmp_path, monkeypatch):
    weight, saved = torch.ones(1, requires_grad=True), []
    pupil = Mock(one_shape=False, record=lambda learn: learn, restore=Mock(return_value=[]))  # it learns nothing
    pupil.token_losses = lambda row: weight * torch.ones(len(row["labels"]))
    pupil.save = lambda out, rows: saved.append(len(rows))
    about = {"device": "cpu", "fingerprint": "base+", "settings": Config().model}
    model = SimpleNamespace(**vars(FAKE), **about, in_training=lambda *_: nullcontext(pupil))
    config = Config().change(epochs=4, pack_tokens=20, step_tokens=20, verify_weight=4.0)
    rows = qlora.train(config, model, SAMPLES * 4, tmp_path)
    pupil.restore.assert_called_once_with(tmp_path, SAMPLES * 4, "base+")
    pupil.save_adapter.assert_called_once_with(tmp_path, "smollm2-135m")
    rates, clips = zip(*(call.args for call in pupil.update.call_args_list))
    assert list(rates) == pytest.approx([2e-4 * schedule(i, len(rows)) for i in range(len(rows))])
    assert set(clips) == {1.0} and len(rows) > 20 and saved == [*range(20, len(rows), 20), len(rows)]
    # Every token loses 1, and the steps' weights average to one of each task.
    assert rows.loss_answer.dropna().tolist() == pytest.approx([1.0] * rows.loss_answer.count())
    assert float(weight.grad) / len(rows) == pytest.approx(1 + 4, rel=1e-4)


def test_adapters_are_scaled_by_two_and_begin_by_their_seed():
    made = []
    for seed in (1, 1, 2):
        adapted = lora.add_adapters(build_network("Llama"), Config().change(training_seed=seed, lora_rank=4).training)
        told = adapted.peft_config["default"]
        assert (told.r, told.lora_alpha, told.lora_dropout) == (4, 8, 0.0)
        made.append(next(p for name, p in adapted.named_parameters() if "lora_A" in name))
    assert torch.equal(made[0], made[1]) and not torch.equal(made[0], made[2])
