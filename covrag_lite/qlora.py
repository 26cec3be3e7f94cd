"""QLoRA training on both tasks (Section 2.3, Step 3 of the paper).

Samples are packed into rows of tokens in which no sample attends to another, so little computation
is spent on padding. `learner` computes the objective L_RAG + w · L_CoV (equations 2 to 4) and
`train` contains the training loop. The network and its adapter are a `Trainee` of the engine.
"""

import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import pandas as pd
import torch

from covrag_lite.config import Training
from covrag_lite.engine.interface import Learn, PackedRow, RowShape, Trainable, Trainee
from covrag_lite.prompts import DIRECT, SCHEMA
from covrag_lite.records import Sample

TASKS = ("answer", "verify")  # L_RAG and L_CoV, the paper's equations 3 and 4
WARMUP = 0.05  # share of the steps in which the learning rate rises; then it follows a cosine
CLIP = 1.0  # maximum norm of the gradient
SAVE_EVERY = 20  # steps between checkpoints, from which a stopped run resumes

# Shows the progress of a loop: items, what they are, their unit, their number, how many were done
# earlier, and a function that describes the state.
Track = Callable[[Iterable[int], str, str, int, int, Callable[[], str]], Iterator[int]]


def track_nothing(
    items: Iterable[int], what: str, unit: str, total: int, done: int, state: Callable[[], str]
) -> Iterator[int]:
    """Show no progress."""
    return iter(items)


def train(
    model: Trainable,
    samples: Sequence[Sample],
    out: Path,
    settings: Training,
    track: Track = track_nothing,
) -> pd.DataFrame:
    """Train an adapter for `model` in the folder `out`; returns a frame with one row per step.

    If `out` contains a checkpoint, training resumes from it.
    """
    encoded = encode(samples, model)
    steps = plan_steps(encoded, settings)
    packs = list(chain.from_iterable(steps))
    shape = common_shape(packs, encoded, settings.pack_tokens)
    weights = task_weights(encoded, len(steps), settings.epochs)

    with model.prepare_training(settings, shape) as trainee:
        learn = learner(trainee, settings.verify_weight, model.device)
        learn = trainee.capture(learn)  # on CUDA, as a graph of its kernels
        rows = trainee.restore(out, samples, model.fingerprint)  # of the finished steps
        padded_to = shape if trainee.one_shape else None

        def build_rows(number: int) -> list[PackedRow]:
            """Return the packed rows of a step; none after the last step."""
            of_step = steps[number] if number < len(steps) else []
            return [
                lay_out([encoded[i] for i in chosen], weights, model.device, padded_to)
                for chosen in of_step
            ]

        def state() -> str:
            return f"loss {rows[-1]['loss']:.3f}"

        n_done = len(rows)
        packed_rows = build_rows(n_done)
        todo = range(n_done, len(steps))
        for number in track(todo, "train", "step", len(steps), n_done, state):
            start = time.perf_counter()
            lr = settings.learning_rate * schedule(number, len(steps))
            sums = take_step(learn, packed_rows, trainee, lr)
            packed_rows = build_rows(number + 1)  # prepare the next step while the GPU is busy
            losses = mean_losses(number + 1, sums)
            n_tokens = sum(len(encoded[i].ids) for i in chain.from_iterable(steps[number]))
            seconds = time.perf_counter() - start
            row = {"step": number + 1, **losses, "tokens": n_tokens, "seconds": seconds, "lr": lr}
            rows.append(row)
            if len(rows) % SAVE_EVERY == 0 or len(rows) == len(steps):
                trainee.save(out, rows)
        trainee.save_adapter(out, model.settings.model)
    return pd.DataFrame(rows)


def learner(trainee: Trainee, verify_weight: float, device: str) -> Learn:
    """Return the function that learns from one row and returns a (2, tasks) tensor.

    The tensor contains the loss of each task, and the sum of its token weights. Losses of rows are
    added, not averaged: `task_weights` already divides by the number of targets.
    """
    every_task = torch.arange(len(TASKS), device=device)[:, None]  # (tasks, 1)

    def learn(row: PackedRow) -> torch.Tensor:
        weights = row["weights"] * (row["tasks"] == every_task)  # (tasks, targets)
        losses = (weights * trainee.token_losses(row)).sum(1)  # (tasks)
        l_rag, l_cov = losses
        loss = l_rag + verify_weight * l_cov
        loss.backward()
        return torch.stack([losses.detach(), weights.sum(1)])

    return learn


def take_step(learn: Learn, rows: Sequence[PackedRow], trainee: Trainee, lr: float) -> torch.Tensor:
    """Make one update from a step's rows; returns the sum of what `learn` returned: (2, tasks)."""
    losses_and_weights = []
    for row in rows:
        losses_and_weights.append(learn(row))
        trainee.accumulate()
    trainee.update(lr, CLIP)
    return torch.stack(losses_and_weights).sum(0)


def schedule(step: int, n_steps: int) -> float:
    """Return the factor of the learning rate: a linear rise, then a cosine down to 0.1."""
    rise = max(1, round(WARMUP * n_steps))
    if step < rise:
        return (step + 1) / rise
    return 0.55 + 0.45 * math.cos(math.pi * (step - rise) / max(1, n_steps - rise))


def mean_losses(step: int, sums: torch.Tensor) -> dict[str, float]:
    """Return a step's mean loss of each task, and their sum without `verify_weight`, for display.

    A loss that is not finite is an error.
    """
    totals, weights = sums.tolist()
    if not math.isfinite(sum(totals)):
        raise FloatingPointError(f"the loss of step {step} is {sum(totals)}; lower learning_rate")
    means = {}
    for task, total, weight in zip(TASKS, totals, weights):
        means[f"loss_{task}"] = total / weight if weight else math.nan
    loss = sum(mean for mean in means.values() if not math.isnan(mean))
    return {"loss": loss, **means}


# Encoding: samples become tokens, each with its weight in the loss.

# Decoding inserts the fixed parts of the schema itself, so their tokens count little in the loss;
# they count at all because verdicts can also be decoded freely.
FIXED = {part for part in (*SCHEMA, *DIRECT) if isinstance(part, str)}
FIXED_WEIGHT = 0.1


@dataclass(frozen=True)
class Encoded:
    """The tokens of a sample; those from `start` on are its target, including end-of-text."""

    task: int  # index in TASKS
    ids: tuple[int, ...]
    start: int
    # Of each target token, before `task_weights` scales it; empty means 1 each.
    relative_weights: tuple[float, ...] = ()

    @property
    def n_targets(self) -> int:
        return len(self.ids) - self.start

    @property
    def target_weight(self) -> float:
        """The sum of the target tokens' relative weights."""
        return sum(self.relative_weights) or self.n_targets


def encode(samples: Sequence[Sample], model: Trainable) -> list[Encoded]:
    """Tokenise every sample: its prompt as in inference, its target as it is decoded."""
    encoded = []
    for sample in samples:
        prompt = model.prompt_ids(sample.prompt)
        target: list[int] = []
        relative_weights: list[float] = []
        for part in sample.target:
            ids = model.target_ids(part)
            weight = FIXED_WEIGHT if part in FIXED else 1.0
            target += ids
            relative_weights += [weight] * len(ids)
        if not sample.unfinished:
            target.append(model.end_id)
            relative_weights.append(1.0)
        task = TASKS.index(sample.task)
        encoded.append(Encoded(task, (*prompt, *target), len(prompt), tuple(relative_weights)))
    return encoded


def task_weights(encoded: Sequence[Encoded], n_steps: int, epochs: int) -> list[float]:
    """Return, for each task, the factor of its targets' relative weights.

    Over a whole run, the weights of a task sum to the number of steps. The losses of the steps
    therefore average to L_RAG and L_CoV, each a mean over its own target tokens, regardless of how
    the tasks are mixed within a step.
    """
    weights = []
    for task in range(len(TASKS)):
        total = sum(sample.target_weight for sample in encoded if sample.task == task)
        weights.append(n_steps / (epochs * total) if total else 0.0)
    return weights


# Packing: samples become rows, and several rows become a step.

Pack = list[int]  # the indices, in all encoded samples, of the samples of one row


def plan_steps(encoded: Sequence[Encoded], settings: Training) -> list[list[Pack]]:
    """Return the packs of every step; every epoch is shuffled, then packed."""
    steps = []
    packs_per_step = max(1, settings.step_tokens // settings.pack_tokens)
    for epoch in range(settings.epochs):
        rng = random.Random(f"{settings.training_seed} {epoch}")
        order = rng.sample(range(len(encoded)), len(encoded))
        lengths = [len(encoded[i].ids) for i in order]
        packs = []
        for places in pack(lengths, settings.pack_tokens):
            packs.append([order[place] for place in places])
        for first in range(0, len(packs), packs_per_step):
            steps.append(packs[first : first + packs_per_step])
    return steps


def pack(lengths: Sequence[int], pack_tokens: int) -> list[list[int]]:
    """Return groups of places in `lengths`; each becomes a row of at most `pack_tokens` tokens.

    Each row is filled with the best subset of the next samples, so the given order is roughly kept.
    First-fit decreasing would sort samples by length, and thereby by task; but a row should contain
    both tasks, so that its loss represents both.
    """
    longest = max(lengths)
    if longest > pack_tokens:
        raise ValueError(
            f"pack_tokens is {pack_tokens}, but the longest sample has {longest} tokens; "
            f"raise pack_tokens to at least {longest}"
        )
    # How many samples to choose from: about two rows of samples of average length.
    window = max(16, 2 * pack_tokens * len(lengths) // sum(lengths))
    left = list(range(len(lengths)))
    packs = []
    while left:
        following = left[:window]
        places = fullest_subset([lengths[i] for i in following], pack_tokens)
        chosen = [following[place] for place in places]
        packs.append(chosen)
        taken = set(chosen)
        left = [i for i in left if i not in taken]
    return packs


def fullest_subset(lengths: Sequence[int], room: int) -> list[int]:
    """Return the indices of a subset, always with the first sample, that fills `room` best."""
    # reached[n] is a bit set: bit t is set if some subset of samples 0 to n, with the first, has t
    # tokens in total.
    reached = [1 << lengths[0]]
    within_room = (1 << (room + 1)) - 1
    for length in lengths[1:]:
        without = reached[-1]
        reached.append((without | without << length) & within_room)
    # Go back from the largest total: a sample was taken if the total was not reached before it.
    total = reached[-1].bit_length() - 1
    chosen = []
    for place in range(len(lengths) - 1, 0, -1):
        was_reached_before = reached[place - 1] >> total & 1
        if not was_reached_before:
            chosen.append(place)
            total -= lengths[place]
    return [0, *reversed(chosen)]


# Rows: the tensors of several samples.


def common_shape(packs: Sequence[Pack], encoded: Sequence[Encoded], pack_tokens: int) -> RowShape:
    """Return one shape that is large enough for every row of these packs.

    Sizes are rounded up, so that few different kernels are needed.
    """
    longest = 128 * math.ceil(max(len(sample.ids) for sample in encoded) / 128)
    n_sequences = []
    n_targets = []
    for chosen in packs:
        samples = [encoded[i] for i in chosen]
        padding = pack_tokens - sum(len(sample.ids) for sample in samples)
        n_padding_sequences = math.ceil(padding / longest)  # padding is split, like samples
        n_sequences.append(len(samples) + n_padding_sequences)
        n_targets.append(sum(sample.n_targets for sample in samples))
    targets = 64 * math.ceil(max(n_targets) / 64)
    return RowShape(pack_tokens, max(n_sequences), targets, longest)


@dataclass
class Row:
    """The samples of one row, as lists that `lay_out` turns into tensors."""

    # One value per token:
    ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    # Where sequences begin and end:
    ends: list[int] = field(default_factory=lambda: [0])
    # One value per target token:
    target_positions: list[int] = field(default_factory=list)  # in the row: where it is predicted
    labels: list[int] = field(default_factory=list)
    tasks: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)

    def add_sequence(self, ids: Sequence[int]) -> None:
        """Add tokens that attend only to each other."""
        self.ids += ids
        self.positions += range(len(ids))  # each sequence starts at 0, as without packing
        self.ends.append(len(self.ids))

    def add_sample(self, sample: Encoded, weight: float) -> None:
        """Add a sample with its targets; `weight` is its task's."""
        first = len(self.ids) + sample.start - 1  # a token is predicted at the position before it
        self.target_positions += range(first, first + sample.n_targets)
        self.labels += sample.ids[sample.start :]
        self.tasks += [sample.task] * sample.n_targets
        relative_weights = sample.relative_weights or (1.0,) * sample.n_targets
        self.weights += [weight * relative for relative in relative_weights]
        self.add_sequence(sample.ids)

    def pad(self, shape: RowShape) -> None:
        """Fill the row to a shape: with sequences without targets, and targets without weight."""
        while len(self.ids) < shape.tokens:
            n_tokens = min(shape.longest, shape.tokens - len(self.ids))
            self.add_sequence([0] * n_tokens)
        self.ends += [len(self.ids)] * (shape.sequences + 1 - len(self.ends))
        n_unused = shape.targets - len(self.labels)
        self.target_positions += [0] * n_unused
        self.labels += [0] * n_unused
        self.tasks += [-1] * n_unused
        self.weights += [0.0] * n_unused


def lay_out(
    samples: Sequence[Encoded],
    weights: Sequence[float],
    device: str,
    shape: RowShape | None = None,
) -> PackedRow:
    """Return samples as one row of tensors; `weights` are those of `task_weights`."""
    row = Row()
    for sample in samples:
        row.add_sample(sample, weights[sample.task])
    longest = max(len(sample.ids) for sample in samples)
    if shape:
        row.pad(shape)
        longest = shape.longest

    def tensor(values: list, dtype: torch.dtype = torch.long) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype).to(device, non_blocking=True)

    return {
        "input_ids": tensor([row.ids]),  # (1, tokens)
        "position_ids": tensor([row.positions]),  # (1, tokens)
        "sequence_ends": tensor(row.ends, torch.int32),  # (sequences + 1)
        "longest_sequence": longest,
        # The rest has the shape (targets).
        "target_positions": tensor(row.target_positions),
        "labels": tensor(row.labels),
        "tasks": tensor(row.tasks),
        "weights": tensor(row.weights, torch.float32),
    }
