"""Training samples side by side in one row, none seeing another: encode, pack, lay out.

A row needs no padding, so every token computed is a token learnt from (the training of the paper's Section 2.3).
`loop` calls this; `attention` keeps the samples of a row apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from covrag_lite.engine.decoding import continue_ids
from covrag_lite.prompts import DIRECT, SCHEMA
from covrag_lite.records import Sample

if TYPE_CHECKING:
    from covrag_lite.engine.local import LanguageModel

TASKS = ("answer", "verify")  # L_RAG and L_CoV, the paper's equations 3 and 4
# Decoding appends what the schema fixes, so the loss need not be spent on it; a little is, for verdicts written freely.
FIXED = {part for part in (*SCHEMA, *DIRECT) if isinstance(part, str)}
FIXED_SHARE = 0.1


@dataclass(frozen=True)
class Encoded:
    """A sample's tokens; those from `start` on are its target, end-of-text included."""

    task: int  # its place in TASKS
    ids: tuple[int, ...]
    start: int
    shares: tuple[float, ...] = ()  # what each target token counts in the loss; empty: one each


@dataclass(frozen=True)
class Shape:
    """What rows are padded to where all must look alike (CUDA graphs, compiled layers)."""

    tokens: int
    sequences: int
    targets: int
    longest: int


def encode(samples: Sequence[Sample], model: "LanguageModel") -> list[Encoded]:
    """Every sample's tokens: its prompt as the model is prompted, its target as the model is decoded."""
    tokenizer = model.tokenizer
    encoded = []
    for sample in samples:
        if sample.task not in TASKS:
            raise ValueError(f"sample {sample.id!r} has task {sample.task!r}; use one of {', '.join(TASKS)}")
        prompt = tokenizer(model.render(sample.prompt), add_special_tokens=not tokenizer.chat_template).input_ids
        target = []
        shares = []
        for part in sample.target:
            ids = continue_ids(tokenizer, part)
            target += ids
            shares += [FIXED_SHARE if part in FIXED else 1.0] * len(ids)
        if not sample.unfinished:
            target.append(model.end_id)
            shares.append(1.0)
        encoded.append(Encoded(TASKS.index(sample.task), (*prompt, *target), len(prompt), tuple(shares)))
    return encoded


def pack(lengths: Sequence[int], pack_tokens: int) -> list[list[int]]:
    """Indices of samples that share a row of at most `pack_tokens`, in the given order as far as rows get full.

    Each row is filled by the best subset of the next samples. First-fit decreasing would leave more room and sort by
    length, and so by task: a row must hold both tasks to stand for both losses.
    """
    if max(lengths) > pack_tokens:
        raise ValueError(f"a sample has {max(lengths)} tokens, but pack_tokens is {pack_tokens}; raise pack_tokens")
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
    """The places of the samples, the first among them, that together come closest to filling the room."""
    # reached[n] is a whole number as a set: bit t is set if some of the samples up to n, with the first, make t tokens.
    reached = [1 << lengths[0]]
    within = (1 << room + 1) - 1
    for length in lengths[1:]:
        with_it = reached[-1] << length
        reached.append((reached[-1] | with_it) & within)
    # Going back from the largest total: a sample was taken if the total was not reached before it.
    total = reached[-1].bit_length() - 1
    chosen = []
    for place in range(len(lengths) - 1, 0, -1):
        reached_before = reached[place - 1] >> total & 1
        if not reached_before:
            chosen.append(place)
            total -= lengths[place]
    return [0, *reversed(chosen)]


def shape_of(packs: Sequence[Sequence[int]], encoded: Sequence[Encoded], pack_tokens: int) -> Shape:
    """The one shape that every row of these packs fits in."""
    longest = round_up(max(len(one.ids) for one in encoded), 128)
    sequences = []
    targets = []
    for chosen in packs:
        samples = [encoded[i] for i in chosen]
        spare = pack_tokens - sum(len(one.ids) for one in samples)
        sequences.append(len(samples) + round_up(spare, longest) // longest)  # the tail is split like samples are
        targets.append(sum(len(one.ids) - one.start for one in samples))
    return Shape(pack_tokens, max(sequences), round_up(max(targets), 64), longest)


def round_up(number: int, step: int) -> int:
    """The next multiple of `step` that is not below the number."""
    return -(-number // step) * step


def lay_out(
    samples: Sequence[Encoded], weights: Sequence[float], device: str, shape: Shape | None = None
) -> dict[str, torch.Tensor | int]:
    """Samples as one row of tensors; `weights` are the loss weights of a target token of each task."""
    ids, positions, ends = [], [], [0]  # of all tokens
    where, labels, tasks, token_weights = [], [], [], []  # of the target tokens
    for one in samples:
        n_targets = len(one.ids) - one.start
        first = len(ids) + one.start - 1  # a token is predicted one place earlier
        where += range(first, first + n_targets)
        labels += one.ids[one.start :]
        tasks += [one.task] * n_targets
        shares = one.shares or [1.0] * n_targets
        token_weights += [weights[one.task] * share for share in shares]
        ids += one.ids
        positions += range(len(one.ids))  # every sample starts at position 0, as it does alone
        ends.append(len(ids))
    longest = max(len(one.ids) for one in samples)
    if shape:
        longest = shape.longest
        pad_tokens(ids, positions, ends, shape)
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
        "where": tensor(where),  # (targets), as are the others
        "labels": tensor(labels),
        "tasks": tensor(tasks),
        "weights": tensor(token_weights, torch.float32),
    }


def pad_tokens(ids: list[int], positions: list[int], ends: list[int], shape: Shape) -> None:
    """Fill a row up to its shape, in place: the tail is a few samples of its own, without targets."""
    while len(ids) < shape.tokens:
        tail = min(shape.longest, shape.tokens - len(ids))
        ids += [0] * tail
        positions += range(tail)
        ends.append(len(ids))
    ends += [len(ids)] * (shape.sequences + 1 - len(ends))
