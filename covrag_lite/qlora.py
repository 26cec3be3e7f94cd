"""QLoRA on both tasks (the paper's Section 2.3): one plain loop over packed rows, with an exact resume.

The objective is L_RAG + L_CoV (equations 2 to 4), the second one weighted by `verify_weight`. Each loss is a mean over
the target tokens of its task, which count by their shares. Notebooks hand in samples and get an adapter in peft's
format and a frame of steps, which is also in `losses.csv`.
"""

import math
import random
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import torch
from accelerate import PartialState
from transformers import PreTrainedModel

from covrag_lite.config import Config, Training
from covrag_lite.engine import lora, memory
from covrag_lite.engine.checkpoint import restore, run_key, save, save_adapter
from covrag_lite.engine.execution import choose_execution
from covrag_lite.engine.loss import token_losses
from covrag_lite.engine.optimizer import optimizer_of
from covrag_lite.packing import TASKS, Encoded, encode, lay_out, pack, shape_of
from covrag_lite.records import Sample
from covrag_lite.runs.progress import track

if TYPE_CHECKING:
    from covrag_lite.engine.local import LanguageModel


def train(config: Config, model: "LanguageModel", samples: Sequence[Sample], out: Path) -> pd.DataFrame:
    """Train an adapter for `model` into the folder `out`, going on from a checkpoint there; returns one row a step."""
    # Before the network is read, because it sets the device; one worker, unless `accelerate launch` started more.
    workers = PartialState(cpu=model.device == "cpu")
    settings = config.training
    execution = choose_execution(settings.execution, model.device)
    encoded = encode(samples, model)
    steps = plan(encoded, settings)
    packs = [chosen for step in steps for chosen in step]
    shape = shape_of(packs, encoded, settings.pack_tokens)
    network = own_network(model)
    unpack = memory.check(network, settings, shape, model.device)
    adapted = lora.attach(network, settings, unpack, "compiled" in execution)
    master = lora.Master(adapted, model.dtype, lora.is_away(settings))
    optimizer = optimizer_of(master, lr=settings.learning_rate, weight_decay=0.0)
    key = run_key(settings, samples, model)
    rows = restore(out, key, master, optimizer)
    run = runner(network, execution)
    weights = task_weights(encoded, len(steps), settings)

    def build(number: int) -> list[dict]:
        """This worker's rows of a step; none after the last step."""
        packs = steps[number] if number < len(steps) else []
        mine = packs[workers.process_index :: workers.num_processes]
        padded_to = None if execution == "eager" else shape
        return [lay_out([encoded[i] for i in chosen], weights, model.device, padded_to) for chosen in mine]

    ready = build(len(rows))
    for number in numbers_left(rows, len(steps), workers):
        start = time.perf_counter()
        lr = settings.learning_rate * schedule(number, len(steps), settings.warmup)
        sums = take_step(run, ready, master, optimizer, lr, settings.clip, workers)
        ready = build(number + 1)  # while the GPU still computes
        tokens = sum(len(encoded[i].ids) for chosen in steps[number] for i in chosen)
        rows.append(describe(number + 1, sums, tokens, start, lr))
        is_due = len(rows) % settings.save_every == 0 or len(rows) == len(steps)
        if workers.is_main_process and is_due:
            save(out, key, rows, master, optimizer)
    if workers.is_main_process:
        save_adapter(out, adapted, config.model.model)
    forget_network(model)
    return pd.DataFrame(rows)


def numbers_left(rows: list[dict], n_steps: int, workers: PartialState) -> Iterable[int]:
    """The numbers of the steps that are still to be taken; the first worker shows how far they have come."""
    numbers = range(len(rows), n_steps)
    if not workers.is_main_process:
        return numbers

    def state() -> str:
        last = rows[-1]
        return f"loss {last['loss']:.3f}, {last['tokens'] / last['seconds']:,.0f} tokens/s"

    return track(numbers, "train", "step", total=n_steps, done=len(rows), state=state)


def own_network(model: "LanguageModel") -> PreTrainedModel:
    """The bare network, read anew: one that has answered may hold adapters, or weights laid out without a gradient."""
    if model.config.quantize == "int8":
        raise ValueError("training knows no quantize = 'int8'; use 'nf4' or 'none'")
    forget_network(model)
    return model.with_adapter("").network


def forget_network(model: "LanguageModel") -> None:
    """Let the model's next use read the weights anew, without what training puts into them."""
    for name in ("_network", "active"):
        vars(model.base).pop(name, None)


def plan(encoded: Sequence[Encoded], settings: Training) -> list[list[list[int]]]:
    """Every step's packs of sample indices: each epoch in its own order, packed, and dealt to steps."""
    steps = []
    passes = max(1, settings.step_tokens // settings.pack_tokens)
    for epoch in range(settings.epochs):
        generator = random.Random(f"{settings.training_seed} {epoch}")
        order = generator.sample(range(len(encoded)), len(encoded))
        lengths = [len(encoded[i].ids) for i in order]
        packs = []
        for places in pack(lengths, settings.pack_tokens):
            packs.append([order[place] for place in places])
        for first in range(0, len(packs), passes):
            steps.append(packs[first : first + passes])
    return steps


def task_weights(encoded: Sequence[Encoded], n_steps: int, settings: Training) -> list[float]:
    """What a target token of each task weighs in its step.

    A task's weights over a whole run sum to the number of steps, so that the steps' losses average to L_RAG + w L_CoV,
    each a mean over its own target tokens, whatever mix of tasks a single step holds; w is `verify_weight`.
    """
    weights = []
    for task, task_weight in enumerate((1.0, settings.verify_weight)):
        counts = [sum(one.shares) or len(one.ids) - one.start for one in encoded if one.task == task]
        count = settings.epochs * sum(counts)
        weights.append(task_weight * n_steps / count if count else 0.0)
    return weights


def schedule(step: int, steps: int, warmup: float) -> float:
    """The share of the learning rate at a step: a straight rise, then half a cosine down to a tenth."""
    rise = max(1, round(warmup * steps))
    if step < rise:
        return (step + 1) / rise
    return 0.55 + 0.45 * math.cos(math.pi * (step - rise) / max(1, steps - rise))


def one_pass(network: PreTrainedModel, row: dict) -> torch.Tensor:
    """Forward and backward over one row; returns each target token's loss and leaves gradients in the adapters."""
    losses = token_losses(network, row)  # (targets)
    (losses * row["weights"]).sum().backward()
    return losses.detach()


def runner(network: PreTrainedModel, execution: str) -> Callable[[dict], torch.Tensor]:
    """A function from a row to its target tokens' losses."""

    def run_eagerly(row: dict) -> torch.Tensor:
        return one_pass(network, row)

    recorded = {}

    def replay(row: dict) -> torch.Tensor:
        if not recorded:
            recorded.update(record(network, row))
        for name, value in row.items():
            if isinstance(value, torch.Tensor):
                recorded["row"][name].copy_(value, non_blocking=True)
        recorded["graph"].replay()
        return recorded["losses"].clone()

    return replay if "graph" in execution else run_eagerly


def record(network: PreTrainedModel, row: dict) -> dict:
    """One pass as a CUDA graph, which starts its thousands of kernels at once and not one by one from Python."""
    row = {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in row.items()}
    grads = [p.grad for p in network.parameters() if p.requires_grad]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # what is set up at a first use must not be recorded
        for _ in range(2):
            one_pass(network, row)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    # On the same stream, which has its workspace for matrix products already. Errors of this thread alone count: a
    # notebook's other threads may free their memory meanwhile.
    with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
        losses = one_pass(network, row)
    torch._foreach_zero_(grads)
    return {"graph": graph, "row": row, "losses": losses}


def take_step(
    run: Callable[[dict], torch.Tensor],
    rows: list[dict],
    master: lora.Master,
    optimizer: torch.optim.Optimizer,
    lr: float,
    clip: float,
    workers: PartialState,
) -> torch.Tensor:
    """One update from a step's rows; returns each task's weighted losses and their weights, summed: (2, tasks)."""
    sums = torch.zeros(2, len(TASKS), device=master.grad.device)
    every_task = torch.arange(len(TASKS), device=master.grad.device)[:, None]  # (tasks, 1)
    for row in rows:
        losses = run(row)
        master.collect()
        weights = row["weights"] * (row["tasks"] == every_task)  # (tasks, targets)
        sums += torch.stack([(weights * losses).sum(1), weights.sum(1)])
    if workers.num_processes > 1:  # gradients are sums over samples, so workers' shares simply add up
        torch.distributed.all_reduce(master.grad)
        torch.distributed.all_reduce(sums)
    master.clip(clip)
    optimizer.param_groups[0]["lr"] = lr
    optimizer.step()
    master.grad.zero_()
    master.publish()
    return sums


def describe(step: int, sums: torch.Tensor, tokens: int, start: float, lr: float) -> dict:
    """A step's row of the frame; a loss that is not finite ends the run."""
    totals, weights = sums.tolist()
    if not math.isfinite(sum(totals)):
        raise FloatingPointError(f"the loss of step {step} is {sum(totals)}; lower learning_rate or clip")
    means = {}
    for task, total, weight in zip(TASKS, totals, weights):
        means[f"loss_{task}"] = total / weight if weight else math.nan
    loss = sum(mean for mean in means.values() if not math.isnan(mean))
    return {"step": step, "loss": loss, **means, "tokens": tokens, "seconds": time.perf_counter() - start, "lr": lr}
