"""One batch of prompts: written in halves if it does not fit into memory, and counted."""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence

import torch

from covrag_lite.engine.interface import Completion, report_fallback
from covrag_lite.engine.vocabulary import Vocabulary

# What the messages of CUDA and of a CPU say if memory is exhausted.
OUT_OF_MEMORY = re.compile("out of memory|not enough memory|can't allocate memory")
WriteBatch = Callable[[Sequence[str]], list]  # completes a batch of prompts


def write_batch(
    write: WriteBatch, prompts: Sequence[str], vocabulary: Vocabulary, used: Counter
) -> list[Completion]:
    """Write a batch, in halves if it does not fit into memory, and count its tokens."""
    completions = write_in_halves(write, prompts, used)
    check_numbers(completions)
    texts = [completion.text for completion in completions]
    used["requests"] += len(completions)
    used["completion_tokens"] += sum(vocabulary.count(texts))
    return completions


def check_numbers(completions: Sequence[Completion]) -> None:
    """Raise an error if a model computed NaN: its texts would mean nothing."""
    for completion in completions:
        if any(map(math.isnan, (completion.probabilities or {}).values())):
            raise ValueError(
                "the model computes values that are not numbers: its weights are damaged, or too "
                "large for the precision of this device; download them again, or try -p device cpu"
            )


def write_in_halves(write: WriteBatch, prompts: Sequence[str], used: Counter) -> list:
    """Apply `write` to a batch, in halves if the whole does not fit into memory."""
    n_read = used["prompt_tokens"]
    try:
        return write(prompts)
    except RuntimeError as error:  # torch.OutOfMemoryError is one
        if not OUT_OF_MEMORY.search(str(error)):
            raise
        if len(prompts) == 1:
            raise MemoryError(
                f"one prompt of {len(prompts[0])} characters does not fit into memory by itself; "
                "lower k, choose a smaller model, or free memory"
            ) from None
    # Outside `except`, where the tensors of the failed attempt are freed.
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    used["prompt_tokens"] = n_read  # the halves count their own
    report_fallback(used, "batches are halved", "they do not fit into memory")
    half = len(prompts) // 2
    first = write_in_halves(write, prompts[:half], used)
    return first + write_in_halves(write, prompts[half:], used)
