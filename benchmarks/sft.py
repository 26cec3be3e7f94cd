"""Training with what others use instead: trl's SFTTrainer, with Liger's kernels or without, and Unsloth.

Each way gets the very rows that ours gets, packed already, in the same order, and takes one update a step.
Liger and Unsloth change transformers' code where they are imported, so that each way wants a process of its own.
"""

import time
from collections.abc import Sequence
from pathlib import Path

import torch
from peft import LoraConfig
from transformers import AutoTokenizer, PreTrainedModel, TrainerCallback

from benchmarks.folders import load_four_bit
from benchmarks.training import Step
from covrag_lite.config import Training
from covrag_lite.qlora import Encoded

LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


class Clock(TrainerCallback):
    """Each step's seconds and loss."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.losses: list[float] = []

    def on_step_begin(self, *_: object, **__: object) -> None:
        if not self.seconds:
            self.last = time.perf_counter()

    def on_log(self, *_: object, logs: dict, **__: object) -> None:
        """Called after every step with its loss, for which the device had to be done."""
        if "loss" in logs:
            now = time.perf_counter()
            self.seconds.append(now - self.last)
            self.losses.append(logs["loss"])
            self.last = now


def to_row(samples: Sequence[Encoded]) -> dict[str, list[int]]:
    """One packed row as trl's own packing leaves it: tokens, labels, and the lengths of its samples."""
    ids, labels = [], []
    for one in samples:
        ids += one.ids
        labels += [-100] * one.start + list(one.ids[one.start :])
    return {"input_ids": ids, "labels": labels, "seq_lengths": [len(one.ids) for one in samples]}


def load_trl(
    folder: Path, settings: Training, device: str, attention: str
) -> tuple[PreTrainedModel, LoraConfig | None]:
    """The 4-bit folder as transformers loads it, and the adapters that trl is to put on it."""
    adapters = LoraConfig(
        r=settings.lora_rank, lora_alpha=2 * settings.lora_rank, target_modules=LINEARS, task_type="CAUSAL_LM"
    )
    return load_four_bit(folder, device, attention), adapters


def load_unsloth(
    folder: Path, settings: Training, device: str, attention: str
) -> tuple[PreTrainedModel, LoraConfig | None]:
    """The 4-bit folder as Unsloth loads and adapts it, with the settings of its guides."""
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
        target_modules=LINEARS,
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
    given: dict,
) -> Clock:
    """Train by SFTTrainer, as it is or as Unsloth has changed it; `given` are the settings that make this way."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    # Our samples a step, our rate and clip, bf16, no evaluation, no checkpoints.
    common = {
        "output_dir": str(out / "out"),
        "max_steps": len(steps),
        "per_device_train_batch_size": 1,
        "gradient_accumulation_steps": len(steps[0]),
        "max_length": settings.pack_tokens,
        "packing": True,
        "dataset_kwargs": {"skip_prepare_dataset": True},
        "train_sampling_strategy": "sequential",
        "learning_rate": 1e-4,
        "lr_scheduler_type": "constant",
        "weight_decay": 0.01,
        "max_grad_norm": 1.0,
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
        args=SFTConfig(**common | given),
        train_dataset=Dataset.from_list([to_row(row) for step in steps for row in step]),
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
