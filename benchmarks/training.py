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
from covrag_lite.engine.fast import training
from covrag_lite.qlora import Encoded, common_shape, lay_out, pack

Step = list[list[Encoded]]  # the rows of one update; for the plain method, its one batch
LEARNING_RATE = 1e-4
MAX_GRADIENT_NORM = 1.0


def pack_steps(
    samples: Sequence[Encoded], pack_tokens: int, step_tokens: int, n_steps: int
) -> list[Step]:
    """Return full steps of packed samples."""
    packs = pack([len(sample.ids) for sample in samples], pack_tokens)
    passes = max(1, step_tokens // pack_tokens)
    # About half of all packs: their samples were chosen from many, as in a long run.
    full = packs[: n_steps * passes]
    steps = []
    for first in range(0, len(full), passes):
        rows = full[first : first + passes]
        steps.append([[samples[number] for number in row] for row in rows])
    return steps


def samples_of(step: Step) -> list[Encoded]:
    """Return the samples of all rows of a step."""
    samples = []
    for row in step:
        samples += row
    return samples


def plain_steps(
    network: torch.nn.Module, steps: Sequence[Step], settings: Training, device: str
) -> Iterator[tuple[float, int]]:
    """Yield each step's loss and computed tokens with the plain method.

    Like the Trainer, it uses autocast and computes the logits of every token.
    """
    adapted = get_peft_model(network, adapter_settings(settings, "all-linear"))
    network.gradient_checkpointing_enable({"use_reentrant": False})
    adapted.train()
    trained = [weight for weight in adapted.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=LEARNING_RATE)
    for step in steps:
        batch = pad(samples_of(step), device)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = adapted(**batch, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(adapted.parameters(), MAX_GRADIENT_NORM)
        optimizer.step()
        optimizer.zero_grad()
        yield loss.item(), batch["input_ids"].numel()


def adapter_settings(settings: Training, layers: str | list[str]) -> LoraConfig:
    """Return the settings of an adapter as large as ours on these layers, for peft and trl."""
    return LoraConfig(
        r=settings.lora_rank,
        lora_alpha=2 * settings.lora_rank,
        target_modules=layers,
        task_type="CAUSAL_LM",
    )


def pad(samples: Sequence[Encoded], device: str) -> dict[str, torch.Tensor]:
    """Return samples as one batch for transformers, padded to the longest."""
    ids = [torch.tensor(sample.ids) for sample in samples]
    labels = [torch.tensor(labels_of(sample)) for sample in samples]
    batch = {
        "input_ids": pad_sequence(ids, batch_first=True),
        "attention_mask": pad_sequence([torch.ones_like(row) for row in ids], batch_first=True),
        "labels": pad_sequence(labels, batch_first=True, padding_value=-100),
    }
    return {name: values.to(device) for name, values in batch.items()}


def labels_of(sample: Encoded) -> list[int]:
    """Return a sample's targets; −100 marks tokens that are only read."""
    return [-100] * sample.start + list(sample.ids[sample.start :])


def our_steps(
    network: torch.nn.Module,
    steps: Sequence[Step],
    settings: Training,
    device: str,
    unpack: bool = False,
) -> Iterator[tuple[float, int]]:
    """Yield each step's loss and computed tokens with our method, as in `qlora.train`."""
    trainee = training.build_trainee(network, settings, settings.execution, unpack)
    learn = trainee.capture(qlora.learner(trainee, 1.0, device))
    shape = None
    if settings.execution != "eager":
        shape = shape_of_rows(steps, settings.pack_tokens)

    def build(step: Step) -> list[dict]:
        n_targets = sum(len(sample.ids) - sample.start for sample in samples_of(step))
        mean = (1 / max(1, n_targets),) * 2  # the loss of a step is its mean over target tokens
        return [lay_out(row, mean, device, shape) for row in step]

    ready = build(steps[0])
    for following in [*steps[1:], []]:
        sums = qlora.take_step(learn, ready, trainee, LEARNING_RATE)
        computed = sum(row["input_ids"].numel() for row in ready)
        ready = build(following)  # while the GPU is still computing
        yield sums[0].sum().item(), computed


def shape_of_rows(steps: Sequence[Step], pack_tokens: int) -> object:
    """Return the shape that all rows of these steps are padded to, as in `qlora.train`."""
    samples = []
    packs = []
    for step in steps:
        for row in step:
            packs.append(list(range(len(samples), len(samples) + len(row))))
            samples += row
    return common_shape(packs, samples, pack_tokens)


def matrix_rate(device: str) -> float:
    """Measure operations per second in large matrix products of the type used in training."""
    is_cuda = device == "cuda"
    size = 8192 if is_cuda else 512
    dtype = torch.bfloat16 if is_cuda else torch.float32
    n_products = 300 if is_cuda else 10
    left = torch.randn(size, size, device=device, dtype=dtype)
    right = torch.randn(size, size, device=device, dtype=dtype)
    for repeats in (n_products // 10, n_products):  # the first round is the warm-up
        start = time.perf_counter()
        for _ in range(repeats):
            product = left @ right
        product[0, 0].item()
    return n_products * 2 * size**3 / (time.perf_counter() - start)
