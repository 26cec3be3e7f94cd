"""Batches: how many tokens may pass through a network at once, and which prompts share a batch."""

from collections.abc import Mapping

from transformers import PretrainedConfig, PreTrainedModel

from covrag_lite.engine.devices import free_memory

# Tokens per batch. More gives hardly any speed, and a killed run loses its current batch.
CPU_TOKENS = 8192  # a minute or two on two slow cores: the progress moves often enough
CUDA_TOKENS = 2**19
# The store of the decoding steps, relative to what a first batch takes: later shapes differ.
SPARE = 1.25


def head_size(config: PretrainedConfig) -> int:
    """Return the width of one attention head, which not all settings name."""
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def count_fitting_tokens(network: PreTrainedModel, device: str) -> int:
    """Return how many tokens may pass through the network at once."""
    if device == "cpu":
        return CPU_TOKENS  # a constant, so that a resumed run makes the same batches
    config = network.config
    # Keys and values of one token; then the tensors of one layer while it is computed.
    n_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    intermediate = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    kept = config.num_hidden_layers * 2 * n_heads * head_size(config)
    passing = 3 * intermediate + 8 * config.hidden_size
    # The batch gets half of the memory. If keys and values are most of it, the batch and the store
    # of the decoding steps get four fifths.
    needed = max(2 * (kept + passing), 1.25 * (kept + SPARE * kept + passing))
    tokens = free_memory(device) / (needed * network.dtype.itemsize)
    power_of_two = 1 << max(int(tokens), 1).bit_length() - 1  # mostly the same in every run
    return min(CUDA_TOKENS, power_of_two)


def plan_batches(lengths: Mapping[str, int], room: int, tokens: int) -> list[list[str]]:
    """Sort the prompts, longest first, into batches of at most `tokens` tokens.

    A batch counts as its number of rows times its longest prompt plus `room`.
    """
    batches: list[list[str]] = []
    size = 0
    for prompt in sorted(lengths, key=lambda prompt: (-lengths[prompt], prompt)):
        if not batches or len(batches[-1]) == size:
            batches.append([])
            size = max(1, tokens // (lengths[prompt] + room))
        batches[-1].append(prompt)
    return batches
