"""The plain way of training: peft's layers and transformers' attention, for every architecture.

It is what the fast way is compared with. Samples of a row go through the network one after another.
"""

from functools import partial
from itertools import pairwise

import torch
from peft import PeftModel

from covrag_lite.config import Training
from covrag_lite.engine.local import LocalEngine
from covrag_lite.engine.lora import add_adapters
from covrag_lite.engine.trainee import Trainee
from covrag_lite.engine.training import Row, Shape


def load(model: LocalEngine, settings: Training, shape: Shape) -> Trainee:
    """The model's network with a fresh adapter, which peft computes in fp32."""
    network = model.read_anew()
    adapted = add_adapters(network, settings).train()
    if settings.activations != "keep":
        network.gradient_checkpointing_enable({"use_reentrant": False})
        network.enable_input_require_grads()
    way = "plain, flat "  # a plain checkpoint of earlier versions, with tensors of each layer, is refused
    return Trainee(adapted, partial(token_losses, adapted), settings, torch.float32, way=way)


def token_losses(adapted: PeftModel, row: Row) -> torch.Tensor:
    """Each target token's loss: (targets)."""
    logits = []
    for start, end in pairwise(row["ends"].tolist()):
        made = adapted(input_ids=row["input_ids"][:, start:end], use_cache=False)
        logits.append(made.logits[0])  # (tokens, vocabulary)
    wanted = torch.cat(logits)[row["where"]].float()
    return torch.nn.functional.cross_entropy(wanted, row["labels"], reduction="none")
