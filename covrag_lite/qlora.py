"""QLoRA training on both tasks (Section 2.3, Step 3 of the paper).

Samples are packed into rows of tokens in which no sample attends to another, so little computation
is spent on padding. `learner` computes the objective L_RAG + w · L_CoV (equations 2 to 4) and
`train` contains the training loop. The network and its adapter are a `Trainee` of the engine.
"""

import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch

from covrag_lite.config import Config, Training
from covrag_lite.engine.interface import Shape
from covrag_lite.engine.local import LocalEngine
from covrag_lite.engine.training import OfRow, Row, Trainee
from covrag_lite.progress import track
from covrag_lite.prompts import DIRECT, SCHEMA
from covrag_lite.records import Sample

TASKS = ("answer", "verify")  # L_RAG and L_CoV, the paper's equations 3 and 4
# Decoding inserts the fixed parts of the schema itself, so their tokens get only a small share of
# the loss; the share is above 0 because verdicts can also be decoded freely.
FIXED = {part for part in (*SCHEMA, *DIRECT) if isinstance(part, str)}
FIXED_SHARE = 0.1
WARMUP = 0.05  # share of the steps in which the learning rate rises; then it follows a cosine
CLIP = 1.0  # maximum norm of the gradient
SAVE_EVERY = 20  # steps between checkpoints, from which a stopped run resumes


def train(config: Config, model: LocalEngine, samples: Sequence[Sample], out: Path) -> pd.DataFrame:
    """Train an adapter for `model` in the folder `out`; returns a frame with one row per step.

    If `out` contains a checkpoint, training resumes from it.
    """
    settings = config.training
    encoded = encode(samples, model)
    steps = plan(encoded, settings)
    shape = shape_of([chosen for step in steps for chosen in step], encoded, settings.pack_tokens)
    weights = token_weights(encoded, len(steps), settings.epochs)
    with model.in_training(settings, shape) as trainee:
        learn = trainee.record(learner(trainee, settings.verify_weight, model.device))
        rows = trainee.restore(out, samples, model.fingerprint)

        def build(number: int) -> list[Row]:
            """Return the packed rows of a step; none after the last step."""
            packs = steps[number] if number < len(steps) else []
            padded_to = shape if trainee.one_shape else None
            return [lay_out([encoded[i] for i in chosen], weights, model.device, padded_to) for chosen in packs]

        numbers = range(len(rows), len(steps))
        numbers = track(numbers, "train", "step", len(steps), len(rows), lambda: f"loss {rows[-1]['loss']:.3f}")
        ready = build(len(rows))
        for number in numbers:
            start = time.perf_counter()
            lr = settings.learning_rate * schedule(number, len(steps))
            sums = take_step(learn, ready, trainee, lr)
            ready = build(number + 1)  # prepare the next step while the GPU is busy
            tokens = sum(len(encoded[i].ids) for chosen in steps[number] for i in chosen)
            rows.append(describe(number + 1, sums, tokens, start, lr))
            if len(rows) % SAVE_EVERY == 0 or len(rows) == len(steps):
                trainee.save(out, rows)
        trainee.save_adapter(out, model.settings.model)
    return pd.DataFrame(rows)


def learner(trainee: Trainee, verify_weight: float, device: str) -> OfRow:
    """Return the function that learns from one row and returns a (2, tasks) tensor.

    The tensor contains the loss of each task, and the sum of its token weights.
    """
    every_task = torch.arange(len(TASKS), device=device)[:, None]  # (tasks, 1)

    def learn(row: Row) -> torch.Tensor:
        weights = row["weights"] * (row["tasks"] == every_task)  # (tasks, targets)
        losses = (weights * trainee.token_losses(row)).sum(1)  # (tasks): its part of each mean
        l_rag, l_cov = losses
        loss = l_rag + verify_weight * l_cov
        loss.backward()
        return torch.stack([losses.detach(), weights.sum(1)])

    return learn


def take_step(learn: OfRow, rows: Sequence[Row], trainee: Trainee, lr: float) -> torch.Tensor:
    """Make one update from a step's rows; returns the sum of what `learn` returned: (2, tasks)."""
    sums = 0.0
    for row in rows:
        sums += learn(row)
        trainee.collect()
    trainee.update(lr, CLIP)
    return sums


def schedule(step: int, steps: int) -> float:
    """Return the factor of the learning rate: a linear rise, then a cosine down to 0.1."""
    rise = max(1, round(WARMUP * steps))
    if step < rise:
        return (step + 1) / rise
    return 0.55 + 0.45 * math.cos(math.pi * (step - rise) / max(1, steps - rise))


def describe(step: int, sums: torch.Tensor, tokens: int, start: float, lr: float) -> dict:
    """Return a step's row of the frame; a loss that is not finite stops the run."""
    totals, weights = sums.tolist()
    if not math.isfinite(sum(totals)):
        raise FloatingPointError(f"the loss of step {step} is {sum(totals)}; lower learning_rate")
    means = {}
    for task, total, weight in zip(TASKS, totals, weights):
        means[f"loss_{task}"] = total / weight if weight else math.nan
    loss = sum(mean for mean in means.values() if not math.isnan(mean))
    return {"step": step, "loss": loss, **means, "tokens": tokens, "seconds": time.perf_counter() - start, "lr": lr}


# Packing: samples are tokenised, packed into rows, and grouped into steps.


@dataclass(frozen=True)
class Encoded:
    """The tokens of a sample; those from `start` on are its target, including end-of-text."""

    task: int  # index in TASKS
    ids: tuple[int, ...]
    start: int
    shares: tuple[float, ...] = ()  # weight of each target token in the loss; empty means 1 each


def encode(samples: Sequence[Sample], model: LocalEngine) -> list[Encoded]:
    """Tokenise every sample: its prompt as in inference, its target as it is decoded."""
    loaded = model.loaded
    encoded = []
    for sample in samples:
        (prompt,) = loaded.tokenise([sample.prompt])
        target = []
        shares = []
        for part in sample.target:
            ids = loaded.continue_ids(part)
            target += ids
            shares += [FIXED_SHARE if part in FIXED else 1.0] * len(ids)
        if not sample.unfinished:
            target.append(loaded.end_id)
            shares.append(1.0)
        encoded.append(Encoded(TASKS.index(sample.task), (*prompt, *target), len(prompt), tuple(shares)))
    return encoded


def plan(encoded: Sequence[Encoded], settings: Training) -> list[list[list[int]]]:
    """Return each step's packs of sample indices; every epoch is shuffled, then packed."""
    steps = []
    passes = max(1, settings.step_tokens // settings.pack_tokens)
    for epoch in range(settings.epochs):
        generator = random.Random(f"{settings.training_seed} {epoch}")
        order = generator.sample(range(len(encoded)), len(encoded))
        packs = pack([len(encoded[i].ids) for i in order], settings.pack_tokens)
        packs = [[order[place] for place in places] for places in packs]
        steps += [packs[first : first + passes] for first in range(0, len(packs), passes)]
    return steps


def token_weights(encoded: Sequence[Encoded], n_steps: int, epochs: int) -> list[float]:
    """Return the weight of a target token of each task.

    Over a whole run, the weights of a task sum to the number of steps. The losses of the steps
    therefore average to L_RAG and L_CoV, each a mean over its own target tokens, regardless of how
    the tasks are mixed within a step.
    """
    weights = []
    for task in range(len(TASKS)):
        counts = [sum(one.shares) or len(one.ids) - one.start for one in encoded if one.task == task]
        weights.append(n_steps / (epochs * sum(counts)) if counts else 0.0)
    return weights


def pack(lengths: Sequence[int], pack_tokens: int) -> list[list[int]]:
    """Return packs of sample indices; each pack is a row of at most `pack_tokens` tokens.

    Each row is filled with the best subset of the next samples, so the given order is roughly kept.
    First-fit decreasing would sort samples by length, and thereby by task; but a row should contain
    both tasks, so that its loss represents both.
    """
    if max(lengths) > pack_tokens:
        raise ValueError(
            f"pack_tokens is {pack_tokens}, but the longest sample has {max(lengths)} tokens; "
            f"raise pack_tokens to at least {max(lengths)}"
        )
    window = max(16, 2 * pack_tokens * len(lengths) // sum(lengths))
    left = list(range(len(lengths)))
    packs = []
    while left:
        following = left[:window]
        places = fullest_subset([lengths[i] for i in following], pack_tokens)
        packs.append([following[place] for place in places])
        taken = set(packs[-1])
        left = [i for i in left if i not in taken]
    return packs


def fullest_subset(lengths: Sequence[int], room: int) -> list[int]:
    """Return the indices of a subset, always with the first sample, that fills `room` best."""
    # reached[n] is a bit set: bit t is set if some subset of samples 0 to n, with the first, has t
    # tokens in total.
    reached = [1 << lengths[0]]
    within = (1 << room + 1) - 1
    for length in lengths[1:]:
        reached.append((reached[-1] | reached[-1] << length) & within)
    # Go back from the largest total: a sample was taken if the total was not reached before it.
    total = reached[-1].bit_length() - 1
    chosen = []
    for place in range(len(lengths) - 1, 0, -1):
        if not reached[place - 1] >> total & 1:
            chosen.append(place)
            total -= lengths[place]
    return [0, *reversed(chosen)]


def shape_of(packs: Sequence[Sequence[int]], encoded: Sequence[Encoded], pack_tokens: int) -> Shape:
    """Return one shape that is large enough for every row of these packs."""
    longest = 128 * math.ceil(max(len(one.ids) for one in encoded) / 128)
    sequences = []
    targets = []
    for chosen in packs:
        samples = [encoded[i] for i in chosen]
        spare = pack_tokens - sum(len(one.ids) for one in samples)
        tails = math.ceil(spare / longest)  # padding is split into sequences, like samples
        sequences.append(len(samples) + tails)
        targets.append(sum(len(one.ids) - one.start for one in samples))
    return Shape(pack_tokens, max(sequences), 64 * math.ceil(max(targets) / 64), longest)


def lay_out(samples: Sequence[Encoded], weights: Sequence[float], device: str, shape: Shape | None = None) -> Row:
    """Return samples as one row of tensors; `weights` has the token weight of each task."""
    ids, positions, ends = [], [], [0]  # for all tokens
    where, labels, tasks, token_weights = [], [], [], []  # for the target tokens
    for one in samples:
        n_targets = len(one.ids) - one.start
        first = len(ids) + one.start - 1  # a token is predicted at the position before it
        where += range(first, first + n_targets)
        labels += one.ids[one.start :]
        tasks += [one.task] * n_targets
        shares = one.shares or [1.0] * n_targets
        token_weights += [weights[one.task] * share for share in shares]
        ids += one.ids
        positions += range(len(one.ids))  # each sample starts at position 0, as without packing
        ends.append(len(ids))
    longest = max(len(one.ids) for one in samples)
    if shape:
        longest = shape.longest
        while len(ids) < shape.tokens:  # padding: additional sequences without targets
            tail = min(longest, shape.tokens - len(ids))
            ids += [0] * tail
            positions += range(tail)
            ends.append(len(ids))
        ends += [len(ids)] * (shape.sequences + 1 - len(ends))
        spare = shape.targets - len(labels)
        where += [0] * spare
        labels += [0] * spare
        tasks += [-1] * spare
        token_weights += [0.0] * spare

    def tensor(values: list, dtype: torch.dtype = torch.long) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype).to(device, non_blocking=True)

    return {
        "input_ids": tensor([ids]),  # (1, tokens)
        "position_ids": tensor([positions]),  # (1, tokens)
        "ends": tensor(ends, torch.int32),  # (samples + 1)
        "longest": longest,
        "where": tensor(where),  # (targets); the next three have the same shape
        "labels": tensor(labels),
        "tasks": tensor(tasks),
        "weights": tensor(token_weights, torch.float32),
    }
