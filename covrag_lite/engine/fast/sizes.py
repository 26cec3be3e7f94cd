"""Sizes of a network that its settings do not always name."""

from transformers import PretrainedConfig


def head_size(config: PretrainedConfig) -> int:
    """Return the width of one attention head."""
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
