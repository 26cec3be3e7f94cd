"""QLoRA training on both tasks (Section 2.3, Step 3 of the paper).

Several samples are packed into one row of tokens, in which no sample attends to another, so little
computation is spent on padding. A step is one update of the adapter, from a few rows. `learner`
computes the objective L_RAG + w · L_CoV (equations 2 to 4), where w is `verify_weight`. `train`
contains the training loop. The network and its adapter are a `Trainee` of the engine.
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

# Shows the progress of a loop and yields its items. Arguments: the items, what the loop does, the
# unit of an item, the total number of items, how many were done by an earlier run, and a function
# that describes the current state.
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
    """Train an adapter for `model` in the folder `out`; return a frame with one row per step.

    If `out` contains a checkpoint, training resumes from it.
    """
    encoded = encode(samples, model)
    steps = plan_steps(encoded, settings)  # each is a list of packs: the samples of its rows
    packs = list(chain.from_iterable(steps))
    shape = common_shape(packs, encoded, settings.pack_tokens)
    weights = task_weights(encoded, len(steps), settings.epochs)

    with model.prepare_training(settings, shape) as trainee:
        learn = learner(trainee, settings.verify_weight, model.device)
        learn = trainee.capture(learn)  # on CUDA, it may be recorded once and replayed as a graph
        log = trainee.restore(out, samples, model.fingerprint)  # an entry for each finished step
        row_shape = shape if trainee.one_shape else None  # None: rows are not padded

        def build_rows(number: int) -> list[PackedRow]:
            """Return the packed rows of a step; none after the last step."""
            step_packs = steps[number] if number < len(steps) else []
            packed_rows = []
            for indices in step_packs:
                row_samples = [encoded[i] for i in indices]
                packed_rows.append(lay_out(row_samples, weights, model.device, row_shape))
            return packed_rows

        def state() -> str:
            return f"loss {log[-1]['loss']:.3f}"

        n_done = len(log)
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
            entry = {"step": number + 1, **losses, "tokens": n_tokens, "seconds": seconds, "lr": lr}
            log.append(entry)
            if len(log) % SAVE_EVERY == 0 or len(log) == len(steps):
                trainee.save(out, log)
        trainee.save_adapter(out, model.settings.model)
    return pd.DataFrame(log)


def learner(trainee: Trainee, verify_weight: float, device: str) -> Learn:
    """Return the function that learns from one row; it returns a (2, tasks) tensor.

    The tensor contains each task's loss and the sum of its token weights. The losses of a step's
    rows are added, not averaged: the token weights from `task_weights` already make them means.
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
    """Make one update from a step's rows; return the sum of what `learn` returned: (2, tasks)."""
    losses_and_weights = []
    for row in rows:
        losses_and_weights.append(learn(row))
        trainee.accumulate()
    trainee.update(lr, CLIP)
    return torch.stack(losses_and_weights).sum(0)


def schedule(step: int, n_steps: int) -> float:
    """Return the factor of the learning rate: a linear rise to 1, then a cosine down to 0.1."""
    n_rising = max(1, round(WARMUP * n_steps))
    if step < n_rising:
        return (step + 1) / n_rising
    n_falling = max(1, n_steps - n_rising)
    return 0.55 + 0.45 * math.cos(math.pi * (step - n_rising) / n_falling)


def mean_losses(step: int, sums: torch.Tensor) -> dict[str, float]:
    """Return each task's mean loss in a step, and the unweighted sum of both, for display.

    `sums` is what `take_step` returned. A loss that is not finite is an error.
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

# Forced decoding inserts the fixed parts of the schema itself, so their tokens count little in the
# loss. They count at all because verdicts can also be decoded freely.
FIXED = {part for part in (*SCHEMA, *DIRECT) if isinstance(part, str)}
FIXED_WEIGHT = 0.1


@dataclass(frozen=True)
class Encoded:
    """The tokens of a sample; those from `start` on are its target, including end-of-text."""

    task: int  # index in TASKS
    ids: tuple[int, ...]
    start: int
    # The weight of each target token relative to the others of its task; if empty, all weigh 1.
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
    """Return a factor for each task; a token's weight is this factor times its relative weight.

    With these factors, a task's token weights sum to the number of steps over a whole run. A task's
    loss, averaged over all steps, is therefore the mean loss of its target tokens: L_RAG or L_CoV.
    This holds however the tasks are mixed within a step.
    """
    weights = []
    for task in range(len(TASKS)):
        total = sum(sample.target_weight for sample in encoded if sample.task == task)
        weights.append(n_steps / (epochs * total) if total else 0.0)
    return weights


# Packing: samples become rows, and several rows become a step.

Pack = list[int]  # the indices, in all encoded samples, of the samples of one row


def plan_steps(encoded: Sequence[Encoded], settings: Training) -> list[list[Pack]]:
    """Return the packs of every step; each epoch is shuffled and packed in its own way."""
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
    """Split samples of these lengths into rows of at most `pack_tokens` tokens.

    Each row is returned as a list of indices in `lengths`. It is filled with the best subset of the
    next samples, so the given order is roughly kept. First-fit decreasing, the usual method, would
    sort samples by length, and thereby by task; but a row should contain both tasks, so that its
    loss represents both.
    """
    longest = max(lengths)
    if longest > pack_tokens:
        raise ValueError(
            f"pack_tokens is {pack_tokens}, but the longest sample has {longest} tokens; "
            f"raise pack_tokens to at least {longest}"
        )
    # A row is chosen from the next samples: about as many as fill two rows, at least 16.
    window = max(16, 2 * pack_tokens * len(lengths) // sum(lengths))
    remaining = list(range(len(lengths)))
    packs = []
    while remaining:
        following = remaining[:window]
        places = fullest_subset([lengths[i] for i in following], pack_tokens)
        chosen = [following[place] for place in places]
        packs.append(chosen)
        taken = set(chosen)
        remaining = [i for i in remaining if i not in taken]
    return packs


def fullest_subset(lengths: Sequence[int], room: int) -> list[int]:
    """Return the indices of a subset, always with the first sample, that fills `room` best."""
    # Collect the totals that subsets can have. An integer serves as a set of totals: its bit t is 1
    # if t is in the set. reachable[n] is the set for subsets of samples 0 to n that include 0.
    reachable = [1 << lengths[0]]
    within_room = (1 << (room + 1)) - 1  # the set of 0 to room
    for length in lengths[1:]:
        without_sample = reachable[-1]
        with_sample = without_sample << length  # adds `length` to each total
        reachable.append((without_sample | with_sample) & within_room)
    # Find a subset with the largest total, from the last sample to the first. A sample is needed
    # only if the samples before it cannot reach the total.
    total = reachable[-1].bit_length() - 1
    chosen = []
    for place in range(len(lengths) - 1, 0, -1):
        is_reachable_without = (reachable[place - 1] >> total) & 1
        if not is_reachable_without:
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
    for indices in packs:
        samples = [encoded[i] for i in indices]
        n_padding = pack_tokens - sum(len(sample.ids) for sample in samples)
        n_padding_sequences = math.ceil(n_padding / longest)  # none is longer than `longest`
        n_sequences.append(len(samples) + n_padding_sequences)
        n_targets.append(sum(sample.n_targets for sample in samples))
    most_targets = 64 * math.ceil(max(n_targets) / 64)
    return RowShape(pack_tokens, max(n_sequences), most_targets, longest)


@dataclass
class Row:
    """The samples of one row, as lists that `lay_out` turns into tensors."""

    # One value per token:
    ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    # 0, then the end of each sequence, which is where the next one begins:
    ends: list[int] = field(default_factory=lambda: [0])
    # One value per target token:
    target_positions: list[int] = field(default_factory=list)  # where in the row it is predicted
    labels: list[int] = field(default_factory=list)  # its id
    tasks: list[int] = field(default_factory=list)  # its task's index in TASKS; -1 is padding
    weights: list[float] = field(default_factory=list)

    def add_sequence(self, ids: Sequence[int]) -> None:
        """Add tokens that attend only to each other."""
        self.ids += ids
        self.positions += range(len(ids))  # each sequence starts at 0, as without packing
        self.ends.append(len(self.ids))

    def add_sample(self, sample: Encoded, weight: float) -> None:
        """Add a sample with its targets; `weight` is the factor of its task in `task_weights`."""
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
        # The shape may have room for more sequences; these are empty.
        n_empty = shape.sequences + 1 - len(self.ends)
        self.ends += [len(self.ids)] * n_empty
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
