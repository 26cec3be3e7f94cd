"""What a training run leaves on disk: a checkpoint to go on from exactly, its losses, and the adapter."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import torch
from peft import PeftModel, get_peft_model_state_dict
from safetensors import safe_open
from safetensors.torch import save_file

from covrag_lite.config import Training
from covrag_lite.data import digest
from covrag_lite.records import Sample
from covrag_lite.runs.journal import key_of

# What earlier versions called the ways of holding activations: a half-finished run keeps its key.
CHECKPOINTING = {"keep": 0.0, "recompute": 1.0, "offload": 3.0}


def run_key(settings: Training, samples: Sequence[Sample], fingerprint: str) -> str:
    """A hash of everything the trained weights depend on, under the names that earlier versions gave it."""
    told = asdict(settings)
    del told["adapters_out"]  # changes nothing of what is learnt
    told |= {"warmup": 0.05, "clip": 1.0, "unpack": "auto"}  # parameters once
    told |= {"lora_alpha": 2 * settings.lora_rank, "checkpointing": CHECKPOINTING[told.pop("activations")]}
    return key_of(settings=told, samples=digest(samples), weights=fingerprint)


def save(out: Path, key: str, rows: list[dict], state: dict[str, torch.Tensor]) -> None:
    """Write the losses for the reader and, in one move, everything the next step depends on."""
    out.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_csv(out / "losses.csv", index=False)
    new = out / "checkpoint.new"
    save_file(state, new, metadata={"key": key, "rows": json.dumps(rows)})
    new.replace(out / "checkpoint.safetensors")


def restore(out: Path, key: str, state: dict[str, torch.Tensor]) -> list[dict]:
    """The rows of the checkpoint in `out`, if there is one, whose tensors are copied into the state.

    The order of samples and the learning rate follow from the step's number, and nothing else is random.
    """
    path = out / "checkpoint.safetensors"
    if not path.exists():
        return []
    with safe_open(path, "pt") as file:
        if file.metadata()["key"] != key:
            raise ValueError(
                f"{path} belongs to a run with other settings, samples or weights; "
                f"choose another folder or delete this one"
            )
        for name in file.keys():
            state[name].copy_(file.get_tensor(name))
        return json.loads(file.metadata()["rows"])


def save_adapter(out: Path, adapted: PeftModel, base: str) -> None:
    """Write the adapter as peft loads it, with the name of its model, not with a path on this machine."""
    settings = adapted.peft_config["default"]
    settings.base_model_name_or_path = base
    settings.inference_mode = True
    settings.save_pretrained(out)
    weights = get_peft_model_state_dict(adapted, save_embedding_layers=False)
    contiguous = {name: weight.contiguous() for name, weight in weights.items()}
    save_file(contiguous, out / "adapter_model.safetensors", metadata={"format": "pt"})
