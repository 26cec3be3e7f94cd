"""Training steps to time: ours, and plain transformers + peft + bitsandbytes, on the same samples.

The plain method pads its batches, keeps the logits of every token and recomputes every layer.
"""

import time
from collections.abc import Iterator, Sequence

import torch
from peft import LoraConfig, get_peft_model
from torch.nn.utils.rnn import pad_sequence

from covrag_lite import qlora
from covrag_lite.config import Training
from covrag_lite.engine import training
from covrag_lite.qlora import Encoded, lay_out, pack, shape_of

Step = list[list[Encoded]]  # the rows of one update; for the plain method, its one batch


def plan(samples: Sequence[Encoded], pack_tokens: int, step_tokens: int, n_steps: int) -> list[Step]:
    """Return full steps of packed samples."""
    packs = pack([len(one.ids) for one in samples], pack_tokens)
    passes = max(1, step_tokens // pack_tokens)
    # About half of all packs: their samples were chosen from many, as in a long run.
    full = packs[: n_steps * passes]
    steps = []
    for first in range(0, len(full), passes):
        rows = full[first : first + passes]
        steps.append([[samples[i] for i in row] for row in rows])
    return steps


def plain_steps(
    network: torch.nn.Module, steps: Sequence[Step], settings: Training, device: str
) -> Iterator[tuple[float, int]]:
    """Yield each step's loss and computed tokens with the plain method.

    Like the Trainer, it uses autocast and computes the logits of every token.
    """
    adapters = LoraConfig(
        r=settings.lora_rank, lora_alpha=2 * settings.lora_rank, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    adapted = get_peft_model(network, adapters)
    network.gradient_checkpointing_enable({"use_reentrant": False})
    adapted.train()
    trained = [weight for weight in adapted.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4)
    for step in steps:
        batch = pad([one for row in step for one in row], device)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = adapted(**batch, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(adapted.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        yield loss.item(), batch["input_ids"].numel()


def pad(samples: Sequence[Encoded], device: str) -> dict[str, torch.Tensor]:
    """Return samples as one batch for transformers, padded to the longest."""
    ids = [torch.tensor(one.ids) for one in samples]
    labels = [torch.tensor([-100] * one.start + list(one.ids[one.start :])) for one in samples]
    batch = {
        "input_ids": pad_sequence(ids, batch_first=True),
        "attention_mask": pad_sequence([torch.ones_like(one) for one in ids], batch_first=True),
        "labels": pad_sequence(labels, batch_first=True, padding_value=-100),
    }
    return {name: values.to(device) for name, values in batch.items()}


def our_steps(
    network: torch.nn.Module, steps: Sequence[Step], settings: Training, device: str, unpack: bool = False
) -> Iterator[tuple[float, int]]:
    """Yield each step's loss and computed tokens with our method, as in `qlora.train`."""
    trainee = training.build(network, settings, settings.execution, unpack)
    learn = trainee.record(qlora.learner(trainee, 1.0, device))
    rows = [row for step in steps for row in step]
    everything = [one for row in rows for one in row]
    places = iter(range(len(everything)))
    packs = [[next(places) for _ in row] for row in rows]
    shape = shape_of(packs, everything, settings.pack_tokens) if settings.execution != "eager" else None

    def build(step: Step) -> list[dict]:
        n_targets = sum(len(one.ids) - one.start for row in step for one in row)
        mean = (1 / max(1, n_targets),) * 2  # the loss of a step is its mean over target tokens
        return [lay_out(row, mean, device, shape) for row in step]

    ready = build(steps[0])
    for following in [*steps[1:], []]:
        sums = qlora.take_step(learn, ready, trainee, 1e-4)
        computed = sum(row["input_ids"].numel() for row in ready)
        ready = build(following)  # while the GPU is still computing
        yield sums[0].sum().item(), computed


def matrix_rate(device: str) -> float:
    """Measure operations per second in large matrix products of the type used in training."""
    size, dtype, times = (8192, torch.bfloat16, 300) if device == "cuda" else (512, torch.float32, 10)
    a = torch.randn(size, size, device=device, dtype=dtype)
    b = torch.randn(size, size, device=device, dtype=dtype)
    for repeats in (times // 10, times):  # the first round is the warm-up
        start = time.perf_counter()
        for _ in range(repeats):
            c = a @ b
        c[0, 0].item()
    return times * 2 * size**3 / (time.perf_counter() - start)
