"""Training samples side by side in one row, none seeing another: encode, pack, lay out, attend.

A row needs no padding, so every token computed is a token learnt from. `loop` calls this.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import AttentionInterface

from covrag_lite.model.decoding import continue_ids
from covrag_lite.prompts import DIRECT, SCHEMA
from covrag_lite.records import Sample

TASKS = ("answer", "verify")  # L_RAG and L_CoV, the paper's equations 3 and 4
# Decoding appends what the schema fixes, so the loss need not be spent on it; a little is, for verdicts written freely.
FIXED, FIXED_SHARE = {part for part in (*SCHEMA, *DIRECT) if isinstance(part, str)}, 0.1
ATTENTION = "packed"  # the name under which transformers knows `attend`


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


def encode(samples: Sequence[Sample], model) -> list[Encoded]:
    """Tokenise every sample: its prompt as the model is prompted, its target as the model is decoded."""
    tokenizer, encoded = model.tokenizer, []
    for sample in samples:
        if sample.task not in TASKS:
            raise ValueError(f"sample {sample.id!r} has task {sample.task!r}; use one of {', '.join(TASKS)}")
        prompt = tokenizer(model.render(sample.prompt), add_special_tokens=not tokenizer.chat_template).input_ids
        parts = [(continue_ids(tokenizer, part), FIXED_SHARE if part in FIXED else 1.0) for part in sample.target]
        target, shares = [token for ids, _ in parts for token in ids], [share for ids, share in parts for _ in ids]
        encoded.append(Encoded(TASKS.index(sample.task), (*prompt, *target, model.end_id), len(prompt), (*shares, 1.0)))
    return encoded


def pack(lengths: Sequence[int], pack_tokens: int) -> list[list[int]]:
    """Indices of samples that share a row of at most `pack_tokens`, in the given order as far as rows get full.

    Each row is filled by the best subset among the next samples (subset sums as bits of a whole number). First-fit
    decreasing would leave more room and sort by length, and so by task: a row must hold both to stand for both losses.
    """
    if max(lengths) > pack_tokens:
        raise ValueError(f"a sample has {max(lengths)} tokens, but pack_tokens is {pack_tokens}; raise pack_tokens")
    left, packs, full = list(range(len(lengths))), [], (1 << pack_tokens + 1) - 1
    while left:
        window = left[: max(16, 2 * pack_tokens * len(lengths) // sum(lengths))]
        reached = [1 << lengths[window[0]]]  # bit n: some of the samples so far, the first among them, make n tokens
        for i in window[1:]:
            reached.append((reached[-1] | reached[-1] << lengths[i]) & full)
        total, chosen = reached[-1].bit_length() - 1, []
        for place in range(len(window) - 1, 0, -1):
            if not reached[place - 1] >> total & 1:
                chosen.append(window[place])
                total -= lengths[window[place]]
        packs.append([window[0], *reversed(chosen)])
        taken = set(packs[-1])
        left = [i for i in left if i not in taken]
    return packs


def shape_of(packs: Sequence[Sequence[int]], encoded: Sequence[Encoded], pack_tokens: int) -> Shape:
    """The one shape that every row of these packs fits in."""
    longest = -(-max(len(one.ids) for one in encoded) // 128) * 128
    tails = [-(-(pack_tokens - sum(len(encoded[i].ids) for i in chosen)) // longest) for chosen in packs]
    targets = max(sum(len(encoded[i].ids) - encoded[i].start for i in chosen) for chosen in packs)
    return Shape(
        pack_tokens, max(len(chosen) + tail for chosen, tail in zip(packs, tails)), -(-targets // 64) * 64, longest
    )


def lay_out(samples: Sequence[Encoded], weights: Sequence[float], device, shape: Shape | None = None) -> dict:
    """Samples as one row of tensors; `weights` are the loss weights of a target token of each task."""
    ids, positions, ends, where, labels, tasks, weight = [], [], [0], [], [], [], []
    for one in samples:
        where += range(len(ids) + one.start - 1, len(ids) + len(one.ids) - 1)  # a token is predicted one place earlier
        labels += one.ids[one.start :]
        tasks += [one.task] * (len(one.ids) - one.start)
        weight += [weights[one.task] * share for share in one.shares or [1.0] * (len(one.ids) - one.start)]
        ids += one.ids
        positions += range(len(one.ids))  # every sample starts at position 0, as it does alone
        ends.append(len(ids))
    longest = max(len(one.ids) for one in samples)
    if shape:
        longest, spare = shape.longest, shape.targets - len(labels)
        while len(ids) < shape.tokens:  # the tail is a few samples of its own, with no target
            tail = min(longest, shape.tokens - len(ids))
            ids += [0] * tail
            positions += range(tail)
            ends.append(len(ids))
        ends += [len(ids)] * (shape.sequences + 1 - len(ends))
        where, labels, tasks, weight = (
            where + [0] * spare,
            labels + [0] * spare,
            tasks + [-1] * spare,
            weight + [0.0] * spare,
        )
    tensor = lambda values, dtype=torch.long: torch.tensor(values, dtype=dtype).to(device, non_blocking=True)
    return {
        "input_ids": tensor([ids]),
        "position_ids": tensor([positions]),
        "ends": tensor(ends, torch.int32),
        "longest": longest,
        "where": tensor(where),
        "labels": tensor(labels),
        "tasks": tensor(tasks),
        "weights": tensor(weight, torch.float32),
    }


def attend(module, query, key, value, attention_mask, scaling=None, cu_seq_lens_q=None, max_length_q=None, **_):
    """Causal attention within each sample of a row: (1, heads, tokens, size) to (1, tokens, heads, size).

    transformers' own SDPA would build a mask of tokens x tokens and so lose the flash kernel. On CUDA PyTorch's flash
    kernel takes the samples' ends as they are; elsewhere each sample attends by itself. Both are exact.
    """
    query, key, value = (x.squeeze(0).transpose(0, 1) for x in (query, key, value))  # (tokens, heads, size)
    if query.is_cuda:
        flash = (
            torch.ops.aten._flash_attention_forward
        )  # the operator behind torch.nn.attention.varlen, whose signature still moves
        out = flash(
            query, key, value, cu_seq_lens_q, cu_seq_lens_q, max_length_q, max_length_q, 0.0, True, False, scale=scaling
        )[0]
        return out.unsqueeze(0), None
    return attend_each(query, key, value, cu_seq_lens_q, scaling).unsqueeze(0), None


def attend_each(query, key, value, ends, scaling):
    """Causal attention of each sample by itself: (tokens, heads, size) to the same."""
    heads_first = (x.split(ends.diff().tolist()) for x in (query, key, value))
    each = [
        torch.nn.functional.scaled_dot_product_attention(
            *(x.transpose(0, 1)[None] for x in one), is_causal=True, scale=scaling, enable_gqa=True
        )
        for one in zip(*heads_first)
    ]
    return torch.cat(each, 2)[0].transpose(0, 1)


# No mask function is registered beside it: transformers then builds no mask at all, which is what a row needs.
AttentionInterface.register(ATTENTION, attend)
