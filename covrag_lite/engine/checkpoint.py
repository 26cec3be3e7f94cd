"""What a training run leaves on disk: a checkpoint to go on from exactly, its losses, and the adapter.

`loop` calls this.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import torch
from peft import PeftModel, get_peft_model_state_dict
from safetensors import safe_open
from safetensors.torch import save_file

from covrag_lite.config import Training
from covrag_lite.data import digest
from covrag_lite.engine.lora import Master
from covrag_lite.records import Sample
from covrag_lite.runs.journal import key_of

if TYPE_CHECKING:
    from covrag_lite.engine.local import LanguageModel

MOMENTS = ("exp_avg", "exp_avg_sq")  # AdamW's running means of the gradient and of its square
WITHOUT_INFLUENCE = ("save_every", "adapters_out")  # settings that change nothing of what is learnt


def run_key(settings: Training, samples: Sequence[Sample], model: "LanguageModel") -> str:
    """A hash of everything the trained weights depend on."""
    told = asdict(settings)
    for name in WITHOUT_INFLUENCE:
        del told[name]
    return key_of(settings=told, samples=digest(samples), weights=model.fingerprint)


def save(out: Path, key: str, rows: list[dict], master: Master, optimizer: torch.optim.Optimizer) -> None:
    """Write the losses for the reader and, in one move, everything the next step depends on."""
    out.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_csv(out / "losses.csv", index=False)
    state = {"weights": master.weights.detach()}
    for name in MOMENTS:
        state[name] = optimizer.state[master.weights][name]
    new = out / "checkpoint.new"
    save_file(state, new, metadata={"key": key, "rows": json.dumps(rows)})
    new.replace(out / "checkpoint.safetensors")


def restore(out: Path, key: str, master: Master, optimizer: torch.optim.Optimizer) -> list[dict]:
    """Go back to the checkpoint in `out`, if there is one, and return the rows of its steps.

    The order of samples and the learning rate follow from the step's number, and nothing else is random.
    """
    path = out / "checkpoint.safetensors"
    if not path.exists():
        return []
    device = master.weights.device
    with safe_open(path, "pt", device=str(device)) as file:
        rows = json.loads(file.metadata()["rows"])
        if file.metadata()["key"] != key:
            raise ValueError(
                f"{path} belongs to a run with other settings, samples or weights; "
                f"choose another folder or delete this one"
            )
        master.weights.data.copy_(file.get_tensor("weights"))
        state = {"step": torch.tensor(float(len(rows)), device=master.grad.device)}
        for name in MOMENTS:
            state[name] = master.place(file.get_tensor(name))
        optimizer.state[master.weights] = state
    master.publish()
    return rows


def save_adapter(out: Path, adapted: PeftModel, base: str) -> None:
    """Write the adapter as peft loads it, with the name of its model, not with a path on this machine."""
    settings = adapted.peft_config["default"]
    settings.base_model_name_or_path = base
    settings.inference_mode = True
    settings.save_pretrained(out)
    weights = get_peft_model_state_dict(adapted, save_embedding_layers=False)
    contiguous = {name: weight.contiguous() for name, weight in weights.items()}
    save_file(contiguous, out / "adapter_model.safetensors", metadata={"format": "pt"})
