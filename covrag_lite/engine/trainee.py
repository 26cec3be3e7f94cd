"""An adapter in training: its optimizer, and the checkpoints from which a killed run resumes."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import torch
from peft import PeftModel, get_peft_model_state_dict
from peft.utils import CONFIG_NAME
from safetensors import safe_open
from safetensors.torch import save_file

from covrag_lite.config import Training
from covrag_lite.engine.interface import Learn, PackedRow
from covrag_lite.engine.journal import key_of
from covrag_lite.engine.lora import MasterWeights
from covrag_lite.engine.loss_scale import LossScale
from covrag_lite.files import explained, replacing_path, write_text
from covrag_lite.records import Sample, digest

# What happens to a layer's results between the forward and the backward pass.
KEEP = "keep"
RECOMPUTE = "recompute"
OFFLOAD = "offload"
ACTIVATIONS = (KEEP, RECOMPUTE, OFFLOAD)


def check_activations(settings: Training) -> None:
    """Refuse an unknown value of the parameter `activations`."""
    if settings.activations not in ACTIVATIONS:
        allowed = ", ".join(ACTIVATIONS)
        raise ValueError(f"activations {settings.activations!r} is not known; use one of {allowed}")


class AdapterTrainee:
    """A network with a new adapter and its optimizer.

    `losses` returns the loss of each target token of a row; autograd continues from there to the
    adapter. `record` may turn a function that learns, and the gradients that it adds to, into one
    that does the same faster.
    """

    def __init__(
        self,
        adapted: PeftModel,
        losses: Callable[[PackedRow], torch.Tensor],
        settings: Training,
        dtype: torch.dtype,
        one_shape: bool = False,
        record: Callable[[Learn, torch.Tensor], Learn] | None = None,
    ):
        self.adapted = adapted
        self.losses = losses
        self.settings = settings
        self.one_shape = one_shape
        self.master = MasterWeights(adapted, dtype, settings.activations == OFFLOAD)
        self.scale = LossScale(adapted.get_base_model().dtype, self.master.grad.device)
        # Everything that the next step depends on.
        self.tensors = {**self.master.tensors, "scale": self.scale.state}
        self.key = ""  # of the run to which a checkpoint belongs
        self._record = record

    def token_losses(self, row: PackedRow) -> torch.Tensor:
        """Return the loss of each target token: (targets)."""
        return self.scale.enlarge(self.losses(row))

    def capture(self, learn: Learn) -> Learn:
        """Return the same function, which may be recorded at its first call and then replayed."""
        return self._record(learn, self.master.copy_grad) if self._record else learn

    def accumulate(self) -> None:
        """Add the gradients of one row to those of the step."""
        self.master.collect()

    def update(self, lr: float, clip: float) -> None:
        """Apply the step's gradient, clipped to the length `clip`."""
        if self.scale.shrink(self.master.grad):
            self.master.step(lr, clip)
        self.master.grad.zero_()

    def restore(self, out: Path, samples: Sequence[Sample], fingerprint: str) -> list[dict]:
        """Load the checkpoint in `out`, if there is one, and return the rows of its steps.

        The order of samples and the learning rate follow from the step's number. Nothing else is
        random.
        """
        settings = asdict(self.settings)
        del settings["adapters_out"]  # does not affect training
        self.key = key_of(settings=settings, samples=digest(samples), weights=fingerprint)
        path = out / "checkpoint.safetensors"
        rows = self._load_checkpoint(path) if path.exists() else []
        n_overflowed = int(self.scale.state[2])
        self.master.n_steps = len(rows) - n_overflowed
        self.master.publish()
        return rows

    def _load_checkpoint(self, path: Path) -> list[dict]:
        with safe_open(path, "pt") as file:
            if file.metadata()["key"] != self.key:
                raise ValueError(
                    f"{path} belongs to a run with other settings, samples or weights; "
                    "choose another folder or delete this one"
                )
            for name in file.keys():
                self.tensors[name].copy_(file.get_tensor(name))
            return json.loads(file.metadata()["rows"])

    def save(self, out: Path, rows: list[dict]) -> None:
        """Write the losses, and then the checkpoint, so that it is never incomplete."""
        out.mkdir(parents=True, exist_ok=True)
        write_text(out / "losses.csv", pd.DataFrame(rows).to_csv(index=False))
        with replacing_path(out / "checkpoint.safetensors") as new:
            save_file(self.tensors, new, metadata={"key": self.key, "rows": json.dumps(rows)})

    def save_adapter(self, out: Path, base: str) -> None:
        """Write the adapter for peft, with the name of its base model and no local path."""
        out.mkdir(parents=True, exist_ok=True)
        settings = self.adapted.peft_config["default"]
        settings.base_model_name_or_path = base
        settings.inference_mode = True
        weights = get_peft_model_state_dict(self.adapted, save_embedding_layers=False)
        contiguous = {name: weight.contiguous() for name, weight in weights.items()}
        with replacing_path(out / "adapter_model.safetensors") as new:
            save_file(contiguous, new, metadata={"format": "pt"})
        # Last, because an adapter is complete if it has this file.
        with explained(out / CONFIG_NAME), TemporaryDirectory(dir=out) as folder:
            settings.save_pretrained(folder)
            Path(folder, CONFIG_NAME).replace(out / CONFIG_NAME)
