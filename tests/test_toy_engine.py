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
from covrag_lite.engine.interface import PackedRow
from covrag_lite.engine.sampling import Sampler
from covrag_lite.engine.trainee import AdapterTrainee
from covrag_lite.qlora import Encoded, lay_out, learner, pack, plan_steps, schedule, task_weights
from covrag_lite.records import SCORES, Sample

# Likelihoods: each engine is compared with the network's log-probabilities, token by token.

ANSWER_PROMPTS = [answer_prompt("who wrote it", "ac"), answer_prompt("when is the fair", "de")]
VERIFY_PROMPTS = [
    verify_prompt("who wrote it", "ac", "Ada Voss[1]"),
    verify_prompt("when is the fair", "de", "May[2]"),
]
LIMIT = 6


@pytest.fixture(scope="module")
def plain(tiny_folder):
    return load_tiny(f"plain:{tiny_folder}", quantize="none", adapters="none")


@pytest.fixture(scope="module")
def fast(tiny_folder):
    return load_tiny(tiny_folder, quantize="none", adapters="none")


@pytest.fixture(params=["plain", "fast"])
def engine(request):
    return request.getfixturevalue(request.param)


def log_probabilities(engine, ids):
    """The log-probabilities of the token after these."""
    with torch.inference_mode():
        logits = engine.network(input_ids=torch.tensor([ids])).logits
    return logits[0].double().log_softmax(-1)[-1]


@pytest.fixture(scope="module")
def greedy(plain):
    """The tokens that follow each prompt, and their log-probabilities."""
    expected = []
    for prompt in ANSWER_PROMPTS:
        ids = list(plain.prompt_ids(prompt))
        tokens = []
        logs = []
        for _ in range(LIMIT):
            log, token = log_probabilities(plain, [*ids, *tokens]).max(0)
            tokens.append(int(token))
            logs.append(float(log))
        expected.append((tokens, logs))
    return expected


@pytest.fixture
def ending(engine, greedy, monkeypatch):
    """The fourth token of the first answer becomes the end of a text."""
    end = greedy[0][0][3]
    others = greedy[0][0][:3] + greedy[1][0]
    assert end not in others  # so the second answer is cut off at the limit
    monkeypatch.setattr(engine.backbone.vocabulary, "end_id", end)


def test_a_likelihood_is_the_mean_over_an_answers_tokens_and_its_end(engine, greedy, ending):
    finished, _ = engine.complete(ANSWER_PROMPTS, LIMIT)
    expected = sum(greedy[0][1][:4]) / 4
    assert finished.probabilities["likelihood"] == pytest.approx(expected, rel=1e-3)


def test_the_likelihood_of_an_answer_that_is_cut_off_is_the_mean_over_its_tokens(
    engine, greedy, ending
):
    _, cut_off = engine.complete(ANSWER_PROMPTS, LIMIT)
    expected = sum(greedy[1][1]) / LIMIT
    assert cut_off.probabilities["likelihood"] == pytest.approx(expected, rel=1e-3)


def test_an_answer_is_the_likeliest_text_without_its_end(engine, greedy, ending):
    texts = [completion.text for completion in engine.complete(ANSWER_PROMPTS, LIMIT)]
    decode = engine.backbone.vocabulary.decode
    assert texts == [decode(greedy[0][0][:3]).strip(), decode(greedy[1][0]).strip()]


# The probabilities of a verdict.


def expected_probabilities(engine, prompt):
    """Fill the slots one after another: each a softmax over the first tokens of its choices."""
    continue_ids = engine.backbone.vocabulary.continue_ids
    score_slots = slots.slots_of(prompts.SCHEMA)[0][:-1]
    ids = list(engine.prompt_ids(prompt))
    path = []
    chances = []
    for slot in score_slots:
        ids += continue_ids(slot.before) if slot.before else []
        first_tokens = [continue_ids(choice)[0] for choice in slot.choices]
        if slot.digit and path[-slot.digit] == "1":  # after a leading 1 there is no choice
            path.append("0")
            chances.append([])
        else:
            shares = log_probabilities(engine, ids)[first_tokens].softmax(0).tolist()
            path.append(slot.choices[shares.index(max(shares))])
            chances.append(shares)
        ids += continue_ids(path[-1])
    return slots.probabilities_of(score_slots, chances)


@pytest.mark.parametrize("number", [0, 1])
def test_probabilities_of_a_verdict_are_a_softmax_over_the_choices(engine, plain, number):
    completion = engine.fill(VERIFY_PROMPTS, prompts.SCHEMA, LIMIT)[number]
    expected = expected_probabilities(plain, VERIFY_PROMPTS[number])
    assert completion.probabilities == pytest.approx(expected, rel=1e-3, abs=1e-6)


def test_without_a_token_for_an_empty_revision_its_probability_is_not_reported(engine):
    completion = engine.fill(VERIFY_PROMPTS[:1], prompts.SCHEMA, LIMIT)[0]
    assert set(completion.probabilities) == {*SCORES, "true"}


def test_a_score_has_three_slots_for_its_digits():
    digits = tuple("0123456789")
    choices = [slot.choices for slot in slots.slots_of(prompts.SCHEMA)[0][:3]]
    assert choices == [("0", "1"), digits, digits]


def test_the_closing_text_of_the_schema_is_not_before_any_slot():
    assert slots.slots_of(prompts.SCHEMA)[1] == " }"


FIVE = [0.0] * 5 + [1.0] + [0.0] * 4  # the digit is a five for certain
NINE = [0.0] * 9 + [1.0]
ZERO_OR_NINE = [0.5] + [0.0] * 8 + [0.5]


@pytest.fixture(scope="module")
def expectations():
    chances = [[0.8, 0.2], FIVE, NINE]
    chances += [[0.1, 0.9], [], []]
    chances += [[1.0, 0.0], ZERO_OR_NINE, NINE] * 4
    chances += [[0.7, 0.1, 0.2], [0.35, 0.65]]
    return slots.probabilities_of(slots.slots_of(prompts.SCHEMA)[0], chances)


@pytest.mark.parametrize(
    "name, expected",
    [
        ("reference_correctness", 0.672),  # 0.2 · 1 + 0.8 · 0.59
        ("correctness", 0.9),  # written as 1.00: only P(1)
        ("citation_accuracy", 0.54),  # 0.45 + 0.09
        ("conciseness", 0.54),
        ("true", 0.7),
        ("empty", 0.65),
    ],
)
def test_an_expectation_weights_the_decimals_by_the_first_digit(expectations, name, expected):
    assert expectations[name] == pytest.approx(expected)


def test_without_the_chain_only_an_empty_revision_has_a_probability():
    direct, _ = slots.slots_of(prompts.DIRECT)
    assert slots.probabilities_of(direct, [[0.35, 0.65]]) == {"empty": 0.65}


@pytest.fixture
def choices():
    """The choices of a tokenizer that gives each text a token of its own."""
    ids = {}
    schema_slots, _ = slots.slots_of(prompts.SCHEMA)
    return slots.Choices(schema_slots, lambda text: [ids.setdefault(text, len(ids))], "toy")


def slot_at(number):
    return slots.slots_of(prompts.SCHEMA)[0][number]


def test_a_slot_is_filled_by_its_likeliest_choice(choices):
    assert choices.choose(slot_at(0), [], [0.4, 0.6]) == ("1", [0.4, 0.6])


def test_the_decimals_of_a_score_below_one_are_chosen(choices):
    assert choices.choose(slot_at(1), ["0"], [0.0, 1.0, *[0.0] * 8])[0] == "1"


@pytest.mark.parametrize("number, path", [(1, ["1"]), (2, ["1", "0"])])
def test_a_score_never_exceeds_one(choices, number, path):
    assert choices.choose(slot_at(number), path, [0.1] * 10) == ("0", [])


def test_a_judgment_is_chosen_among_three(choices):
    judgment, _ = choices.choose(slot_at(18), ["0"] * 18, [0.2, 0.5, 0.3])
    assert judgment == "false"


def test_a_revised_question_may_be_empty(choices):
    assert choices.choose(slot_at(19), ["0"] * 19, [0.2, 0.8])[0] == ' ""'


def test_choices_with_the_same_first_token_are_refused():
    with pytest.raises(ValueError, match="'toy' gives some of .* the same first token"):
        slots.Choices(slots.slots_of(prompts.SCHEMA)[0], lambda text: [7], "toy")


def test_the_first_guess_is_the_most_frequent_verdict_of_the_oracle():
    guesses = slots.Guesses(slots.slots_of(prompts.SCHEMA)[0])
    assert guesses.guess(("0",)) == (*"095095095095005095", "true", ' ""')


# Samples.

LOGITS = torch.tensor([[0.0, 1.0, 2.0, -9.0]] * 2)


def test_samples_are_drawn_with_the_probabilities_of_the_tokens():
    drawn = [int(Sampler(["x"], number)([0], LOGITS[:1])[1]) for number in range(600)]
    shares = [drawn.count(token) / 600 for token in range(4)]
    assert shares == pytest.approx(torch.softmax(LOGITS[0], 0).tolist(), abs=0.06)


@pytest.mark.parametrize("number", range(5))
def test_a_sample_does_not_depend_on_the_rest_of_its_batch(number):
    _, alone = Sampler(["x"], number)([0], LOGITS[:1])
    _, together = Sampler(["y", "x"], number)([0, 1], LOGITS)
    assert together[1] == alone[0]


def test_a_sample_comes_with_the_logit_of_its_token():
    values, tokens = Sampler(["y", "x"], 5)([0, 1], LOGITS)
    assert values.tolist() == [LOGITS[0, token] for token in tokens]


# Training: samples become tokens with weights.

SAMPLES = [
    Sample("a", "answer", "p", ("xy",)),
    Sample("b", "verify", "pp", ('{ "4":', ' "', "q", '"', " }")),
    Sample("c", "verify", "p", ('{ "4":', ' "'), unfinished=True),
]
LETTERS = SimpleNamespace(  # a model with one token per letter
    prompt_ids=lambda prompt: [1] * len(prompt), target_ids=lambda part: [2] * len(part), end_id=9
)


def test_a_sample_is_its_prompt_its_target_and_the_end():
    answer = qlora.encode(SAMPLES, LETTERS)[0]
    assert (answer.task, answer.ids, answer.start) == (0, (1, 2, 2, 9), 1)


def test_every_token_of_an_answer_weighs_one():
    assert qlora.encode(SAMPLES, LETTERS)[0].relative_weights == (1.0, 1.0, 1.0)


def test_a_verdict_is_the_second_task():
    verdict = qlora.encode(SAMPLES, LETTERS)[1]
    assert (verdict.task, verdict.ids, verdict.start) == (1, (1, 1, *[2] * 12, 9), 2)


def test_fixed_parts_of_a_verdict_weigh_a_tenth():
    shares = qlora.encode(SAMPLES, LETTERS)[1].relative_weights
    assert shares == pytest.approx([0.1] * 6 + [1.0] * 4 + [0.1] * 2 + [1.0])


def test_an_unfinished_target_has_no_end():
    unfinished = qlora.encode(SAMPLES, LETTERS)[2]
    assert unfinished.ids == (1, *[2] * 8)
    assert unfinished.relative_weights == pytest.approx([0.1] * 6 + [1.0] * 2)


def test_a_sample_of_an_unknown_task_is_an_error():
    with pytest.raises(ValueError, match="not in tuple"):
        qlora.encode([replace(SAMPLES[0], task="sing")], LETTERS)


ANSWER = Encoded(0, (1, 2, 3, 4), 1)
VERDICT = Encoded(1, (1, 2, 3), 1, (0.5, 1.0))


def test_the_token_weights_of_a_task_sum_to_the_number_of_steps():
    # 2 epochs · 6 tokens · w = 8 steps, and 2 · 1.5 · w = 8.
    assert task_weights([ANSWER, ANSWER, VERDICT], 8, 2) == pytest.approx([8 / 12, 8 / 3])


def test_a_task_without_samples_weighs_nothing():
    assert task_weights([ANSWER], 8, 2) == pytest.approx([8 / 6, 0.0])


# The objective.


@pytest.fixture
def learned():
    """What is learned from four tokens, the last of which is padding, and their gradients."""
    losses = torch.tensor([1.0, 2.0, 4.0, 8.0], requires_grad=True)
    trainee = SimpleNamespace(token_losses=lambda row: losses * 1.0)
    row = {"weights": torch.tensor([0.5, 0.5, 0.25, 9.0]), "tasks": torch.tensor([0, 0, 1, -1])}
    sums = learner(trainee, 4.0, "cpu")(row)
    return sums, losses.grad


def test_the_losses_of_a_row_are_weighted_sums_by_task(learned):
    sums, _ = learned
    assert sums.tolist() == [[1.5, 1.0], [1.0, 0.25]]  # L_RAG, L_CoV; their weights


def test_the_objective_is_l_rag_plus_w_times_l_cov(learned):
    _, grad = learned
    assert grad.tolist() == [0.5, 0.5, 1.0, 0.0]


def test_a_steps_losses_are_means_over_their_tokens(learned):
    sums, _ = learned
    assert qlora.mean_losses(3, sums) == {"loss": 5.5, "loss_answer": 1.5, "loss_verify": 4.0}


def test_a_loss_that_is_not_a_number_is_an_error(learned):
    sums, _ = learned
    with pytest.raises(FloatingPointError, match="lower learning_rate"):
        qlora.mean_losses(3, sums * math.nan)


# Rows.

FIRST = Encoded(0, (5, 6, 7), 1)
SECOND = Encoded(1, (8, 9, 10, 11), 2, (0.1, 1.0))


@pytest.fixture
def row():
    return lay_out([FIRST, SECOND], [2.0, 3.0], "cpu")


@pytest.fixture
def padded():
    shape = qlora.common_shape([[0, 1]], [FIRST, SECOND], 300)
    return lay_out([FIRST, SECOND], [2.0, 3.0], "cpu", shape)


@pytest.mark.parametrize(
    "name, expected",
    [
        ("input_ids", [[5, 6, 7, 8, 9, 10, 11]]),
        ("position_ids", [[0, 1, 2, 0, 1, 2, 3]]),
        ("sequence_ends", [0, 3, 7]),
        ("target_positions", [0, 1, 4, 5]),  # each target is predicted from the token before it
        ("labels", [6, 7, 10, 11]),
        ("tasks", [0, 0, 1, 1]),
        ("weights", pytest.approx([2.0, 2.0, 0.3, 3.0])),
    ],
)
def test_a_row_is_its_samples_one_after_another(row, name, expected):
    assert row[name].tolist() == expected


def test_a_row_has_exactly_these_parts(row):
    assert list(row) == list(PackedRow.__annotations__)


def test_a_row_knows_its_longest_sample(row):
    assert row["longest_sequence"] == 4


def test_padding_fills_a_row_to_the_common_shape(padded):
    assert padded["input_ids"].shape == (1, 300)
    assert padded["sequence_ends"][-1] == 300


def test_padding_adds_no_weight(padded, row):
    assert padded["weights"].sum() == row["weights"].sum()


def test_padded_targets_belong_to_no_task(padded):
    assert padded["tasks"].tolist()[4:] == [-1] * 60


# The schedule.

RATES = [schedule(step, 100) for step in range(100)]


def test_the_learning_rate_rises_for_the_first_twentieth():
    assert RATES[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])


def test_the_learning_rate_falls_from_its_highest_value():
    assert RATES[5] == 1.0
    assert RATES[5:] == sorted(RATES[5:], reverse=True)


def test_the_learning_rate_is_about_half_in_the_middle():
    assert RATES[52] == pytest.approx(0.55, abs=0.01)


def test_the_learning_rate_falls_to_a_tenth():
    assert RATES[99] == pytest.approx(0.1, abs=0.01)


def test_a_single_step_has_the_full_learning_rate():
    assert schedule(0, 1) == 1.0


# Epochs and packs.

THIRTY = [Encoded(0, (1,) * (i % 7 + 1), 1) for i in range(30)]
TWO_EPOCHS = Config().change(epochs=2, pack_tokens=10, step_tokens=20).training


def order_of(steps):
    packs = itertools.chain.from_iterable(steps)
    return list(itertools.chain.from_iterable(packs))


@pytest.mark.parametrize("epoch", [slice(30), slice(30, 60)])
def test_every_epoch_contains_every_sample_once(epoch):
    assert sorted(order_of(plan_steps(THIRTY, TWO_EPOCHS))[epoch]) == list(range(30))


def test_every_epoch_has_another_order():
    order = order_of(plan_steps(THIRTY, TWO_EPOCHS))
    assert order[:30] != order[30:]


def test_a_step_has_no_more_packs_than_its_tokens_allow():
    assert max(map(len, plan_steps(THIRTY, TWO_EPOCHS))) == 2


def test_the_same_seed_gives_the_same_steps():
    assert plan_steps(THIRTY, TWO_EPOCHS) == plan_steps(THIRTY, TWO_EPOCHS)


def test_another_seed_gives_other_steps():
    other = replace(TWO_EPOCHS, training_seed=2)
    assert plan_steps(THIRTY, other) != plan_steps(THIRTY, TWO_EPOCHS)


def random_lengths():
    """Sixty cases: the room of a row, and the lengths of samples."""
    for rng in map(random.Random, range(60)):
        room = rng.randint(8, 60)
        yield room, [rng.randint(1, room) for _ in range(rng.randint(1, 50))]


def test_packs_contain_every_sample_once():
    for room, lengths in random_lengths():
        packed = itertools.chain.from_iterable(pack(lengths, room))
        assert sorted(packed) == list(range(len(lengths)))


def test_no_pack_is_longer_than_its_room():
    for room, lengths in random_lengths():
        assert max(sum(lengths[i] for i in chosen) for chosen in pack(lengths, room)) <= room


def test_a_pack_of_short_samples_is_full_although_there_are_many():
    assert len(pack([1] * 200, 64)[0]) == 64


def best_total(lengths, room):
    """The largest total within the room of a subset with the first sample, by trying them all."""
    totals = {lengths[0]}
    for length in lengths[1:]:
        totals |= {total + length for total in totals if total + length <= room}
    return max(totals)


def test_the_first_sample_is_always_in_the_fullest_subset():
    for room, lengths in random_lengths():
        assert qlora.fullest_subset(lengths[:9], room)[0] == 0


def test_the_fullest_subset_has_the_best_total():
    for room, lengths in random_lengths():
        chosen = qlora.fullest_subset(lengths[:9], room)
        assert sum(lengths[i] for i in chosen) == best_total(lengths[:9], room)


def test_a_sample_longer_than_a_row_is_an_error():
    with pytest.raises(ValueError, match="raise pack_tokens"):
        pack([3, 9], 8)


# Checkpoints and the loop.


@pytest.fixture
def trainee():
    network = torch.nn.Linear(2, 1, bias=False)
    network.get_base_model = lambda: SimpleNamespace(dtype=torch.float32)
    return AdapterTrainee(network, None, Config().training, torch.float32)


@pytest.fixture
def saved(trainee, tmp_path):
    """A trainee with a checkpoint in which all weights are 1; then they are set to 0."""
    trainee.restore(tmp_path, SAMPLES, "base")
    trainee.master.weights.fill_(1)
    trainee.save(tmp_path, [{"step": 1}])
    trainee.master.weights.zero_()
    return trainee


def test_without_a_checkpoint_no_step_is_finished(trainee, tmp_path):
    assert trainee.restore(tmp_path, SAMPLES, "base") == []


def test_a_checkpoint_restores_the_rows_of_its_steps(saved, tmp_path):
    assert saved.restore(tmp_path, SAMPLES, "base") == [{"step": 1}]


def test_a_checkpoint_restores_the_weights_of_the_network(saved, tmp_path):
    saved.restore(tmp_path, SAMPLES, "base")
    assert saved.adapted.weight.tolist() == [[1, 1]]


def test_a_checkpoint_is_valid_for_another_folder_of_adapters(saved, tmp_path):
    saved.settings = replace(saved.settings, adapters_out="elsewhere")
    assert saved.restore(tmp_path, SAMPLES, "base") == [{"step": 1}]


@pytest.mark.parametrize(
    "samples, fingerprint",
    [
        (SAMPLES[:2], "base"),
        ([replace(SAMPLES[0], target=("z",)), *SAMPLES[1:]], "base"),
        (SAMPLES, "another base"),
    ],
)
def test_a_checkpoint_of_other_data_or_weights_is_refused(saved, tmp_path, samples, fingerprint):
    with pytest.raises(ValueError, match="other settings, samples or weights"):
        saved.restore(tmp_path, samples, fingerprint)


@pytest.mark.parametrize(
    "change", [{"verify_weight": 1.0}, {"training_seed": 2}, {"learning_rate": 1e-3}]
)
def test_a_checkpoint_of_other_settings_is_refused(saved, tmp_path, change):
    saved.settings = replace(saved.settings, **change)
    with pytest.raises(ValueError, match="other settings, samples or weights"):
        saved.restore(tmp_path, SAMPLES, "base")


@pytest.fixture
def loop(tmp_path):
    """A run of a network that learns nothing: its trainee, its rows, weight and checkpoints."""
    weight = torch.ones(1, requires_grad=True)
    trainee = Mock(one_shape=False, capture=lambda learn: learn)
    trainee.restore = Mock(return_value=[])
    trainee.token_losses = lambda row: weight * torch.ones(len(row["labels"]))
    saved = []
    trainee.save = lambda out, rows: saved.append(len(rows))
    model = SimpleNamespace(
        **vars(LETTERS),
        device="cpu",
        fingerprint="base+",
        settings=Config().model,
        prepare_training=lambda *_: nullcontext(trainee),
    )
    config = Config().change(epochs=4, pack_tokens=20, step_tokens=20, verify_weight=4.0)
    rows = qlora.train(model, SAMPLES * 4, tmp_path, config.training)
    assert len(rows) > 20
    return SimpleNamespace(trainee=trainee, rows=rows, weight=weight, saved=saved)


def test_the_loop_resumes_only_from_a_checkpoint_of_its_samples_and_weights(loop, tmp_path):
    loop.trainee.restore.assert_called_once_with(tmp_path, SAMPLES * 4, "base+")


def test_the_adapter_is_saved_with_the_name_of_its_base(loop, tmp_path):
    loop.trainee.save_adapter.assert_called_once_with(tmp_path, "smollm2-135m")


def test_every_update_has_the_scheduled_learning_rate(loop):
    rates = [call.args[0] for call in loop.trainee.update.call_args_list]
    expected = [2e-4 * schedule(step, len(loop.rows)) for step in range(len(loop.rows))]
    assert rates == pytest.approx(expected)


def test_every_step_records_losses_tokens_seconds_and_learning_rate(loop):
    columns = ["step", "loss", "loss_answer", "loss_verify", "tokens", "seconds", "lr"]
    assert list(loop.rows.columns) == columns


def test_every_update_is_clipped_to_one(loop):
    assert {call.args[1] for call in loop.trainee.update.call_args_list} == {1.0}


def test_a_checkpoint_is_saved_every_twenty_steps_and_at_the_end(loop):
    n_steps = len(loop.rows)
    assert loop.saved == [*range(20, n_steps, 20), n_steps]


def test_the_loss_of_a_task_is_the_mean_of_its_tokens(loop):
    answers = loop.rows.loss_answer.dropna()
    assert answers.tolist() == pytest.approx([1.0] * len(answers))


def test_over_a_run_the_objective_averages_to_l_rag_plus_w_times_l_cov(loop):
    # Every token loses 1.
    assert float(loop.weight.grad) / len(loop.rows) == pytest.approx(1 + 4, rel=1e-4)


# New adapters.


def new_adapter(seed):
    settings = Config().change(training_seed=seed, lora_rank=4).training
    return lora.add_adapters(build_network("Llama"), settings)


def first_matrix(adapted):
    return next(p for name, p in adapted.named_parameters() if "lora_A" in name)


def test_adapters_are_scaled_by_two():
    settings = new_adapter(1).peft_config["default"]
    assert (settings.r, settings.lora_alpha, settings.lora_dropout) == (4, 8, 0.0)


def test_adapters_begin_the_same_with_the_same_seed():
    assert torch.equal(first_matrix(new_adapter(1)), first_matrix(new_adapter(1)))


def test_adapters_begin_differently_with_another_seed():
    assert not torch.equal(first_matrix(new_adapter(1)), first_matrix(new_adapter(2)))
