"""Sampled texts: by chance, but the same again for the same prompt and number."""

import torch

from covrag_lite.config import Model
from covrag_lite.engine.local import load_model
from covrag_lite.engine.sampling import Dice, greedily


def test_a_draw_depends_on_prompt_and_number_and_on_no_other_row():
    logits = torch.zeros(3, 40)
    prompts = ["a", "b", "a"]
    first = [Dice(prompts, 1)(range(3), logits)[1] for _ in range(2)]
    assert torch.equal(*first)  # again the same
    assert first[0][0] == first[0][2]  # the same prompt
    dice = Dice(prompts, 1)
    alone = dice([1], logits[:1])[1]
    assert alone[0] == first[0][1]
    many = torch.cat([Dice(["a"], number)([0], logits[:1])[1] for number in range(50)])
    assert len(many.unique()) > 20  # another number, another draw


def test_draws_follow_the_probabilities():
    logits = torch.tensor([[0.0, 2.0, 1.0, -50.0]])
    dice = Dice(["a"], 0)
    drawn = torch.cat([dice([0], logits)[1] for _ in range(4000)])
    shares = torch.bincount(drawn, minlength=4) / len(drawn)
    torch.testing.assert_close(shares, logits.softmax(1)[0], atol=0.03, rtol=0)
    picked, token = dice([0], logits)
    assert picked[0] == logits[0, token[0]]
    assert greedily([0], logits)[1].tolist() == [1]


def test_a_model_samples_the_same_again_and_otherwise_for_another_number(tiny_folder):
    model = load_model(Model(model=str(tiny_folder), quantize="none", device="cpu"))
    prompts = ["who wrote it?", "when was it?"]
    first = model.sample(prompts, 8, 0)
    assert model.sample(prompts, 8, 0) == first
    assert model.used["requests"] == 4  # two texts, twice, and not their letters
    assert model.sample(prompts[1:], 8, 0) == first[1:]
    assert model.sample(prompts, 8, 1) != first
    assert model.generate(prompts, 8) == model.generate(prompts, 8) != first
