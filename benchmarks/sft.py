"""Training with other libraries: trl's SFTTrainer, with or without Liger's kernels, and Unsloth.

Each method gets exactly the rows that ours gets, already packed, in the same order, and makes one
update per step. Liger and Unsloth patch transformers when imported, so each method needs its own
process.
"""

import time
from collections.abc import Sequence
from pathlib import Path

import torch
from peft import LoraConfig
from transformers import AutoTokenizer, PreTrainedModel, TrainerCallback

from benchmarks.folders import load_four_bit
from benchmarks.training import (
    LEARNING_RATE,
    MAX_GRADIENT_NORM,
    Step,
    adapter_settings,
    labels_of,
)
from covrag_lite.config import Training
from covrag_lite.qlora import Encoded

LINEAR_LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


class Clock(TrainerCallback):
    """Records the seconds and the loss of each step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.losses: list[float] = []

    def on_step_begin(self, *_: object, **__: object) -> None:
        if not self.seconds:
            self.last = time.perf_counter()

    def on_log(self, *_: object, logs: dict, **__: object) -> None:
        """Record a step; the device has finished it, because its loss is known."""
        if "loss" in logs:
            now = time.perf_counter()
            self.seconds.append(now - self.last)
            self.losses.append(logs["loss"])
            self.last = now


def to_row(samples: Sequence[Encoded]) -> dict[str, list[int]]:
    """Convert a packed row to the form of trl's packing: tokens, labels and sample lengths."""
    ids = []
    labels = []
    for sample in samples:
        ids += sample.ids
        labels += labels_of(sample)
    lengths = [len(sample.ids) for sample in samples]
    return {"input_ids": ids, "labels": labels, "seq_lengths": lengths}


def load_trl(
    folder: Path, settings: Training, device: str, attention: str
) -> tuple[PreTrainedModel, LoraConfig | None]:
    """Load the 4-bit folder with transformers, and the adapter settings for trl."""
    adapters = adapter_settings(settings, LINEAR_LAYERS)
    return load_four_bit(folder, device, attention), adapters


def load_unsloth(
    folder: Path, settings: Training, device: str, attention: str
) -> tuple[PreTrainedModel, LoraConfig | None]:
    """Load the 4-bit folder with Unsloth, with the settings of its guides."""
    from unsloth import FastLanguageModel

    network, _ = FastLanguageModel.from_pretrained(
        model_name=str(folder), max_seq_length=settings.pack_tokens, dtype=None, load_in_4bit=True
    )
    adapted = FastLanguageModel.get_peft_model(
        network,
        r=settings.lora_rank,
        lora_alpha=2 * settings.lora_rank,
        lora_dropout=0,
        bias="none",
        target_modules=LINEAR_LAYERS,
        use_gradient_checkpointing="unsloth",
        random_state=settings.training_seed,
    )
    return adapted, None


def fit(
    network: PreTrainedModel,
    adapters: LoraConfig | None,
    folder: Path,
    steps: Sequence[Step],
    settings: Training,
    device: str,
    out: Path,
    method_settings: dict,
) -> Clock:
    """Train with SFTTrainer, original or patched by Unsloth."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    rows = []
    for step in steps:
        rows += [to_row(row) for row in step]
    # Our samples per step, learning rate and clipping; bf16; no evaluation, no checkpoints.
    common = {
        "output_dir": str(out / "out"),
        "max_steps": len(steps),
        "per_device_train_batch_size": 1,
        "gradient_accumulation_steps": len(steps[0]),
        "max_length": settings.pack_tokens,
        "packing": True,
        "dataset_kwargs": {"skip_prepare_dataset": True},
        "train_sampling_strategy": "sequential",
        "learning_rate": LEARNING_RATE,
        "lr_scheduler_type": "constant",
        "weight_decay": 0.01,
        "max_grad_norm": MAX_GRADIENT_NORM,
        "bf16": device == "cuda",
        "use_cpu": device == "cpu",
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "seed": settings.training_seed,
    }
    torch.manual_seed(settings.training_seed)
    clock = Clock()
    trainer = SFTTrainer(
        model=network,
        args=SFTConfig(**common | method_settings),
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(folder),
        peft_config=adapters,
        callbacks=[clock],
    )
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    trainer.train()
    return clock
