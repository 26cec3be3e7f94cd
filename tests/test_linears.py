"""Layers with the same input are computed together, with the numbers that peft's own layers give."""

from collections import Counter

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import Qwen2Config, Qwen2ForCausalLM

from covrag_lite.engine import prepare

X = torch.randn(3, 5, 32, generator=torch.Generator().manual_seed(2))
IDS = torch.arange(12).view(2, 6)


def network():
    """A Qwen2 of two layers, whose queries, keys and values have biases."""
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2}
    made = Qwen2ForCausalLM(Qwen2Config(vocab_size=50, num_hidden_layers=2, initializer_range=0.3, **shape)).eval()
    for name, weight in made.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(weight)
    return made


def with_adapters(made, **settings):
    torch.manual_seed(1)
    lora = {"r": 4, "target_modules": "all-linear", "init_lora_weights": False, "task_type": "CAUSAL_LM"}
    return get_peft_model(made, LoraConfig(**lora | settings))


class Products(TorchDispatchMode):
    """Counts matrix products."""

    def __init__(self):
        super().__init__()
        self.n = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function._schema.name.removeprefix("aten::")
        self.n[name] += name in ("linear", "addmm", "mm", "addmm_", "matmul")
        return function(*args, **(kwargs or {}))


def products(made):
    with torch.inference_mode(), Products() as counted:
        made(IDS)
    return counted.n.total() - 1  # but for the logits


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"target_modules": ["k_proj", "up_proj", "down_proj"]},
        {"rank_pattern": {"k_proj": 2, "up_proj": 3}},  # with the same alpha, so with other scales
        {"rank_pattern": {"k_proj": 2}, "alpha_pattern": {"k_proj": 4}},
        {"use_dora": True},
        {"lora_bias": True},
    ],
)
def test_joined_layers_compute_what_pefts_do(settings):
    made = with_adapters(network(), **settings)
    with torch.inference_mode():
        expected = made(IDS).logits
        prepare.fuse_linears(made.base_model.model)
        torch.testing.assert_close(made(IDS).logits, expected)
        with made.disable_adapter():
            torch.testing.assert_close(made(IDS).logits, network()(IDS).logits)


def test_a_layer_takes_twelve_products_where_it_took_twenty_one():
    made = with_adapters(network())
    assert products(made) == 2 * 21
    prepare.fuse_linears(made.base_model.model)
    assert products(made) == 2 * 12  # W, A and B of q, k and v together, of o, of gate and up together, of down


def test_joined_layers_answer_in_any_order_and_for_any_input():
    made = network()
    attention = made.model.layers[0].self_attn
    other = X + 1
    expected = [(attention.k_proj(x), attention.v_proj(x), attention.q_proj(x)) for x in (X, other)]
    prepare.fuse_linears(made)
    for x, outs in zip((X, other), expected):
        for name, out in zip(("k_proj", "v_proj", "q_proj"), outs):
            torch.testing.assert_close(getattr(attention, name)(x), out)
    first = attention.q_proj(X)
    torch.testing.assert_close(attention.k_proj(other), expected[1][0])
    torch.testing.assert_close(first, expected[0][2])


def test_joined_weights_are_held_once():
    made = network()
    prepare.fuse_linears(made)
    mlp = made.model.layers[1].mlp
    gate, up = mlp.gate_proj.weight, mlp.up_proj.weight
    assert gate.untyped_storage().data_ptr() == up.untyped_storage().data_ptr()
    assert gate.untyped_storage().nbytes() == 2 * gate.nbytes
