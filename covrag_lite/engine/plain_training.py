"""Training the plain way: one sample after another, with the layers of transformers and peft.

It works with any architecture.
"""

from functools import partial
from itertools import pairwise

import torch
from peft import PeftModel
from transformers import PreTrainedModel

from covrag_lite.config import Training
from covrag_lite.engine.interface import PackedRow
from covrag_lite.engine.lora import add_adapters
from covrag_lite.engine.trainee import KEEP, AdapterTrainee, check_activations


def build_plain_trainee(network: PreTrainedModel, settings: Training) -> AdapterTrainee:
    """Prepare the network with a new adapter, which peft computes in fp32."""
    check_activations(settings)
    adapted = add_adapters(network, settings).train()
    if settings.activations != KEEP:
        network.gradient_checkpointing_enable({"use_reentrant": False})
        network.enable_input_require_grads()
    losses = partial(losses_one_by_one, adapted)
    return AdapterTrainee(adapted, losses, settings, torch.float32)


def losses_one_by_one(adapted: PeftModel, row: PackedRow) -> torch.Tensor:
    """Return the loss of each target token, (targets), one sample after another."""
    logits = []
    for start, end in pairwise(row["sequence_ends"].tolist()):
        output = adapted(input_ids=row["input_ids"][:, start:end], use_cache=False)
        logits.append(output.logits[0])  # (tokens, vocabulary)
    target_logits = torch.cat(logits)[row["target_positions"]].float()
    return torch.nn.functional.cross_entropy(target_logits, row["labels"], reduction="none")
