"""QLoRA on both tasks (the paper's Section 2.3): one plain loop over packed rows, with an exact resume.

The objective is L_RAG + L_CoV (equations 2 to 4), each the mean over the target tokens of its task (by their shares). Notebooks hand in
samples and get an adapter in peft's format, a frame of steps, and the same from `losses.csv`.
"""

import importlib.util
import json
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import torch
from accelerate import PartialState
from peft import get_peft_model_state_dict
from safetensors import safe_open
from safetensors.torch import save_file
from tqdm.auto import tqdm

from covrag_lite.config import Config, Training
from covrag_lite.data import digest
from covrag_lite.journal import key_of
from covrag_lite.records import Sample
from covrag_lite.training import lora, memory
from covrag_lite.training.packing import TASKS, Encoded, encode, lay_out, pack, shape_of

EXECUTIONS = ("auto", "eager", "graph", "compiled", "compiled+graph")


def train(config: Config, model, samples: Sequence[Sample], out: Path) -> pd.DataFrame:
    """Train an adapter for `model` into the folder `out`, going on from a checkpoint there; one row a step comes back."""
    workers = PartialState(
        cpu=model.device == "cpu"
    )  # one, unless `accelerate launch` started more; before the network, for its device
    settings, execution = config.training, choose_execution(config.training, model.device)
    encoded = encode(samples, model)
    steps = plan(encoded, settings)
    packs = [chosen for step in steps for chosen in step]
    shape = shape_of(packs, encoded, settings.pack_tokens)
    network = own_network(model)
    adapted = lora.attach(
        network, settings, memory.check(network, settings, shape, model.device), "compiled" in execution
    )
    master = lora.Master(adapted, model.dtype)
    optimizer = torch.optim.AdamW([master.weights], lr=settings.learning_rate, weight_decay=0.0, fused=True)
    key = key_of(
        settings={
            name: value for name, value in asdict(settings).items() if name not in ("save_every", "adapters_out")
        },
        samples=digest(samples),
        weights=model.fingerprint,
    )
    rows = restore(out, key, master, optimizer)
    run = runner(network, execution)
    weights = task_weights(encoded, len(steps), settings)
    build = lambda step: [
        lay_out([encoded[i] for i in chosen], weights, model.device, shape if execution != "eager" else None)
        for chosen in step[workers.process_index :: workers.num_processes]
    ]
    bar = tqdm(total=len(steps), initial=len(rows), unit="step", disable=not workers.is_main_process)
    ready = build(steps[len(rows)]) if len(rows) < len(steps) else []
    for number in range(len(rows), len(steps)):
        start, lr = time.perf_counter(), settings.learning_rate * schedule(number, len(steps), settings.warmup)
        sums = take_step(run, ready, master, optimizer, lr, settings.clip, workers)
        ready = build(steps[number + 1]) if number + 1 < len(steps) else []  # while the GPU still computes
        tokens = sum(len(encoded[i].ids) for chosen in steps[number] for i in chosen)
        rows.append(describe(number + 1, sums, tokens, start, lr))
        bar.set_postfix_str(f"loss {rows[-1]['loss']:.3f}, {tokens / rows[-1]['seconds']:,.0f} tokens/s")
        bar.update()
        if workers.is_main_process and ((number + 1) % settings.save_every == 0 or number + 1 == len(steps)):
            save(out, key, rows, master, optimizer)
    bar.close()
    if workers.is_main_process:
        save_adapter(out, adapted, config.model.model)
    forget_network(model)
    return pd.DataFrame(rows)


def own_network(model):
    """The bare network, read anew: one that has answered may hold adapters, or weights laid out without a gradient (some CPUs)."""
    if model.config.quantize == "int8":
        raise ValueError("training knows no quantize = 'int8'; use 'nf4' or 'none'")
    forget_network(model)
    return model.with_adapter("").network


def forget_network(model) -> None:
    """Let the model's next use read the weights anew, without what training puts into them."""
    for name in ("_network", "active"):
        vars(model.base).pop(name, None)


def plan(encoded: Sequence[Encoded], settings: Training) -> list[list[list[int]]]:
    """Every step's packs of sample indices: each epoch in its own order, packed, and dealt to steps."""
    steps, passes = [], max(1, settings.step_tokens // settings.pack_tokens)
    for epoch in range(settings.epochs):
        order = random.Random(f"{settings.training_seed} {epoch}").sample(range(len(encoded)), len(encoded))
        packs = [
            [order[i] for i in chosen] for chosen in pack([len(encoded[i].ids) for i in order], settings.pack_tokens)
        ]
        steps += [packs[i : i + passes] for i in range(0, len(packs), passes)]
    return steps


def task_weights(encoded: Sequence[Encoded], n_steps: int, settings: Training) -> list[float]:
    """What a target token of each task weighs in its step.

    A task's weights over a whole run sum to the number of steps, so that the steps' losses average to L_RAG + w L_CoV,
    each a mean over its own target tokens, whatever mix of tasks a single step holds; w is `verify_weight`.
    """
    counts = [
        settings.epochs * sum(sum(one.shares) or len(one.ids) - one.start for one in encoded if one.task == task)
        for task in range(len(TASKS))
    ]
    return [weight * n_steps / count if count else 0.0 for weight, count in zip((1.0, settings.verify_weight), counts)]


def schedule(step: int, steps: int, warmup: float) -> float:
    """The share of the learning rate at a step: a straight rise, then half a cosine down to a tenth."""
    rise = max(1, round(warmup * steps))
    if step < rise:
        return (step + 1) / rise
    return 0.55 + 0.45 * math.cos(math.pi * (step - rise) / max(1, steps - rise))


def choose_execution(settings: Training, device: str) -> str:
    """How passes run; recorded graphs exist on CUDA alone, and compiling for it needs triton, which comes with torch on Linux."""
    if settings.execution not in EXECUTIONS:
        raise ValueError(f"execution {settings.execution!r} is not known; use one of {', '.join(EXECUTIONS)}")
    if "graph" in settings.execution and device != "cuda":
        raise ValueError(f"execution {settings.execution!r} needs CUDA; use 'eager' on this machine")
    if settings.execution != "auto":
        return settings.execution
    return "eager" if device != "cuda" else "compiled+graph" if importlib.util.find_spec("triton") else "graph"


def one_pass(network, row: dict) -> torch.Tensor:
    """Forward and backward over one row; the loss of each target token comes back, gradients stay in the adapters."""
    # Logits at target positions alone: over a row's whole length they would be the largest tensor of the pass.
    logits = network(
        input_ids=row["input_ids"],
        position_ids=row["position_ids"],
        logits_to_keep=row["where"],
        use_cache=False,
        cu_seq_lens_q=row["ends"],
        max_length_q=row["longest"],
    ).logits[0]  # (targets, vocabulary)
    losses = torch.nn.functional.cross_entropy(logits.float(), row["labels"], reduction="none")
    (losses * row["weights"]).sum().backward()
    return losses.detach()


def runner(network, execution: str) -> Callable[[dict], torch.Tensor]:
    """A function from a row to its target tokens' losses."""
    if "graph" not in execution:
        return lambda row: one_pass(network, row)
    recorded = {}

    def replay(row: dict) -> torch.Tensor:
        if not recorded:
            recorded.update(record(network, row))
        for name, value in row.items():
            if isinstance(value, torch.Tensor):
                recorded["row"][name].copy_(value, non_blocking=True)
        recorded["graph"].replay()
        return recorded["losses"].clone()

    return replay


def record(network, row: dict) -> dict:
    """Record one pass as a CUDA graph: its thousands of kernels are then started at once, not from Python one by one."""
    row = {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in row.items()}
    grads = [p.grad for p in network.parameters() if p.requires_grad]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # what is set up at a first use must not be recorded
        for _ in range(2):
            one_pass(network, row)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(
        graph, capture_error_mode="thread_local"
    ):  # a notebook's other threads may free their memory meanwhile
        losses = one_pass(network, row)
    torch._foreach_zero_(grads)
    return {"graph": graph, "row": row, "losses": losses}


def take_step(run: Callable, rows: list[dict], master, optimizer, lr: float, clip: float, workers) -> torch.Tensor:
    """One update from a step's rows; returns each task's weighted losses and their weights, summed: (2, tasks)."""
    sums = torch.zeros(2, len(TASKS), device=master.weights.device)
    for row in rows:
        losses = run(row)
        master.collect()
        weights = row["weights"] * (
            row["tasks"] == torch.arange(len(TASKS), device=losses.device)[:, None]
        )  # (tasks, targets)
        sums += torch.stack([(weights * losses).sum(1), weights.sum(1)])
    if workers.num_processes > 1:  # gradients are sums over samples, so workers' shares simply add up
        torch.distributed.all_reduce(master.weights.grad)
        torch.distributed.all_reduce(sums)
    torch.nn.utils.clip_grad_norm_([master.weights], clip)
    optimizer.param_groups[0]["lr"] = lr
    optimizer.step()
    master.weights.grad.zero_()
    master.publish()
    return sums


def describe(step: int, sums: torch.Tensor, tokens: int, start: float, lr: float) -> dict:
    """A step's row of the frame; a loss that is not finite ends the run."""
    totals, weights = sums.tolist()
    means = {
        f"loss_{task}": total / weight if weight else math.nan for task, total, weight in zip(TASKS, totals, weights)
    }
    loss = sum(mean for mean in means.values() if not math.isnan(mean))
    if not math.isfinite(sum(totals)):
        raise FloatingPointError(f"the loss of step {step} is {sum(totals)}; lower learning_rate or clip")
    return {"step": step, "loss": loss, **means, "tokens": tokens, "seconds": time.perf_counter() - start, "lr": lr}


def save(out: Path, key: str, rows: list[dict], master, optimizer) -> None:
    """Write the losses for the reader and, in one move, everything the next step depends on."""
    out.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_csv(out / "losses.csv", index=False)
    moments = optimizer.state[master.weights]
    state = {"weights": master.weights.detach(), "exp_avg": moments["exp_avg"], "exp_avg_sq": moments["exp_avg_sq"]}
    save_file(state, out / "checkpoint.new", metadata={"key": key, "rows": json.dumps(rows)})
    (out / "checkpoint.new").replace(out / "checkpoint.safetensors")


def restore(out: Path, key: str, master, optimizer) -> list[dict]:
    """Go back to the checkpoint in `out`, if there is one; the rows of its steps come back.

    The order of samples and the learning rate follow from the step's number, and nothing else is random.
    """
    path = out / "checkpoint.safetensors"
    if not path.exists():
        return []
    with safe_open(path, "pt", device=str(master.weights.device)) as file:
        rows = json.loads(file.metadata()["rows"])
        if file.metadata()["key"] != key:
            raise ValueError(
                f"{path} belongs to a run with other settings, samples or weights; choose another folder or delete this one"
            )
        master.weights.data.copy_(file.get_tensor("weights"))
        optimizer.state[master.weights] = {"step": torch.tensor(float(len(rows)), device=master.weights.device)} | {
            name: file.get_tensor(name) for name in ("exp_avg", "exp_avg_sq")
        }
    master.publish()
    return rows


def save_adapter(out: Path, adapted, base: str) -> None:
    """The adapter as peft loads it, named after the model's own name, not after where it lies on this machine."""
    settings = adapted.peft_config["default"]
    settings.base_model_name_or_path, settings.inference_mode = base, True
    settings.save_pretrained(out)
    weights = get_peft_model_state_dict(adapted, save_embedding_layers=False)
    save_file(
        {name: weight.contiguous() for name, weight in weights.items()},
        out / "adapter_model.safetensors",
        metadata={"format": "pt"},
    )
